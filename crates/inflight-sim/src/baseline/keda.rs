//! A number from a query, by KEDA to an HPA: polled, of semantics `Value` or `AverageValue`.
//!
//! Source: KEDA documentation, "Prometheus scaler" and "Scaling Deployments" (polling interval,
//! metric type), and the documentation of the HPA for the rest. The two numbers are the old queue
//! latency and the occupancy ratio of the first observation; the latter's formula is the core's.

use std::time::Duration;

use inflight_core::scaling::occupancy::{Required, required};

use super::Window;
use super::hpa::{Behavior, Hpa, SYNC};
use crate::control::Rule;
use crate::readings::Readings;
use crate::units::replicas_ceil;

/// Which number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Milliseconds of queue for each execution, `Value`: the size times the ratio to the target.
    QueueLatency {
        /// The number at which the size is right.
        target: f64,
    },
    /// Replicas at which nobody waits, `AverageValue`: the number by the target.
    Occupancy {
        /// How many of these a replica is for.
        target: f64,
    },
}

/// Prometheus scrapes as often.
const SCRAPE: Duration = Duration::from_secs(5);

/// A number, polled, and an HPA.
#[derive(Debug)]
pub struct Keda {
    number: Number,
    polling: f64,
    hpa: Hpa,
    waited: Window,
    executions: Window,
    in_flight: Window,
    executing: Window,
    polled: Option<(f64, f64)>,
    synced: f64,
}

impl Keda {
    /// Builds the rule; `polling` is in seconds.
    #[must_use]
    pub fn new(number: Number, polling: f64, behavior: Behavior) -> Self {
        // The windows of the queries, as the first observation gives them.
        Self {
            number,
            polling,
            hpa: Hpa::new(behavior),
            waited: Window::new(30.0),
            executions: Window::new(30.0),
            in_flight: Window::new(60.0),
            executing: Window::new(60.0),
            polled: None,
            synced: 0.0,
        }
    }

    fn scrape(&mut self, now: f64, fleet: &Readings) {
        let sum = |of: fn(&crate::ModelReading) -> f64| fleet.models.iter().map(of).sum();
        self.waited.push(now, sum(|model| model.wait_seconds));
        self.executions.push(now, sum(|model| model.executions));
        self.in_flight.push(now, sum(|model| model.sojourn_seconds));
        self.executing.push(now, sum(|model| model.service_seconds));
    }

    fn query(&self, fleet: &Readings) -> f64 {
        match self.number {
            Number::QueueLatency { .. } => {
                let microseconds = self.waited.rate() * 1e6;
                microseconds / (self.executions.rate() * 1000.0 + 0.001)
            }
            Number::Occupancy { .. } => {
                let (in_flight, executing) = (self.in_flight.rate(), self.executing.rate());
                match required(Ok(in_flight), Ok(executing), Ok(f64::from(fleet.ready))) {
                    Required::Known(needed) | Required::Degraded(needed) => needed,
                    Required::Unknown(_) => 0.0,
                }
            }
        }
    }

    fn wish(&self, value: f64, fleet: &Readings) -> u32 {
        let (ratio, wish) = match self.number {
            Number::QueueLatency { target } => {
                let ratio = value / target;
                (ratio, replicas_ceil(ratio * f64::from(fleet.ready)))
            }
            Number::Occupancy { target } => {
                let pods = f64::from(fleet.ready + fleet.starting).max(1.0);
                (value / (target * pods), replicas_ceil(value / target))
            }
        };
        if self.hpa.is_within_tolerance(ratio) {
            fleet.desired
        } else {
            wish
        }
    }
}

impl Rule for Keda {
    fn every(&self) -> Duration {
        SCRAPE
    }

    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32> {
        self.scrape(now, fleet);
        if self.polled.is_none_or(|(at, _)| now >= at + self.polling) {
            self.polled = Some((now, self.query(fleet)));
        }
        let (_, value) = self.polled?;
        if now < self.synced + SYNC.as_secs_f64() && now > 0.0 {
            return None;
        }
        self.synced = now;
        let wish = self.wish(value, fleet);
        Some(self.hpa.settle(now, fleet.desired, wish))
    }
}
