//! Measuring: exact counting, windows over what was counted, and what is unknown.

mod answers;
mod estimate;
mod freshness;
mod in_flight;
mod measured;
mod observation;
mod series;
mod sum;
mod tracked;
mod window;

pub use answers::{Answer, Answered, Answers};
pub use estimate::{ESTIMATE_WINDOW, Estimate};
pub use freshness::{Estimator, Missing, Term};
pub use in_flight::InFlight;
pub use measured::{
    Measured, MeasuredBy, Patience, ProxyReading, SERIES_MAX, ServerReading, ServerSeries,
};
pub use observation::{Level, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView};
pub use series::PastSeries;
pub use sum::{Counted, InstanceId, ModelCounts, PeerId, PeerView, Standing, Sum};
pub use window::{Activity, History, PastLoad, PastModel, Quantity, Unknown};
