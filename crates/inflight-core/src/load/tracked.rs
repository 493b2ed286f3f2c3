//! One quantity as its source gives it: checked, dated by its age, and put into a series.
//!
//! A value that is missing or no number leaves the series as it was, and is remembered as the
//! reason why the quantity is unknown once the series is stale.

use std::time::Duration;

use super::freshness::{Estimator, Missing, Term};
use super::observation::Level;
use super::series::Series;
use crate::time::Timestamp;

/// A series and why its latest reading, if it was missing, was so.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) series: Series,
    pub(super) missing: Option<Missing>,
}

/// A level's integral and its latest value.
#[derive(Clone, Debug)]
pub(super) struct Leveled {
    pub(super) integral: Tracked,
    pub(super) now: Option<(Timestamp, f64)>,
    /// Whether it is measured from outside: there was a load before the first reading, and nobody
    /// knows which.
    pub(super) is_from_outside: bool,
}

impl Leveled {
    pub(super) fn new(horizon: Duration) -> Self {
        Self {
            integral: Tracked::series(horizon),
            now: None,
            is_from_outside: false,
        }
    }

    /// Tells whether one reading is all there is of a load that was there before: no mean is known.
    pub(super) fn is_of_one_reading(&self) -> bool {
        self.is_from_outside
            && self.integral.series.newest().is_some()
            && self.integral.series.span().is_zero()
    }

    /// Tells whether a load was not seen in a part of this window, since nobody read it then.
    pub(super) fn is_partial(&self, window: Duration) -> bool {
        self.is_from_outside && self.integral.series.span() < window
    }

    pub(super) fn record(&mut self, now: Timestamp, level: Level) -> f64 {
        let value = match level.now {
            Term::Known { value, age, .. } => Ok((now - age, value.get())),
            Term::Unknown(missing) => Err(missing),
        };
        self.now = value.ok().or(self.now);
        let held = value.ok().map(|(_, value)| value);
        let (at, cumulative) = match (checked(now, level.integral), value) {
            (Ok((at, seconds)), _) => (at, Some(seconds)),
            (Err(_), Ok((at, _))) => (at, None),
            (Err(missing), Err(why)) => {
                let offered = missing != Missing::NotOffered;
                self.integral.missing = Some(if offered { missing } else { why });
                return 0.0;
            }
        };
        self.integral.missing = None;
        if let Term::Known { estimator, .. } = level.now {
            let outside = [Estimator::LiveGauge, Estimator::CompletionCounter];
            self.is_from_outside = outside.contains(&estimator);
        }
        match (cumulative, level.now) {
            (
                None,
                Term::Known {
                    value,
                    estimator: Estimator::Query,
                    ..
                },
            ) => self.integral.series.record_mean(at, value.get()),
            (Some(_) | None, _) => self.integral.series.record(at, cumulative, held),
        }
    }
}

impl Tracked {
    pub(super) fn series(horizon: Duration) -> Self {
        Self {
            series: Series::new(horizon),
            missing: Some(Missing::NeverRead),
        }
    }

    pub(super) fn record(&mut self, now: Timestamp, term: Term<f64>) -> f64 {
        match checked(now, term) {
            Ok((at, value)) => {
                self.missing = None;
                self.series.record(at, Some(value), None)
            }
            Err(missing) => {
                self.missing = Some(missing);
                0.0
            }
        }
    }

    /// Takes a level, which is integrated.
    pub(super) fn record_level(&mut self, now: Timestamp, term: Term<f64>) {
        match checked(now, term) {
            Ok((at, value)) => {
                self.missing = None;
                let is_mean = matches!(
                    term,
                    Term::Known {
                        estimator: Estimator::Query,
                        ..
                    }
                );
                if is_mean {
                    self.series.record_mean(at, value);
                } else {
                    self.series.record(at, None, Some(value));
                }
            }
            Err(missing) => self.missing = Some(missing),
        }
    }

    pub(super) fn fresh(&self, now: Timestamp, limit: Duration) -> Result<&Series, Missing> {
        let Some(at) = self.series.newest() else {
            return Err(self.missing.unwrap_or(Missing::NeverRead));
        };
        let age = now.since(at);
        if age <= limit {
            return Ok(&self.series);
        }
        Err(self.missing.unwrap_or(Missing::Stale { age }))
    }
}

/// Returns a cumulative value and when it was true, unless it is not one.
fn checked(now: Timestamp, term: Term<f64>) -> Result<(Timestamp, f64), Missing> {
    match term {
        Term::Known { value, age, .. } if value.is_finite() && value >= 0.0 => {
            Ok((now - age, value))
        }
        Term::Known { .. } => Err(Missing::NotANumber),
        Term::Unknown(missing) => Err(missing),
    }
}
