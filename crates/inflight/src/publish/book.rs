//! Which replicas others are told of, as what, and when one that is to go may be ended.
//!
//! A pure machine: it knows no file and no proxy, and reads no clock. Its list is what others are to
//! be told; whoever writes it down says when that is done. A replica that drains is told as such,
//! until every proxy says twice in a row that it knows so and has no request there; then it is told
//! of no more, until every proxy has forgotten it; then it may be ended. What a proxy does not say
//! is unknown, and waited for as long as a drain may take.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use inflight_core::{ReplicaId, Timestamp};

use crate::ports::{NamedPorts, ReplicaChange, RoutedEndpoint, RoutedReading, TargetEvent};

/// Readings without a request that end a drain: between a proxy's choice of an endpoint and its
/// count there is a moment.
const EMPTY_READINGS: u8 = 2;

/// How long a proxy may take to forget an endpoint that it is told of no more. One keeps it as long
/// as its own checks pass, if it was not configured otherwise.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(1);

/// How long a proxy may take to follow a list that is written, before that is worth a warning.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(10);

/// What others are told of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Unhealthy,
    Draining,
}

/// A replica that others are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) index: u32,
    pub(super) address: SocketAddr,
    pub(super) ports: NamedPorts,
    pub(super) health: Health,
}

/// What is worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overdue {
    pub(super) index: u32,
    /// What the proxies said last.
    pub(super) why: String,
}

/// The replicas of one fleet.
#[derive(Debug)]
pub(super) struct Book {
    rows: BTreeMap<ReplicaId, Row>,
    /// Replicas of an earlier process of ours of which nothing was told yet, by their index, and
    /// whether they were ready.
    adopted: BTreeMap<u32, bool>,
    /// What each proxy said last.
    readings: Vec<Option<BTreeMap<SocketAddr, RoutedEndpoint>>>,
    /// How long a replica that drains may keep its requests.
    drain: Duration,
    /// Counts changes of the list.
    version: u64,
    /// The latest version that is written, and since when it is.
    written: Option<(u64, Timestamp)>,
    /// Counts what proxies were begun to be waited for.
    waits: u64,
    drained: VecDeque<ReplicaId>,
    overdue: VecDeque<Overdue>,
}

#[derive(Debug)]
struct Row {
    index: u32,
    address: SocketAddr,
    ports: NamedPorts,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It is not ready yet, or was told to end before it was.
    Unlisted,
    Healthy,
    Unhealthy,
    /// The list of this version is the first that says so.
    Draining {
        version: u64,
        /// How long it may keep its requests, once that list is written: before, no proxy can know.
        until: Option<Timestamp>,
        /// How often in a row each proxy said that it is empty.
        empty: Vec<u8>,
    },
    /// The list of this version is the first without it.
    Leaving {
        version: u64,
        /// How long it is waited for that proxies forget it, once that list is written.
        until: Option<Timestamp>,
        forgotten: Vec<bool>,
    },
    /// It may be ended.
    Left,
}

impl Book {
    /// Starts with the replicas of an earlier process of ours, which are to be told of one by one,
    /// before any other; `proxies` is how many have a word in when a replica is empty, and `None`
    /// where that is somebody else's matter.
    pub(super) fn new(
        proxies: Option<usize>,
        drain: Duration,
        adopted: BTreeMap<u32, bool>,
    ) -> Self {
        Self {
            rows: BTreeMap::new(),
            adopted,
            readings: vec![None; proxies.unwrap_or(0)],
            drain,
            version: 0,
            written: None,
            waits: 0,
            drained: VecDeque::new(),
            overdue: VecDeque::new(),
        }
    }

    /// Takes how long a replica may drain that begins to from here on.
    pub(super) const fn set_drain(&mut self, drain: Duration) {
        self.drain = drain;
    }

    /// Takes what happened to a replica.
    pub(super) fn on_event(&mut self, event: &TargetEvent) {
        let id = event.replica;
        match event.change {
            ReplicaChange::Starting => {
                let was_ready = self.adopted.remove(&event.index).unwrap_or(false);
                let row = Row {
                    index: event.index,
                    address: event.address,
                    ports: NamedPorts::clone(&event.ports),
                    state: if was_ready {
                        State::Healthy
                    } else {
                        State::Unlisted
                    },
                };
                self.rows.insert(id, row);
                self.version += u64::from(was_ready);
            }
            ReplicaChange::Ready { .. } => self.set(id, |_| Some(State::Healthy)),
            ReplicaChange::Unhealthy { .. } => self.set(id, |state| match state {
                State::Unlisted | State::Healthy | State::Unhealthy => Some(State::Unhealthy),
                State::Draining { .. } | State::Leaving { .. } | State::Left => None,
            }),
            ReplicaChange::Draining => {
                let version = self.version + 1;
                let empty = vec![0; self.readings.len()];
                self.waits += 1;
                self.set(id, |state| match state {
                    State::Healthy | State::Unhealthy => Some(State::Draining {
                        version,
                        until: None,
                        empty,
                    }),
                    State::Unlisted
                    | State::Draining { .. }
                    | State::Leaving { .. }
                    | State::Left => None,
                });
            }
            ReplicaChange::GivenUp => {}
            ReplicaChange::Gone { .. } => {
                let row = self.rows.remove(&id);
                self.version += u64::from(row.is_some_and(|row| row.state.health().is_some()));
            }
        }
    }

    /// Takes what a proxy said.
    pub(super) fn on_reading(&mut self, reading: RoutedReading) {
        let RoutedReading { proxy, endpoints } = reading;
        let endpoints = endpoints.ok();
        for row in self.rows.values_mut() {
            let at = endpoints.as_ref().map(|known| known.get(&row.address));
            match &mut row.state {
                State::Draining { empty, .. } => {
                    if let Some(empty) = empty.get_mut(proxy) {
                        // One that does not know it has not read the list yet, or another one.
                        let is_empty = at.flatten().is_some_and(|endpoint| {
                            endpoint.is_draining && endpoint.in_flight == 0
                        });
                        *empty = if is_empty { empty.saturating_add(1) } else { 0 };
                    }
                }
                State::Leaving { forgotten, .. } => {
                    if let Some(forgotten) = forgotten.get_mut(proxy) {
                        *forgotten = matches!(at, Some(None));
                    }
                }
                State::Unlisted | State::Healthy | State::Unhealthy | State::Left => {}
            }
        }
        if let Some(latest) = self.readings.get_mut(proxy) {
            *latest = endpoints;
        }
        self.advance();
    }

    /// Takes that this version of the list is what others read.
    pub(super) fn on_written(&mut self, now: Timestamp, written: u64) {
        if self.written.is_none_or(|(before, _)| before != written) {
            self.written = Some((written, now));
        }
        for row in self.rows.values_mut() {
            match &mut row.state {
                State::Draining {
                    version,
                    until: until @ None,
                    ..
                } if *version <= written => *until = Some(now + self.drain),
                State::Leaving {
                    version,
                    until: until @ None,
                    forgotten,
                } if *version <= written => {
                    *until = Some(now + FORGOTTEN_WITHIN);
                    self.waits += 1;
                    // What they said before is of an earlier list.
                    forgotten.fill(false);
                }
                State::Unlisted
                | State::Healthy
                | State::Unhealthy
                | State::Draining { .. }
                | State::Leaving { .. }
                | State::Left => {}
            }
        }
    }

    /// Takes that another process of ours may have told others something else meanwhile.
    pub(super) fn on_taken_back(&mut self) {
        for row in self.rows.values_mut() {
            match &mut row.state {
                State::Draining { empty, .. } => empty.fill(0),
                State::Leaving { until, .. } => *until = None,
                State::Unlisted | State::Healthy | State::Unhealthy | State::Left => {}
            }
        }
    }

    /// Does what is due.
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        let mut left = Vec::new();
        for (&id, row) in &self.rows {
            match row.state {
                State::Draining {
                    until: Some(until), ..
                } if until <= now && self.has_a_word() => {
                    let (index, why) = (row.index, self.last_word(row.address));
                    self.overdue.push_back(Overdue { index, why });
                    left.push((id, false));
                }
                State::Leaving {
                    until: Some(until), ..
                } if until <= now => left.push((id, true)),
                State::Unlisted
                | State::Healthy
                | State::Unhealthy
                | State::Draining { .. }
                | State::Leaving { .. }
                | State::Left => {}
            }
        }
        for (id, is_left) in left {
            if is_left {
                self.end(id);
            } else {
                self.leave(id);
            }
        }
    }

    /// Returns when [`Book::on_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        let due = |row: &Row| match row.state {
            State::Draining { until, .. } => until.filter(|_| self.has_a_word()),
            State::Leaving { until, .. } => until,
            State::Unlisted | State::Healthy | State::Unhealthy | State::Left => None,
        };
        self.rows.values().filter_map(due).min()
    }

    /// Returns the next replica that may be ended.
    pub(super) fn poll_drained(&mut self) -> Option<ReplicaId> {
        self.drained.pop_front()
    }

    /// Returns the next replica whose requests were waited for in vain.
    pub(super) fn poll_overdue(&mut self) -> Option<Overdue> {
        self.overdue.pop_front()
    }

    /// Returns which list others are to be told; `None` while replicas are still to be found that an
    /// earlier list had.
    pub(super) fn version(&self) -> Option<u64> {
        self.adopted.is_empty().then_some(self.version)
    }

    /// Returns the list that others are to be told.
    pub(super) fn list(&self) -> Vec<Listed> {
        let listed = self.rows.values().filter_map(|row| {
            Some(Listed {
                index: row.index,
                address: row.address,
                ports: NamedPorts::clone(&row.ports),
                health: row.state.health()?,
            })
        });
        listed.collect()
    }

    /// Tells whether what proxies say is waited for: by a number that is another once more is.
    pub(super) fn waits_for_proxies(&self) -> Option<u64> {
        let waits = |row: &Row| match row.state {
            State::Draining { .. } => true,
            // Before, no proxy can have read a list without it.
            State::Leaving { until, .. } => until.is_some(),
            State::Unlisted | State::Healthy | State::Unhealthy | State::Left => false,
        };
        (self.has_a_word() && self.rows.values().any(waits)).then_some(self.waits)
    }

    /// Returns the proxies that know other endpoints than the list has that is written for them, and
    /// have had the time to read it.
    pub(super) fn deaf(&self, now: Timestamp) -> BTreeSet<usize> {
        let is_read = |&(written, since): &(u64, Timestamp)| {
            written == self.version && now.since(since) >= FOLLOWED_WITHIN
        };
        if !self.written.as_ref().is_some_and(is_read) {
            return BTreeSet::new();
        }
        let follows = |known: &BTreeMap<SocketAddr, RoutedEndpoint>| {
            self.rows.values().all(|row| match row.state.health() {
                Some(health) => known
                    .get(&row.address)
                    .is_some_and(|endpoint| endpoint.is_draining == (health == Health::Draining)),
                None => true,
            })
        };
        let known = self.readings.iter().enumerate();
        known
            .filter(|(_, known)| known.as_ref().is_some_and(|known| !follows(known)))
            .map(|(proxy, _)| proxy)
            .collect()
    }

    /// Tells whether there is no replica.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns what proxies have at each replica; nothing while one of them does not say.
    pub(super) fn in_flight(&self) -> BTreeMap<ReplicaId, u32> {
        if self.readings.iter().any(Option::is_none) {
            return BTreeMap::new();
        }
        let at = |address: &SocketAddr| {
            let known = self.readings.iter().flatten();
            let counts = known.filter_map(|known| Some(known.get(address)?.in_flight));
            counts.fold(0, u32::saturating_add)
        };
        let rows = self.rows.iter();
        rows.map(|(&id, row)| (id, at(&row.address))).collect()
    }

    /// Whether proxies say when a replica is empty.
    const fn has_a_word(&self) -> bool {
        !self.readings.is_empty()
    }

    fn set(&mut self, id: ReplicaId, to: impl FnOnce(&State) -> Option<State>) {
        if let Some(row) = self.rows.get_mut(&id)
            && let Some(state) = to(&row.state)
        {
            self.version += u64::from(row.state.health() != state.health());
            row.state = state;
        }
    }

    /// Goes on with those of which every proxy has said enough.
    fn advance(&mut self) {
        let (mut empty, mut forgotten) = (Vec::new(), Vec::new());
        for (&id, row) in &self.rows {
            match &row.state {
                State::Draining { empty: seen, .. }
                    if seen.iter().all(|&seen| seen >= EMPTY_READINGS) =>
                {
                    empty.push(id);
                }
                State::Leaving {
                    until: Some(_),
                    forgotten: by,
                    ..
                } if by.iter().all(|&by| by) => forgotten.push(id),
                State::Unlisted
                | State::Healthy
                | State::Unhealthy
                | State::Draining { .. }
                | State::Leaving { .. }
                | State::Left => {}
            }
        }
        empty.into_iter().for_each(|id| self.leave(id));
        forgotten.into_iter().for_each(|id| self.end(id));
    }

    fn leave(&mut self, id: ReplicaId) {
        let version = self.version + 1;
        let forgotten = vec![false; self.readings.len()];
        self.set(id, |_| {
            Some(State::Leaving {
                version,
                until: None,
                forgotten,
            })
        });
    }

    fn end(&mut self, id: ReplicaId) {
        self.set(id, |_| Some(State::Left));
        self.drained.push_back(id);
    }

    fn last_word(&self, address: SocketAddr) -> String {
        let unread = self.readings.iter().filter(|said| said.is_none()).count();
        let known = self.readings.iter().flatten();
        let at = known.filter_map(|known| known.get(&address));
        let in_flight = at
            .clone()
            .fold(0_u32, |sum, at| sum.saturating_add(at.in_flight));
        let unaware = at.filter(|at| !at.is_draining).count();
        match (in_flight, unread, unaware) {
            (0, 0, 0) => "no Envoy knows that it drains".to_owned(),
            (_, 0, 0) => format!("Envoy has {in_flight} requests there"),
            (_, 0, _) => {
                format!("Envoy has {in_flight} requests there, and does not know that it drains")
            }
            (_, unread, _) => format!("{unread} Envoys do not tell what they have there"),
        }
    }
}

impl State {
    /// Returns what others are told.
    const fn health(&self) -> Option<Health> {
        match self {
            Self::Healthy => Some(Health::Healthy),
            Self::Unhealthy => Some(Health::Unhealthy),
            Self::Draining { .. } => Some(Health::Draining),
            Self::Unlisted | Self::Leaving { .. } | Self::Left => None,
        }
    }
}

#[cfg(test)]
mod tests;
