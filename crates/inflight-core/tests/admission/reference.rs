//! A gate so simple that it is plainly right: vectors, searched from front to back.

use std::time::Duration;

use inflight_core::admission::{EndpointState, GateConfig, Output, RefusalReason};
use inflight_core::{ReplicaId, Ticket, Timestamp};

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) model: usize,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) held: u64,
    pub(crate) since: Timestamp,
    pub(crate) avoid: Option<ReplicaId>,
    pub(crate) replica: Option<ReplicaId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Reference {
    config: GateConfig,
    pub(crate) now: Timestamp,
    pub(crate) slots: Vec<u32>,
    pub(crate) endpoints: Vec<(ReplicaId, EndpointState)>,
    /// Those with a slot anywhere, those without in the order of being served.
    pub(crate) requests: Vec<Request>,
    ready_changed: Timestamp,
    waits_changed: Timestamp,
    pub(crate) in_flight_nanos: u128,
    pub(crate) executing_nanos: u128,
}

impl Reference {
    pub(crate) fn new(config: GateConfig, now: Timestamp) -> Self {
        let slots = config
            .models
            .iter()
            .map(|model| model.slots.get())
            .collect();
        Self {
            config,
            now,
            slots,
            endpoints: Vec::new(),
            requests: Vec::new(),
            ready_changed: now,
            waits_changed: now,
            in_flight_nanos: 0,
            executing_nanos: 0,
        }
    }

    pub(crate) fn is_cold(&self) -> bool {
        !self
            .endpoints
            .iter()
            .any(|&(_, state)| state == EndpointState::Ready)
    }

    pub(crate) fn executing(&self) -> usize {
        self.requests
            .iter()
            .filter(|request| request.replica.is_some())
            .count()
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Request> {
        self.requests
            .iter()
            .filter(|request| request.replica.is_none())
    }

    pub(crate) fn held(&self) -> u64 {
        self.waiting().map(|request| request.held).sum()
    }

    pub(crate) fn permits(&self, replica: ReplicaId, model: usize) -> usize {
        let on = |request: &&Request| request.replica == Some(replica) && request.model == model;
        self.requests.iter().filter(on).count()
    }

    pub(crate) fn in_flight_of(&self, replica: ReplicaId) -> usize {
        self.requests
            .iter()
            .filter(|request| request.replica == Some(replica))
            .count()
    }

    /// Moves time on; a step back is none.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        let passed = now.since(self.now).as_nanos();
        self.in_flight_nanos += passed * self.requests.len() as u128;
        self.executing_nanos += passed * self.executing() as u128;
        self.now = self.now.max(now);
    }

    /// Takes out those whose wait is over, with the reason.
    pub(crate) fn expire(&mut self) -> Vec<(Ticket, RefusalReason)> {
        let mut expired = Vec::new();
        for request in self.waiting() {
            let reason = if request
                .deadline
                .is_some_and(|deadline| deadline <= self.now)
            {
                RefusalReason::DeadlineExpired
            } else if self.wait_end(request) > self.now {
                continue;
            } else if self.is_cold() {
                RefusalReason::ColdWaitExpired
            } else {
                RefusalReason::WaitExpired
            };
            expired.push((request.ticket, reason));
        }
        self.requests
            .retain(|request| expired.iter().all(|(ticket, _)| *ticket != request.ticket));
        expired
    }

    /// Returns when the next wait is over.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        let end = |request: &Request| {
            let wait_end = self.wait_end(request);
            request
                .deadline
                .map_or(wait_end, |deadline| deadline.min(wait_end))
        };
        self.waiting().map(end).min()
    }

    fn wait_end(&self, request: &Request) -> Timestamp {
        let queue = &self.config.queue;
        let bound = if self.is_cold() {
            queue.cold_wait
        } else {
            queue.wait
        };
        let both: Duration = queue.wait + queue.cold_wait;
        let since = request.since.max(self.waits_changed);
        (since.max(self.ready_changed) + bound).min(since + both)
    }

    pub(crate) fn configure(&mut self, config: GateConfig) {
        let waits = |config: &GateConfig| (config.queue.wait, config.queue.cold_wait);
        if waits(&config) != waits(&self.config) {
            self.waits_changed = self.now;
        }
        for (at, model) in config.models.iter().enumerate() {
            match self.slots.get_mut(at) {
                Some(slots) => *slots = model.slots.get(),
                None => self.slots.push(model.slots.get()),
            }
        }
        self.config = config;
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.config.queue.bytes.0
    }

    /// Returns the replicas that may be picked for a request.
    pub(crate) fn usable(&self, model: usize, avoid: Option<ReplicaId>) -> Vec<ReplicaId> {
        let ready = || {
            let is_ready = |&&(_, state): &&(_, EndpointState)| state == EndpointState::Ready;
            self.endpoints.iter().filter(is_ready).map(|&(id, _)| id)
        };
        let avoids = ready().any(|id| Some(id) != avoid);
        let free: Vec<_> = ready()
            .filter(|&id| !avoids || Some(id) != avoid)
            .filter(|&id| self.permits(id, model) < self.slots[model] as usize)
            .collect();
        let least = free.iter().map(|&id| self.in_flight_of(id)).min();
        free.into_iter()
            .filter(|&id| Some(self.in_flight_of(id)) == least)
            .collect()
    }

    /// Returns why a request that cannot have a slot must not wait either.
    pub(crate) fn queue_objection(&self) -> Option<RefusalReason> {
        let full = if self.waiting().count() >= self.config.queue.requests as usize {
            RefusalReason::QueueFull
        } else if self.held() > 0 && self.held() >= self.config.queue.bytes.0 {
            RefusalReason::QueueBytes
        } else {
            return None;
        };
        Some(if self.is_cold() {
            RefusalReason::NoReplica
        } else {
            full
        })
    }

    /// Returns the next waiter of a model that could use a slot.
    pub(crate) fn next_served(&self, model: usize) -> Option<&Request> {
        self.waiting()
            .find(|request| request.model == model && !self.usable(model, request.avoid).is_empty())
    }

    /// Gives a waiter a slot, and checks that it was its turn and a right choice.
    pub(crate) fn grant(&mut self, ticket: Ticket, replica: ReplicaId) {
        let at = self
            .requests
            .iter()
            .position(|request| request.ticket == ticket);
        let at = at.expect("only requests in flight are granted");
        let request = &self.requests[at];
        assert_eq!(request.replica, None, "granted twice");
        let next = self
            .next_served(request.model)
            .map(|request| request.ticket);
        assert_eq!(next, Some(ticket), "overtook another");
        assert!(
            self.usable(request.model, request.avoid).contains(&replica),
            "wrong replica"
        );
        self.requests[at].replica = Some(replica);
    }

    pub(crate) fn set_endpoint(&mut self, id: ReplicaId, state: Option<EndpointState>) {
        let was_cold = self.is_cold();
        self.endpoints.retain(|&(other, _)| other != id);
        self.endpoints.extend(state.map(|state| (id, state)));
        if self.is_cold() != was_cold {
            self.ready_changed = self.now;
        }
    }

    /// Returns which replicas are draining and have nothing left.
    pub(crate) fn drained(&self) -> Vec<ReplicaId> {
        let is_drained = |&&(id, state): &&(ReplicaId, EndpointState)| {
            state == EndpointState::Draining && self.in_flight_of(id) == 0
        };
        self.endpoints
            .iter()
            .filter(is_drained)
            .map(|&(id, _)| id)
            .collect()
    }

    /// Applies the outputs of one call after those for expiry; returns which replicas drained.
    pub(crate) fn apply(&mut self, outputs: &[Output]) -> Vec<ReplicaId> {
        let mut drained = Vec::new();
        for output in outputs {
            match output {
                Output::Granted { ticket, replica } => self.grant(*ticket, *replica),
                Output::Drained { replica } => drained.push(*replica),
                Output::Refused { .. } => panic!("refused out of turn: {output:?}"),
            }
        }
        drained
    }
}
