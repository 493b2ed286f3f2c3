//! What is going on in a fleet, for people to look at. No decision is made from it.

use std::time::Duration;

use super::window::{History, Quantity};
use crate::ids::ModelIndex;
use crate::time::Timestamp;
use crate::units::Replicas;

/// The window of an estimate's means: that of the admission gate.
pub const ESTIMATE_WINDOW: Duration = Duration::from_secs(10);

/// The window of the mean service time, as in the `staffing` policy.
const SERVICE_WINDOW: Duration = Duration::from_secs(300);

/// The load of a fleet, all models together; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Mean requests in flight.
    pub in_flight: Option<f64>,
    /// Mean requests executing.
    pub executing: Option<f64>,
    /// Mean requests queued.
    pub queued: Option<f64>,
    /// Arrivals per second.
    pub arrivals_per_second: Option<f64>,
    /// Mean time executing of the requests that completed in the last 300 s.
    pub service_seconds: Option<f64>,
    /// In flight / max(executing, replicas); unknown without any of the three or without a ready
    /// replica.
    pub inflation: Option<f64>,
    /// How long ago the fleet was read.
    pub age: Option<Duration>,
}

impl Estimate {
    /// Reads a history.
    #[must_use]
    pub fn of(history: &History, now: Timestamp) -> Self {
        let mean = |quantity| history.total_mean(now, quantity, ESTIMATE_WINDOW).ok();
        let (in_flight, executing) = (mean(Quantity::InFlight), mean(Quantity::Executing));
        Self {
            in_flight,
            executing,
            queued: mean(Quantity::Queued),
            arrivals_per_second: mean(Quantity::Arrivals),
            service_seconds: service_seconds(history, now),
            inflation: inflation(history, now, in_flight, executing),
            age: history.read_at().map(|at| now.since(at)),
        }
    }
}

/// Returns the mean service time over all models, each weighted by its completions.
fn service_seconds(history: &History, now: Timestamp) -> Option<f64> {
    let (mut seconds, mut count) = (0.0, 0.0);
    for model in (0..history.model_count()).map(ModelIndex) {
        let rate = history
            .mean(now, model, Quantity::Completions, SERVICE_WINDOW)
            .ok()?;
        seconds += history
            .mean(now, model, Quantity::ServiceSeconds, SERVICE_WINDOW)
            .ok()?;
        count += rate;
    }
    (count > 0.0).then(|| seconds / count)
}

fn inflation(
    history: &History,
    now: Timestamp,
    in_flight: Option<f64>,
    executing: Option<f64>,
) -> Option<f64> {
    if history.ready(now).ok()? == Replicas::ZERO {
        return None;
    }
    let ready = history.ready_mean(now, ESTIMATE_WINDOW).ok()?.max(1.0);
    Some(in_flight? / executing?.max(ready))
}
