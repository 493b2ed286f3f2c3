//! How often requests that a replica may have seen are sent again: seldom, so that retries never
//! multiply the load of a fleet that fails because of it.

use super::seconds::LastSeconds;
use crate::time::Timestamp;

/// One retry for so many requests: a tenth more work is what a fleet at its limit can bear.
const REQUESTS_PER_RETRY: u64 = 10;
/// Retries that there may be whatever the requests, so that a fleet with little to do can retry;
/// and never fewer than a replica's slots, so that one that dies costs no request.
const RETRIES_MIN: u64 = 10;

/// Requests and retries in each of the last ten seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RetryBudget(LastSeconds<Bin>);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    pub(super) fn new(now: Timestamp) -> Self {
        Self(LastSeconds::new(now))
    }

    /// Counts a request.
    pub(super) fn on_request(&mut self, now: Timestamp) {
        let bin = self.0.at(now);
        bin.requests = bin.requests.saturating_add(1);
    }

    /// Counts a retry if there may be one; `slots` are those of a replica.
    pub(super) fn take(&mut self, now: Timestamp, slots: u32) -> bool {
        self.0.at(now);
        let of_requests = self.0.sum(|bin| bin.requests) / REQUESTS_PER_RETRY;
        let allowed = RETRIES_MIN.max(u64::from(slots)) + of_requests;
        let is_allowed = self.0.sum(|bin| bin.retries) < allowed;
        if is_allowed {
            let bin = self.0.at(now);
            bin.retries = bin.retries.saturating_add(1);
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn taken(budget: &mut RetryBudget, at: u64, wanted: u32) -> u32 {
        (0..wanted).map(|_| u32::from(budget.take(ms(at), 2))).sum()
    }

    #[test]
    fn a_fleet_with_little_to_do_may_retry_a_few() {
        let mut budget = RetryBudget::new(ms(0));
        assert_eq!(taken(&mut budget, 0, 50), 10);
        assert_eq!(taken(&mut budget, 9_999, 50), 0);
        assert_eq!(taken(&mut budget, 10_000, 50), 10);
    }

    #[test]
    fn all_that_a_dead_replica_had_may_be_retried() {
        let mut budget = RetryBudget::new(ms(0));
        let taken = (0..100).map(|_| u32::from(budget.take(ms(5), 64)));
        assert_eq!(taken.sum::<u32>(), 64);
    }

    #[test]
    fn retries_are_a_share_of_the_recent_requests() {
        let mut budget = RetryBudget::new(ms(0));
        for step in 0..2_000 {
            budget.on_request(ms(step * 5));
        }
        assert_eq!(taken(&mut budget, 9_999, 10_000), 210);
        // The requests of the first second are not recent any more, the retries still are.
        assert_eq!(taken(&mut budget, 10_000, 10_000), 0);
        assert_eq!(taken(&mut budget, 40_000, 10_000), 10);
    }

    #[test]
    fn a_clock_at_its_end_breaks_nothing() {
        let mut budget = RetryBudget::new(ms(0));
        assert!(budget.take(Timestamp::from_nanos(u64::MAX), 1));
        budget.on_request(ms(0));
        assert!(budget.take(ms(0), 1));
    }
}
