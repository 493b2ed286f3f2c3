//! Which endpoints there are, as answers come: a pure machine.
//!
//! An address that an answer leaves out drains: it finishes what it has and leaves. One that comes
//! back meanwhile stays. It judges no answer; what says nothing is not to be given to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use inflight_core::{ReplicaId, Timestamp};

use super::Comings;
use crate::ports::{NamedPorts, ReplicaChange, TargetEvent};

#[derive(Debug)]
pub(super) struct Book {
    comings: Comings,
    max: usize,
    rows: BTreeMap<SocketAddr, Row>,
    free: BTreeSet<u32>,
    next_index: u32,
    next_id: u64,
    events: VecDeque<TargetEvent>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    id: ReplicaId,
    index: u32,
    /// Until when it may drain, of one that is gone.
    drains_until: Option<Timestamp>,
}

impl Book {
    pub(super) const fn new(comings: Comings, max: usize) -> Self {
        Self {
            comings,
            max,
            rows: BTreeMap::new(),
            free: BTreeSet::new(),
            next_index: 0,
            next_id: 0,
            events: VecDeque::new(),
        }
    }

    /// From here on, this happens to those that come and go.
    pub(super) const fn set_comings(&mut self, comings: Comings) {
        self.comings = comings;
    }

    /// Takes the addresses there are and returns how many are left out, those that came last.
    pub(super) fn on_answer(&mut self, now: Timestamp, answer: &BTreeSet<SocketAddr>) -> usize {
        let present = |row: &Row| row.drains_until.is_none();
        let gone: Vec<SocketAddr> = self
            .rows
            .iter()
            .filter(|(address, row)| present(row) && !answer.contains(address))
            .map(|(address, _)| *address)
            .collect();
        for address in gone {
            self.drain(now, address);
        }
        let is_known = |address: &&SocketAddr| self.rows.get(address).is_some_and(present);
        let known = answer.iter().filter(is_known).count();
        let coming: Vec<SocketAddr> = answer
            .iter()
            .filter(|address| !is_known(address))
            .copied()
            .collect();
        let room = self.max.saturating_sub(known);
        for &address in coming.iter().take(room) {
            self.come(address);
        }
        coming.len().saturating_sub(room)
    }

    /// Takes that an endpoint holds no request any more.
    pub(super) fn on_drained(&mut self, id: ReplicaId) {
        let is_it = |row: &Row| row.id == id && row.drains_until.is_some();
        let found = self.rows.iter().find(|(_, row)| is_it(row));
        if let Some(address) = found.map(|(address, _)| *address) {
            self.leave(address);
        }
    }

    /// Lets go of those that drained for long enough.
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        let is_over = |row: &Row| row.drains_until.is_some_and(|until| until <= now);
        let over = self.rows.iter().filter(|(_, row)| is_over(row));
        for address in over.map(|(address, _)| *address).collect::<Vec<_>>() {
            self.leave(address);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.rows.values().filter_map(|row| row.drains_until).min()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub(super) fn poll_event(&mut self) -> Option<TargetEvent> {
        self.events.pop_front()
    }

    /// Returns how many endpoints there are, without those that drain.
    pub(super) fn len(&self) -> usize {
        let present = |row: &&Row| row.drains_until.is_none();
        self.rows.values().filter(present).count()
    }

    fn come(&mut self, address: SocketAddr) {
        let row = match self.rows.get(&address) {
            Some(row) => Row {
                drains_until: None,
                ..*row
            },
            None => self.number(),
        };
        self.rows.insert(address, row);
        let change = if self.comings.are_checked {
            ReplicaChange::Starting
        } else {
            ReplicaChange::Ready { took: None }
        };
        self.tell(address, row, change);
    }

    fn number(&mut self) -> Row {
        let index = self.free.pop_first().unwrap_or_else(|| {
            self.next_index += 1;
            self.next_index - 1
        });
        self.next_id += 1;
        Row {
            id: ReplicaId(self.next_id - 1),
            index,
            drains_until: None,
        }
    }

    fn drain(&mut self, now: Timestamp, address: SocketAddr) {
        // A name whose addresses change faster than they drain must not fill the memory.
        if self.rows.len() >= self.max.saturating_mul(2) {
            return self.leave(address);
        }
        let until = now + self.comings.drain;
        if let Some(row) = self.rows.get_mut(&address) {
            row.drains_until = Some(until);
            let row = *row;
            self.tell(address, row, ReplicaChange::Draining);
        }
    }

    fn leave(&mut self, address: SocketAddr) {
        if let Some(row) = self.rows.remove(&address) {
            self.free.insert(row.index);
            let change = ReplicaChange::Gone {
                why: "its address is not among the endpoints any more".to_owned(),
                unexpected: false,
            };
            self.tell(address, row, change);
        }
    }

    fn tell(&mut self, address: SocketAddr, row: Row, change: ReplicaChange) {
        self.events.push_back(TargetEvent {
            replica: row.id,
            index: row.index,
            address,
            ports: NamedPorts::default(),
            change,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::ORIGIN;

    fn book(max: usize) -> Book {
        let comings = Comings {
            are_checked: true,
            drain: Duration::from_secs(60),
        };
        Book::new(comings, max)
    }

    fn answer(ports: impl IntoIterator<Item = u16>) -> BTreeSet<SocketAddr> {
        ports
            .into_iter()
            .map(|port| ([127, 0, 0, 1], port).into())
            .collect()
    }

    fn events(book: &mut Book) -> Vec<String> {
        let word = |event: TargetEvent| {
            let change = match event.change {
                ReplicaChange::Starting => "comes",
                ReplicaChange::Draining => "drains",
                ReplicaChange::Gone { .. } => "leaves",
                ReplicaChange::Ready { .. } => "is ready",
                ReplicaChange::Unhealthy { .. } | ReplicaChange::GivenUp => "?",
            };
            let (id, index) = (event.replica.0, event.index);
            format!("{id}@{index} {} {change}", event.address.port())
        };
        std::iter::from_fn(|| book.poll_event()).map(word).collect()
    }

    #[test]
    fn addresses_come_drain_and_leave_and_their_index_is_used_again() {
        let mut book = book(10);
        book.on_answer(NOW, &answer([1, 2]));
        assert_eq!(events(&mut book), ["0@0 1 comes", "1@1 2 comes"]);
        book.on_answer(NOW, &answer([2, 3]));
        assert_eq!(events(&mut book), ["0@0 1 drains", "2@2 3 comes"]);
        book.on_drained(ReplicaId(2));
        book.on_drained(ReplicaId(0));
        assert_eq!(events(&mut book), ["0@0 1 leaves"]);
        book.on_answer(NOW, &answer([1, 2, 3]));
        assert_eq!(events(&mut book), ["3@0 1 comes"]);
        assert_eq!(book.len(), 3);
    }

    #[test]
    fn one_that_comes_back_while_it_drains_is_the_same() {
        let mut book = book(10);
        book.on_answer(NOW, &answer([1, 2]));
        book.on_answer(NOW, &answer([2]));
        events(&mut book);
        book.on_answer(NOW, &answer([1, 2]));
        assert_eq!(events(&mut book), ["0@0 1 comes"]);
        assert_eq!(book.poll_timeout(), None);
    }

    #[test]
    fn one_that_does_not_end_its_requests_leaves_after_the_drain() {
        let mut book = book(10);
        book.on_answer(NOW, &answer([1, 2]));
        book.on_answer(NOW, &answer([2]));
        events(&mut book);
        let over = book.poll_timeout().unwrap();
        assert_eq!(over, NOW + Duration::from_secs(60));
        book.on_timeout(over);
        assert_eq!(events(&mut book), ["0@0 1 leaves"]);
    }

    #[test]
    fn beyond_the_bound_those_that_are_known_stay() {
        let mut book = book(3);
        assert_eq!(book.on_answer(NOW, &answer([5, 6, 7])), 0);
        events(&mut book);
        assert_eq!(book.on_answer(NOW, &answer(1..=7)), 4);
        assert!(events(&mut book).is_empty());
        assert_eq!(book.on_answer(NOW, &answer([1, 2, 7])), 0);
        assert_eq!(book.len(), 3);
    }

    #[test]
    fn addresses_that_change_all_the_time_do_not_fill_the_memory() {
        let mut book = book(10);
        for round in 0..1_000 {
            book.on_answer(NOW, &answer((1..=10).map(|port| round * 10 + port)));
            assert!(book.rows.len() <= 30, "{} rows", book.rows.len());
            events(&mut book);
        }
    }
}
