//! What came of a run, and the identities that hold of every run.

use crate::histogram::Histogram;

/// What came of one run. *Units*: seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When it ended: the wall time of loads that end by themselves.
    pub end: f64,
    /// Whether the load ended by itself.
    pub load_ended: bool,
    /// Replicas × the time from being asked for to being gone, whatever their state.
    pub replica_seconds: f64,
    /// Replica-seconds that the work done needs at full speed with every slot busy.
    pub needed_seconds: f64,
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests that were served.
    pub served: u64,
    /// Requests that were served and waited no longer than their model's SLO allows.
    pub within_slo: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that failed with their replica.
    pub failed: u64,
    /// Requests in flight at the end.
    pub unfinished: u64,
    /// Of those, the ones that have waited no longer than the SLO allows.
    pub unfinished_in_time: u64,
    /// From arrival to end, of those served.
    pub sojourn: Histogram,
    /// Replicas by which the size that was asked for changed, up and down.
    pub changes: u64,
    /// Times that somebody decided.
    pub decisions: u64,
    /// The size asked for and the replicas ready, at each change of either.
    pub sizes: Vec<SizeAt>,
    /// ∫ in flight over the run, counted at every event. *Units*: request-nanoseconds.
    pub in_flight_area: u128,
    /// Time in flight summed over all requests, counted request by request. *Units*: nanoseconds.
    pub sojourn_area: u128,
}

/// A size of the fleet from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeAt {
    /// From when.
    pub at: f64,
    /// What was asked for.
    pub desired: u32,
    /// Replicas that take requests.
    pub ready: u32,
}

impl Outcome {
    /// Returns the share of the arrivals that waited too long, were refused or failed.
    #[must_use]
    pub fn violation_share(&self) -> f64 {
        if self.arrivals == 0 {
            return 0.0;
        }
        let good = self.within_slo + self.unfinished_in_time;
        1.0 - crate::units::float(good) / crate::units::float(self.arrivals)
    }

    /// Returns the replica-seconds beyond need for each million requests within the SLO; `None`
    /// without any.
    #[must_use]
    pub fn beyond_need(&self) -> Option<f64> {
        let within = crate::units::float(self.within_slo);
        (within > 0.0).then(|| (self.replica_seconds - self.needed_seconds).max(0.0) / within * 1e6)
    }

    /// Returns the requests within the SLO for each replica-minute; `None` without replicas.
    #[must_use]
    pub fn within_slo_per_minute(&self) -> Option<f64> {
        let minutes = self.replica_seconds / 60.0;
        (minutes > 0.0).then(|| crate::units::float(self.within_slo) / minutes)
    }

    /// Says which identity does not hold, if any: no request is lost or counted twice, and by
    /// Little's law the area under the number in flight is the sum of the times in flight.
    #[must_use]
    pub fn broken_identity(&self) -> Option<String> {
        let ended = self.served + self.refused + self.failed + self.unfinished;
        if ended != self.arrivals {
            return Some(format!(
                "{} arrived, but {} were served, {} refused, {} failed and {} are in flight",
                self.arrivals, self.served, self.refused, self.failed, self.unfinished
            ));
        }
        (self.in_flight_area != self.sojourn_area).then(|| {
            format!(
                "the area under the number in flight is {} request-ns, the times in flight add up to {}",
                self.in_flight_area, self.sojourn_area
            )
        })
    }
}
