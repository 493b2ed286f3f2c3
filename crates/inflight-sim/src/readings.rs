//! What can be read of a fleet at a moment, exactly: what observers and baselines start from.

use std::time::Duration;

use inflight_core::load::{
    InFlight, Level, Missing, ModelLoad, Observation, ReplicaRow, ReplicaView, Term,
};
use inflight_core::{Occupancy, Timestamp};

use crate::units::{area_seconds, float};

/// A fleet at a moment. Everything cumulative starts at zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Readings {
    /// One row for each model.
    pub models: Vec<ModelReading>,
    /// Replicas that take requests.
    pub ready: u32,
    /// Replicas that were asked for and are not ready.
    pub starting: u32,
    /// Replicas that were ready and do not answer.
    pub unhealthy: u32,
    /// What was asked for last.
    pub desired: u32,
    /// Streams of closed loads that ended.
    pub clients_gone: u32,
}

/// One model at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelReading {
    /// Requests begun and not ended.
    pub in_flight: f64,
    /// Requests being executed.
    pub executing: f64,
    /// ∫ in flight. *Units*: request-seconds.
    pub in_flight_seconds: f64,
    /// ∫ executing. *Units*: request-seconds.
    pub executing_seconds: f64,
    /// ∫ (waiting or executing), which a server sees of its own. *Units*: request-seconds.
    pub at_replica_seconds: f64,
    /// Requests that arrived.
    pub arrivals: f64,
    /// Requests that were executed.
    pub completions: f64,
    /// Times that something was executed: a batch is one.
    pub executions: f64,
    /// Time executing, summed over the completions.
    pub service_seconds: f64,
    /// Time waiting, summed over the completions.
    pub wait_seconds: f64,
    /// Time from arrival to the end, summed over the requests that ended.
    pub sojourn_seconds: f64,
}

/// What is counted of one model.
#[derive(Clone, Debug)]
pub(crate) struct ModelCounts {
    pub(crate) in_flight: InFlight,
    pub(crate) executing: InFlight,
    pub(crate) on_wire: InFlight,
    pub(crate) arrivals: u64,
    pub(crate) completions: u64,
    pub(crate) executions: u64,
    pub(crate) service_nanos: u128,
    pub(crate) wait_nanos: u128,
    pub(crate) sojourn_nanos: u128,
}

/// The length of the buckets of the peak: that of the product's default.
const BUCKET: Duration = Duration::from_millis(100);

impl ModelCounts {
    pub(crate) fn new() -> Self {
        let counter = InFlight::new(BUCKET, Timestamp::ORIGIN);
        Self {
            in_flight: counter,
            executing: counter,
            on_wire: counter,
            arrivals: 0,
            completions: 0,
            executions: 0,
            service_nanos: 0,
            wait_nanos: 0,
            sojourn_nanos: 0,
        }
    }

    pub(crate) fn reading(&self, now: Timestamp) -> ModelReading {
        let in_flight = self.in_flight.integral(now);
        ModelReading {
            in_flight: float(self.in_flight.count()),
            executing: float(self.executing.count()),
            in_flight_seconds: area_seconds(in_flight),
            executing_seconds: self.executing.seconds(now),
            at_replica_seconds: area_seconds(in_flight - self.on_wire.integral(now)),
            arrivals: float(self.arrivals),
            completions: float(self.completions),
            executions: float(self.executions),
            service_seconds: area_seconds(self.service_nanos),
            wait_seconds: area_seconds(self.wait_nanos),
            sojourn_seconds: area_seconds(self.sojourn_nanos),
        }
    }

    /// Reads the load as a gateway would that counts everything itself.
    pub(crate) fn load(&mut self, now: Timestamp) -> ModelLoad {
        let busy = self.executing.integral(now) + self.on_wire.integral(now);
        let queued = self.in_flight.count() - self.executing.count() - self.on_wire.count();
        let level = |count: u64, seconds: f64| Level {
            now: Term::exact(Occupancy::from_count(count)),
            integral: Term::exact(seconds),
        };
        ModelLoad {
            in_flight: level(self.in_flight.count(), self.in_flight.seconds(now)),
            executing: level(self.executing.count(), self.executing.seconds(now)),
            queued: level(queued, area_seconds(self.in_flight.integral(now) - busy)),
            arrivals: Term::exact(float(self.arrivals)),
            completions: Term::exact(float(self.completions)),
            service_seconds: Term::exact(area_seconds(self.service_nanos)),
            in_flight_max: Term::exact(Occupancy::from_count(self.in_flight.take_max(now))),
        }
    }

    /// Returns ∫ bucket maximum of whole buckets, and how long ago the last one ended.
    pub(crate) fn peak(&self, now: Timestamp) -> (f64, Duration) {
        self.in_flight.whole_bucket_peak_seconds(now)
    }
}

/// Puts a reading together.
pub(crate) fn observation(
    models: Vec<ModelLoad>,
    rows: Vec<ReplicaRow>,
    peak: Option<(f64, Duration)>,
    started: Vec<Duration>,
) -> Observation {
    Observation {
        replicas: ReplicaView::Rows(rows),
        models,
        peak_seconds: peak.map_or(Term::Unknown(Missing::NotOffered), |(value, age)| {
            Term::Known {
                value,
                age,
                estimator: inflight_core::load::Estimator::Exact,
            }
        }),
        started,
        metric: Term::Unknown(Missing::NotOffered),
        filled: Term::Unknown(Missing::NotOffered),
        is_partial: false,
        is_called: false,
    }
}
