//! A target of requests per second and replica, by an HPA.
//!
//! Source: Kubernetes documentation, "HorizontalPodAutoscaler Walkthrough" (pods metric
//! `requests-per-second`, `AverageValue`). The target is the best anybody could set: a share of
//! what a replica can serve, with the true mean service time known.

use std::time::Duration;

use super::Window;
use super::hpa::{Behavior, Hpa, SYNC};
use crate::control::Rule;
use crate::readings::Readings;
use crate::units::replicas_ceil;

/// The rule.
#[derive(Debug)]
pub struct Rps {
    /// Requests per second that a replica is for.
    target: f64,
    arrivals: Window,
    hpa: Hpa,
}

impl Rps {
    /// Builds the rule for a target of requests per second and replica.
    #[must_use]
    pub fn new(target: f64) -> Self {
        Self {
            target,
            arrivals: Window::new(60.0),
            hpa: Hpa::new(Behavior::DEFAULT),
        }
    }
}

impl Rule for Rps {
    fn every(&self) -> Duration {
        SYNC
    }

    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32> {
        let arrivals = fleet.models.iter().map(|model| model.arrivals);
        self.arrivals.push(now, arrivals.sum());
        let need = self.arrivals.rate() / self.target;
        let ratio = need / f64::from(fleet.desired.max(1));
        let wish = if self.hpa.is_within_tolerance(ratio) {
            fleet.desired
        } else {
            replicas_ceil(need)
        };
        Some(self.hpa.settle(now, fleet.desired, wish))
    }
}
