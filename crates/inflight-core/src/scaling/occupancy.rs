//! The `occupancy` policy: the ratio of what is in flight to what is served, literally.
//!
//! `R_needed = L / max(S/R, 1)` for R > 0 and `L` for R = 0, with L in flight, S executing, R
//! ready replicas (Little, "A Proof for the Queuing Formula L = λW", 1961, makes rates of time
//! counters such means). No constant depends on the model. It deliberately corrects nothing: not
//! the wire, not batching, not one model that waits while another has room.
//!
//! Where the memory for requests fills before the slots do, as key-value caches of language models,
//! a second wish is the size at which no replica's is fuller than its target; the larger one counts.

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
    filled_target: Option<f64>,
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
    /// Memory in use, where it is looked at.
    pub filled: Option<Filled>,
    /// The size wished for.
    pub want: Replicas,
}

/// Memory in use, as a reason for a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filled {
    /// How much is in use, in replicas' worth; `None` is unknown.
    pub used: Option<f64>,
    /// Settings: how full one replica's may be.
    pub target: f64,
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
            filled_target: None,
        })
    }

    /// Looks at memory in use as well, of which a replica may have so large a part.
    ///
    /// # Errors
    ///
    /// `target` is not from 0.001 to 1.
    pub fn with_filled_target(self, target: f64) -> Result<Self, ConfigError> {
        let target = error::number("cache_target", target, 1e-3, 1.0)?;
        Ok(Self {
            filled_target: Some(target),
            ..self
        })
    }

    /// Returns how full a replica's memory may be, where that is looked at.
    #[must_use]
    pub const fn filled_target(&self) -> Option<f64> {
        self.filled_target
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
        let in_flight = history.in_flight_mean(now, self.window);
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
        let filled = self.filled_target.map(|target| Filled {
            used: history.filled_mean(now, self.window).ok(),
            target,
        });
        inputs.extend(filled.map(|filled| Input {
            name: "filled",
            value: filled.used,
        }));
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
        let want = wanted(value, self.threshold).max(Filled::wanted(filled));
        let current = situation.current.as_f64();
        let needed = (value / self.threshold).max(Filled::needed(filled));
        let ratio = (current > 0.0).then(|| needed / current);
        Assessment {
            inputs,
            finding: Finding::Occupancy(OccupancyFinding {
                in_flight: in_flight.unwrap_or(0.0),
                executing: executing.ok(),
                replicas: replicas.unwrap_or(0.0),
                required: value,
                threshold: self.threshold,
                filled,
                want,
            }),
            sizing: Some(Sizing {
                complete: complete && filled.is_none_or(|filled| filled.used.is_some()),
                ..Sizing::flat(want, ratio)
            }),
        }
    }
}

impl Filled {
    /// Returns the replicas, and parts of one, for which the memory in use is enough; what is
    /// unknown asks for none.
    fn needed(filled: Option<Self>) -> f64 {
        let needed = filled.and_then(|filled| Some(filled.used? / filled.target));
        needed.unwrap_or(0.0)
    }

    fn wanted(filled: Option<Self>) -> Replicas {
        Replicas::ceil(Self::needed(filled))
    }
}

impl OccupancyFinding {
    /// Returns the memory in use where it asks for more than what is in flight.
    #[must_use]
    pub fn filled_most(&self) -> Option<(f64, f64)> {
        let filled = self.filled?;
        let used = filled.used?;
        (used / filled.target > self.required / self.threshold).then_some((used, filled.target))
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
            " on {:.1} ready replicas would not wait on {:.1}; with {} for each",
            self.replicas, self.required, self.threshold,
        )?;
        match self.filled {
            Some(Filled {
                used: Some(used),
                target,
            }) => write!(
                f,
                ", and memory in use for {used:.2} full ones, with {target} for each"
            )?,
            Some(Filled { used: None, .. }) => f.write_str(", memory in use unknown")?,
            None => {}
        }
        write!(f, ", {}", Counted(self.want))
    }
}
