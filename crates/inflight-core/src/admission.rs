//! Admitting: which request goes to which replica, which waits, which is refused.

mod endpoint;
mod gate;
mod pick;
mod queue;
mod session;

pub use endpoint::{Endpoint, EndpointState};
pub use gate::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, GateLoad, ModelConfig, Outcome,
    Output, QueueBounds, Refusal, RefusalReason, When,
};
