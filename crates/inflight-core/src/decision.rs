//! What the scaler decided, from what, and why.
//!
//! Nothing is formatted while deciding: a reason is a value that prints when somebody reads it.

use std::fmt;
use std::time::Duration;

use crate::ids::ReplicaId;
use crate::scaling::Finding;
use crate::time::Timestamp;
use crate::units::Replicas;

/// How many replicas a fleet shall have, with the inputs and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When it was made.
    pub at: Timestamp,
    /// The size asked for before.
    pub current: Replicas,
    /// What the policy wished for, before any limit; unknown input wishes for nothing.
    pub wanted: Option<Replicas>,
    /// The size granted.
    pub desired: Replicas,
    /// The replicas that shall go, first to go first. Draining ones are not named again.
    pub drain: Vec<ReplicaId>,
    /// Whether the fleet cannot grow: `desired` is the maximum, a person holds the size, or nothing
    /// became ready for twice the start delay although more was asked for.
    pub at_max: bool,
    /// What the policy looked at, in its own order.
    pub inputs: Vec<Input>,
    /// Why; prints as one sentence for an operator.
    pub reason: Reason,
}

/// One number that a decision was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Its name, a metric-like word such as `offered_slots`.
    pub name: &'static str,
    /// Its value; `None` is unknown.
    pub value: Option<f64>,
}

/// Why a size was decided: what the policy found, and what bound it afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// What the policy found.
    pub finding: Finding,
    /// The steps that changed the policy's answer, in their order.
    pub limits: Vec<Limit>,
}

/// A step around the policy that changed its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// An input is unknown, so the size is kept.
    UnknownHold {
        /// For how long it was unknown.
        since: Duration,
    },
    /// An input was unknown for longer than the hold, so the configured size is the least.
    UnknownFallback {
        /// The configured size.
        fallback: Replicas,
    },
    /// The load is so close to what the size is for that the size is kept.
    Tolerance {
        /// Load / what the size is for.
        ratio: f64,
    },
    /// One term of the formula is missing; what is left of it may grow the fleet only.
    Degraded,
    /// A part of the load cannot be seen; what is seen may grow the fleet only.
    Partial,
    /// Nothing was in flight for the grace period, so that nothing is needed.
    Idle {
        /// The grace period.
        grace: Duration,
    },
    /// A larger size was needed so shortly ago that the fleet does not shrink below it.
    DownWindow {
        /// The window.
        window: Duration,
        /// The largest size needed within it.
        largest: Replicas,
    },
    /// The measurements do not reach back over a whole window, so the size that was found at the
    /// start is the least.
    Restart {
        /// The size found at the start.
        found: Replicas,
    },
    /// The fleet may not grow faster.
    StepUp,
    /// The fleet may not shrink faster.
    StepDown,
    /// A person paused the fleet, so the size is kept.
    Paused {
        /// For how long still.
        left: Duration,
    },
    /// A person set the size.
    Sized {
        /// To this.
        size: Replicas,
        /// For how long still.
        left: Duration,
    },
    /// Replicas that were ready and are unhealthy are replaced.
    Lost {
        /// How many.
        count: Replicas,
    },
    /// The configured minimum.
    Min,
    /// The configured maximum.
    Max,
    /// Requests are in flight, or were within the grace period, so that one replica is the least.
    LastOne,
    /// Somebody at the admission gate asks for a replica, so that one is the least.
    Called,
    /// The fleet was at zero and a request came.
    Woken,
}

impl Decision {
    /// Tells whether the size changes.
    #[must_use]
    pub fn changes_size(&self) -> bool {
        self.desired != self.current
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes_size() {
            write!(
                f,
                "{} to {} replicas: {}",
                self.current, self.desired, self.reason
            )
        } else {
            write!(f, "stays at {}: {}", Counted(self.desired), self.reason)
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.finding)?;
        for limit in &self.limits {
            write!(f, "; {limit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownHold { since } => {
                write!(f, "the size is kept, {:.0} s so far", since.as_secs_f64())
            }
            Self::UnknownFallback { fallback } => {
                write!(
                    f,
                    "at least the fallback of {fallback}, as this lasts too long"
                )
            }
            Self::Tolerance { ratio } => {
                write!(
                    f,
                    "kept, as {ratio:.2} of what the size is for is within the tolerance"
                )
            }
            Self::Degraded => f.write_str("not shrunk on that, as a term is missing"),
            Self::Partial => f.write_str("not shrunk on that, as a part of the load is not seen"),
            Self::Idle { grace } => {
                write!(
                    f,
                    "none is needed, as nothing was in flight for {}",
                    Seconds(*grace)
                )
            }
            Self::DownWindow { window, largest } => {
                write!(
                    f,
                    "not shrunk yet, as {largest} were needed within {}",
                    Seconds(*window)
                )
            }
            Self::Restart { found } => {
                write!(
                    f,
                    "at least the {found} found at the start until a whole window is known"
                )
            }
            Self::StepUp => f.write_str("grown only as fast as the step limit allows"),
            Self::StepDown => f.write_str("shrunk only as fast as the step limit allows"),
            Self::Paused { left } => {
                write!(f, "paused by hand, {:.0} s left", left.as_secs_f64())
            }
            Self::Sized { size, left } => {
                write!(f, "set to {size} by hand, {:.0} s left", left.as_secs_f64())
            }
            Self::Lost { count } => write!(f, "{count} more for the unhealthy"),
            Self::Min => f.write_str("raised to the minimum"),
            Self::Max => f.write_str("cut to the maximum"),
            Self::LastOne => f.write_str("the last one stays until the fleet is idle"),
            Self::Called => f.write_str("the last one stays for a call at the gate"),
            Self::Woken => f.write_str("a request woke the fleet"),
        }
    }
}

/// Prints a span in seconds, without a fraction where there is none.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

/// Prints a number of replicas with its noun.
pub(crate) struct Counted(pub(crate) Replicas);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0 == Replicas::ONE {
            "replica"
        } else {
            "replicas"
        };
        write!(f, "{} {noun}", self.0)
    }
}
