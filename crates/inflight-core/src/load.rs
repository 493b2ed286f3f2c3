//! Measuring: exact counting, windows over what was counted, and what is unknown.

mod estimate;
mod freshness;
mod in_flight;
mod observation;
mod window;

pub use estimate::Estimate;
pub use freshness::{Estimator, Missing, Term};
pub use in_flight::InFlight;
pub use observation::{Level, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView};
pub use window::History;
