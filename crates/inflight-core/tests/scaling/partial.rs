//! When a part of the load comes back that could not be seen for a while.

use std::time::Duration;

use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, DownWindow, OccupancyConfig, Policy, Scaler, ScalingConfig,
};
use inflight_core::{Replicas, Slots, Timestamp};

use crate::driver::reading::{Reading, at};

#[test]
fn b16_what_was_missed_shrinks_no_fleet_as_long_as_a_window_holds_it() {
    for policy in [
        Policy::Occupancy(OccupancyConfig::new(2.0, Duration::from_secs(60)).unwrap()),
        Policy::Concurrency(ConcurrencyConfig::default()),
    ] {
        let bounds = Bounds::new(Replicas::ONE, Replicas::new(100)).unwrap();
        let config = ScalingConfig {
            down_window: DownWindow::Fixed(Duration::ZERO),
            ..ScalingConfig::new(policy, bounds, Slots::ONE)
        };
        let mut scaler = Scaler::new(config, Timestamp::ORIGIN, Replicas::new(10));
        let mut reading = Reading::ready(10);
        let mut sizes = Vec::new();
        for second in (0..900).step_by(2) {
            match second {
                0 | 420 => reading.step(second, 10.0, 10),
                // Half of the load cannot be seen for two minutes; then less is really there.
                300 => reading.step(second, 5.0, 10),
                600 => reading.step(second, 1.0, 10),
                _ => {}
            }
            let mut observation = reading.at(second);
            observation.is_partial = (300..420).contains(&second);
            scaler.observe(at(second), &observation);
            sizes.push(scaler.decide(at(second)).desired);
        }
        let before = sizes[149];
        assert_eq!(
            sizes[150..300],
            [before].repeat(150),
            "the load was the same"
        );
        assert!(sizes[449] < before, "and a fleet shrinks that needs less");
    }
}
