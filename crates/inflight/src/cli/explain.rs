//! `inflight explain`: why a fleet has its size, told to a person.
//!
//! Every number comes from the instance; nothing is computed here that decides.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;

use super::client::{self, AdminAddress, AskError};
use super::status::{crashed, shown};
use crate::api::wire;
use crate::fleet::DECISIONS_KEPT;

/// What the numbers are that policies look at.
const MEANINGS: [(&str, &str); 16] = [
    (
        "arrivals_per_second",
        "requests that arrive each second, over 30 s",
    ),
    (
        "service_seconds",
        "how long a replica works on one, over 300 s",
    ),
    ("in_flight", "begun and not ended, mean over the window"),
    ("executing", "being worked on, mean over the window"),
    ("queued", "waiting, mean over the window"),
    ("in_flight_max", "the most in flight at once within 300 s"),
    (
        "offered_slots",
        "slots the load would keep busy if nobody waited",
    ),
    ("margin_slots", "slots to spare, so that few wait"),
    ("backlog_slots", "slots for those that wait already"),
    ("want_slots", "slots altogether"),
    ("replicas", "ready replicas, mean over the window"),
    ("required", "replicas at which nobody would wait"),
    ("needed_stable", "replicas needed, over the stable window"),
    ("needed_burst", "replicas needed, over the burst window"),
    ("ready", "replicas that take requests"),
    ("metric", "the answer of the configured query"),
];

/// Says why a fleet of a running instance has its size, and what would change it.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The fleet's name.
    #[arg(value_name = "FLEET")]
    pub fleet: String,
    /// Where the instance's admin API listens (`admin.listen` of its configuration).
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9900")]
    pub admin: AdminAddress,
    /// How many decisions are shown, 1 to 200.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = decisions_range)]
    pub last: usize,
}

fn decisions_range(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=DECISIONS_KEPT).contains(count))
        .ok_or_else(|| format!("allowed is a whole number, 1 to {DECISIONS_KEPT}"))
}

/// Why nothing can be explained.
#[derive(Debug, Error)]
pub enum ExplainError {
    /// The instance could not be asked, or knows no such fleet.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It answered something else.
    #[error("{address} answered what is no fleet: {cause}")]
    NotAFleet {
        /// Whom we asked.
        address: AdminAddress,
        /// Where the answer differs.
        cause: serde_json::Error,
    },
    /// The system gave us no runtime.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

/// Prints the explanation and returns the exit code: 0 done, 1 failed.
#[must_use]
pub fn run(args: &ExplainArgs) -> ExitCode {
    let explained = client::runtime()
        .map_err(ExplainError::Runtime)
        .and_then(|runtime| runtime.block_on(explain(args)));
    let written = match explained {
        Ok(text) => io::stdout()
            .write_all(text.as_bytes())
            .map(|()| ExitCode::SUCCESS),
        Err(error) => writeln!(io::stderr(), "error: {error}").map(|()| ExitCode::FAILURE),
    };
    written.unwrap_or(ExitCode::FAILURE)
}

/// Asks the instance and returns what is to be printed.
///
/// # Errors
/// Nobody answers, or not with this fleet.
pub async fn explain(args: &ExplainArgs) -> Result<String, ExplainError> {
    let name = &args.fleet;
    let not_a_fleet = |cause| ExplainError::NotAFleet {
        address: args.admin.clone(),
        cause,
    };
    let path = format!("/api/v1/fleets/{}", escaped(name));
    let fleet = client::get(&args.admin, &path).await?;
    let fleet: wire::Fleet = serde_json::from_str(&fleet).map_err(not_a_fleet)?;
    let path = format!("{path}/decisions?limit={}", args.last);
    let decisions = client::get(&args.admin, &path).await?;
    let decisions: wire::Decisions = serde_json::from_str(&decisions).map_err(not_a_fleet)?;
    Ok(render(&fleet, &decisions.decisions))
}

/// Writes a name as a path has it.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.bytes().fold(String::new(), |mut text, byte| {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a text does not fail.
            write!(text, "%{byte:02X}").ok();
        }
        text
    })
}

fn render(fleet: &wire::Fleet, decisions: &[wire::Decision]) -> String {
    let replicas = &fleet.replicas;
    let mut out = format!(
        "{}: {} ready, {} starting, {} draining, {} unhealthy; {} to {} allowed\n",
        fleet.name,
        shown(replicas.ready, |ready| ready.to_string()),
        replicas.starting,
        replicas.draining,
        replicas.unhealthy,
        replicas.min,
        replicas.max
    );
    if let Some(gate) = fleet.admission {
        out += &admission(gate);
    }
    if let Some(crash) = &fleet.last_crash {
        out += &format!("{}\n", crashed(crash));
    }
    for (file, why) in &fleet.unwritten {
        out += &format!("{file} cannot be written: {why}\n");
    }
    let Some((last, before)) = decisions.split_first() else {
        return out + "\nno decision was made\n";
    };
    out += &format!(
        "\ndecided at {}: {} (before: {})\n",
        last.at,
        counted(last.desired),
        last.current
    );
    out += &format!("\n1. policy {} looked at\n", fleet.policy);
    out += &inputs(last);
    out += &format!("\n2. and found\n   {}\n", last.finding);
    match last.wanted {
        Some(wanted) => out += &format!("   it wished for {}\n", counted(wanted)),
        None => out += "   it wished for nothing\n",
    }
    out += "\n3. then, in this order\n";
    if last.limits.is_empty() {
        out += "   nothing changed its answer\n";
    }
    for limit in &last.limits {
        out += &format!("   {limit}\n");
    }
    out += "\n4. what would change it\n";
    out += &changes(fleet, last);
    if !before.is_empty() {
        out += "\nbefore that\n";
    }
    for decision in before {
        let size = if decision.current == decision.desired {
            format!("stays at {}", decision.desired)
        } else {
            format!("{} to {}", decision.current, decision.desired)
        };
        out += &format!("   {} {size}: {}\n", decision.at, decision.reason);
    }
    out
}

/// What the gate before new sessions does, where that is worth a line.
fn admission(gate: wire::Admission) -> String {
    let mut told = Vec::new();
    if gate.load_unknown {
        told.push("the load is unknown: gate.ext_authz.on_failure says who passes".to_owned());
    } else if !gate.open {
        told.push("new sessions are refused".to_owned());
    }
    if gate.held > 0 {
        told.push(format!("{} first calls wait for a replica", gate.held));
    }
    if told.is_empty() {
        return String::new();
    }
    format!("gate: {}\n", told.join("; "))
}

/// The numbers in the order of their meanings, and behind those any that have none.
fn inputs(decision: &wire::Decision) -> String {
    let order = |name: &str| MEANINGS.iter().position(|(known, _)| *known == name);
    let mut inputs: Vec<_> = decision.inputs.iter().collect();
    inputs.sort_by_key(|(name, _)| order(name).unwrap_or(MEANINGS.len()));
    inputs
        .into_iter()
        .map(|(name, value)| {
            let value = value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.3}"));
            let meaning = order(name).map_or("", |place| MEANINGS[place].1);
            format!("   {name:<20} {value:>12}  {meaning}")
                .trim_end()
                .to_owned()
                + "\n"
        })
        .collect()
}

fn changes(fleet: &wire::Fleet, last: &wire::Decision) -> String {
    if let Some(hold) = &fleet.hold {
        return format!(
            "   a person: it is held by hand ({}) until {}\n",
            hold.kind, hold.until
        );
    }
    let Some(found) = &last.thresholds else {
        return "   unknown, as an input is\n".to_owned();
    };
    let unit = &found.unit;
    let mut out = String::new();
    if last.desired >= fleet.replicas.max {
        out += &format!("   up: nothing, {} is the maximum\n", last.desired);
    } else {
        let (next, passes) = (last.desired.saturating_add(1), found.grows_above);
        let missing = passes - found.up;
        out += &format!(
            "   up to {next} at once: when {:.2} {unit} pass {passes:.2}",
            found.up
        );
        out += &if missing >= 0.0 {
            format!(", {missing:.2} more\n")
        } else {
            ", which they do: one of the above keeps it\n".to_owned()
        };
    }
    match found
        .shrinks_at
        .filter(|_| last.desired > fleet.replicas.min)
    {
        Some(_) if last.desired == 1 => {
            out += "   down to 0: once nothing was in flight for the idle grace\n";
        }
        Some(enough) => {
            let fewer = last.desired.saturating_sub(1);
            out += &format!(
                "   down to {fewer} or less: when {:.2} {unit} are at most {enough:.2}, and were for \
                 the whole down window\n",
                found.down
            );
        }
        None => out += &format!("   down: nothing, {} is the minimum\n", last.desired),
    }
    out
}

fn counted(replicas: u32) -> String {
    match replicas {
        1 => "1 replica".to_owned(),
        count => format!("{count} replicas"),
    }
}
