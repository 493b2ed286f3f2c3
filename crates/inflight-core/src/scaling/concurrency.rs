//! The `concurrency` policy: what is in flight by what one replica is for, with a stable and a
//! burst window.
//!
//! As in Knative's autoscaler (knative/serving, `docs/scaling/SYSTEM.md`), whose panic mode is
//! the burst here, but for what its users reported: the burst takes the larger of both windows,
//! and ends one stable window after its threshold was last passed whether or not the fleet grew.

use std::fmt;
use std::time::Duration;

use super::error::{self, ConfigError};
use super::sizing::{Assessment, Finding, Situation, Sizing};
use crate::decision::{Counted, Input};
use crate::ids::ModelIndex;
use crate::load::{Quantity, Unknown};
use crate::time::Timestamp;
use crate::units::{Replicas, Slots};

/// Settings of the `concurrency` policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyConfig {
    utilization: f64,
    measure: Measure,
    stable: Duration,
    burst: Duration,
    burst_threshold: f64,
}

/// What of the number in flight is averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The number itself.
    Mean,
    /// The largest number of each bucket, so that gaps shorter than a bucket count as load.
    Peak,
}

/// A burst that is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    last_passed: Timestamp,
    largest: Replicas,
}

impl Burst {
    /// Goes on with a burst whose threshold was last passed at a moment.
    pub(super) const fn of(last_passed: Timestamp, largest: Replicas) -> Self {
        Self {
            last_passed,
            largest,
        }
    }

    /// Returns when the threshold was last passed, and the largest size.
    pub(super) const fn parts(self) -> (Timestamp, Replicas) {
        (self.last_passed, self.largest)
    }
}

/// What the policy found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConcurrencyFinding {
    /// Replicas needed over the stable window, not rounded.
    pub stable: f64,
    /// Replicas needed over the burst window, not rounded.
    pub burst: f64,
    /// Whether a burst is going on.
    pub in_burst: bool,
    /// The size wished for.
    pub want: Replicas,
}

impl Default for ConcurrencyConfig {
    /// Full use of the slots by the mean, over windows as Knative's: 60 s, and a tenth of it.
    fn default() -> Self {
        Self {
            utilization: 1.0,
            measure: Measure::Mean,
            stable: Duration::from_secs(60),
            burst: Duration::from_secs(6),
            burst_threshold: 2.0,
        }
    }
}

impl ConcurrencyConfig {
    /// Builds the settings.
    ///
    /// # Errors
    ///
    /// `utilization` is not from 0.01 to 1, a window not from one second to one hour, or the
    /// burst window longer than the stable one.
    pub fn new(
        utilization: f64,
        measure: Measure,
        stable: Duration,
        burst: Duration,
    ) -> Result<Self, ConfigError> {
        let stable = error::window("scaling.stable_window", stable)?;
        let burst = error::window("scaling.burst_window", burst)?;
        if burst > stable {
            let (key, min) = ("scaling.burst_window", Duration::from_secs(1));
            return Err(ConfigError::Span {
                key,
                value: burst,
                min,
                max: stable,
            });
        }
        let utilization = error::number("scaling.utilization", utilization, 0.01, 1.0)?;
        Ok(Self {
            utilization,
            measure,
            stable,
            burst,
            burst_threshold: 2.0,
        })
    }

    /// Changes how many times the ready replicas a burst needs (Knative's default is 2).
    ///
    /// # Errors
    ///
    /// `threshold` is not from 1 to 10.
    pub fn with_burst_threshold(self, threshold: f64) -> Result<Self, ConfigError> {
        let burst_threshold = error::number("scaling.burst_threshold", threshold, 1.0, 10.0)?;
        Ok(Self {
            burst_threshold,
            ..self
        })
    }

    /// Returns the share of the slots that is used.
    #[must_use]
    pub const fn utilization(&self) -> f64 {
        self.utilization
    }

    /// Returns the burst window.
    #[must_use]
    pub const fn burst_window(&self) -> Duration {
        self.burst
    }

    /// Returns how many times the ready replicas a burst needs.
    #[must_use]
    pub const fn burst_threshold(&self) -> f64 {
        self.burst_threshold
    }

    /// Returns the stable window.
    #[must_use]
    pub const fn stable_window(&self) -> Duration {
        self.stable
    }

    /// Returns what is averaged.
    #[must_use]
    pub const fn measure(&self) -> Measure {
        self.measure
    }

    pub(super) fn assess(
        &self,
        situation: &Situation<'_>,
        burst: &mut Option<Burst>,
    ) -> Assessment {
        let over = |window| self.needed(situation, window);
        let (stable, short) = (over(self.stable), over(self.burst));
        let ready = situation.history.ready(situation.now);
        let inputs = vec![
            Input {
                name: "needed_stable",
                value: stable.ok(),
            },
            Input {
                name: "needed_burst",
                value: short.ok(),
            },
            Input {
                name: "ready",
                value: ready.ok().map(Replicas::as_f64),
            },
        ];
        let (stable, short, ready) = match (stable, short, ready) {
            (Ok(stable), Ok(short), Ok(ready)) => (stable, short, ready),
            (Err(unknown), _, _) | (_, Err(unknown), _) | (_, _, Err(unknown)) => {
                return Assessment::unknown(inputs, unknown);
            }
        };
        *burst = self.next_burst(situation.now, *burst, short, ready);
        let want = size(stable, short, burst.map(|burst| burst.largest));
        if let Some(burst) = burst {
            burst.largest = want;
        }
        let current = situation.current.as_f64();
        let ratio = (current > 0.0).then(|| stable.max(short) / current);
        let ratio = if burst.is_some() { None } else { ratio };
        let finding = ConcurrencyFinding {
            stable,
            burst: short,
            in_burst: burst.is_some(),
            want,
        };
        Assessment {
            inputs,
            finding: Finding::Concurrency(finding),
            sizing: Some(Sizing::flat(want, ratio)),
        }
    }

    /// Returns the replicas that the load over a window needs, not rounded.
    fn needed(&self, situation: &Situation<'_>, window: Duration) -> Result<f64, Unknown> {
        let Situation {
            now,
            history,
            slots,
            ..
        } = *situation;
        match self.measure {
            Measure::Mean => {
                let mut needed = 0.0_f64;
                for (index, slots) in slots.iter().enumerate() {
                    let model = ModelIndex(index);
                    let mean = history.mean(now, model, Quantity::InFlight, window)?;
                    needed = needed.max(mean / (slots.as_f64() * self.utilization));
                }
                Ok(needed)
            }
            Measure::Peak => {
                // Bucket maxima are of all models together, as are the slots they fill.
                let slots: f64 = slots.iter().copied().map(Slots::as_f64).sum();
                Ok(history.peak_mean(now, window)? / (slots * self.utilization))
            }
        }
    }

    /// Begins, prolongs or ends a burst.
    fn next_burst(
        &self,
        now: Timestamp,
        burst: Option<Burst>,
        needed: f64,
        ready: Replicas,
    ) -> Option<Burst> {
        let passed = whole(needed).as_f64() >= self.burst_threshold * ready.as_f64().max(1.0);
        match burst {
            Some(burst) if passed => Some(Burst {
                last_passed: now,
                ..burst
            }),
            Some(burst) if now.since(burst.last_passed) < self.stable => Some(burst),
            None if passed => Some(Burst {
                last_passed: now,
                largest: Replicas::ZERO,
            }),
            Some(_) | None => None,
        }
    }
}

/// Returns the size for the needs over both windows; `burst` is the largest size of the burst
/// that is going on.
#[must_use]
pub fn size(needed_stable: f64, needed_burst: f64, burst: Option<Replicas>) -> Replicas {
    let stable = whole(needed_stable);
    match burst {
        Some(largest) => largest.max(stable).max(whole(needed_burst)),
        None => stable,
    }
}

/// Rounds up to whole replicas, less a millionth of the need.
///
/// A mean of exactly one must not become two because it is the difference of two large totals: a
/// total of 10^8 request-seconds (three years of one client) is known to 10^-8 s, a mean over 6 s
/// then to 10^-9.
fn whole(needed: f64) -> Replicas {
    Replicas::ceil(needed * (1.0 - 1e-6))
}

impl fmt::Display for ConcurrencyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "what is in flight needs {:.2} replicas", self.stable)?;
        if self.in_burst {
            write!(f, ", in the burst that is going on {:.2}", self.burst)?;
        }
        write!(f, ", so {}", Counted(self.want))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_one_that_is_rounded_up_in_its_last_digits_needs_one_replica() {
        assert_eq!(
            size(1.0 + 1e-8, 1.0 + 1e-8, Some(Replicas::ONE)),
            Replicas::ONE
        );
        assert_eq!(size(1.000_01, 0.0, None), Replicas::new(2));
    }
}
