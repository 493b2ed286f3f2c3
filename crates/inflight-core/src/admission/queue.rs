//! The requests in flight, and the lines in which those without a slot wait.
//!
//! Every request has a place in one slab. Two kinds of doubly linked lists run through it: a
//! line for each model, in the order of being served, and one list of all that wait, in the
//! order in which they began to. Joining and leaving either costs O(1), from the middle too, and
//! allocates nothing. Who is served or refused is decided elsewhere.

use std::collections::BTreeSet;

use slab::Slab;

use crate::ids::{ReplicaId, Ticket};
use crate::time::Timestamp;
use crate::units::Bytes;

/// One request in flight.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) model: usize,
    /// The place of its session among those remembered.
    pub(super) session: Option<usize>,
    pub(super) deadline: Option<Timestamp>,
    /// Breaks ties when an endpoint is picked.
    pub(super) draw: u64,
    /// Where it is.
    pub(super) state: State,
    /// Bytes of its body that the shell holds; counted while it waits.
    held: u64,
    serial: u64,
    links: [Links; 2],
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// It waits for a slot.
    Queued {
        /// Since when.
        since: Timestamp,
        /// The replica that failed it before.
        avoid: Option<ReplicaId>,
    },
    /// It has a slot.
    Granted {
        /// Whose.
        replica: ReplicaId,
        /// Since when.
        since: Timestamp,
        /// Whether the shell knows.
        told: bool,
    },
}

/// All requests in flight.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    slab: Slab<Request>,
    serial: u64,
    /// The waiting of each model, next to be served first.
    lines: Vec<List>,
    /// All waiting, longest waiting first.
    ages: List,
    /// The deadlines of the waiting that have one.
    deadlines: BTreeSet<(Timestamp, usize)>,
    held: u64,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    before: usize,
    after: usize,
}

#[derive(Clone, Copy, Debug)]
struct List {
    /// Which of a request's links it runs through.
    kind: usize,
    first: usize,
    last: usize,
    len: usize,
}

const LINE: usize = 0;
const AGE: usize = 1;
/// No request: a slab never grows that far.
const NONE: usize = usize::MAX;
const UNLINKED: Links = Links {
    before: NONE,
    after: NONE,
};

impl Request {
    pub(super) const fn new(
        model: usize,
        session: Option<usize>,
        deadline: Option<Timestamp>,
        draw: u64,
        state: State,
    ) -> Self {
        Self {
            model,
            session,
            deadline,
            draw,
            state,
            held: 0,
            serial: 0,
            links: [UNLINKED; 2],
        }
    }
}

impl Requests {
    pub(super) fn new(models: usize) -> Self {
        Self {
            slab: Slab::new(),
            serial: 0,
            lines: vec![List::new(LINE); models],
            ages: List::new(AGE),
            deadlines: BTreeSet::new(),
            held: 0,
        }
    }

    /// Adds lines until there are so many.
    pub(super) fn add_lines(&mut self, models: usize) {
        let models = models.max(self.lines.len());
        self.lines.resize(models, List::new(LINE));
    }

    /// Takes a request in; one that waits joins the end of its model's line.
    pub(super) fn insert(&mut self, mut request: Request) -> Ticket {
        self.serial += 1;
        request.serial = self.serial;
        let state = request.state;
        let ticket = Ticket {
            serial: self.serial,
            key: self.slab.insert(request),
        };
        if let State::Queued { .. } = state {
            self.start_waiting(ticket.key);
            let line = &mut self.lines[self.slab[ticket.key].model];
            line.push_last(&mut self.slab, ticket.key);
        }
        ticket
    }

    /// Takes a request out, of its line too; `None` when it ended before.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Request> {
        match self.get(ticket)?.state {
            State::Queued { .. } => self.stop_waiting(ticket.key),
            State::Granted { .. } => {}
        }
        Some(self.slab.remove(ticket.key))
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Request> {
        self.slab
            .get(ticket.key)
            .filter(|request| request.serial == ticket.serial)
    }

    /// Returns the request at a key that is known to be in use.
    pub(super) fn at(&self, key: usize) -> &Request {
        &self.slab[key]
    }

    pub(super) fn ticket(&self, key: usize) -> Ticket {
        Ticket {
            key,
            serial: self.slab[key].serial,
        }
    }

    /// Puts a request that lost its slot at the head of its model's line.
    pub(super) fn rejoin(&mut self, key: usize, now: Timestamp, failed: ReplicaId) {
        self.slab[key].state = State::Queued {
            since: now,
            avoid: Some(failed),
        };
        self.start_waiting(key);
        let line = &mut self.lines[self.slab[key].model];
        line.push_first(&mut self.slab, key);
    }

    /// Gives a request that waits a slot.
    pub(super) fn grant(&mut self, key: usize, replica: ReplicaId, now: Timestamp, told: bool) {
        self.stop_waiting(key);
        self.slab[key].state = State::Granted {
            replica,
            since: now,
            told,
        };
    }

    /// Tells which replica's slot a request has, the first time it is asked for.
    pub(super) fn tell(&mut self, ticket: Ticket) -> Option<ReplicaId> {
        self.get(ticket)?;
        match &mut self.slab[ticket.key].state {
            State::Granted { replica, told, .. } if !*told => {
                *told = true;
                Some(*replica)
            }
            State::Granted { .. } | State::Queued { .. } => None,
        }
    }

    /// Counts more bytes held of a request that waits, unless that passes `bound`.
    pub(super) fn hold(&mut self, key: usize, more: Bytes, bound: Bytes) -> bool {
        match self.held.checked_add(more.0) {
            Some(held) if held <= bound.0 => {
                self.held = held;
                self.slab[key].held += more.0;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns the next to be served of `model`.
    pub(super) fn first(&self, model: usize) -> Option<usize> {
        some(self.lines[model].first)
    }

    /// Returns who is served after `key`.
    pub(super) fn after(&self, key: usize) -> Option<usize> {
        some(self.slab[key].links[LINE].after)
    }

    /// Returns who waits longest, and since when.
    pub(super) fn oldest(&self) -> Option<(usize, Timestamp)> {
        let key = some(self.ages.first)?;
        match self.slab[key].state {
            State::Queued { since, .. } => Some((key, since)),
            State::Granted { .. } => None,
        }
    }

    /// Returns the earliest deadline of those that wait, and whose it is.
    pub(super) fn first_deadline(&self) -> Option<(Timestamp, usize)> {
        self.deadlines.first().copied()
    }

    /// Returns how many are in flight.
    pub(super) fn count(&self) -> usize {
        self.slab.len()
    }

    /// Returns how many wait.
    pub(super) const fn queued(&self) -> usize {
        self.ages.len
    }

    /// Returns how many of `model` wait.
    pub(super) fn queued_of(&self, model: usize) -> usize {
        self.lines[model].len
    }

    /// Returns the bytes held of those that wait.
    pub(super) const fn held(&self) -> Bytes {
        Bytes(self.held)
    }

    fn start_waiting(&mut self, key: usize) {
        self.ages.push_last(&mut self.slab, key);
        self.held = self.held.saturating_add(self.slab[key].held);
        if let Some(deadline) = self.slab[key].deadline {
            self.deadlines.insert((deadline, key));
        }
    }

    fn stop_waiting(&mut self, key: usize) {
        let line = &mut self.lines[self.slab[key].model];
        line.unlink(&mut self.slab, key);
        self.ages.unlink(&mut self.slab, key);
        invariant!("bytes held were counted", self.held >= self.slab[key].held);
        self.held = self.held.saturating_sub(self.slab[key].held);
        if let Some(deadline) = self.slab[key].deadline {
            self.deadlines.remove(&(deadline, key));
        }
    }
}

impl List {
    const fn new(kind: usize) -> Self {
        Self {
            kind,
            first: NONE,
            last: NONE,
            len: 0,
        }
    }

    fn push_last(&mut self, slab: &mut Slab<Request>, key: usize) {
        slab[key].links[self.kind] = Links {
            before: self.last,
            after: NONE,
        };
        match some(self.last) {
            Some(last) => slab[last].links[self.kind].after = key,
            None => self.first = key,
        }
        self.last = key;
        self.len += 1;
    }

    fn push_first(&mut self, slab: &mut Slab<Request>, key: usize) {
        slab[key].links[self.kind] = Links {
            before: NONE,
            after: self.first,
        };
        match some(self.first) {
            Some(first) => slab[first].links[self.kind].before = key,
            None => self.last = key,
        }
        self.first = key;
        self.len += 1;
    }

    fn unlink(&mut self, slab: &mut Slab<Request>, key: usize) {
        let Links { before, after } = std::mem::replace(&mut slab[key].links[self.kind], UNLINKED);
        match some(before) {
            Some(before) => slab[before].links[self.kind].after = after,
            None => self.first = after,
        }
        match some(after) {
            Some(after) => slab[after].links[self.kind].before = before,
            None => self.last = before,
        }
        self.len -= 1;
    }
}

fn some(key: usize) -> Option<usize> {
    (key != NONE).then_some(key)
}
