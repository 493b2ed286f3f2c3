//! Measuring: exact counting, windows over what was counted, and what is unknown.

mod estimate;
mod freshness;
mod in_flight;
mod observation;
mod series;
mod sum;
mod tracked;
mod window;

pub use estimate::{ESTIMATE_WINDOW, Estimate};
pub use freshness::{Estimator, Missing, Term};
pub use in_flight::InFlight;
pub use observation::{Level, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView};
pub use sum::{Counted, InstanceId, ModelCounts, PeerId, PeerView, Standing, Sum};
pub use window::{Activity, History, Quantity, Unknown};
