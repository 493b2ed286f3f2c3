//! What was counted in each of the last ten seconds.

use crate::time::Timestamp;

const SECONDS: u64 = 10;
const SECOND_NANOS: u64 = 1_000_000_000;

/// A count, or several, for each of the last ten seconds; those before are forgotten.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LastSeconds<T> {
    bins: [T; 10],
    /// The second that is counted, since the clock's origin.
    second: u64,
}

impl<T: Copy + Default> LastSeconds<T> {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            bins: [T::default(); 10],
            second: now.as_nanos() / SECOND_NANOS,
        }
    }

    /// Forgets what is too old, and returns the counts of this second.
    pub(super) fn at(&mut self, now: Timestamp) -> &mut T {
        let second = now.as_nanos() / SECOND_NANOS;
        let passed = second.saturating_sub(self.second).min(SECONDS);
        for step in 0..passed {
            self.bins[bin_of(second - step)] = T::default();
        }
        self.second = self.second.max(second);
        &mut self.bins[bin_of(self.second)]
    }

    /// Adds one number of each second up, as of the latest [`at`](Self::at).
    pub(super) fn sum(&self, of: impl Fn(&T) -> u32) -> u64 {
        self.bins.iter().map(of).map(u64::from).sum()
    }

    /// Returns when the first of the seconds began.
    pub(super) const fn start(&self) -> Timestamp {
        Timestamp::from_nanos(self.second.saturating_sub(SECONDS - 1) * SECOND_NANOS)
    }
}

fn bin_of(second: u64) -> usize {
    // A remainder of ten fits any usize.
    usize::try_from(second % SECONDS).unwrap_or(0)
}
