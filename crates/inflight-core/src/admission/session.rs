//! Remembers the sessions that sent something lately, to tell which request starts a new one.
//!
//! Bounded: beyond the bound the session that is idle longest is forgotten. Those with something
//! in flight are never forgotten, so that their count stays exact; there are at most as many as
//! requests. Whether a new session is let in is decided elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use slab::Slab;

use crate::ids::SessionKey;
use crate::time::Timestamp;

/// The sessions remembered.
#[derive(Clone, Debug)]
pub(super) struct Sessions {
    places: BTreeMap<SessionKey, usize>,
    slab: Slab<Session>,
    /// The ends of the list of those with nothing in flight, idle longest first.
    idle_first: Option<usize>,
    idle_last: Option<usize>,
    max: usize,
    idle: Duration,
    /// Until then a session that is not known may be one that was forgotten by a restart.
    unknown_are_old_until: Timestamp,
}

#[derive(Clone, Debug)]
struct Session {
    key: SessionKey,
    in_flight: u64,
    /// When its last request began or ended.
    last: Timestamp,
    before: Option<usize>,
    after: Option<usize>,
}

/// How many idle sessions are forgotten with each that begins: more than one, so that they
/// become fewer; few, so that no request pays for all.
const FORGOTTEN_AT_ONCE: usize = 2;

impl Sessions {
    pub(super) const fn new(max: usize, idle: Duration) -> Self {
        Self {
            places: BTreeMap::new(),
            slab: Slab::new(),
            idle_first: None,
            idle_last: None,
            max,
            idle,
            unknown_are_old_until: Timestamp::ORIGIN,
        }
    }

    /// Changes the bounds; takes effect with the sessions that begin and end.
    pub(super) const fn configure(&mut self, max: usize, idle: Duration) {
        self.max = max;
        self.idle = idle;
    }

    /// Takes sessions that are not known for old ones until all that are active have been seen.
    pub(super) fn on_restart(&mut self, now: Timestamp) {
        self.unknown_are_old_until = now + self.idle;
    }

    /// Tells whether a request of the session starts it.
    pub(super) fn is_new(&self, now: Timestamp, key: SessionKey) -> bool {
        match self.places.get(&key) {
            Some(&at) => {
                let session = &self.slab[at];
                session.in_flight == 0 && now.since(session.last) >= self.idle
            }
            None => now >= self.unknown_are_old_until,
        }
    }

    /// Counts a request of the session and returns the session's place, which stays its own
    /// until the request has ended.
    pub(super) fn begin(&mut self, now: Timestamp, key: SessionKey) -> usize {
        self.forget_idle(now);
        let at = match self.places.get(&key) {
            Some(&at) => at,
            None => self.remember(now, key),
        };
        if self.slab[at].in_flight == 0 {
            self.leave_idle(at);
        }
        let session = &mut self.slab[at];
        session.in_flight += 1;
        session.last = now;
        at
    }

    /// Counts the end of a request of the session at `at`.
    pub(super) fn end(&mut self, now: Timestamp, at: usize) {
        let session = &mut self.slab[at];
        invariant!("what ends in a session had begun", session.in_flight > 0);
        session.in_flight = session.in_flight.saturating_sub(1);
        session.last = now;
        if session.in_flight == 0 {
            self.join_idle(at);
            self.forget_above(self.max);
        }
    }

    /// Counts a request of the session whose end is not seen.
    pub(super) fn touch(&mut self, now: Timestamp, key: SessionKey) {
        let at = self.begin(now, key);
        self.end(now, at);
    }

    /// Returns the sessions that are not new, those that sent something longest ago first.
    pub(super) fn export(&self, now: Timestamp) -> Vec<(SessionKey, Timestamp)> {
        let sessions = self.slab.iter().map(|(_, session)| {
            let is_busy = session.in_flight > 0;
            (session.key, if is_busy { now } else { session.last })
        });
        let mut sessions: Vec<_> = sessions
            .filter(|&(_, last)| now.since(last) < self.idle)
            .collect();
        sessions.sort_by_key(|&(key, last)| (last, key));
        sessions
    }

    /// Remembers sessions that another process knew, those that sent something longest ago first.
    pub(super) fn restore(&mut self, now: Timestamp, sessions: &[(SessionKey, Timestamp)]) {
        for &(key, last) in sessions {
            if !self.places.contains_key(&key) && now.since(last) < self.idle {
                let at = self.remember(now, key);
                self.slab[at].last = last.min(now);
            }
        }
    }

    /// Returns how many are remembered.
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    fn remember(&mut self, now: Timestamp, key: SessionKey) -> usize {
        self.forget_above(self.max.saturating_sub(1));
        let session = Session {
            key,
            in_flight: 0,
            last: now,
            before: None,
            after: None,
        };
        let at = self.slab.insert(session);
        self.places.insert(key, at);
        self.join_idle(at);
        at
    }

    fn forget_above(&mut self, max: usize) {
        while self.slab.len() > max
            && let Some(oldest) = self.idle_first
        {
            self.forget(oldest);
        }
    }

    /// Forgets sessions that would count as new anyway.
    fn forget_idle(&mut self, now: Timestamp) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            match self.idle_first {
                Some(oldest) if now.since(self.slab[oldest].last) >= self.idle => {
                    self.forget(oldest);
                }
                Some(_) | None => return,
            }
        }
    }

    fn forget(&mut self, at: usize) {
        self.leave_idle(at);
        let session = self.slab.remove(at);
        self.places.remove(&session.key);
    }

    fn join_idle(&mut self, at: usize) {
        let last = self.idle_last.replace(at);
        self.slab[at].before = last;
        match last {
            Some(last) => self.slab[last].after = Some(at),
            None => self.idle_first = Some(at),
        }
    }

    fn leave_idle(&mut self, at: usize) {
        let before = self.slab[at].before.take();
        let after = self.slab[at].after.take();
        match before {
            Some(before) => self.slab[before].after = after,
            None => self.idle_first = after,
        }
        match after {
            Some(after) => self.slab[after].before = before,
            None => self.idle_last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn s(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn a_session_is_new_until_it_sent_something_and_again_when_idle() {
        let mut sessions = Sessions::new(10, IDLE);
        let key = SessionKey(1);
        assert!(sessions.is_new(s(0), key));
        let at = sessions.begin(s(0), key);
        assert!(!sessions.is_new(s(500), key), "something is in flight");
        sessions.end(s(500), at);
        assert!(!sessions.is_new(s(559), key));
        assert!(sessions.is_new(s(560), key));
    }

    #[test]
    fn the_session_idle_longest_is_forgotten_first() {
        let mut sessions = Sessions::new(2, IDLE);
        for (time, key) in [(0, 1), (1, 2), (2, 3)] {
            let at = sessions.begin(s(time), SessionKey(key));
            sessions.end(s(time), at);
        }
        assert_eq!(sessions.len(), 2);
        assert!(sessions.is_new(s(2), SessionKey(1)));
        assert!(!sessions.is_new(s(2), SessionKey(2)));
    }

    #[test]
    fn a_session_with_something_in_flight_is_never_forgotten() {
        let mut sessions = Sessions::new(1, IDLE);
        let places: Vec<_> = (0..5)
            .map(|key| sessions.begin(s(0), SessionKey(key)))
            .collect();
        assert!((0..5).all(|key| !sessions.is_new(s(900), SessionKey(key))));
        for at in places {
            sessions.end(s(900), at);
        }
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn idle_sessions_are_forgotten_as_others_begin() {
        let mut sessions = Sessions::new(1000, IDLE);
        for key in 0..100 {
            let at = sessions.begin(s(0), SessionKey(key));
            sessions.end(s(0), at);
        }
        for key in 0..50 {
            sessions.begin(s(60), SessionKey(1000 + key));
        }
        assert_eq!(sessions.len(), 50);
    }

    #[test]
    fn after_a_restart_unknown_sessions_are_old_for_a_while() {
        let mut sessions = Sessions::new(10, IDLE);
        sessions.on_restart(s(100));
        assert!(!sessions.is_new(s(159), SessionKey(1)));
        assert!(sessions.is_new(s(160), SessionKey(1)));
    }
}
