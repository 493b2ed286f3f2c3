//! Admitting: which request goes to which replica, which waits, which is refused.

mod check;
mod config;
mod endpoint;
mod gate;
mod health;
mod inflation;
mod pick;
mod queue;
mod rate;
mod refusal;
mod request;
mod retry;
mod seconds;
mod session;

pub use crate::load::ReplicaState as EndpointState;
pub use check::{
    Call, CheckConfig, CheckCounts, CheckGate, CheckLoad, CheckMode, Held, OnUnknown, PastChecks,
    Verdict,
};
pub use config::{AdmissionConfig, AdmissionScope, GateConfig, ModelConfig, QueueBounds, When};
pub use gate::{Gate, GateLoad, PastCounts, PastGate, PastIntegral};
pub use health::{CheckResult, Health, HealthChange, HealthConfig, UnhealthyCause};
pub use refusal::{Refusal, RefusalReason, Refused};
pub use request::{Arrival, Outcome, Output};
