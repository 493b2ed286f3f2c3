//! What a run is made of: a fleet, its models, its load, and what goes wrong.
//!
//! The types here are checked values; [`parse`] reads them from YAML and says what is wrong with
//! the line. Reading files is the caller's business.

mod error;
mod faults;
mod loads;
mod raw;
mod trace;

use inflight_core::Slots;

use crate::law::Law;

pub use error::ScenarioError;
pub use faults::{FleetFault, FleetFaultAt, ReadingFault, ReadingFaultFrom};
pub use loads::{Alternating, Closed, Job, Load, OpenLoad, Point, Rates, TraceRow};
pub use raw::parse;
pub use trace::{TraceColumns, WorkBy, read_trace};

/// What a run is made of. *Units*: seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// When the run ends at the latest. A load that ends by itself ends it earlier.
    pub duration: f64,
    /// The fleet.
    pub fleet: Fleet,
    /// The models that each replica serves; at least one.
    pub models: Vec<Model>,
    /// The load; at least one.
    pub loads: Vec<Load>,
    /// What happens to replicas.
    pub faults: Vec<FleetFaultAt>,
    /// What happens to readings.
    pub readings: Vec<ReadingFaultFrom>,
}

/// The replicas and the way to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// Replicas that are ready at the start.
    pub replicas_start: u32,
    /// The smallest size.
    pub replicas_min: u32,
    /// The largest size.
    pub replicas_max: u32,
    /// How long a replica takes to start.
    pub start: Start,
    /// How fast replicas are.
    pub speed: Speed,
    /// How requests get to replicas.
    pub binding: Binding,
    /// How long a request and its answer are on the wire together.
    pub wire: Option<Law>,
}

/// How long a replica takes from being asked for to ready: even within `delay · (1 ± spread)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// The mean.
    pub delay: f64,
    /// How far it strays, as a share of the mean.
    pub spread: f64,
    /// How often a replica never becomes ready.
    pub never: f64,
}

/// How fast replicas are, against what their models' laws say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// How many of the replicas are slow.
    pub slow_share: f64,
    /// The speed of the slow ones.
    pub slow: f64,
    /// For how long a replica warms up once it is ready.
    pub warm_up: f64,
    /// Its share of its speed meanwhile.
    pub warming: f64,
}

/// How requests get to replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binding {
    /// On arrival, to the one that holds less of two random replicas, as common proxies do; each
    /// replica's own queue is bounded.
    LeastOfTwo {
        /// Requests that may wait at a replica.
        queue: u32,
    },
    /// On arrival, to the replica that holds least.
    LeastRequest {
        /// Requests that may wait at a replica.
        queue: u32,
    },
    /// When a slot is free, by the core's gate.
    Late {
        /// Requests that may wait at the gate.
        queue: u32,
        /// How long, while a replica is ready.
        wait: f64,
        /// How long, while none is.
        cold_wait: f64,
        /// The inflation above which new sessions are refused; jobs are the sessions.
        admission: Option<f64>,
    },
}

/// A model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Requests of it that one replica executes at once.
    pub slots: Slots,
    /// How long it executes.
    pub service: Service,
    /// The longest wait that is no violation.
    pub slo: f64,
    /// Its share of the requests, against the other models' shares.
    pub share: f64,
}

/// How requests are executed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Each by itself.
    Each(Law),
    /// One batch at a time on each replica, of what waits when it begins: `batch + each · n`.
    Batches {
        /// Time for a batch.
        batch: f64,
        /// Time for each request in it.
        each: f64,
        /// The most requests in one.
        largest: u32,
    },
}

impl Scenario {
    /// Returns the mean time that a request of any model keeps a slot busy, batches being full.
    #[must_use]
    pub fn service_mean(&self) -> f64 {
        let shares: f64 = self.models.iter().map(|model| model.share).sum();
        let models = self.models.iter().enumerate();
        let weighted = models.map(|(place, model)| model.share * self.service_mean_of(place));
        weighted.sum::<f64>() / shares
    }

    /// Returns the same of one model; traces that say how long requests execute know best.
    #[must_use]
    pub fn service_mean_of(&self, model: usize) -> f64 {
        let (mut count, mut sum) = (0.0, 0.0);
        for load in &self.loads {
            let Load::Trace(rows) = load else { continue };
            for row in rows
                .iter()
                .filter(|row| row.model.is_none_or(|of| of == model))
            {
                if let Some(work) = row.work {
                    count += 1.0;
                    sum += work;
                }
            }
        }
        if count > 0.0 {
            return sum / count;
        }
        let model = self.models.get(model);
        model.map_or(0.0, |model| model.service.seconds_each())
    }
}

impl Model {
    /// Returns how many of a replica's slots may be busy at once: a batch is one.
    #[must_use]
    pub fn servers(&self) -> f64 {
        match self.service {
            Service::Each(_) => self.slots.as_f64(),
            Service::Batches { .. } => 1.0,
        }
    }
}

impl Service {
    /// Returns the mean time that a request keeps a server busy, batches being full.
    #[must_use]
    pub fn seconds_each(&self) -> f64 {
        match *self {
            Self::Each(law) => law.mean(),
            Self::Batches {
                batch,
                each,
                largest,
            } => batch / f64::from(largest) + each,
        }
    }
}
