//! Measuring: exact counting, windows over what was counted, and what is unknown.

mod freshness;
mod in_flight;
mod observation;

pub use freshness::{Estimator, Missing, Term};
pub use in_flight::InFlight;
pub use observation::{Level, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView};
