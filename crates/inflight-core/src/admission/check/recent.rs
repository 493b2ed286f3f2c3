//! How many were let in since a moment of the last seconds.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// What was let in within this span is forgotten together, when all of it is old.
const TOGETHER: Duration = Duration::from_millis(100);
/// How many spans are kept: those of ten seconds. What comes beyond counts for the latest.
const SPANS: usize = 100;

/// Counts of the recent past.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// When each span began, and how many were let in from then on until the next; oldest first.
    spans: VecDeque<(Timestamp, u64)>,
    total: u64,
}

impl Recent {
    pub(super) fn add(&mut self, now: Timestamp) {
        self.total = self.total.saturating_add(1);
        let is_full = self.spans.len() >= SPANS;
        match self.spans.back_mut() {
            Some((start, count)) if is_full || now.since(*start) < TOGETHER => {
                *count = count.saturating_add(1);
                if is_full {
                    *start = now;
                }
            }
            Some(_) | None => self.spans.push_back((now, 1)),
        }
    }

    /// Forgets those that were certainly let in before `then`.
    pub(super) fn forget_before(&mut self, then: Timestamp) {
        while let Some(&(start, count)) = self.spans.front()
            && start + TOGETHER <= then
        {
            self.spans.pop_front();
            self.total = self.total.saturating_sub(count);
        }
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn nobody_is_forgotten_who_may_have_come_since() {
        let mut recent = Recent::default();
        for at in [0, 50, 99, 100, 350] {
            recent.add(ms(at));
        }
        recent.forget_before(ms(99));
        assert_eq!(recent.total(), 5);
        recent.forget_before(ms(100));
        assert_eq!(recent.total(), 2, "those of the first tenth of a second");
        recent.forget_before(ms(449));
        assert_eq!(recent.total(), 1);
        recent.forget_before(ms(450));
        assert_eq!(recent.total(), 0);
    }

    #[test]
    fn it_is_bounded_however_long_nothing_is_forgotten() {
        let mut recent = Recent::default();
        for at in 0..100_000 {
            recent.add(ms(at * 37));
        }
        assert_eq!(recent.spans.len(), SPANS);
        assert_eq!(recent.total(), 100_000);
        recent.forget_before(ms(100_000 * 37 + 100));
        assert_eq!(recent.total(), 0);
    }
}
