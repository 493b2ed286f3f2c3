//! What changes the fleet: how replicas are started, and what in a command looks like a slip.

use super::publish;
use crate::config::error::{Located, Problems};
use crate::config::raw;
use crate::config::setting::{Advise, Or};
use crate::config::suggest::nearest;
use crate::config::{
    GatewaySettings, Probe, ProcessSettings, PublishSettings, Surroundings, Target,
};

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
            let process = match (&keys.process, &keys.keda) {
                (Some(process), None) => &process.value,
                (None, Some(keda)) => {
                    let listen = keda.value.listen.as_ref()?.value;
                    return Some(Target::Keda { listen });
                }
                (Some(_), Some(keda)) => {
                    let what = "does not go with `process`: each would undo what the other did";
                    problems.refuse(&keda.place, what, "either `process` or `keda`");
                    return None;
                }
                (None, None) => {
                    if !problems.is_reported(&raw.place.key) {
                        problems.refuse(&raw.place, "changes nothing", "`process` or `keda`");
                    }
                    return None;
                }
            };
            let publish =
                publish::resolve_publish(process, &raw.place, fleet, surroundings, problems);
            let drain = publish::resolve_drain(process, fleet, gateway, problems);
            let mut process = resolve_process(process, fleet, surroundings, problems)?;
            process.publish = publish?;
            process.drain_timeout = drain?;
            Some(Target::Process(Box::new(process)))
        }
    }
}

fn resolve_process(
    raw: &raw::Process,
    fleet: &raw::Fleet,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Option<ProcessSettings> {
    if let Some(command) = &raw.command {
        let own_path = raw.env.as_ref().and_then(|env| env.value.get("PATH"));
        surroundings.check_program(command, own_path.map(String::as_str), problems);
        check_placeholders(command, raw, problems);
    }
    if let Some(ports) = &raw.ports {
        check_ports(ports, raw, fleet, problems);
    }
    let ready = raw.ready.as_ref().map(|ready| &ready.value);
    let probe = ready.and_then(|ready| {
        let (path, grpc, tcp) = (&ready.path, &ready.grpc, &ready.tcp);
        resolve_probe(path.as_ref(), grpc.as_ref(), tcp.as_ref(), problems)
    });
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
        ports: raw.ports.as_ref()?.value.clone(),
        ready: probe?.unwrap_or(Probe::Tcp),
        ready_every: every.value,
        ready_timeout: timeout.value,
        stop_grace: raw.stop_grace.as_ref()?.value,
        keeps: raw.on_exit.as_ref()?.value.0 == raw::OnExit::Keep,
        orphan_grace: raw.orphan_grace.as_ref()?.value,
        // Who else knows the replicas is judged apart.
        drain_timeout: publish::DRAIN,
        publish: PublishSettings::default(),
    })
}

/// Returns how to ask, `Some(None)` when the file does not say.
pub(super) fn resolve_probe(
    path: Option<&Located<String>>,
    grpc: Option<&Located<String>>,
    tcp: Option<&Located<bool>>,
    problems: &mut Problems,
) -> Option<Option<Probe>> {
    let given = [
        path.map(|path| &path.place),
        grpc.map(|grpc| &grpc.place),
        tcp.filter(|tcp| tcp.value).map(|tcp| &tcp.place),
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
    if let Some(tcp) = tcp.filter(|tcp| !tcp.value)
        && path.is_none()
        && grpc.is_none()
    {
        problems.refuse(
            &tcp.place,
            "false leaves no way to ask",
            "`path` or `grpc` instead",
        );
        return None;
    }
    Some(match (path, grpc, tcp) {
        (Some(path), _, _) => Some(Probe::Http {
            path: path.value.clone(),
        }),
        (None, Some(grpc), _) => Some(Probe::Grpc {
            service: grpc.value.clone(),
        }),
        (None, None, Some(_)) => Some(Probe::Tcp),
        (None, None, None) => None,
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
    let ports = raw.ports.iter().flat_map(|ports| &ports.value);
    let of_ports: Vec<String> = ports.map(|name| format!("port.{name}")).collect();
    let known = || (PLACEHOLDERS.into_iter()).chain(of_ports.iter().map(String::as_str));
    for text in arguments().chain(values) {
        for word in braced_words(text).filter(|word| !known().any(|known| known == *word)) {
            let what = match (nearest(word, known()), word.strip_prefix("port.")) {
                (Some(known), _) => {
                    format!("`{{{word}}}` stays as it is; did you mean `{{{known}}}`?")
                }
                (None, Some(name)) => {
                    format!("`{{{word}}}` stays as it is: no port in `ports` is called {name:?}")
                }
                (None, None) => continue,
            };
            problems.warn(&command.place, what);
        }
    }
}

/// Reports names of ports that are there twice, and warns of those that nobody uses.
fn check_ports(
    ports: &Located<Vec<String>>,
    raw: &raw::Process,
    fleet: &raw::Fleet,
    problems: &mut Problems,
) {
    let in_command = raw.command.iter().flat_map(|command| &command.value);
    let in_env = raw.env.iter().flat_map(|env| env.value.values());
    let texts: Vec<&String> = in_command.chain(in_env).collect();
    for (at, name) in ports.value.iter().enumerate() {
        if ports.value[..at].contains(name) {
            problems.error(&ports.place, format!("{name:?} is there twice"));
        } else if !texts
            .iter()
            .any(|text| text.contains(&format!("{{port.{name}}}")))
        {
            let what = if publish::is_told_of(raw, fleet, name) {
                format!("nothing listens there: `{{port.{name}}}` is nowhere in the command")
            } else {
                format!("{name:?} is not used: `{{port.{name}}}` is nowhere in the command")
            };
            problems.warn(&ports.place, what);
        }
    }
}

/// Returns the plain words that stand in braces.
fn braced_words(text: &str) -> impl Iterator<Item = &str> {
    let opened = text.split('{').skip(1);
    opened
        .filter_map(|rest| rest.split_once('}').map(|(word, _)| word))
        .filter(|word| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
            !word.is_empty() && word.chars().all(is_plain)
        })
}
