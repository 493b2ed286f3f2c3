//! What a [`CheckGate`](super::CheckGate) is told when it is built, and when its settings change.

use std::time::Duration;

use crate::admission::AdmissionConfig;

/// How a gate answers for calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckConfig {
    /// When calls are refused, and how sessions are remembered. Switched off, nobody is refused
    /// for the load, and first calls wait for a replica all the same.
    pub admission: AdmissionConfig,
    /// Whom the gate judges.
    pub mode: CheckMode,
    /// What becomes of those it judges while the load is unknown.
    pub on_unknown: OnUnknown,
    /// How many calls may wait for a replica.
    pub held_max: usize,
    /// How long one may wait.
    pub ready_timeout: Duration,
    /// For how long after the last first call the fleet keeps a replica.
    pub hold_min: Duration,
}

/// Whom the gate judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckMode {
    /// First calls, and the first of a session that is new.
    NewSessions,
    /// Each call.
    EveryRequest,
}

/// What becomes of those it judges while the load is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// They are refused.
    Refuse,
    /// They pass.
    LetIn,
}
