//! The lines of the journal: JSON, one object a line. Old journals are read by later versions:
//! names here are not changed, and `v` counts up with what an older reader would misread. Fields
//! that a reader does not know say nothing that it needs.
//!
//! Spans and points in time are whole nanoseconds, points since the run's start. A float is written
//! so that reading it gives the same bits. `null` is unknown.

use serde::{Deserialize, Serialize};

use super::past::Known;

/// The version of the lines. 2: `start` has what it goes on from, and there are lines of kind
/// `state`.
pub const VERSION: u32 = 2;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The version.
    pub v: u32,
    /// The process that wrote it: when it started. *Units*: milliseconds since 1970.
    pub run: u64,
    /// When, for people.
    pub time: String,
    /// When. *Units*: nanoseconds since the run's start.
    pub at: u64,
    /// The fleet; empty for what concerns the journal itself.
    pub fleet: String,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every line is a tick, and none is kept"
)]
pub enum What {
    /// A scaler was built; with a new file, it stands again for each fleet as `config`.
    Start {
        /// How it sizes.
        config: Box<Config>,
        /// The replicas it found.
        current: u32,
        /// Whether it goes on from what an earlier process knew.
        goes_on: bool,
        /// What that is; version 1 does not say it.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        past: Option<Box<Known>>,
    },
    /// What a scaler knows after the line before, for who reads from here: soon after a file begins,
    /// and after lines were lost.
    State {
        /// How it sizes.
        config: Box<Config>,
        /// What it knows.
        past: Box<Known>,
    },
    /// The configuration in force from here on.
    Config {
        /// How the fleet is sized.
        config: Box<Config>,
    },
    /// The scaler was given a reading, and then perhaps decided.
    Tick {
        /// The reading.
        observation: Observation,
        /// The decision; `null` when none was due.
        decision: Option<Decision>,
    },
    /// The scaler was told to hold a size.
    Hold {
        /// The size; `null` for a pause.
        replicas: Option<u32>,
        /// Until when.
        until: u64,
    },
    /// The policy decides again.
    Release {
        /// Whether a person said so: a hold whose time is over needs no telling.
        by_hand: bool,
    },
    /// A replica changed.
    Replica {
        /// Which.
        replica: u64,
        /// Its number.
        index: u32,
        /// `starting`, `ready`, `draining` or `gone`.
        state: String,
        /// What ended it.
        why: Option<String>,
        /// Whether nobody asked it to end.
        unexpected: bool,
    },
    /// The admission gate opened or closed.
    Admission {
        /// Whether new sessions are let in.
        open: bool,
    },
    /// Something is wrong.
    Error {
        /// What.
        error: String,
    },
    /// So many lines before this one were lost, of whatever fleets.
    Lost {
        /// How many.
        count: u64,
    },
}

/// A float of any value; what JSON has no number for is a word.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Number {
    /// Finite.
    Finite(f64),
    /// Not finite.
    Other(NotFinite),
}

/// A float that is no number of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotFinite {
    /// Not a number.
    Nan,
    /// Positive infinity.
    Infinite,
    /// Negative infinity.
    NegativeInfinite,
}

/// A term: a plain number when it was counted exactly at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Term {
    /// Counted exactly, at that moment.
    Exact(Number),
    /// Known otherwise.
    Known {
        /// The value.
        value: Number,
        /// Its age.
        age: u64,
        /// How it was got.
        by: Estimator,
    },
    /// Unknown.
    Unknown {
        /// Always `null`.
        value: (),
        /// Why.
        missing: Missing,
        /// How old it is, where that is why.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        age: Option<u64>,
    },
}

impl Term {
    /// Returns the term that a source does not offer.
    pub(super) const fn not_offered() -> Self {
        Self::Unknown {
            value: (),
            missing: Missing::NotOffered,
            age: None,
        }
    }

    /// Tells whether a source does not offer the term.
    pub(super) fn is_not_offered(&self) -> bool {
        *self == Self::not_offered()
    }
}

/// How a value was got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the core's `Estimator`")]
pub enum Estimator {
    Exact,
    LiveGauge,
    CompletionCounter,
    Query,
}

/// Why a value is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the core's `Missing`")]
pub enum Missing {
    NotOffered,
    NeverRead,
    Stale,
    NotANumber,
    NoRow,
    SeveralRows,
}

/// A reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The replicas one by one, or how many are ready.
    pub replicas: Replicas,
    /// Each model's load, in the order of the configuration.
    pub models: Vec<Model>,
    /// ∫ largest number in flight of each bucket.
    pub peak_seconds: Term,
    /// How long each replica took that became ready.
    pub started: Vec<u64>,
    /// The answer of the user's query.
    pub metric: Term,
    /// Memory for requests that is in use, in replicas' worth.
    #[serde(
        default = "Term::not_offered",
        skip_serializing_if = "Term::is_not_offered"
    )]
    pub filled: Term,
    /// Whether a part of the load cannot be seen.
    pub is_partial: bool,
    /// Whether a call at the gate asks for a replica.
    #[serde(default)]
    pub is_called: bool,
}

/// The replicas of a reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replicas {
    /// Each: its name, its state, the requests it holds.
    Rows(Vec<(u64, ReplicaState, u32)>),
    /// How many are ready.
    Ready(Term),
}

/// The states of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of the core's `ReplicaState`")]
pub enum ReplicaState {
    Starting,
    Ready,
    Draining,
    Unhealthy,
}

/// One model's load; totals are cumulative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Requests begun and not ended.
    pub in_flight: Level,
    /// Requests that a replica works on.
    pub executing: Level,
    /// Requests that wait.
    pub queued: Level,
    /// Requests that arrived.
    pub arrivals: Term,
    /// Requests that ended after a replica had worked on them.
    pub completions: Term,
    /// Time executing, summed over those.
    pub service_seconds: Term,
    /// The largest number in flight since the reading before.
    pub in_flight_max: Term,
}

/// A number and its integral over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The number.
    pub now: Term,
    /// ∫ number dt.
    pub integral: Term,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The size before.
    pub current: u32,
    /// What the policy wished for; `null` when an input is unknown.
    pub wanted: Option<u32>,
    /// The size granted.
    pub desired: u32,
    /// The replicas to go.
    pub drain: Vec<u64>,
    /// Whether the fleet cannot grow.
    pub at_max: bool,
    /// What the policy looked at, in its order.
    pub inputs: Vec<(String, Option<Number>)>,
    /// Why.
    pub reason: String,
}

/// How a fleet is sized.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of the core's `ScalingConfig`")]
pub struct Config {
    pub policy: Policy,
    pub min: u32,
    pub max: u32,
    /// `null` follows the start time.
    pub down_window: Option<u64>,
    pub tolerance: f64,
    /// `null` is unlimited.
    pub step_up: Option<Step>,
    /// `null` is unlimited.
    pub step_down: Option<Step>,
    pub idle_grace: u64,
    pub unknown_hold: u64,
    pub unknown_fallback: Option<u32>,
    #[serde(default)]
    pub is_sized_elsewhere: bool,
    pub freshness: u64,
    pub slots: Vec<u32>,
}

/// A limit on steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of the core's `StepLimit`")]
pub struct Step {
    pub replicas: u32,
    pub every: u64,
}

/// A policy with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields of the core's policies")]
pub enum Policy {
    Staffing {
        margin: f64,
        down_factor: u32,
        utilization_ceiling: f64,
        /// Of each model: seconds of a batch, seconds of each request in it, requests.
        batching: Vec<Option<(f64, f64, f64)>>,
        backlog: bool,
        trend: bool,
        closed_loop: bool,
        cap: bool,
        /// Missing in journals of before it was learned.
        #[serde(default)]
        returns: bool,
    },
    Occupancy {
        threshold: f64,
        window: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filled_target: Option<f64>,
    },
    Concurrency {
        utilization: f64,
        /// Whether the maxima of the buckets are averaged, not the number itself.
        peak: bool,
        stable_window: u64,
        burst_window: u64,
        burst_threshold: f64,
    },
    Metric {
        target: f64,
        /// Whether the number is of each replica, not of the fleet.
        value: bool,
    },
}
