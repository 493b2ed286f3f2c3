//! Where numbers about a fleet come from that its own gateway does not know: systems that are asked
//! over the network.
//!
//! A source reads and writes down what it read, with the moment, in `fleet`; it decides nothing.
//! Each system that is asked has a task of its own, so that one that hangs, sends without end or
//! answers nonsense takes nobody else's numbers away.

mod clusters;
pub mod envoy;
pub mod fetch;
mod follow;
pub mod measured;
mod page;
pub mod peers;
mod prometheus;
pub mod servers;
pub mod text_format;

pub use clusters::ClustersSource;
pub use measured::{MeasuredConfig, MeasuredSource};
pub use peers::{PeerSource, PeersConfig};
pub use prometheus::{PrometheusSource, query_number, query_target};

/// No count or time of requests is larger; a gauge that fell below zero reads as 2^64.
const COUNT_MAX: f64 = 1e18;

/// Returns a value that may be a count: finite, not negative, and not absurd.
fn count(value: f64) -> Option<f64> {
    (0.0..=COUNT_MAX).contains(&value).then_some(value)
}
