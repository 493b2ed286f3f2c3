//! The lines that a shim and its owner exchange, over the shim's standard input or, with
//! `on_exit: keep`, over its socket. The two may be of different versions: what one does not know
//! it leaves alone.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// The longest line: what a shim is told of its replica, and what it tells.
pub(super) const LINE_MAX: usize = 64 * 1024;

/// What the owner orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Remember that the replica was ready.
    Ready,
    /// Ask the process group to end.
    Terminate,
    /// End the process group.
    Kill,
}

impl Order {
    /// Returns the line of the order, without its end.
    pub(super) const fn line(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Terminate => "term",
            Self::Kill => "kill",
        }
    }

    /// Reads a line without its end; `None` for what this version does not know.
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line {
            "ready" => Some(Self::Ready),
            "term" => Some(Self::Terminate),
            "kill" => Some(Self::Kill),
            _ => None,
        }
    }
}

/// Which replica a shim has, so that a later owner finds out. The shim repeats it as it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) fleet: String,
    pub(super) index: u32,
    /// The replica's id within its fleet.
    pub(super) id: u64,
    pub(super) port: u16,
    /// Its further ports; a shim of an earlier version tells none.
    #[serde(default)]
    pub(super) ports: BTreeMap<String, u16>,
    /// Tells commands, with their environment, apart.
    pub(super) fingerprint: u64,
    /// When it was started. *Units*: milliseconds since 1970.
    pub(super) started_at: u64,
}

/// What a shim tells each owner first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) about: About,
    /// The command's process, which leads its group.
    pub(super) pid: i32,
    pub(super) stage: Stage,
}

/// How far a replica has come, as its owners said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    Starting,
    Ready,
    Stopping,
}

/// What the shim tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The one that hears this is its owner; with it come the ends of the command's two outputs.
    Hello(Hello),
    /// Another is its owner from here on, until that one is gone.
    Superseded,
    /// The command's process, which leads its group, has this id.
    Started(i32),
    /// The command ended, and nothing of it is left.
    Exited(Ending),
    /// The command's process could not be started.
    Failed(String),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Code(i32),
    Signal(i32),
}

impl Told {
    /// Reads a line without its end; `None` for what this version does not know.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "hello" => serde_json::from_str(rest).ok().map(Self::Hello),
            "superseded" => Some(Self::Superseded),
            "started" => rest.parse().ok().map(Self::Started),
            "code" => rest
                .parse()
                .ok()
                .map(|code| Self::Exited(Ending::Code(code))),
            "signal" => rest
                .parse()
                .ok()
                .map(|signal| Self::Exited(Ending::Signal(signal))),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(hello) => {
                let text = serde_json::to_string(hello).map_err(|_| fmt::Error)?;
                write!(f, "hello {text}")
            }
            Self::Superseded => f.write_str("superseded"),
            Self::Started(pid) => write!(f, "started {pid}"),
            Self::Exited(Ending::Code(code)) => write!(f, "code {code}"),
            Self::Exited(Ending::Signal(signal)) => write!(f, "signal {signal}"),
            Self::Failed(why) => write!(f, "failed {}", why.replace('\n', " ")),
        }
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(-1),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(9) => write!(f, "killed by signal 9 (SIGKILL)"),
            Self::Signal(15) => write!(f, "ended by signal 15 (SIGTERM)"),
            Self::Signal(11) => write!(f, "crashed with signal 11 (SIGSEGV)"),
            Self::Signal(6) => write!(f, "aborted with signal 6 (SIGABRT)"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads() {
        for order in [Order::Ready, Order::Terminate, Order::Kill] {
            assert_eq!(Order::parse(order.line()), Some(order));
        }
        let about = About {
            fleet: "a b".to_owned(),
            index: 1,
            id: 7,
            port: 20_001,
            ports: BTreeMap::from([("metrics".to_owned(), 20_002)]),
            fingerprint: u64::MAX,
            started_at: 5,
        };
        let stage = Stage::Ready;
        for told in [
            Told::Hello(Hello {
                about,
                pid: 4711,
                stage,
            }),
            Told::Superseded,
            Told::Started(4711),
            Told::Exited(Ending::Code(3)),
            Told::Exited(Ending::Signal(9)),
            Told::Failed("no more processes".to_owned()),
        ] {
            assert_eq!(Told::parse(&told.to_string()), Some(told));
        }
    }

    #[test]
    fn unknown_lines_are_no_orders() {
        for line in [
            "",
            "term ",
            "TERM",
            "started",
            "started x",
            "code",
            "gone 3",
        ] {
            assert_eq!(Order::parse(line), None, "{line}");
            assert_eq!(Told::parse(line), None, "{line}");
        }
    }
}
