//! What a [`Gate`](super::Gate) is told when it is built, and when its settings change.

use std::time::Duration;

use crate::units::{Bytes, Slots};

/// How a gate admits, holds and counts.
#[derive(Clone, Debug, PartialEq)]
pub struct GateConfig {
    /// One row for each model; a fleet without named models has one. Without any row the gate
    /// behaves as with one model of one slot.
    pub models: Vec<ModelConfig>,
    /// The bounds of the hold queue.
    pub queue: QueueBounds,
    /// When sessions are refused.
    pub admission: AdmissionConfig,
    /// The length of the buckets whose maxima make up the peak.
    pub bucket: Duration,
}

/// One model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelConfig {
    /// Requests of this model that one replica executes at the same time.
    pub slots: Slots,
}

/// The bounds of the hold queue, over all models of the fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueBounds {
    /// How many requests may wait; with zero none does.
    pub requests: u32,
    /// How many bytes of their bodies are held meanwhile; with zero requests wait, and no body
    /// is held.
    pub bytes: Bytes,
    /// How long a request waits while a replica is ready.
    pub wait: Duration,
    /// How long a request waits while none is.
    pub cold_wait: Duration,
}

/// When sessions are refused.
///
/// Comparisons with NaN are false: a threshold of NaN refuses nobody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// The inflation above which no session is admitted that is new.
    pub threshold: f64,
    /// The inflation at or below which they are admitted again; equal to `threshold` there is no
    /// hysteresis.
    pub reopen: f64,
    /// Whether the gate works all the time.
    pub when: When,
    /// Whom the gate refuses.
    pub scope: AdmissionScope,
    /// How many sessions are remembered; the oldest with nothing in flight goes first.
    pub sessions_max: usize,
    /// How long after its last request began or ended a session counts as new again.
    pub session_idle: Duration,
}

/// When the admission gate works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Only while the fleet cannot grow.
    AtMax,
    /// At any size of the fleet.
    Always,
}

/// Whom the admission gate refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionScope {
    /// Nobody: it is switched off, and no session is remembered.
    Off,
    /// The first request of a session that is new.
    NewSessions,
}
