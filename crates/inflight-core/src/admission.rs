//! Admitting: which request goes to which replica, which waits, which is refused.

mod config;
mod endpoint;
mod gate;
mod inflation;
mod pick;
mod queue;
mod rate;
mod reading;
mod refusal;
mod session;

pub use crate::load::ReplicaState as EndpointState;
pub use config::{AdmissionConfig, AdmissionScope, GateConfig, ModelConfig, QueueBounds, When};
pub use gate::{Arrival, Gate, Outcome, Output};
pub use reading::GateLoad;
pub use refusal::{Refusal, RefusalReason, Refused};
