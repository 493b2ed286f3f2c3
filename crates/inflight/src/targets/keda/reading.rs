//! What KEDA is told of a fleet, made of its last decisions.
//!
//! The autoscaler behind KEDA divides a total by a target and rounds up. Under `occupancy` it is
//! given R_needed and the threshold, and keeps windows of its own; every other policy has decided
//! already, so that it is given the size, with a target of one. Minimum and maximum are KEDA's.

use std::time::Duration;

use inflight_core::scaling::Finding;
use inflight_core::{Decision, Limit, Timestamp};

use crate::fleet::{Board, Fleet};

/// How long ago the newest decision may be: four times the slowest tick. Without one for longer
/// nobody decides here, and what was decided is not to be relied on.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// The most replicas that a total may ask for at the target: one more bit and an autoscaler of
/// 32 bits would take it for a negative number.
const REPLICAS_MAX: f64 = 2e9;

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
    /// Nothing was decided for too long.
    #[error("nothing was decided for {} s", .0.as_secs())]
    Silent(Duration),
    /// The load was never known since the start.
    #[error("the load is not known yet")]
    NeverKnown,
    /// The last decision on known numbers is too old.
    #[error("the load is unknown for {} s, which is longer than scaling.unknown.hold", .0.as_secs())]
    Stale(Duration),
}

/// Reads what KEDA is told of a fleet at this moment.
pub(super) fn read(fleet: &Fleet, target: f64) -> Result<Reading, NoReading> {
    let now = fleet.clock().now();
    let board = fleet.board();
    let hold = board.external.map_or(Duration::ZERO, |own| own.hold);
    let reading = of_board(&board, now, hold, target);
    drop(board);
    let (reading, is_held) = reading?;
    // A first request counts before it is decided on, unless a person holds the fleet at zero.
    let is_active = reading.is_active || (!is_held && fleet.is_in_use());
    Ok(Reading {
        is_active,
        ..reading
    })
}

/// Reads the newest decision; while the load is unknown and nothing else says a size, the last one
/// that was made on known numbers, for as long as `hold`. Returns whether a person holds the size.
fn of_board(
    board: &Board,
    now: Timestamp,
    hold: Duration,
    target: f64,
) -> Result<(Reading, bool), NoReading> {
    let newest = board.decisions().next().ok_or(NoReading::NeverDecided)?;
    let silent = now.since(newest.at);
    if silent > SILENT_MAX {
        return Err(NoReading::Silent(silent));
    }
    if let Some(reading) = of(newest, target) {
        return Ok((reading, is_held(newest)));
    }
    let known = board.last_known().ok_or(NoReading::NeverKnown)?;
    let age = now.since(known.at);
    if age > hold {
        return Err(NoReading::Stale(age));
    }
    let reading = policy_of(known, target).ok_or(NoReading::NeverKnown)?;
    Ok((reading, false))
}

/// Reads one decision; `None` when the load was unknown and nothing else said a size.
fn of(decision: &Decision, target: f64) -> Option<Reading> {
    let says_a_size = |limit: &Limit| {
        matches!(
            limit,
            Limit::Paused { .. } | Limit::Sized { .. } | Limit::UnknownFallback { .. }
        )
    };
    if decision.reason.limits.iter().any(says_a_size) {
        return Some(reading(size(decision) * target, decision, target));
    }
    policy_of(decision, target)
}

/// Reads what the policy found.
fn policy_of(decision: &Decision, target: f64) -> Option<Reading> {
    let total = match &decision.reason.finding {
        Finding::Unknown(_) => return None,
        Finding::Occupancy(found) => {
            // Memory that fills is the second reason for a size.
            let filled = (found.filled)
                .and_then(|filled| Some(filled.used? / filled.target * target))
                .unwrap_or(0.0);
            let total = found.required.max(filled);
            if may_shrink(decision) {
                total
            } else {
                // What is seen is not all there is.
                total.max(size(decision) * target)
            }
        }
        Finding::Metric(_) | Finding::Staffing(_) | Finding::Concurrency(_) => {
            size(decision) * target
        }
    };
    Some(reading(total, decision, target))
}

fn reading(total: f64, decision: &Decision, target: f64) -> Reading {
    Reading {
        total: total.clamp(0.0, REPLICAS_MAX * target),
        is_active: decision.desired.get() > 0,
    }
}

/// Returns how many replicas were decided, as if there were no maximum: KEDA has one of its own,
/// and whoever looks there shall see that more is needed. Those that stand in for unhealthy ones are
/// left out: the autoscaler counts the unhealthy, and its cluster replaces them.
fn size(decision: &Decision) -> f64 {
    let limits = &decision.reason.limits;
    let mut size = decision.desired;
    for limit in limits {
        if let Limit::Lost { count } = limit {
            size = size.minus(*count);
        }
    }
    if limits.contains(&Limit::Max) && !is_held(decision) {
        size = size.max(decision.wanted.unwrap_or(decision.desired));
    }
    size.as_f64()
}

/// Tells whether a person holds the size.
fn is_held(decision: &Decision) -> bool {
    let by_hand = |limit: &Limit| matches!(limit, Limit::Paused { .. } | Limit::Sized { .. });
    decision.reason.limits.iter().any(by_hand)
}

/// Tells whether the numbers are good enough to shrink a fleet by.
fn may_shrink(decision: &Decision) -> bool {
    let keeps = |limit: &Limit| {
        matches!(
            limit,
            Limit::Degraded | Limit::Partial | Limit::Restart { .. }
        )
    };
    !decision.reason.limits.iter().any(keeps)
}
