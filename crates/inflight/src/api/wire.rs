//! The JSON of the admin API. Changing a name here breaks somebody's script.
//!
//! `null` is unknown, which is never zero. Times are RFC 3339 in UTC.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer of `/api/v1/fleets`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fleets {
    /// The fleets, in the order of the configuration.
    pub fleets: Vec<Fleet>,
}

/// One fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// What a person holds the size to; `null` while the policy decides.
    pub hold: Option<Hold>,
    /// Where the load is measured.
    pub sources: Vec<Source>,
    /// Whether it takes new sessions, and what it refused; `null` where no requests come in here.
    pub admission: Option<Admission>,
    /// The last decision; `null` before the first.
    pub decision: Option<Decision>,
    /// Replicas that ended although nobody asked them to, since our start.
    pub crashes: u64,
    /// The last of them; `null` while there was none.
    pub last_crash: Option<Crash>,
    /// How long a replica takes from its start to ready; `null` before one was seen.
    pub start_delay_seconds: Option<f64>,
    /// Files that tell others of the replicas and cannot be written, each with the reason.
    pub unwritten: BTreeMap<String, String>,
}

/// A replica that ended although nobody asked it to, or was unhealthy for too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Crash {
    /// When.
    pub at: String,
    /// Its number.
    pub replica: u32,
    /// What ended it and what it wrote last, as one sentence.
    pub why: String,
}

/// A fleet's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replicas {
    /// What was decided; `null` before the first decision.
    pub desired: Option<u32>,
    /// Replicas that take requests; `null` where only peers could tell and none does.
    pub ready: Option<u32>,
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

/// One source of a fleet's load. That of all sources is their sum, of one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Source {
    /// `gateway`, what comes in here; `inflight`, what comes in at another instance; `envoy`, what
    /// is in flight there; `triton`, `vllm` or `custom`, what a server executes; `prometheus`, what
    /// queries are answered with.
    pub kind: String,
    /// Where it is asked; `null` for our gateway.
    pub address: Option<String>,
    /// The run of another instance, by which it is told from others; else `null`.
    pub instance: Option<String>,
    /// `read`: in time. `held`: it does not answer, and what it said last counts. `lost`: it does
    /// not answer for so long, or never did, that its part is missing.
    pub state: String,
    /// Requests in flight there; `null` where it only tells of completed ones.
    pub in_flight: Option<f64>,
    /// How long ago that was read.
    pub age_seconds: Option<f64>,
    /// Why the last question was not answered.
    pub failure: Option<String>,
}

/// A fleet's load. Numbers of requests are those of this moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// In flight / max(executing, replicas), 1 = nobody waits; over 10 s, as the admission gate
    /// judges it.
    pub inflation: Option<f64>,
    /// How long ago the load was observed for a decision.
    pub age_seconds: Option<f64>,
    /// The part of each model of what comes in here; none without a gateway of ours.
    pub models: Vec<Model>,
}

/// The part of a fleet's load that one model has, at this moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Admission {
    /// Whether new sessions are let in.
    pub open: bool,
    /// Requests refused since our start, for whatever reason.
    pub refused_total: u64,
    /// Calls that wait at the gate of a proxy for a first replica; 0 before a gateway, where they
    /// are queued.
    pub held: usize,
    /// Whether the load has been unknown for so long that `gate.ext_authz.on_failure` says who
    /// passes; never before a gateway.
    pub load_unknown: bool,
}

/// The answer of `/api/v1/fleets/{name}/decisions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decisions {
    /// The fleet's name.
    pub fleet: String,
    /// Its decisions, the newest first.
    pub decisions: Vec<Decision>,
}

/// One decision about a fleet's size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Why, as one sentence: the finding and the limits.
    pub reason: String,
    /// What the policy found.
    pub finding: String,
    /// What changed the policy's answer afterwards, in this order.
    pub limits: Vec<String>,
    /// The numbers it was made from, by name.
    pub inputs: BTreeMap<String, Option<f64>>,
    /// What the size hangs on; `null` where an input is unknown.
    pub thresholds: Option<Thresholds>,
}

/// What a size hangs on: a number that each replica is for so much of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thresholds {
    /// What is compared.
    pub unit: String,
    /// The fleet grows at once when this passes `grows_above`.
    pub up: f64,
    /// What the size is for.
    pub grows_above: f64,
    /// The fleet may shrink when this is at most `shrinks_at`.
    pub down: f64,
    /// What one replica fewer is for; `null` at zero.
    pub shrinks_at: Option<f64>,
}

/// The answer of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Whether nothing is missing.
    pub ready: bool,
    /// What is missing.
    pub missing: Vec<Missing>,
    /// The configuration file as it is now, where it was refused; readiness does not depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_refused: Option<ConfigurationRefused>,
}

/// A configuration file that was refused whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationRefused {
    /// Since when the configuration that runs is in force.
    pub running_since: String,
    /// Since when the file is refused.
    pub since: String,
    /// Everything that is wrong with it.
    pub why: String,
}

/// One reason why we are not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// The fleet that is not ready.
    pub fleet: String,
    /// What it lacks.
    pub reason: String,
}

/// The answer to an order that holds a size or releases it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// The fleet's name.
    pub fleet: String,
    /// What holds its size afterwards; `null` while the policy decides.
    pub hold: Option<Hold>,
}

/// What a person holds a size to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// `pause` keeps the size as it is, `size` sets it.
    pub kind: String,
    /// The size that was set; `null` for a pause.
    pub replicas: Option<u32>,
    /// When it ends by itself.
    pub until: String,
    /// How long that is from now.
    pub left_seconds: f64,
}

/// The body of an order to pause; it may be left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PauseOrder {
    /// For how long, 1s to 7d, such as `30m`; one hour when not given.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none", default)]
    pub span: Option<String>,
}

/// The body of an order to set a size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizeOrder {
    /// The size, within the fleet's bounds.
    pub replicas: u32,
    /// For how long, 1s to 7d, such as `30m`; one hour when not given.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none", default)]
    pub span: Option<String>,
}

/// The data of a server-sent event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its id, for the header `last-event-id`.
    pub id: String,
    /// When it happened.
    pub at: String,
    /// To which fleet.
    pub fleet: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A decision changed the size.
    Decision {
        /// The decision.
        decision: Decision,
    },
    /// A replica changed.
    Replica {
        /// How.
        replica: ReplicaChange,
    },
    /// The admission gate opened or closed.
    Admission {
        /// Whether new sessions are let in.
        open: bool,
    },
    /// A person holds the size.
    Hold {
        /// How.
        hold: Hold,
    },
    /// The policy decides again.
    Release {
        /// Whether a person said so, and not the end of its time.
        by_hand: bool,
    },
    /// Another configuration is in force.
    Configured {},
    /// Something is wrong.
    Error {
        /// What.
        error: String,
    },
}

/// A change of a replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaChange {
    /// Its number.
    pub index: u32,
    /// Where it listens.
    pub address: String,
    /// `starting`, `ready`, `draining` or `gone`.
    pub state: String,
    /// From its start to ready, where it has just become so.
    pub start_seconds: Option<f64>,
    /// What ended it.
    pub why: Option<String>,
    /// Whether nobody asked it to end.
    pub unexpected: bool,
}

impl What {
    /// Returns the event's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Decision { .. } => "decision",
            Self::Replica { .. } => "replica",
            Self::Admission { .. } => "admission",
            Self::Hold { .. } => "hold",
            Self::Release { .. } => "release",
            Self::Configured {} => "configured",
            Self::Error { .. } => "error",
        }
    }
}

/// An answer with a status of 400 or more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// What is wrong, with the key, the value and what is allowed.
    pub error: String,
}
