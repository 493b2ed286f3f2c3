//! How fast requests complete, to tell a refused caller when to come back.

use std::time::Duration;

use super::seconds::LastSeconds;
use crate::time::Timestamp;
use crate::units::count_as_f64;

/// What a refused caller is told at least: sooner would be a busy loop.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// What a refused caller is told at most: later says nothing about the fleet any more.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Completions in each of the last ten seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompletionRate {
    completions: LastSeconds<u32>,
    since: Timestamp,
}

impl CompletionRate {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            completions: LastSeconds::new(now),
            since: now,
        }
    }

    /// Counts a completion.
    pub(super) fn on_completion(&mut self, now: Timestamp) {
        let bin = self.completions.at(now);
        *bin = bin.saturating_add(1);
    }

    /// Returns how long `ahead` requests take at the present rate, from 1 s to 60 s; `None` when
    /// nothing completed in the last ten seconds, since then the rate is unknown.
    pub(super) fn time_for(&mut self, now: Timestamp, ahead: u64) -> Option<Duration> {
        self.seconds_for(now, ahead).map(|seconds| {
            let wait = Duration::try_from_secs_f64(seconds).unwrap_or(WAIT_MAX);
            wait.clamp(WAIT_MIN, WAIT_MAX)
        })
    }

    /// Returns the same, in seconds and without bounds.
    pub(super) fn seconds_for(&mut self, now: Timestamp, ahead: u64) -> Option<f64> {
        self.completions.at(now);
        let completions = self.completions.sum(|&count| count);
        if completions == 0 {
            return None;
        }
        let start = self.completions.start().max(self.since);
        let window = now.since(start).max(WAIT_MIN);
        let rate = count_as_f64(completions) / window.as_secs_f64();
        Some(count_as_f64(ahead) / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_wait_is_what_stands_ahead_over_the_rate() {
        let mut rate = CompletionRate::new(ms(0));
        for step in 0..200 {
            rate.on_completion(ms(step * 100));
        }
        let wait = rate.time_for(ms(19_999), 45).unwrap();
        assert!((wait.as_secs_f64() - 4.5).abs() < 0.01, "{wait:?}");
        assert_eq!(rate.time_for(ms(19_999), 1), Some(WAIT_MIN));
        assert_eq!(rate.time_for(ms(19_999), 1_000_000), Some(WAIT_MAX));
    }

    #[test]
    fn without_a_completion_in_ten_seconds_the_rate_is_unknown() {
        let mut rate = CompletionRate::new(ms(5_000));
        assert_eq!(rate.time_for(ms(6_000), 3), None);
        rate.on_completion(ms(7_000));
        assert!(rate.time_for(ms(16_999), 3).is_some());
        assert_eq!(rate.time_for(ms(17_000), 3), None);
        assert_eq!(rate.time_for(Timestamp::from_nanos(u64::MAX), 3), None);
    }

    #[test]
    fn a_young_count_is_divided_by_its_own_age() {
        let mut rate = CompletionRate::new(ms(50_000));
        for step in 1..=20 {
            rate.on_completion(ms(50_000 + step * 100));
        }
        assert_eq!(rate.time_for(ms(52_000), 30), Some(Duration::from_secs(3)));
    }
}
