//! How long requests took and waited, for the metrics page.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

/// Bucket bounds, in seconds: from a fast health check to a long generation, about ×2.5 apart.
const BOUNDS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0,
];

/// Histograms of one fleet.
#[derive(Clone, Debug)]
pub struct Timings {
    /// From a request's arrival to its end.
    pub request: Histogram,
    /// From a request's arrival to its first slot.
    pub wait: Histogram,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            request: Histogram::new(BOUNDS),
            wait: Histogram::new(BOUNDS),
        }
    }
}

impl Timings {
    pub(super) fn on_end(&self, took: Duration, waited: Option<Duration>) {
        self.request.observe(took.as_secs_f64());
        if let Some(waited) = waited {
            self.wait.observe(waited.as_secs_f64());
        }
    }
}
