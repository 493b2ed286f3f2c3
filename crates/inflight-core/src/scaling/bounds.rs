//! Limits on the size and on how fast it changes, and the tolerance within which it stays.

use std::collections::VecDeque;
use std::time::Duration;

use super::error::{self, ConfigError};
use crate::time::Timestamp;
use crate::units::Replicas;

/// Sizes are remembered in at most this many steps of a step limit's span.
const STEPS: u32 = 256;

/// The smallest and the largest size of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    min: Replicas,
    max: Replicas,
}

/// How close to what the size is for a load must be for the size to stay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance(f64);

/// How fast a fleet may grow or shrink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepLimit {
    /// At once.
    #[default]
    Unlimited,
    /// By at most so many against the size that long ago.
    Limited {
        /// How many.
        replicas: Replicas,
        /// How long ago.
        every: Duration,
    },
}

/// The sizes of the recent past, in bounded memory at any rate of decisions.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    changes: VecDeque<(Timestamp, Replicas)>,
}

impl Bounds {
    /// Builds bounds.
    ///
    /// # Errors
    ///
    /// `min` is above `max`, or `max` is zero.
    pub const fn new(min: Replicas, max: Replicas) -> Result<Self, ConfigError> {
        if max.get() == 0 {
            return Err(ConfigError::MaxZero);
        }
        if min.get() > max.get() {
            return Err(ConfigError::MinAboveMax { min, max });
        }
        Ok(Self { min, max })
    }

    /// Returns the smallest size.
    #[must_use]
    pub const fn min(&self) -> Replicas {
        self.min
    }

    /// Returns the largest size.
    #[must_use]
    pub const fn max(&self) -> Replicas {
        self.max
    }

    /// Returns the size within the bounds that is next to `size`.
    #[must_use]
    pub fn clamp(&self, size: Replicas) -> Replicas {
        size.clamp(self.min, self.max)
    }
}

impl Tolerance {
    /// Builds a tolerance; 0.1 is that of Kubernetes.
    ///
    /// # Errors
    ///
    /// `tolerance` is not from 0 to 1.
    pub fn new(tolerance: f64) -> Result<Self, ConfigError> {
        Ok(Self(error::number(
            "scaling.tolerance",
            tolerance,
            0.0,
            1.0,
        )?))
    }

    /// Returns the share by which a load may be off.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Tells whether a ratio of load to what the size is for is within the tolerance.
    ///
    /// Two comparisons as in Kubernetes, since |ratio − 1| ≤ tolerance rounds differently.
    #[must_use]
    pub fn contains(self, ratio: f64) -> bool {
        1.0 - self.0 <= ratio && ratio <= 1.0 + self.0
    }
}

impl Sizes {
    pub(super) fn new(now: Timestamp, size: Replicas) -> Self {
        Self {
            changes: VecDeque::from([(now, size)]),
        }
    }

    /// Remembers a size, as far back as `memory`.
    pub(super) fn record(&mut self, now: Timestamp, size: Replicas, memory: Duration) {
        let step = memory / STEPS;
        let earlier = self.changes.len() > 1;
        match self.changes.back_mut() {
            Some((_, latest)) if *latest == size => {}
            Some((at, latest)) if earlier && now.since(*at) < step => *latest = size,
            Some(_) | None => self.changes.push_back((now, size)),
        }
        // A change that was taken back within a step is none.
        if let [.., (_, before), (_, latest)] = self.changes.make_contiguous()
            && before == latest
        {
            self.changes.pop_back();
        }
        // One change at or before the memory's start stays: it says the size at the start.
        while self
            .changes
            .get(1)
            .is_some_and(|&(at, _)| at <= now - memory)
        {
            self.changes.pop_front();
        }
        invariant!(
            "sizes are bounded",
            self.changes.len() <= STEPS as usize + 3
        );
    }

    /// Returns the changes of the size that are remembered, oldest first.
    pub(super) fn changes(&self) -> impl Iterator<Item = (Timestamp, Replicas)> + '_ {
        self.changes.iter().copied()
    }

    /// Goes on from the changes of the size elsewhere.
    pub(super) fn restore(
        &mut self,
        now: Timestamp,
        changes: &[(Timestamp, Replicas)],
        memory: Duration,
    ) {
        let Some(&(at, size)) = changes.first() else {
            return;
        };
        *self = Self::new(at.min(now), size);
        for &(at, size) in changes {
            let latest = self.changes.back().map_or(at, |&(latest, _)| latest);
            self.record(at.clamp(latest, now.max(latest)), size, memory);
        }
    }

    fn at(&self, at: Timestamp) -> Replicas {
        let after = self.changes.partition_point(|&(change, _)| change <= at);
        let change = self.changes.get(after.saturating_sub(1));
        change.map_or(Replicas::ZERO, |&(_, size)| size)
    }
}

impl StepLimit {
    /// Returns the largest size that may be grown to from `current`.
    pub(super) fn most(&self, now: Timestamp, sizes: &Sizes, current: Replicas) -> Replicas {
        match *self {
            Self::Unlimited => Replicas::MAX,
            Self::Limited { replicas, every } => sizes.at(now - every).plus(replicas).max(current),
        }
    }

    /// Returns the smallest size that may be shrunk to from `current`.
    pub(super) fn least(&self, now: Timestamp, sizes: &Sizes, current: Replicas) -> Replicas {
        match *self {
            Self::Unlimited => Replicas::ZERO,
            Self::Limited { replicas, every } => sizes.at(now - every).minus(replicas).min(current),
        }
    }

    /// Returns how far back the limit looks.
    pub(super) const fn every(&self) -> Duration {
        match *self {
            Self::Unlimited => Duration::ZERO,
            Self::Limited { every, .. } => every,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn bounds_that_no_size_meets_are_refused() {
        let bounds = |min, max| Bounds::new(Replicas::new(min), Replicas::new(max));
        assert_eq!(bounds(0, 0), Err(ConfigError::MaxZero));
        let message = bounds(5, 2).unwrap_err().to_string();
        assert_eq!(
            message,
            "replicas.min is 5, allowed is 0 to replicas.max, which is 2"
        );
        assert!(bounds(2, 2).is_ok());
    }

    #[test]
    fn tolerance_is_two_comparisons() {
        let tolerance = Tolerance::new(0.1).unwrap();
        assert!(tolerance.contains(1.1) && tolerance.contains(0.9));
        assert!(!tolerance.contains(1.11) && !tolerance.contains(0.89));
        assert!(!tolerance.contains(f64::NAN));
        assert!(Tolerance::new(f64::NAN).is_err() && Tolerance::new(-0.1).is_err());
    }

    #[test]
    fn a_step_limit_counts_from_the_size_that_long_ago() {
        let every = Duration::from_secs(60);
        let limit = StepLimit::Limited {
            replicas: Replicas::ONE,
            every,
        };
        let mut sizes = Sizes::new(at(0), Replicas::new(3));
        assert_eq!(
            limit.most(at(0), &sizes, Replicas::new(3)),
            Replicas::new(4)
        );
        sizes.record(at(10), Replicas::new(4), every);
        assert_eq!(
            limit.most(at(69), &sizes, Replicas::new(4)),
            Replicas::new(4)
        );
        assert_eq!(
            limit.most(at(70), &sizes, Replicas::new(4)),
            Replicas::new(5)
        );
        assert_eq!(
            limit.least(at(70), &sizes, Replicas::new(4)),
            Replicas::new(3)
        );
        assert_eq!(
            limit.least(at(69), &sizes, Replicas::new(4)),
            Replicas::new(2)
        );
    }

    #[test]
    fn sizes_that_change_at_any_rate_take_bounded_memory() {
        let memory = Duration::from_secs(60);
        let mut sizes = Sizes::new(at(0), Replicas::ONE);
        for change in 0..100_000_u64 {
            let now = Timestamp::from_nanos(change * 1_000_000);
            sizes.record(
                now,
                Replicas::new(u32::try_from(change % 7).unwrap()),
                memory,
            );
        }
        assert!(sizes.changes.len() <= 259);
    }
}
