//! What passes between a policy and the steps around it.

use std::fmt;
use std::time::Duration;

use super::concurrency::ConcurrencyFinding;
use super::metric::{MetricFinding, MetricKind};
use super::occupancy::OccupancyFinding;
use super::staffing::StaffingFinding;
use super::staffing::parts::OVERFULL;
use crate::decision::Input;
use crate::load::{History, Unknown};
use crate::time::Timestamp;
use crate::units::{Replicas, Slots};

/// What a policy may look at.
pub(super) struct Situation<'a> {
    pub(super) now: Timestamp,
    pub(super) history: &'a History,
    /// Slots per replica, for each model.
    pub(super) slots: &'a [Slots],
    /// The last answer, before the lost were added.
    pub(super) current: Replicas,
    pub(super) start_delay: Duration,
}

/// What a policy says, with what it looked at.
pub(super) struct Assessment {
    pub(super) inputs: Vec<Input>,
    pub(super) finding: Finding,
    /// `None` when an input is unknown.
    pub(super) sizing: Option<Sizing>,
}

/// How many replicas a policy wishes for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizing {
    /// The size that is right.
    pub(super) want: Replicas,
    /// The size below which the fleet grows at once.
    pub(super) trigger: Replicas,
    /// The size down to which the fleet shrinks.
    pub(super) down: Replicas,
    /// What is needed for longer than a queue takes to clear, which the down window remembers.
    pub(super) lasting: Replicas,
    /// Load / what the present size is for; `None` where nothing can be said, as without a size.
    pub(super) ratio: Option<f64>,
    /// Whether all terms are there; the answer may grow the fleet only, otherwise.
    pub(super) complete: bool,
}

/// What a policy found, with its numbers; prints as the first part of a reason.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// An input is unknown.
    Unknown(Unknown),
    /// By the `staffing` policy.
    Staffing(StaffingFinding),
    /// By the `occupancy` policy.
    Occupancy(OccupancyFinding),
    /// By the `concurrency` policy.
    Concurrency(ConcurrencyFinding),
    /// By the `metric` policy.
    Metric(MetricFinding),
}

/// What a size hangs on: a number that each replica is for so much of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// What is compared.
    pub unit: &'static str,
    /// The fleet grows at once when this passes what its size is for.
    pub up: f64,
    /// The fleet may shrink to a size that is for this.
    pub down: f64,
    each: f64,
    overfull: f64,
}

impl Thresholds {
    /// Returns the largest number that a size is for.
    #[must_use]
    pub fn most_for(&self, size: Replicas) -> f64 {
        self.each * (size.as_f64() + self.overfull)
    }
}

impl Finding {
    /// Returns what the size hangs on, of the model that needs most; `None` where an input is
    /// unknown or the number says how far off the size is, not what it is for.
    #[must_use]
    pub fn thresholds(&self) -> Option<Thresholds> {
        let flat = |unit, value, each| Thresholds {
            unit,
            up: value,
            down: value,
            each,
            overfull: 0.0,
        };
        match self {
            Self::Unknown(_) => None,
            Self::Staffing(StaffingFinding { staffed, slots, .. }) => {
                (*slots > 0.0).then_some(Thresholds {
                    unit: "slots",
                    up: staffed.trigger,
                    down: staffed.down.max(staffed.want),
                    each: *slots,
                    overfull: OVERFULL,
                })
            }
            Self::Occupancy(found) => {
                if let Some((used, target)) = found.filled_most() {
                    return Some(flat("of memory in use, in full replicas", used, target));
                }
                let unit = "replicas at which nobody would wait";
                Some(flat(unit, found.required, found.threshold))
            }
            Self::Concurrency(found) => {
                let unit = "replicas needed";
                if found.in_burst {
                    let needed = found.stable.max(found.burst);
                    // A burst keeps the largest size that it asked for.
                    let down = needed.max(found.want.as_f64());
                    Some(Thresholds {
                        down,
                        ..flat(unit, needed, 1.0)
                    })
                } else {
                    Some(flat(unit, found.stable, 1.0))
                }
            }
            Self::Metric(found) => match found.kind {
                MetricKind::AverageValue => Some(flat("of the metric", found.metric, found.target)),
                MetricKind::Value => None,
            },
        }
    }
}

impl Sizing {
    /// Builds the wish of a policy that knows one size only.
    pub(super) fn flat(want: Replicas, ratio: Option<f64>) -> Self {
        Self {
            want,
            trigger: want,
            down: want,
            lasting: want,
            ratio,
            complete: true,
        }
    }

    /// Returns the size to go to from `current`, before any limit.
    pub(super) fn target(&self, current: Replicas) -> Replicas {
        let target = if self.trigger > current {
            self.want.max(self.trigger)
        } else {
            self.down.max(self.want.min(current))
        };
        if self.complete {
            target
        } else {
            target.max(current)
        }
    }
}

impl Assessment {
    pub(super) fn unknown(inputs: Vec<Input>, unknown: Unknown) -> Self {
        Self {
            inputs,
            finding: Finding::Unknown(unknown),
            sizing: None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(unknown) => {
                write!(f, "{} is unknown ({})", unknown.quantity, unknown.missing)
            }
            Self::Staffing(finding) => finding.fmt(f),
            Self::Occupancy(finding) => finding.fmt(f),
            Self::Concurrency(finding) => finding.fmt(f),
            Self::Metric(finding) => finding.fmt(f),
        }
    }
}
