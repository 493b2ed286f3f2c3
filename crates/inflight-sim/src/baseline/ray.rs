//! Ray Serve's autoscaler: ongoing requests by a target for each replica, with delays.
//!
//! Source: Ray documentation, "Advanced Ray Serve Autoscaling" (`target_ongoing_requests`,
//! `look_back_period_s`, `upscale_delay_s`, `downscale_delay_s`). A size must be too small, or too
//! large, at every look for its whole delay; smoothing factors are 1. Scaled up by what is in
//! flight at the proxy, which handles report.

use std::time::Duration;

use super::Window;
use crate::control::Rule;
use crate::readings::Readings;
use crate::units::replicas_ceil;

/// The rule; of several models the largest size counts. *Units*: seconds.
#[derive(Debug)]
pub struct Ray {
    /// Ongoing requests that a replica is for, of each model, and those there are.
    models: Vec<(f64, Window)>,
    up_delay: f64,
    down_delay: f64,
    /// Since when the size is too small or too large.
    leaning: Option<(bool, f64)>,
}

impl Ray {
    /// Builds the rule with Ray's default delays, for targets of ongoing requests per replica.
    #[must_use]
    pub fn new(targets: &[f64]) -> Self {
        let model = |&target: &f64| (target, Window::new(30.0));
        Self {
            models: targets.iter().map(model).collect(),
            up_delay: 30.0,
            down_delay: 600.0,
            leaning: None,
        }
    }
}

impl Rule for Ray {
    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32> {
        let mut wish = 0;
        for ((target, ongoing), model) in self.models.iter_mut().zip(&fleet.models) {
            ongoing.push(now, model.in_flight_seconds);
            wish = wish.max(replicas_ceil(ongoing.rate() / *target));
        }
        if wish == fleet.desired {
            self.leaning = None;
            return None;
        }
        let is_up = wish > fleet.desired;
        let since = match self.leaning {
            Some((was_up, since)) if was_up == is_up => since,
            Some(_) | None => now,
        };
        self.leaning = Some((is_up, since));
        let delay = if is_up {
            self.up_delay
        } else {
            self.down_delay
        };
        if now - since < delay {
            return None;
        }
        self.leaning = None;
        Some(wish)
    }
}
