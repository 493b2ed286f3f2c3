//! Counts what is in flight exactly: up when a request begins, down when it ends.
//!
//! Counting every request that arrives within a bucket as concurrent reads ten for one sequential
//! client with 10 ms requests; here a request counts for `[begin, end)` and for nothing else. Two
//! integrals over time come of it, both advancing continuously: that of the count, and that of
//! each bucket's largest count. No windows, no rates: whoever reads takes differences.

use std::time::Duration;

use crate::time::Timestamp;
use crate::units::request_seconds;

/// A number in flight, its exact integral over time, and its maximum in each bucket of time.
///
/// Only a count that lasted for some time is seen by the integrals and the maxima, which makes
/// every interval half-open: of an end and a begin at the same moment, in whichever order they
/// are told, the end counts first. A clock that stands still or steps back adds nothing until it
/// has passed the latest moment seen.
///
/// Everything costs O(1), however many buckets went by since the last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    count: u64,
    /// The latest moment seen; everything below is true of the time before it.
    at: Timestamp,
    integral: u128,
    bucket_nanos: u64,
    /// Where the present bucket starts, or where counting did if that was later.
    bucket_start: u64,
    bucket_end: u64,
    bucket_max: u64,
    /// ∫ bucket maximum over the buckets before the present one.
    peak_closed: u128,
    max: u64,
}

impl InFlight {
    /// Starts counting from nothing in flight.
    ///
    /// Buckets are aligned to the clock's origin, so the first one may be short. A `bucket` of
    /// zero counts as one nanosecond.
    #[must_use]
    pub fn new(bucket: Duration, now: Timestamp) -> Self {
        let bucket_nanos = u64::try_from(bucket.as_nanos()).unwrap_or(u64::MAX).max(1);
        let start = now.as_nanos();
        Self {
            count: 0,
            at: now,
            integral: 0,
            bucket_nanos,
            bucket_start: start,
            bucket_end: (start - start % bucket_nanos).saturating_add(bucket_nanos),
            bucket_max: 0,
            peak_closed: 0,
            max: 0,
        }
    }

    /// Counts by buckets of another length from `now` on; the present one ends here.
    ///
    /// Does nothing for the length that there is.
    pub fn set_bucket(&mut self, now: Timestamp, bucket: Duration) {
        let after = Self::new(bucket, now.max(self.at));
        if after.bucket_nanos == self.bucket_nanos {
            return;
        }
        self.advance(now);
        *self = Self {
            count: self.count,
            integral: self.integral,
            bucket_max: self.count,
            peak_closed: self.peak_integral(now),
            max: self.max,
            ..after
        };
    }

    /// Counts one more from `now` on.
    pub fn begin(&mut self, now: Timestamp) {
        self.advance(now);
        self.count += 1;
    }

    /// Counts one less from `now` on.
    pub fn end(&mut self, now: Timestamp) {
        self.advance(now);
        invariant!("what ends had begun", self.count > 0);
        self.count = self.count.saturating_sub(1);
    }

    /// Returns the number in flight.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns ∫ count over time up to `now`.
    ///
    /// *Units*: request-nanoseconds, cumulative.
    #[must_use]
    pub fn integral(&self, now: Timestamp) -> u128 {
        self.advanced(now).integral
    }

    /// Returns ∫ (largest count of each bucket) over time up to `now`; the present bucket counts
    /// with its largest count so far for the part of it that has passed.
    ///
    /// *Units*: request-nanoseconds, cumulative.
    #[must_use]
    pub fn peak_integral(&self, now: Timestamp) -> u128 {
        let this = self.advanced(now);
        let passed = this.at.as_nanos() - this.bucket_start;
        this.peak_closed + area(this.bucket_max, passed)
    }

    /// Returns [`integral`](Self::integral) in request-seconds.
    #[must_use]
    pub fn seconds(&self, now: Timestamp) -> f64 {
        request_seconds(self.integral(now))
    }

    /// Returns [`peak_integral`](Self::peak_integral) in request-seconds.
    #[must_use]
    pub fn peak_seconds(&self, now: Timestamp) -> f64 {
        request_seconds(self.peak_integral(now))
    }

    /// Returns the part of [`peak_seconds`](Self::peak_seconds) that is of whole buckets, and how
    /// long ago the last of them ended: what windows are to be taken over, since a bucket that is
    /// cut counts its maximum for time before the request that made it.
    #[must_use]
    pub fn whole_bucket_peak_seconds(&self, now: Timestamp) -> (f64, Duration) {
        let this = self.advanced(now);
        let since = Duration::from_nanos(this.at.as_nanos() - this.bucket_start);
        (request_seconds(this.peak_closed), since)
    }

    /// Returns the largest count since the previous call, the count at `now` included, and starts
    /// again from `now`.
    pub fn take_max(&mut self, now: Timestamp) -> u64 {
        self.advance(now);
        std::mem::take(&mut self.max).max(self.count)
    }

    /// Tells the time: what is in flight was in flight until `now`.
    fn advance(&mut self, now: Timestamp) {
        if now <= self.at {
            return;
        }
        let nanos = now.as_nanos();
        self.integral += area(self.count, nanos - self.at.as_nanos());
        self.max = self.max.max(self.count);
        self.bucket_max = self.bucket_max.max(self.count);
        if nanos >= self.bucket_end {
            self.close_buckets(nanos);
        }
        self.at = now;
    }

    /// Closes the present bucket and those that went by since with a constant count.
    fn close_buckets(&mut self, nanos: u64) {
        self.peak_closed += area(self.bucket_max, self.bucket_end - self.bucket_start);
        let whole = (nanos - self.bucket_end) / self.bucket_nanos * self.bucket_nanos;
        self.peak_closed += area(self.count, whole);
        self.bucket_start = self.bucket_end + whole;
        self.bucket_end = self.bucket_start.saturating_add(self.bucket_nanos);
        // Requests that reach over the edge are in the bucket too, unless they end right on it.
        self.bucket_max = if nanos > self.bucket_start {
            self.count
        } else {
            0
        };
    }

    fn advanced(&self, now: Timestamp) -> Self {
        let mut this = *self;
        this.advance(now);
        this
    }
}

fn area(count: u64, nanos: u64) -> u128 {
    u128::from(count) * u128::from(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: Duration = Duration::from_millis(100);

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn ms_area(requests_times_millis: u128) -> u128 {
        requests_times_millis * 1_000_000
    }

    #[test]
    fn a_request_counts_from_its_begin_to_its_end() {
        let mut load = InFlight::new(BUCKET, ms(0));
        load.begin(ms(10));
        load.begin(ms(20));
        load.end(ms(50));
        assert_eq!(load.count(), 1);
        assert_eq!(load.integral(ms(60)), ms_area(10 + 2 * 30 + 10));
        assert_eq!(
            load.integral(ms(60)),
            ms_area(80),
            "reading changes nothing"
        );
    }

    #[test]
    fn a_sequential_client_is_one_in_flight_in_either_order_of_equal_times() {
        for begin_first in [false, true] {
            let mut load = InFlight::new(BUCKET, ms(0));
            load.begin(ms(0));
            for step in 1..100 {
                if begin_first {
                    load.begin(ms(step * 10));
                    load.end(ms(step * 10));
                } else {
                    load.end(ms(step * 10));
                    load.begin(ms(step * 10));
                }
            }
            assert_eq!(load.peak_integral(ms(1000)), ms_area(1000));
            assert_eq!(load.take_max(ms(1000)), 1);
        }
    }

    #[test]
    fn a_bucket_counts_with_its_maximum_and_what_reaches_over_is_carried() {
        let mut load = InFlight::new(BUCKET, ms(0));
        load.begin(ms(40));
        load.begin(ms(50));
        assert_eq!(load.peak_integral(ms(60)), ms_area(2 * 60));
        load.end(ms(60));
        load.end(ms(150));
        assert_eq!(load.peak_integral(ms(400)), ms_area(200 + 100));
    }

    #[test]
    fn an_end_on_the_edge_is_not_carried_into_the_next_bucket() {
        let mut load = InFlight::new(BUCKET, ms(0));
        load.begin(ms(0));
        load.end(ms(100));
        assert_eq!(load.peak_integral(ms(500)), ms_area(100));
    }

    #[test]
    fn a_first_bucket_that_starts_late_is_short() {
        let mut load = InFlight::new(BUCKET, ms(1_070));
        load.begin(ms(1_070));
        assert_eq!(load.peak_integral(ms(1_100)), ms_area(30));
        load.end(ms(1_110));
        assert_eq!(load.peak_integral(ms(1_300)), ms_area(130));
    }

    #[test]
    fn buckets_of_another_length_begin_where_the_present_one_ends() {
        let mut load = InFlight::new(BUCKET, ms(0));
        load.begin(ms(10));
        load.begin(ms(20));
        load.end(ms(30));
        load.set_bucket(ms(50), Duration::from_millis(40));
        assert_eq!(load.count(), 1);
        assert_eq!(load.integral(ms(50)), ms_area(10 + 2 * 10 + 20));
        assert_eq!(load.peak_integral(ms(50)), ms_area(2 * 50));
        load.begin(ms(60));
        load.end(ms(70));
        assert_eq!(load.peak_integral(ms(80)), ms_area(2 * 50 + 2 * 30));
        assert_eq!(load.peak_integral(ms(120)), ms_area(2 * 80 + 40));
        let before = load;
        load.set_bucket(ms(130), Duration::from_millis(40));
        assert_eq!(load, before, "the length that there is");
    }

    #[test]
    fn a_clock_that_steps_back_adds_nothing() {
        let mut load = InFlight::new(BUCKET, ms(500));
        load.begin(ms(510));
        load.begin(ms(400));
        load.end(ms(0));
        assert_eq!(load.count(), 1);
        assert_eq!(load.integral(ms(300)), 0);
        assert_eq!(load.integral(ms(520)), ms_area(10));
    }

    #[test]
    fn the_ends_of_time_and_of_bucket_lengths_are_harmless() {
        let end = Timestamp::from_nanos(u64::MAX);
        for bucket in [Duration::ZERO, Duration::MAX, BUCKET] {
            let mut load = InFlight::new(bucket, ms(0));
            load.begin(ms(0));
            load.begin(end);
            load.end(end);
            assert_eq!(load.integral(end), u128::from(u64::MAX));
            assert_eq!(load.peak_integral(end), u128::from(u64::MAX));
        }
    }

    #[test]
    fn the_largest_number_starts_again_at_each_reading() {
        let mut load = InFlight::new(BUCKET, ms(0));
        load.begin(ms(1));
        load.begin(ms(2));
        load.end(ms(3));
        assert_eq!(load.take_max(ms(4)), 2);
        assert_eq!(load.take_max(ms(5)), 1);
        load.end(ms(6));
        assert_eq!(load.take_max(ms(6)), 1);
        assert_eq!(load.take_max(ms(7)), 0);
    }
}
