//! A fleet for tests that look at what stands around one.

use std::sync::Arc;
use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Gate, GateConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::{Bytes, Replicas, Slots};

use super::{Board, Fleet, Sources};
use crate::clock::Clock;

/// Builds one of a single model with one slot, at most one replica, and a queue of one.
pub(crate) fn fleet(name: &str, clock: Clock, sources: Sources) -> Arc<Fleet> {
    let gate = GateConfig {
        models: vec![ModelConfig { slots: Slots::ONE }],
        queue: QueueBounds {
            requests: 1,
            bytes: Bytes(1),
            wait: Duration::from_secs(30),
            cold_wait: Duration::from_secs(300),
        },
        admission: AdmissionConfig {
            threshold: 3.0,
            reopen: 2.4,
            when: When::AtMax,
            scope: AdmissionScope::NewSessions,
            sessions_max: 100_000,
            session_idle: Duration::from_secs(60),
        },
        bucket: Duration::from_millis(100),
    };
    let board = Board::new("staffing", 1, Replicas::ZERO, Replicas::ONE);
    let gate = Gate::new(gate, clock.now());
    Fleet::with_sources(name, clock, gate, board, sources)
}
