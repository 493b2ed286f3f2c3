//! A gate and a scaler that go on from another process's: the counters never fall, known sessions
//! stay known, and the next decisions are those the first process would have made.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its fixtures too"
)]

use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, ModelConfig, Outcome, PastGate,
    QueueBounds, When,
};
use inflight_core::load::{
    Estimator, Level, Missing, ModelLoad, Observation, ReplicaState, ReplicaView, Term,
};
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, OccupancyConfig, PastScaler, Policy, Scaler, ScalingConfig,
    StaffingConfig,
};
use inflight_core::{
    Bytes, ModelIndex, Occupancy, ReplicaId, Replicas, SessionKey, Slots, Timestamp,
};

const REPLICAS: u64 = 4;

fn ms(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn gate(now: Timestamp) -> Gate {
    let config = GateConfig {
        models: vec![ModelConfig { slots: Slots::ONE }],
        queue: QueueBounds {
            requests: 100,
            bytes: Bytes(0),
            wait: Duration::from_secs(30),
            cold_wait: Duration::from_secs(300),
        },
        admission: AdmissionConfig {
            threshold: 3.0,
            reopen: 2.4,
            when: When::Always,
            scope: AdmissionScope::NewSessions,
            sessions_max: 100,
            session_idle: Duration::from_secs(60),
        },
        bucket: Duration::from_millis(100),
    };
    let mut gate = Gate::new(config, now);
    for id in 0..REPLICAS {
        gate.set_endpoint(now, ReplicaId(id), ReplicaState::Ready);
    }
    gate
}

fn scaler(policy: Policy, now: Timestamp) -> Scaler {
    let bounds = Bounds::new(Replicas::ONE, Replicas::new(16)).unwrap();
    let config = ScalingConfig::new(policy, bounds, Slots::ONE);
    Scaler::new(config, now, Replicas::new(4))
}

fn arrival(session: u64) -> Arrival {
    Arrival {
        model: ModelIndex(0),
        session: Some(SessionKey(session)),
        first_call: false,
        deadline: None,
        draw: session,
    }
}

/// Three clients of 500 ms requests from `from` on, decided on every two seconds; returns what
/// each decision said.
fn drive(gate: &mut Gate, scaler: &mut Scaler, from: u64, to: u64) -> Vec<String> {
    let mut decisions = Vec::new();
    for begin in (from..to).step_by(500) {
        let tickets: Vec<_> = (0..3)
            .map(|client| gate.on_arrival(ms(begin), arrival(client)).unwrap())
            .collect();
        if begin.is_multiple_of(2000) {
            scaler.observe(ms(begin), &gate.observe(ms(begin)));
            let decision = scaler.decide(ms(begin));
            decisions.push(format!("{} {}", decision.desired, decision.reason));
        }
        for ticket in tickets {
            gate.on_end(ms(begin + 499), ticket, Outcome::Completed);
        }
    }
    decisions
}

#[test]
fn a_restored_scaler_decides_as_the_one_it_was_made_of() {
    let policies = [
        Policy::Staffing(StaffingConfig::balanced()),
        Policy::Occupancy(OccupancyConfig::new(2.0, Duration::from_secs(60)).unwrap()),
        Policy::Concurrency(ConcurrencyConfig::default()),
    ];
    for policy in policies {
        let (mut first, mut old) = (gate(ms(0)), scaler(policy.clone(), ms(0)));
        drive(&mut first, &mut old, 0, 200_000);
        let (mut second, mut new) = (gate(ms(200_000)), scaler(policy, ms(200_000)));
        second.restore(ms(200_000), &first.export(ms(200_000)));
        new.restore(ms(200_000), &old.export());
        let expected = drive(&mut first, &mut old, 200_000, 400_000);
        assert_eq!(drive(&mut second, &mut new, 200_000, 400_000), expected);
    }
}

/// A fleet that is measured from outside.
#[derive(Clone, Copy, Debug)]
struct Outside {
    /// Whether levels are means that a query gave.
    by: Estimator,
    /// When a part of the load cannot be seen.
    partial: (u64, u64),
    /// When levels are not read.
    unread: (u64, u64),
    /// From when it is known how many replicas are ready.
    known_from: u64,
}

fn seen(second: u64, outside: Outside) -> Observation {
    let is_within = |(from, to): (u64, u64)| (from..to).contains(&second);
    let level = Level {
        now: Term::Known {
            value: Occupancy::new(if second < 20 { 3.0 } else { 1.0 }).unwrap(),
            age: Duration::ZERO,
            estimator: outside.by,
        },
        integral: Term::Unknown(Missing::NotOffered),
    };
    let level = if is_within(outside.unread) {
        Level::NOT_OFFERED
    } else {
        level
    };
    let unknown = Term::Unknown(Missing::NotOffered);
    let ready = if second >= outside.known_from {
        Term::exact(Replicas::new(6))
    } else {
        Term::Unknown(Missing::NeverRead)
    };
    Observation {
        replicas: ReplicaView::Ready(ready),
        models: vec![ModelLoad {
            in_flight: level,
            executing: level,
            queued: level,
            arrivals: unknown,
            completions: unknown,
            service_seconds: unknown,
            in_flight_max: Term::Unknown(Missing::NotOffered),
        }],
        peak_seconds: unknown,
        started: Vec::new(),
        metric: unknown,
        filled: unknown,
        is_partial: is_within(outside.partial),
        is_called: false,
    }
}

#[test]
fn a_restored_scaler_knows_what_was_partial_a_mean_or_not_found_yet() {
    let plain = Outside {
        by: Estimator::LiveGauge,
        partial: (0, 0),
        unread: (0, 0),
        known_from: 0,
    };
    let fleets = [
        plain,
        Outside {
            by: Estimator::Query,
            unread: (40, 50),
            ..plain
        },
        Outside {
            partial: (20, 38),
            ..plain
        },
        Outside {
            known_from: 50,
            ..plain
        },
    ];
    let policy = Policy::Occupancy(OccupancyConfig::new(2.0, Duration::from_secs(60)).unwrap());
    let step = |scaler: &mut Scaler, second: u64, outside: Outside| {
        scaler.observe(ms(second * 1000), &seen(second, outside));
        let decision = scaler.decide(ms(second * 1000));
        format!("{second} {} {}", decision.desired, decision.reason)
    };
    let differs = |outside: &Outside| {
        let mut old = scaler(policy.clone(), ms(0));
        for second in (0..40).step_by(2) {
            step(&mut old, second, *outside);
        }
        let mut new = scaler(policy.clone(), ms(40_000));
        new.restore(ms(40_000), &old.export());
        (40..300)
            .step_by(2)
            .any(|second| step(&mut old, second, *outside) != step(&mut new, second, *outside))
    };
    let differing: Vec<_> = fleets.into_iter().filter(differs).collect();
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn a_restored_gate_counts_on_and_knows_the_sessions() {
    let (mut first, mut scaler) = (
        gate(ms(0)),
        scaler(Policy::Staffing(StaffingConfig::balanced()), ms(0)),
    );
    drive(&mut first, &mut scaler, 0, 30_000);
    let held = first.on_arrival(ms(30_000), arrival(7)).unwrap();
    let past = first.export(ms(31_000));
    let mut second = gate(ms(32_000));
    second.restore(ms(32_000), &past);
    let (before, after) = (first.load(ms(31_000)), second.load(ms(32_000)));
    assert_eq!(before.arrivals, after.arrivals);
    assert_eq!(before.completed, after.completed);
    assert!(before.peak_seconds.total_cmp(&after.peak_seconds).is_eq());
    assert!(
        before
            .in_flight_seconds
            .total_cmp(&after.in_flight_seconds)
            .is_eq()
    );
    assert_eq!((after.in_flight, after.sessions), (0, 4));
    assert_eq!(second.export(ms(32_000)).sessions, past.sessions);
    first.on_end(ms(32_000), held, Outcome::Completed);
}

#[test]
fn a_restored_closed_gate_refuses_who_is_new_and_nobody_else() {
    let mut second = gate(ms(60_000));
    second.restore(
        ms(60_000),
        &PastGate {
            is_open: false,
            sessions: vec![(SessionKey(1), ms(30_000))],
            ..PastGate::default()
        },
    );
    assert!(second.on_arrival(ms(60_100), arrival(1)).is_ok());
    assert!(second.on_arrival(ms(60_100), arrival(2)).is_err());
}

#[test]
fn what_makes_no_sense_is_left_out() {
    let mut past = PastScaler {
        settled: Replicas::new(3),
        started: ms(9_000_000),
        busy_at: ms(9_000_000),
        sizes: vec![(ms(9_000_000), Replicas::MAX), (ms(0), Replicas::ONE)],
        targets: vec![(ms(9_000_000), Replicas::new(3))],
        unknown_since: Some(ms(9_000_000)),
        ..PastScaler::default()
    };
    past.load.models = vec![Default::default(), Default::default()];
    past.load.models[0].in_flight.points = vec![
        (ms(500), f64::NAN),
        (ms(600), -1.0),
        (ms(700), 5.0),
        (ms(650), 7.0),
        (ms(9_000_000), 9.0),
    ];
    past.load.models[0].in_flight.cumulative = Some(f64::INFINITY);
    let (mut gate, mut scaler) = (
        gate(ms(1000)),
        scaler(Policy::Staffing(StaffingConfig::balanced()), ms(1000)),
    );
    gate.restore(
        ms(1000),
        &PastGate {
            ended: vec![u64::MAX; 9],
            refused: vec![u64::MAX; 99],
            models: vec![Default::default(); 3],
            ..PastGate::default()
        },
    );
    scaler.restore(ms(1000), &past);
    let decisions = drive(&mut gate, &mut scaler, 2000, 20_000);
    assert!(decisions.last().unwrap().starts_with('3'), "{decisions:?}");
}
