//! What proxies and servers tell, through windows and the `occupancy` policy, to replicas: the rule's
//! rows as a fleet behind several proxies shows them.

use std::time::Duration;

use inflight_core::load::{
    Estimator, Measured, MeasuredBy, Missing, Observation, Patience, PeerId, ProxyReading,
    ReplicaView, ServerReading, ServerSeries, Term,
};
use inflight_core::scaling::{Bounds, OccupancyConfig, Policy, Scaler, ScalingConfig};
use inflight_core::{Limit, Replicas, Slots};

use crate::driver::reading::{Reading, at};

/// What is in flight at each proxy, what each server executes, how many replicas are healthy, what
/// is needed and how many replicas that is with 2 for each.
type Row = (&'static [f64], &'static [f64], u32, f64, u32);

const ROWS: &[Row] = &[
    // Nobody waits.
    (&[0.0, 0.0], &[0.0], 1, 0.0, 0),
    (&[1.0, 0.0], &[1.0], 1, 1.0, 1),
    // As long as they are served.
    (&[4.0, 4.0], &[2.0, 2.0], 2, 4.0, 2),
    (&[16.0], &[2.0, 2.0, 2.0, 2.0], 4, 8.0, 4),
    // Fewer execute than there are replicas: each counts as one.
    (&[3.0], &[0.5, 0.0], 2, 3.0, 2),
    (&[40.0, 0.0, 24.0], &[8.0, 8.0], 2, 8.0, 4),
    // None is ready, whatever a server says that still answers.
    (&[6.0], &[1.0], 0, 6.0, 3),
    // A server that is not known: the others stand for it.
    (&[16.0], &[4.0, 4.0, 4.0], 4, 4.0, 2),
];

fn policy() -> OccupancyConfig {
    OccupancyConfig::new(2.0, Duration::from_secs(60)).unwrap()
}

fn scaler(policy: OccupancyConfig, current: u32) -> Scaler {
    let bounds = Bounds::new(Replicas::ZERO, Replicas::new(100)).unwrap();
    let config = ScalingConfig::new(Policy::Occupancy(policy), bounds, Slots::ONE);
    Scaler::new(config, at(0), Replicas::new(current))
}

/// What a proxy and one of two servers with four slots show of a load that never changes.
fn steady(second: u32) -> Observation {
    let mut joined = Measured::new(measured_by(Estimator::CompletionCounter));
    let (proxy, server) = (PeerId(0), PeerId(100));
    joined.add_proxy(proxy);
    joined.add_server(server);
    let mut latest = None;
    for second in 0..=second {
        let now = at(second.into());
        let reading = ProxyReading {
            active: 16.0,
            healthy: Replicas::new(2),
            ..ProxyReading::default()
        };
        joined.on_proxy(now, proxy, &reading);
        let series = ServerSeries {
            total_seconds: 1e6 + 4.0 * f64::from(second),
            waiting_seconds: 1e5,
            completions: 0.0,
        };
        let reading = ServerReading {
            series: vec![(1, series)],
            ..ServerReading::default()
        };
        assert!(joined.on_server(now, server, &reading));
        latest = Some(joined.observe(now));
    }
    latest.unwrap()
}

#[test]
fn a_load_that_was_there_before_is_unknown_by_one_reading_and_shrinks_nothing_for_one_window() {
    let mut scaler = scaler(policy(), 3);
    scaler.observe(at(0), &steady(0));
    let first = scaler.decide(at(0));
    assert_eq!((first.wanted, first.desired), (None, Replicas::new(3)));
    for second in (2..60).step_by(2) {
        scaler.observe(at(second.into()), &steady(second));
        let decision = scaler.decide(at(second.into()));
        assert!(
            decision.desired >= Replicas::new(3),
            "at {second}: {decision}"
        );
        let is_partial = decision.reason.limits.contains(&Limit::Partial);
        let is_less = decision.wanted < Some(decision.current);
        assert_eq!(is_partial, is_less, "at {second}: {decision}");
    }
    scaler.observe(at(60), &steady(60));
    assert_eq!(scaler.decide(at(60)).wanted, Some(Replicas::new(2)));
}

fn measured_by(executing_by: Estimator) -> MeasuredBy {
    MeasuredBy {
        proxies: Some(Estimator::LiveGauge),
        servers: executing_by,
        patience: Patience {
            late: Duration::from_secs(3),
            stale: Duration::from_secs(30),
        },
    }
}

fn run(row: &Row, executing_by: Estimator) -> (f64, u32) {
    let &(in_flight, executing, healthy, ..) = row;
    let mut joined = Measured::new(measured_by(executing_by));
    let proxies: Vec<_> = (0..).map(PeerId).zip(in_flight).collect();
    let servers: Vec<_> = (100..).map(PeerId).zip(executing).collect();
    proxies.iter().for_each(|&(peer, _)| joined.add_proxy(peer));
    servers
        .iter()
        .for_each(|&(peer, _)| joined.add_server(peer));
    let mut scaler = scaler(policy(), 0);
    for second in 0..=120_u32 {
        let now = at(second.into());
        for &(peer, &active) in &proxies {
            let reading = ProxyReading {
                active,
                healthy: Replicas::new(healthy),
                ..ProxyReading::default()
            };
            joined.on_proxy(now, peer, &reading);
        }
        for &(peer, &level) in &servers {
            let series = ServerSeries {
                total_seconds: 1e6 + level * f64::from(second) * 1.5,
                waiting_seconds: 1e5 + level * f64::from(second) * 0.5,
                completions: 0.0,
            };
            let is_live = executing_by == Estimator::LiveGauge;
            let reading = ServerReading {
                executing: is_live.then_some(level),
                series: vec![(1, series)],
                ..ServerReading::default()
            };
            assert!(joined.on_server(now, peer, &reading));
        }
        scaler.observe(now, &joined.observe(now));
    }
    let decision = scaler.decide(at(120));
    let required = decision
        .inputs
        .iter()
        .find(|input| input.name == "required");
    (
        required.and_then(|input| input.value).unwrap(),
        decision.wanted.unwrap().get(),
    )
}

#[test]
fn a_fleet_behind_proxies_needs_what_the_rule_says_by_either_estimator() {
    for row in ROWS {
        for executing_by in [Estimator::LiveGauge, Estimator::CompletionCounter] {
            let (required, wanted) = run(row, executing_by);
            let (.., needed, size) = *row;
            assert!((required - needed).abs() < 1e-6, "{row:?}: {required}");
            assert_eq!(wanted, size, "{row:?}");
        }
    }
}

#[test]
fn b35_a_scaler_that_others_tell_how_many_there_are_begins_with_these() {
    let mut scaler = scaler(policy(), 1);
    scaler.observe(at(0), &Reading::nothing());
    assert_eq!(scaler.decide(at(0)).desired, Replicas::new(1));
    let load = Reading {
        in_flight: 14.0,
        executing: 7.0,
        replicas: ReplicaView::Ready(Term::exact(Replicas::new(7))),
        ..Reading::ready(7)
    };
    for second in (2..60).step_by(2) {
        scaler.observe(at(second), &load.at(second));
        let decision = scaler.decide(at(second));
        assert_eq!(
            decision.desired,
            Replicas::new(7),
            "at {second}: {decision}"
        );
    }
}

#[test]
fn the_larger_of_both_wishes_counts_and_unknown_memory_shrinks_nothing() {
    let policy = policy().with_filled_target(0.8).unwrap();
    let load = Reading {
        in_flight: 4.0,
        executing: 4.0,
        ..Reading::ready(2)
    };
    let run = |filled: Term<f64>, current: u32| {
        let mut scaler = scaler(policy, current);
        let mut size = 0;
        for second in (0..900).step_by(2) {
            let mut observation = load.at(second);
            observation.filled = filled;
            scaler.observe(at(second), &observation);
            size = scaler.decide(at(second)).desired.get();
        }
        size
    };
    assert_eq!(run(Term::exact(0.1), 6), 1);
    assert_eq!(run(Term::exact(3.9), 2), 5);
    assert_eq!(run(Term::Unknown(Missing::NeverRead), 6), 6);
}
