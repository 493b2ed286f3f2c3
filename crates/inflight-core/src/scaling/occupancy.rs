//! The `occupancy` policy: the ratio of what is in flight to what is served, literally.
//!
//! `R_needed = L / max(S/R, 1)` for R > 0 and `L` for R = 0, with L in flight, S executing, R
//! ready replicas (Little, "A Proof for the Queuing Formula L = λW", 1961, makes rates of time
//! counters such means). No constant depends on the model. It deliberately corrects nothing: not
//! the wire, not batching, not one model that waits while another has room.

use std::fmt;
use std::time::Duration;

use super::error::{self, ConfigError};
use super::sizing::{Assessment, Finding, Situation, Sizing};
use crate::decision::{Counted, Input};
use crate::load::{Missing, Quantity, Unknown};
use crate::units::Replicas;

/// Settings of the `occupancy` policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OccupancyConfig {
    threshold: f64,
    window: Duration,
}

/// What R_needed is, or why it is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Required {
    /// The formula had all its terms.
    Known(f64),
    /// The number executing is missing: all that is in flight counts as waiting. May grow a fleet,
    /// never shrink it.
    Degraded(f64),
    /// A term is unknown.
    Unknown(Unknown),
}

/// What the policy found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OccupancyFinding {
    /// Mean requests in flight.
    pub in_flight: f64,
    /// Mean requests executing.
    pub executing: Option<f64>,
    /// Mean ready replicas, at least one; zero when none is ready.
    pub replicas: f64,
    /// Replicas at which nobody would wait.
    pub required: f64,
    /// Settings: how many of these one replica is for.
    pub threshold: f64,
    /// The size wished for.
    pub want: Replicas,
}

impl OccupancyConfig {
    /// Builds the settings.
    ///
    /// # Errors
    ///
    /// `threshold` is not from 0.001 to 10^6 or `window` not from one second to one hour.
    pub fn new(threshold: f64, window: Duration) -> Result<Self, ConfigError> {
        Ok(Self {
            threshold: error::number("scaling.threshold", threshold, 1e-3, 1e6)?,
            window: error::window("scaling.window", window)?,
        })
    }

    /// Returns how long a request may take, in times of its service.
    #[must_use]
    pub const fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns the window of all means.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    pub(super) fn assess(&self, situation: &Situation<'_>) -> Assessment {
        let Situation { now, history, .. } = *situation;
        let in_flight = history.total_mean(now, Quantity::InFlight, self.window);
        let executing = history.total_mean(now, Quantity::Executing, self.window);
        let replicas = history.ready(now).and_then(|ready| {
            // All of the window, as executing is: the fresh replicas of a growing fleet would
            // else look idle. Never below one, since a mean over a start is a fraction.
            let mean = history.ready_mean(now, self.window)?;
            Ok(if ready == Replicas::ZERO {
                0.0
            } else {
                mean.max(1.0)
            })
        });
        let mut inputs = vec![
            Input {
                name: "in_flight",
                value: in_flight.ok(),
            },
            Input {
                name: "executing",
                value: executing.ok(),
            },
            Input {
                name: "replicas",
                value: replicas.ok(),
            },
        ];
        let required = required(
            in_flight.map_err(|unknown| unknown.missing),
            executing.map_err(|unknown| unknown.missing),
            replicas.map_err(|unknown| unknown.missing),
        );
        let (value, complete) = match required {
            Required::Known(value) => (value, true),
            Required::Degraded(value) => (value, false),
            Required::Unknown(unknown) => return Assessment::unknown(inputs, unknown),
        };
        inputs.push(Input {
            name: "required",
            value: Some(value),
        });
        let want = wanted(value, self.threshold);
        let for_present_size = self.threshold * situation.current.as_f64();
        let ratio = (for_present_size > 0.0).then(|| value / for_present_size);
        Assessment {
            inputs,
            finding: Finding::Occupancy(OccupancyFinding {
                in_flight: in_flight.unwrap_or(0.0),
                executing: executing.ok(),
                replicas: replicas.unwrap_or(0.0),
                required: value,
                threshold: self.threshold,
                want,
            }),
            sizing: Some(Sizing {
                complete,
                ..Sizing::flat(want, ratio)
            }),
        }
    }
}

/// Returns R_needed: the replicas at which nobody would wait, by the formula of the module.
///
/// Executing may be a difference of two counters and fall a little below zero, which is zero.
#[must_use]
pub fn required(
    in_flight: Result<f64, Missing>,
    executing: Result<f64, Missing>,
    replicas: Result<f64, Missing>,
) -> Required {
    let unknown = |quantity, missing| Required::Unknown(Unknown { quantity, missing });
    let in_flight = match in_flight.and_then(level) {
        Ok(in_flight) => in_flight,
        Err(missing) => return unknown(Quantity::InFlight, missing),
    };
    let replicas = match replicas.and_then(level) {
        Ok(replicas) => replicas,
        Err(missing) => return unknown(Quantity::Ready, missing),
    };
    if replicas <= 0.0 {
        return Required::Known(in_flight);
    }
    match executing {
        Ok(executing) if executing.is_finite() => {
            Required::Known(in_flight / (executing / replicas).max(1.0))
        }
        Ok(_) => unknown(Quantity::Executing, Missing::NotANumber),
        Err(missing @ (Missing::NotANumber | Missing::SeveralRows)) => {
            unknown(Quantity::Executing, missing)
        }
        Err(Missing::NotOffered | Missing::NeverRead | Missing::Stale { .. } | Missing::NoRow) => {
            Required::Degraded(in_flight)
        }
    }
}

/// Returns the inflation `R_needed / R`, which the admission gate compares with its threshold;
/// `None` without a ready replica.
#[must_use]
pub fn inflation(required: f64, replicas: f64) -> Option<f64> {
    (replicas > 0.0).then(|| required / replicas)
}

/// Returns the size for a need at a threshold.
#[must_use]
pub fn wanted(required: f64, threshold: f64) -> Replicas {
    Replicas::ceil(required / threshold)
}

/// Refuses what cannot be a mean number of requests or replicas.
fn level(value: f64) -> Result<f64, Missing> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(Missing::NotANumber)
    }
}

impl fmt::Display for OccupancyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} in flight", self.in_flight)?;
        match self.executing {
            Some(executing) => write!(f, ", {executing:.1} executing")?,
            None => f.write_str(", executing unknown")?,
        }
        write!(
            f,
            " on {:.1} ready replicas would not wait on {:.1}; with {} for each, {}",
            self.replicas,
            self.required,
            self.threshold,
            Counted(self.want)
        )
    }
}
