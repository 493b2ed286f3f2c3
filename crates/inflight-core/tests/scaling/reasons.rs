//! What a decision prints: one sentence with the numbers it was made from.

use std::time::Duration;

use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, MetricConfig, MetricKind, OccupancyConfig, Policy, Scaler,
    ScalingConfig, StaffingConfig,
};
use inflight_core::{Replicas, Slots, Timestamp};

use crate::driver::reading::{Reading, at};

fn check(policy: Policy, max: u32, reading: &Reading, expected: &str) {
    let bounds = Bounds::new(Replicas::ONE, Replicas::new(max)).unwrap();
    let config = ScalingConfig::new(policy, bounds, Slots::new(2).unwrap());
    let mut scaler = Scaler::new(config, Timestamp::ORIGIN, Replicas::new(5));
    let mut sentence = String::new();
    for second in (0..602).step_by(2) {
        scaler.observe(at(second), &reading.at(second));
        sentence = scaler.decide(at(second)).to_string();
    }
    assert_eq!(sentence, expected);
}

fn load() -> Reading {
    Reading {
        in_flight: 10.0,
        executing: 8.0,
        metric: Some(31.0),
        ..Reading::ready(5)
    }
}

#[test]
fn staffing() {
    check(
        Policy::Staffing(StaffingConfig::balanced()),
        20,
        &load(),
        "stays at 5 replicas: 8.0 requests/s of 1.000 s keep 8.0 slots busy, 2.8 to spare, but no \
         more than the 10.0 that were in flight at once: 10.0 slots, 5 replicas of 2",
    );
}

#[test]
fn occupancy() {
    let config = OccupancyConfig::new(2.0, Duration::from_secs(60)).unwrap();
    check(
        Policy::Occupancy(config),
        20,
        &load(),
        "stays at 4 replicas: 10.0 in flight, 8.0 executing on 5.0 ready replicas would not wait \
         on 6.2; with 2 for each, 4 replicas",
    );
}

#[test]
fn concurrency_that_the_maximum_cuts() {
    check(
        Policy::Concurrency(ConcurrencyConfig::default()),
        3,
        &load(),
        "stays at 3 replicas: what is in flight needs 5.00 replicas, so 5 replicas; cut to the \
         maximum",
    );
}

#[test]
fn a_metric() {
    check(
        Policy::Metric(MetricConfig::new(10.0, MetricKind::AverageValue).unwrap()),
        20,
        &load(),
        "stays at 4 replicas: the metric is 31, with 10 for each 4 replicas",
    );
}

#[test]
fn an_unknown_metric() {
    check(
        Policy::Metric(MetricConfig::new(10.0, MetricKind::AverageValue).unwrap()),
        20,
        &Reading::ready(5),
        "stays at 5 replicas: the metric is unknown (not offered by this source); the size is \
         kept, 600 s so far",
    );
}

#[test]
fn a_shrink_that_waits() {
    let bounds = Bounds::new(Replicas::ONE, Replicas::new(20)).unwrap();
    let policy = Policy::Concurrency(ConcurrencyConfig::default());
    let config = ScalingConfig::new(policy, bounds, Slots::new(2).unwrap());
    let mut scaler = Scaler::new(config, Timestamp::ORIGIN, Replicas::new(5));
    let mut reading = load();
    for second in (0..600).step_by(2) {
        scaler.observe(at(second), &reading.at(second));
        scaler.decide(at(second));
    }
    reading.step(600, 2.0, 5);
    let mut sentence = String::new();
    for second in (600..659).step_by(2) {
        scaler.observe(at(second), &reading.at(second));
        sentence = scaler.decide(at(second)).to_string();
    }
    assert_eq!(
        sentence,
        "stays at 5 replicas: what is in flight needs 1.13 replicas, so 2 replicas; not shrunk \
         yet, as 5 were needed within 60 s"
    );
}
