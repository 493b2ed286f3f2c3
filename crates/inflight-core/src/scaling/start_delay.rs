//! How long a replica takes to start, learned, and whether the fleet has stopped growing.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;
use crate::units::Replicas;

/// What is taken before any replica was seen to start.
const UNLEARNED: Duration = Duration::from_secs(10);

/// Starts that are remembered: enough for a steady median, few enough to follow a faster image.
const REMEMBERED: usize = 32;

/// The start delays of the recent past. The median sizes: one start that hung says nothing about
/// the next.
#[derive(Clone, Debug)]
pub(super) struct StartDelay {
    recent: VecDeque<Duration>,
    median: Duration,
}

/// Since when a fleet that shall be larger than it is has not grown.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    pub(super) ready: Option<Replicas>,
    pub(super) stalled_since: Option<Timestamp>,
}

impl StartDelay {
    pub(super) fn new() -> Self {
        Self {
            recent: VecDeque::new(),
            median: UNLEARNED,
        }
    }

    /// Takes the delays of replicas that became ready.
    pub(super) fn observe(&mut self, started: &[Duration]) {
        if started.is_empty() {
            return;
        }
        self.recent
            .extend(started.iter().rev().take(REMEMBERED).rev());
        let surplus = self.recent.len().saturating_sub(REMEMBERED);
        self.recent.drain(..surplus);
        let mut sorted: Vec<Duration> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        self.median = sorted
            .get((sorted.len() - 1) / 2)
            .copied()
            .unwrap_or(UNLEARNED);
    }

    /// Returns the delays that are remembered, oldest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = Duration> + '_ {
        self.recent.iter().copied()
    }

    pub(super) fn median(&self) -> Duration {
        self.median
    }

    /// Returns the median of those that were seen.
    pub(super) fn seen(&self) -> Option<Duration> {
        (!self.recent.is_empty()).then_some(self.median)
    }
}

impl Growth {
    /// Takes the ready replicas and the size they shall be, without what is added for the lost:
    /// those are not ready for as long as nobody removes them.
    pub(super) fn observe(
        &mut self,
        now: Timestamp,
        ready: Option<Replicas>,
        desired: Replicas,
        became_ready: bool,
    ) {
        let Some(ready) = ready else { return };
        let grew = became_ready || self.ready.is_some_and(|before| ready > before);
        self.ready = Some(ready);
        if ready >= desired {
            self.stalled_since = None;
        } else if grew || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
    }

    /// Tells whether nothing became ready for `span` although more replicas were asked for.
    pub(super) fn is_stalled(&self, now: Timestamp, span: Duration) -> bool {
        self.stalled_since
            .is_some_and(|since| now.since(since) >= span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn the_median_of_the_recent_starts_is_taken() {
        let mut delay = StartDelay::new();
        assert_eq!(delay.median(), UNLEARNED);
        let seconds = |list: &[u64]| list.iter().map(|&s| Duration::from_secs(s)).collect();
        let started: Vec<Duration> = seconds(&[30, 600, 32]);
        delay.observe(&started);
        assert_eq!(delay.median(), Duration::from_secs(32));
        for _ in 0..100 {
            delay.observe(&[Duration::from_secs(5)]);
        }
        assert_eq!(delay.median(), Duration::from_secs(5));
        assert_eq!(delay.recent.len(), REMEMBERED);
    }

    #[test]
    fn a_fleet_is_stalled_while_nothing_becomes_ready_that_was_asked_for() {
        let mut growth = Growth::default();
        let (two, four, span) = (Replicas::new(2), Replicas::new(4), Duration::from_secs(20));
        growth.observe(at(0), Some(two), four, false);
        growth.observe(at(19), Some(two), four, false);
        assert!(!growth.is_stalled(at(19), span));
        assert!(growth.is_stalled(at(20), span));
        growth.observe(at(21), Some(Replicas::new(3)), four, true);
        assert!(!growth.is_stalled(at(40), span));
        growth.observe(at(42), Some(four), four, true);
        assert!(!growth.is_stalled(at(900), span));
    }
}
