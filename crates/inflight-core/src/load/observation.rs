//! One reading of the load, whatever its source.
//!
//! The gateway's own counts, a proxy's, a server's, a query's and a simulation's all become this
//! one type, so that no rule can tell where its numbers came from.

use std::time::Duration;

use super::freshness::{Missing, Term};
use crate::ids::ReplicaId;
use crate::units::{Occupancy, Replicas};

/// One reading of a fleet's load and size.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The fleet's replicas.
    pub replicas: ReplicaView,
    /// One row for each model, in the order of the configuration; a fleet without named models
    /// has one row. Fleet totals are derived.
    pub models: Vec<ModelLoad>,
    /// ∫ (largest number in flight of each bucket) over time, of the whole fleet: bucket maxima
    /// cannot be added up from the models' rows.
    /// *Units*: request-seconds, cumulative.
    pub peak_seconds: Term<f64>,
    /// How long each replica took from its start to ready, of those that became ready since the
    /// previous reading.
    pub started: Vec<Duration>,
    /// A number that the user's own query gave, for the `metric` policy.
    pub metric: Term<f64>,
    /// Memory for requests that is in use, in replicas' worth: a second reason for a size.
    pub filled: Term<f64>,
    /// Whether a part of the load cannot be seen, so that every term is the least there is: it may
    /// grow the fleet and never shrinks it.
    pub is_partial: bool,
    /// Whether somebody at the admission gate asks for a replica, although nothing may be in
    /// flight: it wakes a fleet at zero and keeps the last replica.
    pub is_called: bool,
}

/// The load of one model. Cumulative terms start anywhere and never fall, but for a restart of
/// their source, after which they start from zero.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLoad {
    /// Requests begun and not ended.
    pub in_flight: Level,
    /// Requests being worked on by a replica.
    pub executing: Level,
    /// Requests in flight that no replica works on.
    pub queued: Level,
    /// Requests that arrived. *Units*: requests, cumulative.
    pub arrivals: Term<f64>,
    /// Requests that ended after a replica had worked on them. *Units*: requests, cumulative.
    pub completions: Term<f64>,
    /// Time executing, summed over `completions`. *Units*: seconds, cumulative.
    pub service_seconds: Term<f64>,
    /// The largest number in flight at any moment since the previous reading.
    pub in_flight_max: Term<Occupancy>,
}

/// A number that goes up and down, and its integral over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The number at the moment of reading.
    pub now: Term<Occupancy>,
    /// ∫ number dt, where the source has it; else the windows integrate `now`.
    /// *Units*: request-seconds, cumulative.
    pub integral: Term<f64>,
}

/// What is known of a fleet's replicas.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaView {
    /// Each replica by itself.
    Rows(Vec<ReplicaRow>),
    /// How many are healthy, from a source that knows no more.
    Ready(Term<Replicas>),
}

/// One replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaRow {
    /// Which.
    pub id: ReplicaId,
    /// Its state.
    pub state: ReplicaState,
    /// Requests it holds.
    pub in_flight: u32,
}

/// The states of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// Asked for, not ready yet.
    Starting,
    /// Takes requests.
    Ready,
    /// Takes no further request, finishes those it has, then stops.
    Draining,
    /// Was ready, does not answer, and nobody replaces it.
    Unhealthy,
}

impl Level {
    /// A level that the source does not offer.
    pub const NOT_OFFERED: Self = Self {
        now: Term::Unknown(Missing::NotOffered),
        integral: Term::Unknown(Missing::NotOffered),
    };
}

impl ReplicaView {
    /// Returns the number of ready replicas.
    #[must_use]
    pub fn ready(&self) -> Term<Replicas> {
        match self {
            Self::Rows(_) => Term::exact(self.count(ReplicaState::Ready)),
            Self::Ready(ready) => *ready,
        }
    }

    /// Returns the number of replicas in `state`; zero where the source does not tell.
    #[must_use]
    pub fn count(&self, state: ReplicaState) -> Replicas {
        match self {
            Self::Rows(rows) => {
                Replicas::from_len(rows.iter().filter(|row| row.state == state).count())
            }
            Self::Ready(_) => Replicas::ZERO,
        }
    }
}
