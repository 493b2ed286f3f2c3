//! The second observation, through the gate and the scaler together: one client that sends one
//! request after the other is one, however short its requests are.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its fixtures too"
)]

use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, ModelConfig, Outcome, QueueBounds,
    When,
};
use inflight_core::load::ReplicaState;
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, Measure, OccupancyConfig, Policy, Scaler, ScalingConfig,
    StaffingConfig,
};
use inflight_core::{Bytes, ModelIndex, ReplicaId, Replicas, Slots, Timestamp};

const MILLISECOND: u64 = 1_000_000;
/// When the first request begins, in milliseconds: well within a bucket of 100 ms.
const FIRST: u64 = 3070;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * MILLISECOND)
}

fn gate() -> Gate {
    let config = GateConfig {
        models: vec![ModelConfig { slots: Slots::ONE }],
        queue: QueueBounds {
            requests: 10,
            bytes: Bytes(0),
            wait: Duration::from_secs(30),
            cold_wait: Duration::from_secs(300),
        },
        admission: AdmissionConfig {
            threshold: 3.0,
            reopen: 2.4,
            when: When::AtMax,
            scope: AdmissionScope::Off,
            sessions_max: 10,
            session_idle: Duration::from_secs(60),
        },
        bucket: Duration::from_millis(100),
    };
    Gate::new(config, at(0))
}

/// Sends 10 ms requests for two minutes, from the middle of a bucket on, one right after the
/// other, and returns the largest size decided on.
fn largest_size(policy: Policy) -> Replicas {
    let mut gate = gate();
    gate.set_endpoint(at(0), ReplicaId(0), ReplicaState::Ready);
    let bounds = Bounds::new(Replicas::ONE, Replicas::new(8)).unwrap();
    let mut scaler = Scaler::new(
        ScalingConfig::new(policy, bounds, Slots::ONE),
        at(0),
        Replicas::ONE,
    );
    let mut largest = Replicas::ZERO;
    let mut decide = |gate: &mut Gate, now| {
        scaler.observe(now, &gate.observe(now));
        largest = largest.max(scaler.decide(now).desired);
    };
    for quiet in [0, 2000] {
        decide(&mut gate, at(quiet));
    }
    for begin in (FIRST..120_000).step_by(10) {
        let arrival = Arrival {
            model: ModelIndex(0),
            session: None,
            first_call: false,
            deadline: None,
            draw: begin,
        };
        let ticket = gate.on_arrival(at(begin), arrival).unwrap();
        // The first request, as at zero, and then every two seconds.
        if (begin - FIRST).is_multiple_of(2000) {
            decide(&mut gate, at(begin));
        }
        gate.on_end(at(begin + 10), ticket, Outcome::Completed);
    }
    largest
}

#[test]
fn one_sequential_client_is_one_replica_by_every_policy() {
    let window = Duration::from_secs(60);
    let concurrency = |measure| {
        let burst = Duration::from_secs(6);
        Policy::Concurrency(ConcurrencyConfig::new(1.0, measure, window, burst).unwrap())
    };
    let policies = [
        Policy::Staffing(StaffingConfig::balanced()),
        Policy::Occupancy(OccupancyConfig::new(2.0, window).unwrap()),
        concurrency(Measure::Mean),
        concurrency(Measure::Peak),
    ];
    for policy in policies {
        assert_eq!(largest_size(policy.clone()), Replicas::ONE, "{policy:?}");
    }
}
