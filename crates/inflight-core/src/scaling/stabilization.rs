//! Scale-down waits: a fleet shrinks only to the largest size needed within a window.
//!
//! What is stopped is missed for a start delay when it is needed again, and what is kept idle for as
//! long costs as much: keeping a replica for one start delay is at worst twice as dear as knowing
//! the future would be (ski rental: Lin, Wierman, Andrew, Thereska, "Dynamic right-sizing for
//! power-proportional data centers", 2011). Where sizes come back again and again, the window learns
//! how long they stay away, as a disk learns when to spin down (Douglis, Krishnan, Bershad,
//! "Adaptive disk spin-down policies for mobile computers", 1995).

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;
use crate::units::Replicas;

/// Targets are remembered in at most this many steps of the window.
const STEPS: u32 = 256;

/// The longest window that follows from start delays or returns. What comes back later is cheaper
/// to start again than to keep.
const WINDOW_MAX: Duration = Duration::from_secs(300);

/// A return is reckoned with for three of the longest windows.
const RETURNS_MEMORY: Duration = Duration::from_secs(900);

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

/// The targets of the recent past that may still be the largest of a window, and how long sizes
/// stayed away that were needed again.
#[derive(Clone, Debug, Default)]
pub(super) struct Stabilization {
    /// Newest and smallest last.
    targets: VecDeque<(Timestamp, Replicas)>,
    /// Newest and shortest last; empty unless returns are learned.
    returns: VecDeque<(Timestamp, Duration)>,
    learns: bool,
}

impl DownWindow {
    /// Returns the window for a start delay and the policy's factor.
    #[must_use]
    pub fn span(self, factor: u32, start_delay: Duration) -> Duration {
        match self {
            Self::Auto => start_delay
                .saturating_mul(factor)
                .clamp(Duration::from_secs(60), WINDOW_MAX),
            Self::Fixed(window) => window,
        }
    }
}

impl Stabilization {
    /// Says whether to learn how long sizes stay away that are needed again.
    pub(super) fn learn_returns(&mut self, learns: bool) {
        self.learns = learns;
        if !learns {
            self.returns.clear();
        }
    }

    /// Remembers a target and returns the largest within the window.
    pub(super) fn push(&mut self, now: Timestamp, target: Replicas, window: Duration) -> Replicas {
        while self
            .returns
            .front()
            .is_some_and(|&(at, _)| now.since(at) > RETURNS_MEMORY)
        {
            self.returns.pop_front();
        }
        let reach = if self.learns {
            window.max(WINDOW_MAX)
        } else {
            window
        };
        let step = reach / STEPS;
        while self
            .targets
            .front()
            .is_some_and(|&(at, _)| now.since(at) > reach + step)
        {
            self.targets.pop_front();
        }
        let before = self.targets.len();
        while self
            .targets
            .back()
            .is_some_and(|&(_, smaller)| smaller < target)
        {
            self.targets.pop_back();
        }
        let grew = self.targets.len() < before;
        if let Some(&(last, _)) = self.targets.back()
            && grew
            && self.learns
        {
            self.learn(now, now.since(last));
        }
        if self.targets.back().is_some_and(|&(_, same)| same == target) {
            self.targets.pop_back();
        }
        // A target that comes within one step of a larger one is not kept by itself: the larger
        // one stays that much longer instead.
        if self
            .targets
            .back()
            .is_none_or(|&(at, _)| now.since(at) >= step)
        {
            self.targets.push_back((now, target));
        }
        invariant!(
            "targets are bounded",
            self.targets.len() <= STEPS as usize + 2
        );
        let within = |&&(at, _): &&(Timestamp, Replicas)| now.since(at) <= window + step;
        let largest = self.targets.iter().find(within);
        largest.map_or(target, |&(_, largest)| largest)
    }

    /// Returns how long to wait for a size to be needed again: a quarter longer than the longest
    /// return that is remembered.
    pub(super) fn patience(&self) -> Duration {
        let longest = self.returns.front().map(|&(_, away)| away);
        (longest.unwrap_or_default() * 5 / 4).min(WINDOW_MAX)
    }

    fn learn(&mut self, now: Timestamp, away: Duration) {
        while self
            .returns
            .back()
            .is_some_and(|&(_, shorter)| shorter <= away)
        {
            self.returns.pop_back();
        }
        let step = RETURNS_MEMORY / STEPS;
        if self
            .returns
            .back()
            .is_none_or(|&(at, _)| now.since(at) >= step)
        {
            self.returns.push_back((now, away));
        }
    }

    /// Returns the returns that are remembered, oldest and longest first.
    pub(super) fn returns(&self) -> impl Iterator<Item = (Timestamp, Duration)> + '_ {
        self.returns.iter().copied()
    }

    /// Goes on from the returns of somebody else.
    pub(super) fn restore_returns(&mut self, now: Timestamp, past: &[(Timestamp, Duration)]) {
        if self.learns {
            past.iter()
                .for_each(|&(at, away)| self.learn(at.min(now), away.min(WINDOW_MAX)));
        }
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
    fn the_window_learns_how_long_a_size_stays_away_and_forgets_it() {
        let mut stabilization = Stabilization::default();
        stabilization.learn_returns(true);
        for (second, target) in [(0, 4), (2, 1), (100, 4), (102, 1)] {
            stabilization.push(at(second), Replicas::new(target), WINDOW);
        }
        assert_eq!(stabilization.patience(), Duration::from_secs(125));
        stabilization.push(at(600), Replicas::new(4), WINDOW);
        let longest = stabilization.patience();
        assert_eq!(longest, Duration::from_secs(125), "500 s are too long ago");
        for (second, target) in [(1100, 4), (1102, 1), (1104, 4)] {
            stabilization.push(at(second), Replicas::new(target), WINDOW);
        }
        assert_eq!(
            stabilization.patience(),
            Duration::from_millis(5000),
            "only the latest"
        );
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
