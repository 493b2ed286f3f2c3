//! What changes the fleet: how replicas are started, and what in a command looks like a slip.

use crate::config::error::{Located, Problems};
use crate::config::raw;
use crate::config::setting::{Advise, Or};
use crate::config::suggest::nearest;
use crate::config::{GatewaySettings, ProcessSettings, ReadyProbe, Surroundings, Target};

/// What stands for something in a command.
const PLACEHOLDERS: [&str; 2] = ["port", "replica"];

pub(super) fn resolve_target(
    raw: &Located<Or<Advise, raw::TargetKeys>>,
    fleet: &raw::Fleet,
    gateway: Option<&GatewaySettings>,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Option<Target> {
    match &raw.value {
        Or::Word(Advise) => Some(Target::Advise),
        Or::Value(keys) => {
            let source = &fleet.source.as_ref()?.value;
            if source.gateway.is_none() && source.inflight.is_some() {
                problems.refuse(
                    &raw.place,
                    "processes need a `gateway` here: without one nobody knows when a replica that \
                     is to go has no request left",
                    "`advise`, or a `gateway` beside `inflight`",
                );
            }
            let process = &keys.process.as_ref()?.value;
            resolve_process(process, gateway, surroundings, problems).map(Target::Process)
        }
    }
}

fn resolve_process(
    raw: &raw::Process,
    gateway: Option<&GatewaySettings>,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Option<ProcessSettings> {
    if let Some(command) = &raw.command {
        let own_path = raw.env.as_ref().and_then(|env| env.value.get("PATH"));
        surroundings.check_program(command, own_path.map(String::as_str), problems);
        check_placeholders(command, raw, problems);
    }
    let ready = raw.ready.as_ref().map(|ready| &ready.value);
    let probe = ready.and_then(|ready| resolve_probe(ready, problems));
    let ready = ready?;
    let (every, timeout) = (ready.every.as_ref()?, ready.timeout.as_ref()?);
    if every.value > timeout.value {
        problems.error(
            &every.place,
            "is longer than `timeout`: a replica would never be asked",
        );
    }
    Some(ProcessSettings {
        command: raw.command.clone()?,
        env: raw.env.as_ref()?.value.clone(),
        ready: probe?,
        ready_every: every.value,
        ready_timeout: timeout.value,
        stop_grace: raw.stop_grace.as_ref()?.value,
        drain_timeout: gateway?.timeouts.drain,
    })
}

fn resolve_probe(raw: &raw::Ready, problems: &mut Problems) -> Option<ReadyProbe> {
    let tcp = raw.tcp.as_ref().filter(|tcp| tcp.value);
    let given = [
        raw.path.as_ref().map(|path| &path.place),
        raw.grpc.as_ref().map(|grpc| &grpc.place),
        tcp.map(|tcp| &tcp.place),
    ];
    let mut given = given.into_iter().flatten();
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        let what = format!(
            "does not go with {}: a replica is asked in one way",
            first.key
        );
        problems.refuse(second, what, "one of `path`, `grpc` and `tcp`");
        return None;
    }
    if let Some(tcp) = raw.tcp.as_ref().filter(|tcp| !tcp.value)
        && raw.path.is_none()
        && raw.grpc.is_none()
    {
        problems.refuse(
            &tcp.place,
            "false leaves no way to ask",
            "`path` or `grpc` instead",
        );
        return None;
    }
    Some(match (&raw.path, &raw.grpc) {
        (Some(path), _) => ReadyProbe::Http {
            path: path.value.clone(),
        },
        (None, Some(grpc)) => ReadyProbe::Grpc {
            service: grpc.value.clone(),
        },
        (None, None) => ReadyProbe::Tcp,
    })
}

/// Warns of a command that does not get its port, and of braces that look like a placeholder.
fn check_placeholders(command: &Located<Vec<String>>, raw: &raw::Process, problems: &mut Problems) {
    let env = raw.env.iter().flat_map(|env| &env.value);
    let arguments = || command.value.iter();
    let in_env = env.clone().any(|(_, value)| value.contains("{port}"));
    // A program may read PORT itself, and a shell line names it.
    let named = |text: &String| text.contains("{port}") || text.contains("PORT");
    if !in_env && !arguments().any(named) {
        problems.warn(
            &command.place,
            "`{port}` is nowhere in the command: the program must listen on the port in the \
             environment variable PORT",
        );
    }
    let values = env.map(|(_, value)| value);
    for text in arguments().chain(values) {
        for word in braced_words(text).filter(|word| !PLACEHOLDERS.contains(word)) {
            let what = match nearest(word, PLACEHOLDERS.into_iter()) {
                Some(known) => format!("`{{{word}}}` stays as it is; did you mean `{{{known}}}`?"),
                None => continue,
            };
            problems.warn(&command.place, what);
        }
    }
}

/// Returns the plain words that stand in braces.
fn braced_words(text: &str) -> impl Iterator<Item = &str> {
    let opened = text.split('{').skip(1);
    opened
        .filter_map(|rest| rest.split_once('}').map(|(word, _)| word))
        .filter(|word| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
}
