//! A gate's counts and sessions as they leave one process for another, and how they go on there.
//!
//! What is in flight stays where it is: it is another process's, and ends there.

use super::Gate;
use crate::admission::inflation::{Counts, Inflation};
use crate::ids::SessionKey;
use crate::load::InFlight;
use crate::time::Timestamp;

/// What a gate has counted, so that its counters never fall.
#[derive(Clone, Debug, PartialEq)]
pub struct PastGate {
    /// A row for each model, in the order of the configuration.
    pub models: Vec<PastCounts>,
    /// ∫ in flight of the fleet.
    pub in_flight: PastIntegral,
    /// ∫ executing of the fleet.
    pub executing: PastIntegral,
    /// Requests ended, by outcome in the order of [`Outcome`](crate::admission::Outcome).
    pub ended: Vec<u64>,
    /// Requests refused, by reason in the order of
    /// [`RefusalReason::ALL`](crate::admission::RefusalReason::ALL).
    pub refused: Vec<u64>,
    /// Whether the admission gate was open.
    pub is_open: bool,
    /// The sessions that are not new, with when each last sent something.
    pub sessions: Vec<(SessionKey, Timestamp)>,
}

/// What was counted of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastCounts {
    /// ∫ in flight.
    pub in_flight: PastIntegral,
    /// ∫ executing.
    pub executing: PastIntegral,
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests that ended after a replica had worked on them.
    pub completions: u64,
    /// Time executing, summed over the completed. *Units*: nanoseconds.
    pub service_nanos: u128,
}

/// What a count's integrals have reached. *Units*: request-nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastIntegral {
    /// ∫ count.
    pub count: u128,
    /// ∫ largest count of each bucket.
    pub peak: u128,
}

impl Default for PastGate {
    fn default() -> Self {
        Self {
            models: Vec::new(),
            in_flight: PastIntegral::default(),
            executing: PastIntegral::default(),
            ended: Vec::new(),
            refused: Vec::new(),
            is_open: true,
            sessions: Vec::new(),
        }
    }
}

impl Gate {
    /// Returns the counts and the sessions as of `now`. A session with something in flight counts
    /// as one that sent something now.
    #[must_use]
    pub fn export(&self, now: Timestamp) -> PastGate {
        let now = self.now.max(now);
        let models = self.models.iter().map(|model| PastCounts {
            in_flight: PastIntegral::of(&model.in_flight, now),
            executing: PastIntegral::of(&model.executing, now),
            arrivals: model.arrivals,
            completions: model.completions,
            service_nanos: model.service_nanos,
        });
        PastGate {
            models: models.collect(),
            in_flight: PastIntegral::of(&self.in_flight, now),
            executing: PastIntegral::of(&self.executing, now),
            ended: self.ended.to_vec(),
            refused: self.refused.iter().map(|(_, count)| count).collect(),
            is_open: self.load(now).admission_open,
            sessions: self.sessions.export(now),
        }
    }

    /// Goes on from another gate's counts. To be called on a gate that nothing has arrived at; a
    /// model without a row starts anew.
    pub fn restore(&mut self, now: Timestamp, past: &PastGate) {
        let now = self.advance(now);
        invariant!("a used gate is not restored", self.requests.count() == 0);
        let bucket = self.in_flight.bucket();
        for (model, past) in self.models.iter_mut().zip(&past.models) {
            model.in_flight = past.in_flight.resume(bucket, now);
            model.executing = past.executing.resume(bucket, now);
            model.arrivals = past.arrivals.min(COUNT_MAX);
            model.completions = past.completions.min(COUNT_MAX);
            model.service_nanos = past.service_nanos.min(u128::from(u64::MAX) << 32);
        }
        self.in_flight = past.in_flight.resume(bucket, now);
        self.executing = past.executing.resume(bucket, now);
        for (ended, &past) in self.ended.iter_mut().zip(&past.ended) {
            *ended = past.min(COUNT_MAX);
        }
        self.refused.restore(&past.refused, COUNT_MAX);
        let counts = Counts::of(&self.in_flight, &self.executing, self.endpoints.ready());
        self.inflation = Inflation::resume(now, counts, past.is_open);
        self.sessions.restore(now, &past.sessions);
    }
}

/// No count starts above this, so that none overflows.
const COUNT_MAX: u64 = 1 << 62;

impl PastIntegral {
    fn of(count: &InFlight, now: Timestamp) -> Self {
        Self {
            count: count.integral(now),
            peak: count.peak_integral(now),
        }
    }

    fn resume(self, bucket: std::time::Duration, now: Timestamp) -> InFlight {
        InFlight::resume(bucket, now, self.count, self.peak)
    }
}
