//! Scale-down waits: a fleet shrinks only to the largest size needed within a window.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;
use crate::units::Replicas;

/// Targets are remembered in at most this many steps of the window.
const STEPS: u32 = 256;

/// How long a size must not be needed before the fleet shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DownWindow {
    /// As many start delays as the policy says, from 60 s to 300 s: what is stopped is missed for
    /// one start delay if the load comes back.
    #[default]
    Auto,
    /// A fixed window.
    Fixed(Duration),
}

/// The targets of the recent past that may still be the largest of a window, newest and smallest
/// last.
#[derive(Clone, Debug, Default)]
pub(super) struct Stabilization {
    targets: VecDeque<(Timestamp, Replicas)>,
}

impl DownWindow {
    /// Returns the window for a start delay and the policy's factor.
    #[must_use]
    pub fn span(self, factor: u32, start_delay: Duration) -> Duration {
        match self {
            Self::Auto => start_delay
                .saturating_mul(factor)
                .clamp(Duration::from_secs(60), Duration::from_secs(300)),
            Self::Fixed(window) => window,
        }
    }
}

impl Stabilization {
    /// Remembers a target and returns the largest within the window.
    pub(super) fn push(&mut self, now: Timestamp, target: Replicas, window: Duration) -> Replicas {
        while self
            .targets
            .back()
            .is_some_and(|&(_, smaller)| smaller <= target)
        {
            self.targets.pop_back();
        }
        let step = window / STEPS;
        // A target that comes within one step of a larger one is not kept by itself: the larger
        // one stays that much longer instead.
        if self
            .targets
            .back()
            .is_none_or(|&(at, _)| now.since(at) >= step)
        {
            self.targets.push_back((now, target));
        }
        while self
            .targets
            .front()
            .is_some_and(|&(at, _)| now.since(at) > window + step)
        {
            self.targets.pop_front();
        }
        invariant!(
            "targets are bounded",
            self.targets.len() <= STEPS as usize + 2
        );
        self.targets.front().map_or(target, |&(_, largest)| largest)
    }

    /// Returns the targets that may still be the largest, oldest first.
    pub(super) fn targets(&self) -> impl Iterator<Item = (Timestamp, Replicas)> + '_ {
        self.targets.iter().copied()
    }

    /// Tells whether no target came for a span; true before the first one.
    pub(super) fn is_stale(&self, now: Timestamp, span: Duration) -> bool {
        self.targets
            .back()
            .is_none_or(|&(at, _)| now.since(at) > span)
    }

    /// Forgets every target.
    pub(super) fn clear(&mut self) {
        self.targets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn the_largest_target_of_the_window_counts() {
        let mut stabilization = Stabilization::default();
        let mut push = |second, target| {
            stabilization
                .push(at(second), Replicas::new(target), WINDOW)
                .get()
        };
        assert_eq!(push(0, 4), 4);
        assert_eq!(push(2, 2), 4);
        assert_eq!(push(30, 3), 4);
        assert_eq!(push(60, 1), 4);
        assert_eq!(push(61, 1), 3);
        assert_eq!(push(91, 1), 1);
    }

    #[test]
    fn targets_at_any_rate_take_bounded_memory_and_still_leave_the_window() {
        let mut stabilization = Stabilization::default();
        let mut largest = Replicas::ZERO;
        for push in 0..200_000_u32 {
            let now = Timestamp::from_nanos(u64::from(push) * 1_000_000);
            largest = stabilization.push(now, Replicas::new(1_000_000 - push), WINDOW);
        }
        assert!(stabilization.targets.len() <= 258);
        let oldest = Replicas::new(1_000_000 - 200_000 + 60_000);
        assert!(largest <= oldest.plus(Replicas::new(500)) && largest >= oldest);
    }

    #[test]
    fn the_automatic_window_follows_the_start_delay_within_its_range() {
        let span = |seconds| DownWindow::Auto.span(4, Duration::from_secs(seconds));
        assert_eq!(span(1), Duration::from_secs(60));
        assert_eq!(span(30), Duration::from_secs(120));
        assert_eq!(span(600), Duration::from_secs(300));
        assert_eq!(
            DownWindow::Auto.span(4, Duration::MAX),
            Duration::from_secs(300)
        );
    }
}
