//! A size that a person set, for a time: it stands above the policy and ends by itself.
//!
//! The policy goes on finding what is needed meanwhile, so that its own answer is there at once
//! when the hold ends.

use std::time::Duration;

use crate::decision::Limit;
use crate::time::Timestamp;
use crate::units::Replicas;

/// What a person wants of the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It stays as it is.
    Pause,
    /// It is this, cut to the maximum; the minimum does not raise it.
    Size(Replicas),
}

/// A hold and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What a person wants of the size.
    pub hold: Hold,
    /// When the policy decides again.
    pub until: Timestamp,
}

impl Held {
    /// Tells whether the hold is over.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// Returns the size it gives to a fleet of `settled` replicas, and how that is told.
    pub(super) fn size(&self, now: Timestamp, settled: Replicas) -> (Replicas, Limit) {
        let left: Duration = self.until.since(now);
        match self.hold {
            Hold::Pause => (settled, Limit::Paused { left }),
            Hold::Size(size) => (size, Limit::Sized { size, left }),
        }
    }
}
