//! What a gate knows, as it leaves one process for another.
//!
//! Those that wait are the former process's to answer; the load is read anew.

use super::{CheckCounts, CheckGate};
use crate::ids::SessionKey;
use crate::time::Timestamp;

/// What a gate before a fleet knows of its clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastChecks {
    /// Calls answered: running, new, unknown and left.
    pub answered: [u64; 4],
    /// Calls refused, by reason in the order of
    /// [`RefusalReason::ALL`](crate::admission::RefusalReason::ALL).
    pub refused: Vec<u64>,
    /// Whether the gate was closed.
    pub is_closed: bool,
    /// When a first call was last let in or waited.
    pub called_at: Option<Timestamp>,
    /// The sessions that are not new, with when each last sent something.
    pub sessions: Vec<(SessionKey, Timestamp)>,
}

/// No count starts above this, so that none overflows.
const COUNT_MAX: u64 = 1 << 62;

impl CheckGate {
    /// Returns what is known as of `now`. While calls wait, the last first call is of now.
    #[must_use]
    pub fn export(&self, now: Timestamp) -> PastChecks {
        let now = self.now.max(now);
        let CheckCounts {
            running,
            new,
            unknown,
            left,
            refused,
        } = self.counts;
        PastChecks {
            answered: [running, new, unknown, left],
            refused: refused.iter().map(|(_, count)| count).collect(),
            is_closed: !self.is_open,
            called_at: if self.held > 0 {
                Some(now)
            } else {
                self.called_at
            },
            sessions: self.sessions.export(now),
        }
    }

    /// Goes on from what another gate knew; to be called on one that answered nobody.
    pub fn restore(&mut self, now: Timestamp, past: &PastChecks) {
        let now = self.advance(now);
        let [running, new, unknown, left] = past.answered.map(|count| count.min(COUNT_MAX));
        self.counts = CheckCounts {
            running,
            new,
            unknown,
            left,
            ..CheckCounts::default()
        };
        self.counts.refused.restore(&past.refused, COUNT_MAX);
        self.is_open = !past.is_closed;
        self.called_at = past.called_at.map(|at| at.min(now));
        self.sessions.restore(now, &past.sessions);
    }
}
