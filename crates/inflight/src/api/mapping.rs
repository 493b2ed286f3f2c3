//! Where core types become wire types; nothing else of the API knows both.

use std::time::{Duration, SystemTime};

use inflight_core::admission::{GateLoad, ModelShare};
use inflight_core::{Decision, Occupancy, Timestamp};

use super::wire;
use crate::clock::Clock;
use crate::fleet::{Board, Fleet, ReplicaCounts};

/// The last second that RFC 3339 can write: the end of the year 9999.
const CALENDAR_END: Duration = Duration::from_secs(253_402_300_799);

/// Reads a fleet once and shows it.
pub(super) fn fleet(fleet: &Fleet, clock: Clock) -> wire::Fleet {
    let (load, replicas) = fleet.load_and_replicas();
    let board = fleet.board();
    wire::Fleet {
        name: fleet.name().to_owned(),
        policy: board.policy.to_owned(),
        slots: board.slots,
        replicas: size(&board, replicas),
        load: self::load(&load, &board, observation_age(&board, clock.now())),
        admission: wire::Admission {
            open: load.admission_open,
            refused_total: load.refused.total(),
        },
        decision: board.decisions().next().map(|made| decision(made, clock)),
        crashes: board.crashes,
        start_delay_seconds: board.start_delay.map(|delay| delay.as_secs_f64()),
    }
}

/// Shows a decision.
pub(super) fn decision(decision: &Decision, clock: Clock) -> wire::Decision {
    wire::Decision {
        at: rfc3339(clock.calendar(decision.at)),
        current: decision.current.get(),
        wanted: decision.wanted.map(|wanted| wanted.get()),
        desired: decision.desired.get(),
        at_max: decision.at_max,
        reason: decision.reason.to_string(),
        inputs: decision
            .inputs
            .iter()
            .map(|input| (input.name.to_owned(), input.value))
            .collect(),
    }
}

/// Returns how old the observation is that the last decision was made from; unknown before the
/// first, and when there was nothing to observe.
pub(super) fn observation_age(board: &Board, now: Timestamp) -> Option<Duration> {
    let decided = board.decisions().next()?.at;
    Some(board.estimate?.age? + now.since(decided))
}

fn size(board: &Board, counts: ReplicaCounts) -> wire::Replicas {
    wire::Replicas {
        desired: board.decisions().next().map(|made| made.desired.get()),
        ready: counts.ready,
        starting: counts.starting,
        draining: counts.draining,
        unhealthy: counts.unhealthy,
        min: board.min.get(),
        max: board.max.get(),
    }
}

fn load(load: &GateLoad, board: &Board, age: Option<Duration>) -> wire::Load {
    let estimate = board.estimate.unwrap_or_default();
    let model = |(name, share): (&String, &ModelShare)| wire::Model {
        name: name.clone(),
        slots: share.slots.get(),
        in_flight: count(share.in_flight),
        executing: count(share.executing),
        queued: count(share.queued),
    };
    wire::Load {
        in_flight: Some(count(load.in_flight)),
        executing: Some(count(load.executing)),
        queued: Some(count(load.queued)),
        arrivals_per_second: estimate.arrivals_per_second,
        service_seconds: estimate.service_seconds,
        inflation: estimate.inflation,
        age_seconds: age.map(|age| age.as_secs_f64()),
        models: board.models.iter().zip(&load.models).map(model).collect(),
    }
}

fn count(requests: u64) -> f64 {
    Occupancy::from_count(requests).get()
}

/// Writes a calendar time; what a four-digit year since 1970 cannot say becomes the nearest it can.
fn rfc3339(at: SystemTime) -> String {
    let since_epoch = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let at = SystemTime::UNIX_EPOCH + since_epoch.min(CALENDAR_END);
    humantime::format_rfc3339_millis(at).to_string()
}

#[cfg(test)]
mod tests {
    use inflight_core::load::{Missing, Quantity, Unknown};
    use inflight_core::scaling::Finding;
    use inflight_core::{Input, Limit, Reason, Replicas};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_calendar_that_cannot_be_written_becomes_the_nearest_that_can() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(
            rfc3339(epoch - Duration::from_secs(5)),
            "1970-01-01T00:00:00.000Z"
        );
        assert_eq!(
            rfc3339(epoch + Duration::from_millis(1500)),
            "1970-01-01T00:00:01.500Z"
        );
        assert_eq!(
            rfc3339(epoch + CALENDAR_END * 2),
            "9999-12-31T23:59:59.000Z"
        );
    }

    proptest! {
        #[test]
        fn a_decision_survives_the_wire(
            (current, desired, at_max) in any::<(u32, u32, bool)>(),
            wanted in any::<Option<u32>>(),
            value in proptest::option::of(prop::num::f64::NORMAL | prop::num::f64::ZERO),
            fallback in any::<u32>(),
        ) {
            let made = Decision {
                at: Timestamp::ORIGIN,
                current: Replicas::new(current),
                wanted: wanted.map(Replicas::new),
                desired: Replicas::new(desired),
                drain: Vec::new(),
                at_max,
                inputs: vec![Input { name: "offered_slots", value }],
                reason: Reason {
                    finding: Finding::Unknown(Unknown {
                        quantity: Quantity::InFlight,
                        missing: Missing::NeverRead,
                    }),
                    limits: vec![Limit::UnknownFallback { fallback: Replicas::new(fallback) }],
                },
            };
            let sent = decision(&made, Clock::start());
            let read: wire::Decision =
                serde_json::from_str(&serde_json::to_string(&sent).unwrap()).unwrap();
            prop_assert_eq!(&read, &sent);
            let numbers = (read.current, read.wanted, read.desired, read.at_max);
            prop_assert_eq!(numbers, (current, wanted, desired, at_max));
            prop_assert_eq!(read.reason, made.reason.to_string());
            prop_assert_eq!(read.inputs["offered_slots"], value);
        }
    }
}
