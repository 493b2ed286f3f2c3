//! How long a crashed replica's successor waits before its process starts.
//!
//! Kept per index and not per fleet, so that one broken device does not hold up its neighbours,
//! and past the life of a replica, so that a fleet that is sized down and up again does not forget
//! that its command crashes.

use std::collections::BTreeMap;
use std::time::Duration;

use inflight_core::Timestamp;

/// The wait after the first crash of a streak; each further crash doubles it. Long enough that a
/// command which exits at once costs little, short enough to be unnoticed in a cold start.
const FIRST: Duration = Duration::from_secs(1);

/// The longest wait. A fault that was repaired is picked up within a minute.
const LONGEST: Duration = Duration::from_secs(60);

/// A replica that was ready this long ends the streak: its crash is news, and the successor starts
/// at once. As long as the longest wait, so that neither way gives more than a start a minute for
/// ever.
const STEADY: Duration = LONGEST;

/// A streak is forgotten this long after its successor was due.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The crash streaks of a fleet, by index.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    streaks: BTreeMap<u32, Streak>,
}

#[derive(Debug)]
struct Streak {
    crashes: u32,
    start_at: Timestamp,
}

impl Backoff {
    /// Notes a crash of the replica at `index`; `ready_for` is how long it had been ready, `None`
    /// when it never was.
    pub(super) fn on_crash(&mut self, now: Timestamp, index: u32, ready_for: Option<Duration>) {
        self.streaks
            .retain(|_, streak| now <= streak.start_at + FORGOTTEN_AFTER);
        if ready_for.is_some_and(|span| span >= STEADY) {
            self.streaks.insert(
                index,
                Streak {
                    crashes: 0,
                    start_at: now,
                },
            );
            return;
        }
        let crashes = self
            .streaks
            .get(&index)
            .map_or(0, |streak| streak.crashes)
            .saturating_add(1);
        self.streaks.insert(
            index,
            Streak {
                crashes,
                start_at: now + wait(crashes),
            },
        );
    }

    /// Returns when a process may start at `index`: `now` unless a back-off runs.
    pub(super) fn start_at(&self, now: Timestamp, index: u32) -> Timestamp {
        self.streaks
            .get(&index)
            .map_or(now, |streak| streak.start_at.max(now))
    }
}

/// Returns the wait after this many crashes in a row; at least one.
fn wait(crashes: u32) -> Duration {
    let doublings = crashes.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn the_wait_doubles_with_each_crash_up_to_a_minute() {
        let mut backoff = Backoff::default();
        let mut now = at(100);
        for expected in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            backoff.on_crash(now, 0, None);
            let start_at = backoff.start_at(now, 0);
            assert_eq!(start_at.since(now), Duration::from_secs(expected));
            now = start_at;
        }
    }

    #[test]
    fn a_crash_after_a_steady_minute_restarts_at_once_and_the_next_one_waits() {
        let mut backoff = Backoff::default();
        backoff.on_crash(at(0), 0, None);
        backoff.on_crash(at(10), 0, Some(Duration::from_secs(2)));
        assert_eq!(backoff.start_at(at(10), 0), at(12));
        backoff.on_crash(at(100), 0, Some(STEADY));
        assert_eq!(backoff.start_at(at(100), 0), at(100));
        backoff.on_crash(at(101), 0, None);
        assert_eq!(backoff.start_at(at(101), 0), at(102));
    }

    #[test]
    fn an_index_does_not_wait_for_its_neighbour() {
        let mut backoff = Backoff::default();
        backoff.on_crash(at(5), 0, None);
        assert_eq!(backoff.start_at(at(5), 1), at(5));
    }

    #[test]
    fn an_old_streak_is_forgotten() {
        let mut backoff = Backoff::default();
        for _ in 0..5 {
            backoff.on_crash(at(0), 0, None);
        }
        backoff.on_crash(at(16 + 601), 0, None);
        assert_eq!(backoff.start_at(at(617), 0), at(618));
    }

    #[test]
    fn the_wait_is_bounded_for_any_number_of_crashes() {
        assert_eq!(wait(0), FIRST);
        assert_eq!(wait(u32::MAX), LONGEST);
    }
}
