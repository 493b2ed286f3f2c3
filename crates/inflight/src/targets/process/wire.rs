//! The lines that a shim and its owner exchange over the shim's standard input.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// What the owner orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Ask the process group to end.
    Terminate,
    /// End the process group.
    Kill,
}

impl Order {
    /// Returns the line of the order, its end included.
    pub(super) const fn line(self) -> &'static str {
        match self {
            Self::Terminate => "term\n",
            Self::Kill => "kill\n",
        }
    }

    /// Reads a line without its end; `None` for what this version does not know.
    pub(super) fn parse(line: &str) -> Option<Self> {
        match line {
            "term" => Some(Self::Terminate),
            "kill" => Some(Self::Kill),
            _ => None,
        }
    }
}

/// What the shim tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
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
        let (word, rest) = line.split_once(' ')?;
        match word {
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
        for order in [Order::Terminate, Order::Kill] {
            assert_eq!(Order::parse(order.line().trim_end()), Some(order));
        }
        for told in [
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
