//! The JSON of the admin API. Changing a name here breaks somebody's script.
//!
//! `null` is unknown, which is never zero. Times are RFC 3339 in UTC.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer of `/api/v1/fleets`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fleets {
    /// The fleets, in the order of the configuration.
    pub fleets: Vec<Fleet>,
}

/// One fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// Its name in the configuration.
    pub name: String,
    /// What decides its size.
    pub policy: String,
    /// Requests one replica executes at the same time.
    pub slots: u32,
    /// Its size.
    pub replicas: Replicas,
    /// Its load.
    pub load: Load,
    /// Whether it takes new sessions, and what it refused.
    pub admission: Admission,
    /// The last decision; `null` before the first.
    pub decision: Option<Decision>,
    /// Replicas that ended although nobody asked them to, since our start.
    pub crashes: u64,
    /// How long a replica takes from its start to ready.
    pub start_delay_seconds: Option<f64>,
}

/// A fleet's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// What was decided; `null` before the first decision.
    pub desired: Option<u32>,
    /// Replicas that take requests.
    pub ready: u32,
    /// Replicas that were asked for and are not ready.
    pub starting: u32,
    /// Replicas that finish what they have.
    pub draining: u32,
    /// Replicas that do not answer.
    pub unhealthy: u32,
    /// The fewest there may be.
    pub min: u32,
    /// The most there may be.
    pub max: u32,
}

/// A fleet's load. Numbers of requests are those of this moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Requests begun and not ended.
    pub in_flight: Option<f64>,
    /// Requests that a replica works on.
    pub executing: Option<f64>,
    /// Requests that wait for a slot.
    pub queued: Option<f64>,
    /// Arrivals per second.
    pub arrivals_per_second: Option<f64>,
    /// Mean time that a replica works on a request.
    pub service_seconds: Option<f64>,
    /// In flight / max(executing, replicas): 1 = nobody waits.
    pub inflation: Option<f64>,
    /// How long ago the load was observed for a decision.
    pub age_seconds: Option<f64>,
    /// The part of each model, in the order of the configuration; empty without named models.
    #[serde(default)]
    pub models: Vec<Model>,
}

/// The part of a fleet's load that one model has, at this moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Its name in the configuration.
    pub name: String,
    /// Requests for it that one replica executes at the same time.
    pub slots: u32,
    /// Requests begun and not ended.
    pub in_flight: f64,
    /// Requests that a replica works on.
    pub executing: f64,
    /// Requests that wait for a slot.
    pub queued: f64,
}

/// Whether a fleet takes new sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Whether new sessions are let in.
    pub open: bool,
    /// Requests refused since our start, for whatever reason.
    pub refused_total: u64,
}

/// The answer of `/api/v1/fleets/{name}/decisions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// The fleet's name.
    pub fleet: String,
    /// Its decisions, the newest first.
    pub decisions: Vec<Decision>,
}

/// One decision about a fleet's size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When it was made.
    pub at: String,
    /// The size asked for before.
    pub current: u32,
    /// What the policy wished for before any limit; `null` when its input was unknown.
    pub wanted: Option<u32>,
    /// The size granted.
    pub desired: u32,
    /// Whether the fleet could not grow.
    pub at_max: bool,
    /// Why, as one sentence.
    pub reason: String,
    /// The numbers it was made from, by name.
    pub inputs: BTreeMap<String, Option<f64>>,
}

/// The answer of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether nothing is missing.
    pub ready: bool,
    /// What is missing.
    pub missing: Vec<Missing>,
}

/// One reason why we are not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The fleet that is not ready.
    pub fleet: String,
    /// What it lacks.
    pub reason: String,
}

/// An answer with status 400, 404 or 500.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What is wrong, with the key, the value and what is allowed.
    pub error: String,
}
