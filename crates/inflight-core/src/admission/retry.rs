//! How often requests that a replica may have seen are sent again: seldom, so that retries never
//! multiply the load of a fleet that fails because of it.

use crate::time::Timestamp;

const BINS: u64 = 10;
const BIN_NANOS: u64 = 1_000_000_000;
/// One retry for so many requests: a tenth more work is what a fleet at its limit can bear.
const REQUESTS_PER_RETRY: u64 = 10;
/// Retries that there may be whatever the requests, so that a fleet with little to do can retry;
/// and never fewer than a replica's slots, so that one that dies costs no request.
const RETRIES_MIN: u64 = 10;

/// Requests and retries in each of the last ten seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RetryBudget {
    bins: [Bin; 10],
    /// The second that is counted, since the clock's origin.
    second: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    requests: u32,
    retries: u32,
}

impl RetryBudget {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            bins: [Bin::default(); 10],
            second: now.as_nanos() / BIN_NANOS,
        }
    }

    /// Counts a request.
    pub(super) fn on_request(&mut self, now: Timestamp) {
        let bin = self.current(now);
        bin.requests = bin.requests.saturating_add(1);
    }

    /// Counts a retry if there may be one; `slots` are those of a replica.
    pub(super) fn take(&mut self, now: Timestamp, slots: u32) -> bool {
        self.advance(now);
        let sum = |of: fn(&Bin) -> u32| self.bins.iter().map(of).map(u64::from).sum::<u64>();
        let allowed =
            RETRIES_MIN.max(u64::from(slots)) + sum(|bin| bin.requests) / REQUESTS_PER_RETRY;
        let is_allowed = sum(|bin| bin.retries) < allowed;
        if is_allowed {
            let bin = self.current(now);
            bin.retries = bin.retries.saturating_add(1);
        }
        is_allowed
    }

    fn current(&mut self, now: Timestamp) -> &mut Bin {
        self.advance(now);
        &mut self.bins[bin_of(self.second)]
    }

    fn advance(&mut self, now: Timestamp) {
        let second = now.as_nanos() / BIN_NANOS;
        let passed = second.saturating_sub(self.second).min(BINS);
        for step in 0..passed {
            self.bins[bin_of(second - step)] = Bin::default();
        }
        self.second = self.second.max(second);
    }
}

fn bin_of(second: u64) -> usize {
    // A remainder of ten fits any usize.
    usize::try_from(second % BINS).unwrap_or(0)
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
