//! Tests of the gate from outside: against a reference, and cases that users of comparable
//! systems reported.

mod cases;
mod check;
mod counting;
mod reference;
mod session_gate;
mod states;

use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, EndpointState, Gate, GateConfig, ModelConfig, Output,
    QueueBounds, When,
};
use inflight_core::{Bytes, ModelIndex, ReplicaId, SessionKey, Slots, Timestamp};

fn ms(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn slots(count: u32) -> Slots {
    Slots::new(count).expect("tests use at least one slot")
}

/// A gate for models with so many slots each; everything else as by default.
fn config(models: &[u32]) -> GateConfig {
    GateConfig {
        models: models
            .iter()
            .map(|&count| ModelConfig {
                slots: slots(count),
            })
            .collect(),
        queue: QueueBounds {
            requests: 1000,
            bytes: Bytes(64_000_000),
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
    }
}

/// A gate for one model, with replicas 0, 1, 2 … ready.
fn gate(count: u32, replicas: u64) -> Gate {
    let mut gate = Gate::new(config(&[count]), ms(0));
    for id in 0..replicas {
        gate.set_endpoint(ms(0), ReplicaId(id), EndpointState::Ready);
    }
    gate
}

fn arrival() -> Arrival {
    Arrival {
        model: ModelIndex(0),
        session: None,
        first_call: false,
        deadline: None,
        draw: 0,
    }
}

fn arrival_of(session: u64) -> Arrival {
    Arrival {
        session: Some(SessionKey(session)),
        ..arrival()
    }
}

fn outputs(gate: &mut Gate) -> Vec<Output> {
    std::iter::from_fn(|| gate.poll_output()).collect()
}
