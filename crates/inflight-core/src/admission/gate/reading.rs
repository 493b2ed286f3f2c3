//! What a gate tells about its load: to the scaler, and to the API and the metrics.

use super::Gate;
use crate::admission::inflation::Counts;
use crate::admission::refusal::Refused;
use crate::admission::request::Outcome;
use crate::load::{
    Estimator, InFlight, Level, Missing, ModelCounts, ModelLoad, Observation, ReplicaView, Term,
};
use crate::time::Timestamp;
use crate::units::{Bytes, Occupancy, Slots, count_as_f64, request_seconds};

/// The load of a fleet, over all its models. Everything in seconds is cumulative and advances
/// continuously.
#[derive(Clone, Debug, PartialEq)]
pub struct GateLoad {
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that have a slot.
    pub executing: u64,
    /// Requests that wait for a slot.
    pub queued: u64,
    /// Bytes of bodies held for those that wait.
    pub queued_bytes: Bytes,
    /// ∫ in flight. *Units*: request-seconds.
    pub in_flight_seconds: f64,
    /// ∫ executing. *Units*: request-seconds.
    pub executing_seconds: f64,
    /// ∫ queued. *Units*: request-seconds.
    pub queued_seconds: f64,
    /// ∫ largest number in flight of each bucket. *Units*: request-seconds.
    pub peak_seconds: f64,
    /// Requests taken in.
    pub arrivals: u64,
    /// Requests that ended [`Outcome::Completed`].
    pub completed: u64,
    /// Requests that ended [`Outcome::ClientGone`].
    pub client_gone: u64,
    /// Requests that ended [`Outcome::UpstreamFailed`].
    pub upstream_failed: u64,
    /// Requests that ended [`Outcome::TimedOut`].
    pub timed_out: u64,
    /// Requests refused, on arrival or after they had waited.
    pub refused: Refused,
    /// Whether the admission gate is open.
    pub admission_open: bool,
    /// The exact inflation of the ten seconds before the last judgement; `None` is unknown.
    pub inflation: Option<f64>,
    /// Sessions remembered.
    pub sessions: usize,
    /// The same counters for each model, as other instances add them up.
    pub models: Vec<ModelCounts>,
    /// Requests that one replica executes at the same time, of each model.
    pub slots: Vec<Slots>,
}

impl Gate {
    /// Reads the load for the scaler, with a row for each endpoint. The largest numbers in flight
    /// start again from here. How long replicas took to start is left to the caller.
    pub fn observe(&mut self, now: Timestamp) -> Observation {
        let now = self.advance(now);
        let (value, age) = self.in_flight.whole_bucket_peak_seconds(now);
        let peak_seconds = Term::Known {
            value,
            age,
            estimator: Estimator::Exact,
        };
        let models = self.models.iter_mut().map(|model| {
            let (in_flight, executing) = (&model.in_flight, &model.executing);
            let queued = in_flight.count() - executing.count();
            let queued_integral = in_flight.integral(now) - executing.integral(now);
            ModelLoad {
                in_flight: level(in_flight, now),
                executing: level(executing, now),
                queued: Level {
                    now: Term::exact(Occupancy::from_count(queued)),
                    integral: Term::exact(request_seconds(queued_integral)),
                },
                arrivals: Term::exact(count_as_f64(model.arrivals)),
                completions: Term::exact(count_as_f64(model.completions)),
                service_seconds: Term::exact(request_seconds(model.service_nanos)),
                in_flight_max: Term::exact(Occupancy::from_count(model.in_flight.take_max(now))),
            }
        });
        Observation {
            models: models.collect(),
            replicas: ReplicaView::Rows(self.endpoints.replica_rows()),
            peak_seconds,
            started: Vec::new(),
            metric: Term::Unknown(Missing::NotOffered),
            filled: Term::Unknown(Missing::NotOffered),
            is_partial: false,
            is_called: false,
        }
    }

    /// Reads the load for people and metrics; changes nothing.
    #[must_use]
    pub fn load(&self, now: Timestamp) -> GateLoad {
        let now = self.now.max(now);
        let (in_flight, executing) = (self.in_flight.count(), self.executing.count());
        let queued_integral = self.in_flight.integral(now) - self.executing.integral(now);
        let mut inflation = self.inflation.clone();
        let counts = Counts::of(&self.in_flight, &self.executing, self.endpoints.ready());
        inflation.judge(now, counts, &self.admission);
        GateLoad {
            in_flight,
            executing,
            queued: in_flight - executing,
            queued_bytes: self.requests.held(),
            in_flight_seconds: self.in_flight.seconds(now),
            executing_seconds: self.executing.seconds(now),
            queued_seconds: request_seconds(queued_integral),
            peak_seconds: self.in_flight.peak_seconds(now),
            arrivals: self.models.iter().map(|model| model.arrivals).sum(),
            completed: self.ended[Outcome::Completed as usize],
            client_gone: self.ended[Outcome::ClientGone as usize],
            upstream_failed: self.ended[Outcome::UpstreamFailed as usize],
            timed_out: self.ended[Outcome::TimedOut as usize],
            refused: self.refused,
            admission_open: inflation.is_open(),
            inflation: inflation.ratio(),
            sessions: self.sessions.len(),
            models: self.model_counts(now),
            slots: self.models.iter().map(|model| model.slots).collect(),
        }
    }

    fn model_counts(&self, now: Timestamp) -> Vec<ModelCounts> {
        let counts = self.models.iter().map(|model| {
            let (in_flight, executing) = (&model.in_flight, &model.executing);
            let queued_integral = in_flight.integral(now) - executing.integral(now);
            ModelCounts {
                executing: count_as_f64(executing.count()),
                queued: count_as_f64(in_flight.count() - executing.count()),
                executing_seconds: executing.seconds(now),
                queued_seconds: request_seconds(queued_integral),
                arrivals: count_as_f64(model.arrivals),
                completions: count_as_f64(model.completions),
                service_seconds: request_seconds(model.service_nanos),
            }
        });
        counts.collect()
    }
}

fn level(count: &InFlight, now: Timestamp) -> Level {
    Level {
        now: Term::exact(Occupancy::from_count(count.count())),
        integral: Term::exact(count.seconds(now)),
    }
}
