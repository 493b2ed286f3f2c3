//! How the core reads the simulated fleet: exactly, or as other systems' counters show it, and
//! through whatever goes wrong with readings.

use std::collections::VecDeque;
use std::time::Duration;

use inflight_core::load::{Estimator, Level, Missing, ModelLoad, Observation, ReplicaView, Term};
use inflight_core::{Occupancy, Replicas};

use crate::readings::{ModelReading, Readings};
use crate::scenario::{ReadingFault, ReadingFaultFrom};
use crate::units::{nanos, seconds};

/// What a source counts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Everything, at every event, as our gateway does.
    Exact,
    /// Time in counters that move when a request ends and are seen after a flush, as Envoy's
    /// (`upstream_rq_time`, flushed each 5 s) and Triton's (`nv_inference_request_duration_us`
    /// and `…_queue_duration_us`).
    Completions {
        /// How often counters are flushed.
        flush: Duration,
    },
}

/// Readings of one fleet.
#[derive(Clone, Debug)]
pub struct Observer {
    style: Style,
    faults: Vec<ReadingFaultFrom>,
    /// Earlier readings, for as long as a fault may delay them.
    past: VecDeque<(u64, Observation)>,
    flushed: Option<(u64, Vec<ModelReading>)>,
    frozen: Option<Observation>,
}

impl Observer {
    /// Builds an observer that meets faults.
    #[must_use]
    pub fn new(style: Style, faults: Vec<ReadingFaultFrom>) -> Self {
        Self {
            style,
            faults,
            past: VecDeque::new(),
            flushed: None,
            frozen: None,
        }
    }

    /// Returns how often to read, for decisions each `tick`.
    #[must_use]
    pub fn every(&self, tick: Duration) -> Duration {
        match self.style {
            Style::Exact => tick,
            Style::Completions { flush } => flush.min(tick),
        }
    }

    /// Returns what is read of a fleet; `None`: nothing.
    pub(crate) fn read(
        &mut self,
        now: u64,
        exact: Observation,
        readings: &Readings,
    ) -> Option<Observation> {
        let observation = match self.style {
            Style::Exact => exact,
            Style::Completions { flush } => self.completions(now, flush, exact, readings),
        };
        if self.faults.is_empty() {
            return Some(observation);
        }
        self.through_faults(now, observation)
    }

    fn completions(
        &mut self,
        now: u64,
        flush: Duration,
        exact: Observation,
        readings: &Readings,
    ) -> Observation {
        let flush = u64::try_from(flush.as_nanos()).unwrap_or(u64::MAX).max(1);
        let flushed_at = now - now % flush;
        let is_due = self.flushed.as_ref().is_none_or(|(at, _)| *at < flushed_at);
        if is_due {
            // Read once more often than flushed, this is what the flush saw, but for the events of
            // less than a reading's period.
            self.flushed = Some((flushed_at, readings.models.clone()));
        }
        let models = self.flushed.iter().flat_map(|(_, models)| models);
        let age = Duration::from_nanos(now - flushed_at);
        let counter = |value: f64| Term::Known {
            value,
            age,
            estimator: Estimator::CompletionCounter,
        };
        let level = |value: f64| Level {
            now: Term::Unknown(Missing::NotOffered),
            integral: counter(value),
        };
        let load = |model: &ModelReading| ModelLoad {
            in_flight: level(model.sojourn_seconds),
            executing: level(model.service_seconds),
            queued: level(model.wait_seconds),
            arrivals: counter(model.arrivals),
            completions: counter(model.completions),
            service_seconds: counter(model.service_seconds),
            in_flight_max: Term::Unknown(Missing::NotOffered),
        };
        Observation {
            models: models.map(load).collect(),
            replicas: ReplicaView::Ready(Term::exact(Replicas::new(readings.ready))),
            peak_seconds: Term::Unknown(Missing::NotOffered),
            ..exact
        }
    }

    fn through_faults(&mut self, now: u64, observation: Observation) -> Option<Observation> {
        let at = seconds(now);
        let longest = self.faults.iter().map(|fault| match fault.fault {
            ReadingFault::Delay { by } => nanos(by),
            ReadingFault::Drop | ReadingFault::Freeze | ReadingFault::Corrupt => 0,
        });
        let longest = longest.max().unwrap_or(0);
        self.past.push_back((now, observation.clone()));
        while self
            .past
            .get(1)
            .is_some_and(|&(second, _)| second + longest <= now)
        {
            self.past.pop_front();
        }
        let active = self
            .faults
            .iter()
            .find(|fault| fault.from <= at && at < fault.from + fault.span);
        match active.map(|fault| fault.fault) {
            None => {
                self.frozen = None;
                Some(observation)
            }
            Some(ReadingFault::Drop) => None,
            Some(ReadingFault::Freeze) => Some(self.frozen.get_or_insert(observation).clone()),
            Some(ReadingFault::Corrupt) => Some(corrupt(observation, now)),
            Some(ReadingFault::Delay { by }) => {
                let then = now.saturating_sub(nanos(by));
                let late = self.past.iter().rev().find(|&&(read, _)| read <= then);
                late.map(|(read, old)| aged(old.clone(), Duration::from_nanos(now - read)))
            }
        }
    }
}

/// Makes a reading older.
fn aged(mut observation: Observation, by: Duration) -> Observation {
    fn older<T>(term: &mut Term<T>, by: Duration) {
        if let Term::Known { age, .. } = term {
            *age += by;
        }
    }
    for model in &mut observation.models {
        for level in [
            &mut model.in_flight,
            &mut model.executing,
            &mut model.queued,
        ] {
            older(&mut level.now, by);
            older(&mut level.integral, by);
        }
        for term in [
            &mut model.arrivals,
            &mut model.completions,
            &mut model.service_seconds,
        ] {
            older(term, by);
        }
        older(&mut model.in_flight_max, by);
    }
    older(&mut observation.peak_seconds, by);
    if let ReplicaView::Ready(ready) = &mut observation.replicas {
        older(ready, by);
    }
    observation
}

/// Makes a reading nonsense: which kind changes with time.
fn corrupt(mut observation: Observation, now: u64) -> Observation {
    let nonsense = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0];
    let value = nonsense[usize::try_from(now / 1_000_000_000 % 4).unwrap_or(0)];
    for model in &mut observation.models {
        for level in [
            &mut model.in_flight,
            &mut model.executing,
            &mut model.queued,
        ] {
            level.integral = Term::exact(value);
            level.now = Term::Unknown(Missing::NotANumber);
        }
        model.arrivals = Term::exact(value);
        model.completions = Term::exact(value);
        model.service_seconds = Term::exact(value);
        // The type cannot hold nonsense; a source that reads some says so.
        model.in_flight_max = Term::<Occupancy>::Unknown(Missing::NotANumber);
    }
    observation.peak_seconds = Term::exact(value);
    observation
}
