//! Where core types become wire types; nothing else of the API knows both.

use std::time::Duration;

use inflight_core::admission::GateLoad;
use inflight_core::load::Standing;
use inflight_core::scaling::{Held, Hold};
use inflight_core::{Decision, Limit, Occupancy, Replicas, Timestamp};

use super::wire;
use crate::clock::Clock;
use crate::fleet::{Board, ConfigurationState, Crash, Fleet, Levels, ReplicaCounts};
use crate::ports::{HoldKind, ReplicaChange, TargetEvent};
use crate::story::{Event, Happening, Released};

/// Reads a fleet once and shows it.
pub(super) fn fleet(fleet: &Fleet, clock: Clock) -> wire::Fleet {
    let (load, replicas) = fleet.load_and_replicas();
    let now = clock.now();
    let sources = sources(fleet, &load, now);
    let ready = match fleet.peers() {
        Some(peers) if !fleet.knows_replicas() => peers.ready().map(Replicas::get),
        Some(_) | None => Some(replicas.ready),
    };
    let peers_age = fleet.peers().and_then(|peers| peers.age(now));
    let levels = levels(fleet, &load);
    let board = fleet.board();
    let age = peers_age.or_else(|| observation_age(&board, now));
    wire::Fleet {
        name: fleet.name().to_owned(),
        policy: board.policy.to_owned(),
        slots: board.slots,
        replicas: size(&board, replicas, ready),
        load: self::load(levels, fleet.has_gateway().then_some(&load), &board, age),
        sources,
        admission: admission(fleet, &load),
        hold: held(&board, clock.now()).map(|held| hold(held, clock)),
        decision: board.decisions().next().map(|made| decision(made, clock)),
        crashes: board.crashes,
        last_crash: (board.last_crash.as_ref()).map(|crash| self::crash(crash, clock)),
        start_delay_seconds: board.start_delay.map(|delay| delay.as_secs_f64()),
        unwritten: (fleet.published())
            .map(|published| published.failures())
            .unwrap_or_default(),
    }
}

/// Shows the gate before new sessions, where there is one: ours, or that which proxies ask.
fn admission(fleet: &Fleet, load: &GateLoad) -> Option<wire::Admission> {
    if let Some(checks) = fleet.checks() {
        let load = checks.load();
        return Some(wire::Admission {
            open: load.is_open,
            refused_total: load.counts.refused.total(),
            held: load.held,
            load_unknown: load.is_blind,
        });
    }
    fleet.has_gateway().then(|| wire::Admission {
        open: load.admission_open,
        refused_total: load.refused.total(),
        held: 0,
        load_unknown: false,
    })
}

/// Shows a decision.
pub(super) fn decision(decision: &Decision, clock: Clock) -> wire::Decision {
    wire::Decision {
        at: clock.rfc3339(decision.at),
        current: decision.current.get(),
        wanted: decision.wanted.map(|wanted| wanted.get()),
        desired: decision.desired.get(),
        at_max: decision.at_max,
        reason: decision.reason.to_string(),
        finding: decision.reason.finding.to_string(),
        limits: decision
            .reason
            .limits
            .iter()
            .map(Limit::to_string)
            .collect(),
        inputs: decision
            .inputs
            .iter()
            .map(|input| (input.name.to_owned(), input.value))
            .collect(),
        thresholds: thresholds(decision),
    }
}

fn thresholds(decision: &Decision) -> Option<wire::Thresholds> {
    let found = decision.reason.finding.thresholds()?;
    let fewer = decision.desired.minus(Replicas::ONE);
    Some(wire::Thresholds {
        unit: found.unit.to_owned(),
        up: found.up,
        grows_above: found.most_for(decision.desired),
        down: found.down,
        shrinks_at: (decision.desired > Replicas::ZERO).then(|| found.most_for(fewer)),
    })
}

/// Returns what holds the size by hand at this moment.
pub(super) fn held(board: &Board, now: Timestamp) -> Option<Held> {
    board.held.filter(|held| now < held.until)
}

/// Shows a hold.
pub(super) fn hold(held: Held, clock: Clock) -> wire::Hold {
    wire::Hold {
        kind: HoldKind::of(held.hold).name().to_owned(),
        replicas: match held.hold {
            Hold::Pause => None,
            Hold::Size(size) => Some(size.get()),
        },
        until: clock.rfc3339(held.until),
        left_seconds: held.until.since(clock.now()).as_secs_f64(),
    }
}

fn crash(crash: &Crash, clock: Clock) -> wire::Crash {
    wire::Crash {
        at: clock.rfc3339(crash.at),
        replica: crash.index,
        why: crash.why.clone(),
    }
}

/// Shows an event of one run of ours.
pub(super) fn event(event: &Event, run: u64, clock: Clock) -> wire::Event {
    let what = match &event.what {
        Happening::Decision(made) => wire::What::Decision {
            decision: decision(made, clock),
        },
        Happening::Replica(changed) => wire::What::Replica {
            replica: replica(changed),
        },
        Happening::Admission { open } => wire::What::Admission { open: *open },
        Happening::Held(held) => wire::What::Hold {
            hold: hold(*held, clock),
        },
        Happening::Released(how) => wire::What::Release {
            by_hand: *how == Released::ByHand,
        },
        Happening::Configured => wire::What::Configured {},
        Happening::Failed(error) => wire::What::Error {
            error: error.clone(),
        },
    };
    wire::Event {
        id: format!("{run}-{}", event.number),
        at: clock.rfc3339(event.at),
        fleet: event.fleet.clone(),
        what,
    }
}

fn replica(event: &TargetEvent) -> wire::ReplicaChange {
    let (start_seconds, why, unexpected) = match &event.change {
        ReplicaChange::Starting | ReplicaChange::GivenUp | ReplicaChange::Draining => {
            (None, None, false)
        }
        ReplicaChange::Unhealthy { why } => (None, Some(why.clone()), false),
        ReplicaChange::Ready { took } => (took.map(|took| took.as_secs_f64()), None, false),
        ReplicaChange::Gone { why, unexpected } => (None, Some(why.clone()), *unexpected),
    };
    wire::ReplicaChange {
        index: event.index,
        address: event.address.to_string(),
        state: event.change.name().to_owned(),
        start_seconds,
        why,
        unexpected,
    }
}

/// Returns how old the observation is that the last decision was made from; unknown before the
/// first, and when there was nothing to observe.
pub(super) fn observation_age(board: &Board, now: Timestamp) -> Option<Duration> {
    let decided = board.decisions().next()?.at;
    Some(board.estimate?.age? + now.since(decided))
}

fn size(board: &Board, counts: ReplicaCounts, ready: Option<u32>) -> wire::Replicas {
    wire::Replicas {
        desired: board.decisions().next().map(|made| made.desired.get()),
        ready,
        starting: counts.starting,
        draining: counts.draining,
        unhealthy: counts.unhealthy,
        min: board.min.get(),
        max: board.max.get(),
    }
}

/// Returns what is in flight: here, or everywhere by the latest sum.
fn levels(fleet: &Fleet, load: &GateLoad) -> Levels {
    match fleet.peers() {
        Some(peers) => peers.levels(),
        None => Levels {
            in_flight: Some(count(load.in_flight)),
            executing: Some(count(load.executing)),
            queued: Some(count(load.queued)),
        },
    }
}

fn sources(fleet: &Fleet, load: &GateLoad, now: Timestamp) -> Vec<wire::Source> {
    let gateway = fleet.has_gateway().then(|| wire::Source {
        kind: "gateway".to_owned(),
        address: None,
        instance: None,
        state: "read".to_owned(),
        in_flight: Some(count(load.in_flight)),
        age_seconds: Some(0.0),
        failure: None,
    });
    let peers = fleet.peers().map(|peers| peers.rows(now));
    let peers = peers.into_iter().flatten().map(|row| wire::Source {
        kind: row.kind.name().to_owned(),
        address: Some(row.address),
        instance: row.view.instance.map(|id| format!("{:016x}", id.0)),
        state: match row.view.standing {
            Standing::Read => "read",
            Standing::Held => "held",
            Standing::Lost => "lost",
        }
        .to_owned(),
        in_flight: row.view.in_flight,
        age_seconds: row.view.age.map(|age| age.as_secs_f64()),
        failure: row.failure,
    });
    gateway.into_iter().chain(peers).collect()
}

fn models(names: &[String], gate: &GateLoad) -> Vec<wire::Model> {
    let rows = names.iter().zip(&gate.models).zip(&gate.slots);
    rows.map(|((name, counts), slots)| wire::Model {
        name: name.clone(),
        slots: slots.get(),
        in_flight: counts.executing + counts.queued,
        executing: counts.executing,
        queued: counts.queued,
    })
    .collect()
}

fn load(
    levels: Levels,
    gate: Option<&GateLoad>,
    board: &Board,
    age: Option<Duration>,
) -> wire::Load {
    let estimate = board.estimate.unwrap_or_default();
    wire::Load {
        in_flight: levels.in_flight,
        // Known from completed requests only, it has no value of this moment.
        executing: levels.executing.or(estimate.executing),
        queued: levels.queued,
        arrivals_per_second: estimate.arrivals_per_second,
        service_seconds: estimate.service_seconds,
        // What the admission gate is judged by; without one, what is decided from.
        inflation: gate.map_or(estimate.inflation, |gate| gate.inflation),
        age_seconds: age.map(|age| age.as_secs_f64()),
        models: gate.map_or_else(Vec::new, |gate| models(&board.models, gate)),
    }
}

fn count(requests: u64) -> f64 {
    Occupancy::from_count(requests).get()
}

/// Returns what is wrong with the configuration file; `None` while it is in force.
pub(super) fn configuration_refused(
    state: &ConfigurationState,
    clock: Clock,
) -> Option<wire::ConfigurationRefused> {
    let refused = state.refused.as_ref()?;
    Some(wire::ConfigurationRefused {
        running_since: clock.rfc3339(state.in_force_since),
        since: clock.rfc3339(refused.since),
        why: refused.why.clone(),
    })
}

#[cfg(test)]
mod tests {
    use inflight_core::load::{Missing, Quantity, Unknown};
    use inflight_core::scaling::Finding;
    use inflight_core::{Input, Reason};
    use proptest::prelude::*;

    use super::*;

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
