//! What KEDA is told of a fleet, made of its last decisions.
//!
//! The autoscaler behind KEDA divides a total by a target and rounds up. Under `occupancy` and
//! `metric` it is given the policy's own total and target and keeps its own windows; every other
//! policy has decided already, so that it is given the size, with a target of one.

use std::time::Duration;

use inflight_core::scaling::Finding;
use inflight_core::{Decision, Limit, Timestamp};

/// What KEDA is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// The fleet's total, in units of which one replica carries the target.
    pub(super) total: f64,
    /// Whether there shall be a replica at all.
    pub(super) is_active: bool,
}

/// Why KEDA is told nothing, which makes it keep the size or take its own fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoReading {
    /// Nothing was decided since the start.
    #[error("nothing was decided yet")]
    NeverDecided,
    /// The last decision on known numbers is too old.
    #[error("the load is unknown for {} s, which is longer than scaling.unknown.hold", .0.as_secs())]
    Stale(Duration),
}

/// Reads a fleet's decisions, the newest first: the newest that was made on known numbers counts
/// for as long as `hold`; after that a configured fallback does, and without one nothing.
pub(super) fn read<'a>(
    decisions: impl Iterator<Item = &'a Decision>,
    now: Timestamp,
    hold: Duration,
    target: f64,
) -> Result<Reading, NoReading> {
    let mut oldest = None;
    for decision in decisions {
        let age = now.since(decision.at);
        if age > hold {
            return Err(NoReading::Stale(age));
        }
        if let Some(reading) = of(decision, target) {
            return Ok(reading);
        }
        oldest = Some(age);
    }
    oldest.map_or(Err(NoReading::NeverDecided), |age| {
        Err(NoReading::Stale(age))
    })
}

/// Reads one decision; `None` when the load was unknown.
fn of(decision: &Decision, target: f64) -> Option<Reading> {
    let size = decision.desired.as_f64();
    let has_fallen_back = |limit: &Limit| matches!(limit, Limit::UnknownFallback { .. });
    let total = match &decision.reason.finding {
        Finding::Occupancy(found) => found.required,
        Finding::Metric(found) => found.metric,
        Finding::Staffing(_) | Finding::Concurrency(_) => size,
        Finding::Unknown(_) if decision.reason.limits.iter().any(has_fallen_back) => size * target,
        Finding::Unknown(_) => return None,
    };
    Some(Reading {
        total,
        is_active: size > 0.0,
    })
}
