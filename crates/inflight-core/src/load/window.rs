//! What was observed over time: the windows that every policy looks at.
//!
//! Holds no opinion on how much is too much. A quantity whose newest reading is older than the
//! freshness limit is unknown; a reading that is missing leaves the earlier ones in force until
//! then.

mod past;

use std::fmt;
use std::time::Duration;

use super::freshness::{Missing, Term};
use super::observation::{ModelLoad, Observation, ReplicaView};
use super::series::{MEAN_MAX, Maxima, Series};
use super::tracked::{Leveled, Tracked};
use crate::ids::ModelIndex;
use crate::time::Timestamp;
use crate::units::{Occupancy, Replicas};

pub use past::{PastLoad, PastModel};

/// How far back the largest number in flight and the service time reach (`docs/policies.md`,
/// `staffing`); most other windows are far shorter, so that only these need the memory.
const LONG_HORIZON: Duration = Duration::from_secs(300);

/// The readings of one fleet, in bounded memory at any reading rate.
#[derive(Clone, Debug)]
pub struct History {
    models: Vec<ModelHistory>,
    ready: Tracked,
    ready_now: Term<Replicas>,
    peak: Tracked,
    metric: Term<f64>,
    filled: Tracked,
    is_partial: bool,
    /// When a part of the load was last missing.
    partial_at: Option<Timestamp>,
    read_at: Option<Timestamp>,
    freshness: Duration,
}

/// One thing that is measured, by the name it has in reasons and inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Requests in flight.
    InFlight,
    /// Requests executing.
    Executing,
    /// Requests queued.
    Queued,
    /// Arrivals.
    Arrivals,
    /// Completions.
    Completions,
    /// Time executing of the completed.
    ServiceSeconds,
    /// The largest number in flight.
    InFlightMax,
    /// The integral of bucket maxima.
    Peak,
    /// Ready replicas.
    Ready,
    /// The user's own number.
    Metric,
    /// Memory in use.
    Filled,
}

/// A quantity that a policy needs and that is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unknown {
    /// Which.
    pub quantity: Quantity,
    /// Why.
    pub missing: Missing,
}

/// What a reading says about whether anything was going on since the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Something is in flight, arrived or was in flight.
    Busy,
    /// Nothing is in flight and nothing was.
    Idle,
    /// The number in flight is unknown.
    Unknown,
}

#[derive(Clone, Debug)]
struct ModelHistory {
    in_flight: Leveled,
    executing: Leveled,
    queued: Leveled,
    arrivals: Tracked,
    completions: Tracked,
    service_seconds: Tracked,
    in_flight_max: Maxima,
}

impl History {
    /// Builds the history of a fleet that was never read, whose windows reach back to `horizon`;
    /// service times and the largest number in flight reach back 300 s at least.
    #[must_use]
    pub fn new(model_count: usize, horizon: Duration, freshness: Duration) -> Self {
        let models = (0..model_count)
            .map(|_| ModelHistory::new(horizon))
            .collect();
        Self {
            models,
            ready: Tracked::series(horizon),
            ready_now: Term::Unknown(Missing::NeverRead),
            peak: Tracked::series(horizon),
            metric: Term::Unknown(Missing::NeverRead),
            filled: Tracked::series(horizon),
            is_partial: false,
            partial_at: None,
            read_at: None,
            freshness,
        }
    }

    /// Changes how far back the history reaches and what counts as fresh; keeps what was read.
    pub fn reshape(&mut self, model_count: usize, horizon: Duration, freshness: Duration) {
        self.models
            .resize_with(model_count, || ModelHistory::new(horizon));
        for model in &mut self.models {
            model.set_horizon(horizon);
        }
        self.ready.series.set_horizon(horizon);
        self.peak.series.set_horizon(horizon);
        self.filled.series.set_horizon(horizon);
        self.freshness = freshness;
    }

    /// Takes a reading. Rows of models that the configuration does not name are ignored; a model
    /// without a row was not read.
    pub fn observe(&mut self, now: Timestamp, observation: &Observation) -> Activity {
        let mut activity = Activity::Idle;
        for (model, load) in self.models.iter_mut().zip(&observation.models) {
            activity = activity.and(model.observe(now, load));
        }
        if activity == Activity::Unknown
            && let Some(metric) = observation.metric.known()
        {
            // A source of the user's own number knows of nothing else that goes on.
            activity = if metric > 0.0 {
                Activity::Busy
            } else {
                Activity::Idle
            };
        }
        if observation.models.len() < self.models.len() || observation.is_partial {
            activity = activity.and(Activity::Unknown);
        }
        self.observe_ready(now, &observation.replicas);
        self.peak.record(now, observation.peak_seconds);
        self.metric = observation.metric;
        self.filled.record_level(now, observation.filled);
        self.is_partial = observation.is_partial;
        if observation.is_partial {
            self.partial_at = Some(now);
        }
        self.read_at = Some(now);
        activity
    }

    /// Returns when the latest reading was taken.
    #[must_use]
    pub fn read_at(&self) -> Option<Timestamp> {
        self.read_at
    }

    /// Tells whether a part of the load is missing from the latest reading, or was from one of
    /// the last `window`, or nobody measured it yet for all of that: a mean over it is then the
    /// least there is.
    #[must_use]
    pub fn is_partial(&self, now: Timestamp, window: Duration) -> bool {
        let was_partial = |at| now.since(at) < window;
        self.is_partial
            || self.partial_at.is_some_and(was_partial)
            || (self.models.iter()).any(|model| model.in_flight.is_partial(window))
    }

    /// Returns the mean number in flight over the window, summed over the models.
    ///
    /// # Errors
    ///
    /// It is unknown for one of them. So is the mean of a load that is measured from outside and
    /// was read once: it began before.
    pub fn in_flight_mean(&self, now: Timestamp, window: Duration) -> Result<f64, Unknown> {
        if (self.models.iter()).any(|model| model.in_flight.is_of_one_reading()) {
            return Err(Quantity::InFlight.unknown(Missing::NeverRead));
        }
        self.total_mean(now, Quantity::InFlight, window)
    }

    /// Returns the number of models.
    #[must_use]
    pub fn model_count(&self) -> usize {
        self.models.len()
    }

    /// Returns the mean of a level, or the rate per second of a count, of one model over the
    /// window that ends at the newest reading of it.
    ///
    /// # Errors
    ///
    /// The quantity is unknown, or belongs to the fleet and not to a model.
    pub fn mean(
        &self,
        now: Timestamp,
        model: ModelIndex,
        quantity: Quantity,
        window: Duration,
    ) -> Result<f64, Unknown> {
        self.mean_between(now, model, quantity, window, Duration::ZERO)
    }

    /// Returns the same as [`History::mean`] for a window that ended `to_ago` before.
    ///
    /// # Errors
    ///
    /// The quantity is unknown, or belongs to the fleet and not to a model.
    pub fn mean_between(
        &self,
        now: Timestamp,
        model: ModelIndex,
        quantity: Quantity,
        from_ago: Duration,
        to_ago: Duration,
    ) -> Result<f64, Unknown> {
        self.fresh(now, model, quantity)
            .map(|series| series.mean_between(from_ago, to_ago))
    }

    /// Returns the mean of a level, or the rate of a count, summed over the models.
    ///
    /// # Errors
    ///
    /// The quantity is unknown for one of the models.
    pub fn total_mean(
        &self,
        now: Timestamp,
        quantity: Quantity,
        window: Duration,
    ) -> Result<f64, Unknown> {
        let models = (0..self.models.len()).map(ModelIndex);
        models
            .map(|model| self.mean(now, model, quantity, window))
            .sum()
    }

    /// Returns the level of one model at its newest reading.
    #[must_use]
    pub fn level(&self, now: Timestamp, model: ModelIndex, quantity: Quantity) -> Option<f64> {
        let model = self.models.get(model.0)?;
        let (at, value) = match quantity {
            Quantity::InFlight => model.in_flight.now,
            Quantity::Executing => model.executing.now,
            Quantity::Queued => model.queued.now,
            Quantity::Arrivals
            | Quantity::Completions
            | Quantity::ServiceSeconds
            | Quantity::InFlightMax
            | Quantity::Peak
            | Quantity::Ready
            | Quantity::Metric
            | Quantity::Filled => None,
        }?;
        (now.since(at) <= self.freshness).then_some(value.min(MEAN_MAX))
    }

    /// Returns the mean service time of the requests of one model that completed within the
    /// window; unknown if fewer than `completions_min` did.
    #[must_use]
    pub fn service_seconds(
        &self,
        now: Timestamp,
        model: ModelIndex,
        window: Duration,
        completions_min: f64,
    ) -> Option<f64> {
        let completions = self.fresh(now, model, Quantity::Completions).ok()?;
        let seconds = self.fresh(now, model, Quantity::ServiceSeconds).ok()?;
        let count = completions.growth(window, Duration::ZERO);
        // A count read with another rounding may fall short by an ulp.
        let enough = count > 0.0 && count >= completions_min - 1e-6;
        enough.then(|| (seconds.growth(window, Duration::ZERO) / count).min(MEAN_MAX))
    }

    /// Returns the largest number in flight of one model between two points before the newest
    /// reading of it.
    #[must_use]
    pub fn in_flight_max(
        &self,
        now: Timestamp,
        model: ModelIndex,
        from_ago: Duration,
        to_ago: Duration,
    ) -> Option<f64> {
        let maxima = &self.models.get(model.0)?.in_flight_max;
        let at = maxima.newest()?;
        if now.since(at) > self.freshness {
            return None;
        }
        maxima
            .largest(from_ago, to_ago)
            .map(|largest| largest.min(MEAN_MAX))
    }

    /// Returns the mean of the fleet's bucket maxima.
    ///
    /// # Errors
    ///
    /// The source does not offer them, or they are stale.
    pub fn peak_mean(&self, now: Timestamp, window: Duration) -> Result<f64, Unknown> {
        let fresh = self.peak.fresh(now, self.freshness);
        fresh
            .map(|series| series.mean(window))
            .map_err(|missing| Quantity::Peak.unknown(missing))
    }

    /// Returns the mean memory in use, in replicas' worth.
    ///
    /// # Errors
    ///
    /// The source does not offer it, or it is stale.
    pub fn filled_mean(&self, now: Timestamp, window: Duration) -> Result<f64, Unknown> {
        let fresh = self.filled.fresh(now, self.freshness);
        fresh
            .map(|series| series.mean(window))
            .map_err(|missing| Quantity::Filled.unknown(missing))
    }

    /// Returns the mean number of ready replicas.
    ///
    /// # Errors
    ///
    /// The number is unknown.
    pub fn ready_mean(&self, now: Timestamp, window: Duration) -> Result<f64, Unknown> {
        let fresh = self.ready.fresh(now, self.freshness);
        fresh
            .map(|series| series.mean(window))
            .map_err(|missing| Quantity::Ready.unknown(missing))
    }

    /// Returns the number of ready replicas at the latest reading.
    ///
    /// # Errors
    ///
    /// The number is unknown.
    pub fn ready(&self, now: Timestamp) -> Result<Replicas, Unknown> {
        self.latest(now, self.ready_now)
            .map_err(|missing| Quantity::Ready.unknown(missing))
    }

    /// Returns the user's own number.
    ///
    /// # Errors
    ///
    /// The number is unknown: missing, stale, or not a finite, non-negative number.
    pub fn metric(&self, now: Timestamp) -> Result<f64, Unknown> {
        // Negative zero is what a query yields that multiplies nothing by less than nothing.
        let checked = self.latest(now, self.metric).and_then(|value| {
            if value.is_finite() && value.is_sign_positive() {
                Ok(value)
            } else {
                Err(Missing::NotANumber)
            }
        });
        checked.map_err(|missing| Quantity::Metric.unknown(missing))
    }

    fn observe_ready(&mut self, now: Timestamp, view: &ReplicaView) {
        self.ready_now = view.ready();
        self.ready
            .record_level(now, self.ready_now.map(|ready| ready.as_f64()));
    }

    fn latest<T: Copy>(&self, now: Timestamp, term: Term<T>) -> Result<T, Missing> {
        let read_at = self.read_at.ok_or(Missing::NeverRead)?;
        match term {
            Term::Known { value, age, .. } => {
                let age = age.saturating_add(now.since(read_at));
                if age > self.freshness {
                    Err(Missing::Stale { age })
                } else {
                    Ok(value)
                }
            }
            Term::Unknown(missing) => Err(missing),
        }
    }

    fn fresh(
        &self,
        now: Timestamp,
        model: ModelIndex,
        quantity: Quantity,
    ) -> Result<&Series, Unknown> {
        let tracked = self
            .models
            .get(model.0)
            .and_then(|model| model.series(quantity));
        let series = tracked.ok_or(Missing::NotOffered);
        let fresh = series.and_then(|series| series.fresh(now, self.freshness));
        fresh.map_err(|missing| quantity.unknown(missing))
    }
}

impl ModelHistory {
    fn new(horizon: Duration) -> Self {
        Self {
            in_flight: Leveled::new(horizon),
            executing: Leveled::new(horizon),
            queued: Leveled::new(horizon),
            arrivals: Tracked::series(horizon),
            completions: Tracked::series(horizon.max(LONG_HORIZON)),
            service_seconds: Tracked::series(horizon.max(LONG_HORIZON)),
            in_flight_max: Maxima::new(horizon.max(LONG_HORIZON)),
        }
    }

    fn set_horizon(&mut self, horizon: Duration) {
        let levels = [&mut self.in_flight, &mut self.executing, &mut self.queued];
        for level in levels {
            level.integral.series.set_horizon(horizon);
        }
        self.arrivals.series.set_horizon(horizon);
        self.completions
            .series
            .set_horizon(horizon.max(LONG_HORIZON));
        self.service_seconds
            .series
            .set_horizon(horizon.max(LONG_HORIZON));
        self.in_flight_max.set_horizon(horizon.max(LONG_HORIZON));
    }

    fn observe(&mut self, now: Timestamp, load: &ModelLoad) -> Activity {
        let mut moved = self.in_flight.record(now, load.in_flight);
        self.executing.record(now, load.executing);
        self.queued.record(now, load.queued);
        moved += self.arrivals.record(now, load.arrivals);
        self.completions.record(now, load.completions);
        self.service_seconds.record(now, load.service_seconds);
        if let Term::Known { value, age, .. } = load.in_flight_max {
            self.in_flight_max.record(now - age, value.get());
            moved += value.get();
        }
        let level = load.in_flight.now.known().map(Occupancy::get);
        let known = level.is_some() || load.in_flight.integral.known().is_some();
        if moved + level.unwrap_or(0.0) > 0.0 {
            Activity::Busy
        } else if known {
            Activity::Idle
        } else {
            Activity::Unknown
        }
    }

    fn series(&self, quantity: Quantity) -> Option<&Tracked> {
        match quantity {
            Quantity::InFlight => Some(&self.in_flight.integral),
            Quantity::Executing => Some(&self.executing.integral),
            Quantity::Queued => Some(&self.queued.integral),
            Quantity::Arrivals => Some(&self.arrivals),
            Quantity::Completions => Some(&self.completions),
            Quantity::ServiceSeconds => Some(&self.service_seconds),
            Quantity::InFlightMax
            | Quantity::Peak
            | Quantity::Ready
            | Quantity::Metric
            | Quantity::Filled => None,
        }
    }
}

impl Activity {
    /// Joins what two models say: busy wins, then unknown.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Busy, _) | (_, Self::Busy) => Self::Busy,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Idle, Self::Idle) => Self::Idle,
        }
    }
}

impl Quantity {
    fn unknown(self, missing: Missing) -> Unknown {
        Unknown {
            quantity: self,
            missing,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InFlight => "the number in flight",
            Self::Executing => "the number executing",
            Self::Queued => "the number queued",
            Self::Arrivals => "the number of arrivals",
            Self::Completions => "the number of completions",
            Self::ServiceSeconds => "the time spent executing",
            Self::InFlightMax => "the largest number in flight",
            Self::Peak => "the integral of bucket maxima",
            Self::Ready => "the number of ready replicas",
            Self::Metric => "the metric",
            Self::Filled => "the memory in use",
        })
    }
}
