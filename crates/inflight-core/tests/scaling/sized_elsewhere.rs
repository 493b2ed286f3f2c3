//! A fleet that somebody else sizes, whose size nobody knows when we start.

use std::time::Duration;

use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, OccupancyConfig, Policy, Scaler, ScalingConfig,
};
use inflight_core::{Replicas, Slots, Timestamp};

use crate::driver::reading::{Reading, at};

#[test]
fn b35_a_fleet_that_somebody_else_sizes_is_found_by_the_first_readings() {
    for policy in [
        Policy::Concurrency(ConcurrencyConfig::default()),
        Policy::Occupancy(OccupancyConfig::new(1.0, Duration::from_secs(60)).unwrap()),
    ] {
        let bounds = Bounds::new(Replicas::ZERO, Replicas::new(100)).unwrap();
        let mut config = ScalingConfig::new(policy, bounds, Slots::new(10).unwrap());
        config.is_sized_elsewhere = true;
        let mut scaler = Scaler::new(config, Timestamp::ORIGIN, Replicas::ZERO);
        // At first the source has not found all of them.
        let found = (1..=7).chain(std::iter::repeat(7));
        for (second, ready) in (0..60).step_by(2).zip(found) {
            scaler.observe(at(second), &Reading::ready(ready).at(second));
            let decision = scaler.decide(at(second));
            let ready = Replicas::from_len(ready);
            assert!(decision.desired >= ready, "at {second}: {decision}");
        }
        // Nothing is in flight, and that is known for a whole window.
        for second in (60..300).step_by(2) {
            scaler.observe(at(second), &Reading::ready(7).at(second));
            scaler.decide(at(second));
        }
        let decision = scaler.decide(at(300));
        assert!(decision.desired < Replicas::new(7), "{decision}");
    }
}
