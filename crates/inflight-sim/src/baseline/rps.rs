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

/// The rule; of several models the largest size counts.
#[derive(Debug)]
pub struct Rps {
    /// Requests per second that a replica is for, of each model, and those that arrive.
    models: Vec<(f64, Window)>,
    hpa: Hpa,
}

impl Rps {
    /// Builds the rule for targets of requests per second and replica, of each model.
    #[must_use]
    pub fn new(targets: &[f64]) -> Self {
        let model = |&target: &f64| (target, Window::new(60.0));
        Self {
            models: targets.iter().map(model).collect(),
            hpa: Hpa::new(Behavior::DEFAULT),
        }
    }
}

impl Rule for Rps {
    fn every(&self) -> Duration {
        SYNC
    }

    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32> {
        let mut need: f64 = 0.0;
        for ((target, window), model) in self.models.iter_mut().zip(&fleet.models) {
            window.push(now, model.arrivals);
            need = need.max(window.rate() / *target);
        }
        let ratio = need / f64::from(fleet.desired.max(1));
        let wish = if self.hpa.is_within_tolerance(ratio) {
            fleet.desired
        } else {
            replicas_ceil(need)
        };
        Some(self.hpa.settle(now, fleet.desired, wish))
    }
}
