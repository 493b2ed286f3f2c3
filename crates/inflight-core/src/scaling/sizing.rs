//! What passes between a policy and the steps around it.

use std::fmt;
use std::time::Duration;

use super::concurrency::ConcurrencyFinding;
use super::metric::MetricFinding;
use super::occupancy::OccupancyFinding;
use super::staffing::StaffingFinding;
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
    /// Whether replicas are on their way that are not ready yet.
    pub(super) starting: bool,
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

impl Sizing {
    /// Builds the wish of a policy that knows one size only.
    pub(super) fn flat(want: Replicas, ratio: Option<f64>) -> Self {
        Self {
            want,
            trigger: want,
            down: want,
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
