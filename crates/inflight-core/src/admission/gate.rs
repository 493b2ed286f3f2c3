//! The machine that runs once per request: it takes a request in, holds it until a slot is free,
//! binds it to a replica, or refuses it.
//!
//! Late binding: a request is bound when a slot is free, not on arrival. In the order of arrival:
//! nobody overtakes a waiter of its model that could use the slot. Every way out is
//! [`Gate::on_end`], which gives the slot to the next in the same call. Sockets, retries and the
//! spreading of `retry_after` are the shell's business.

mod configure;
mod past;
mod reading;
mod refuse;

use std::collections::VecDeque;
use std::time::Duration;

use super::config::{AdmissionConfig, AdmissionScope, GateConfig, ModelConfig, QueueBounds};
use super::endpoint::{Endpoint, Endpoints};
use super::inflation::{Counts, Inflation};
use super::pick::pick;
use super::queue::{Request, Requests, State};
use super::rate::CompletionRate;
use super::refusal::{Refusal, Refused};
use super::request::{Arrival, Outcome, Output};
use super::retry::RetryBudget;
use super::session::Sessions;
use crate::decision::Decision;
use crate::ids::{ModelIndex, ReplicaId, SessionKey, Ticket};
use crate::load::{InFlight, ReplicaState};
use crate::time::Timestamp;
use crate::units::{Bytes, Slots};

pub use past::{PastCounts, PastGate, PastIntegral};
pub use reading::GateLoad;
pub(super) use refuse::RETRY_UNKNOWN;

/// Admits, holds, binds and counts the requests of one fleet.
///
/// Every input takes `now`; a `now` before the latest one counts as that. What was due by `now`
/// (waits that expire, judgements) happens before the input, so that a late timer changes
/// nothing. After every call drain [`poll_output`](Self::poll_output); at
/// [`poll_timeout`](Self::poll_timeout) call [`on_timeout`](Self::on_timeout).
///
/// # How long a request waits
///
/// `wait` while a replica is ready, `cold_wait` while none is, counted from when it began to wait
/// or from when the fleet last changed between the two, whichever is later; never longer than
/// both together. So a request held for a start has the full `wait` once the first replica is
/// ready, and one that waits when the last ready replica goes has `cold_wait` from then on.
#[derive(Clone, Debug)]
pub struct Gate {
    now: Timestamp,
    queue: QueueBounds,
    admission: AdmissionConfig,
    models: Vec<Model>,
    requests: Requests,
    endpoints: Endpoints,
    in_flight: InFlight,
    executing: InFlight,
    sessions: Sessions,
    inflation: Inflation,
    /// When the fleet last changed between having a ready replica and having none.
    ready_changed: Timestamp,
    /// When the bounds of the wait last changed; who waited before counts as waiting since then.
    waits_changed: Timestamp,
    at_max: bool,
    ended: [u64; 4],
    refused: Refused,
    retries: RetryBudget,
    outputs: VecDeque<Output>,
}

/// What is counted of one model.
#[derive(Clone, Debug)]
struct Model {
    slots: Slots,
    in_flight: InFlight,
    executing: InFlight,
    arrivals: u64,
    completions: u64,
    service_nanos: u128,
    rate: CompletionRate,
}

impl Model {
    fn new(config: &ModelConfig, bucket: Duration, now: Timestamp) -> Self {
        let counter = InFlight::new(bucket, now);
        Self {
            slots: config.slots,
            in_flight: counter,
            executing: counter,
            arrivals: 0,
            completions: 0,
            service_nanos: 0,
            rate: CompletionRate::new(now),
        }
    }
}

impl Gate {
    /// Builds a gate without endpoints; nothing is in flight, and the admission gate is open.
    #[must_use]
    pub fn new(config: GateConfig, now: Timestamp) -> Self {
        let GateConfig {
            mut models,
            queue,
            admission,
            bucket,
        } = config;
        if models.is_empty() {
            models.push(ModelConfig { slots: Slots::ONE });
        }
        let counter = InFlight::new(bucket, now);
        Self {
            now,
            queue,
            admission,
            models: (models.iter())
                .map(|model| Model::new(model, bucket, now))
                .collect(),
            requests: Requests::new(models.len()),
            endpoints: Endpoints::new(models.len(), bucket, now),
            in_flight: counter,
            executing: counter,
            sessions: Sessions::new(admission.sessions_max, admission.session_idle),
            inflation: Inflation::new(now),
            ready_changed: now,
            waits_changed: now,
            at_max: false,
            ended: [0; 4],
            refused: Refused::default(),
            retries: RetryBudget::new(now),
            outputs: VecDeque::new(),
        }
    }

    /// Takes a request in. It has a slot at once when [`granted`](Self::granted) says so, else it
    /// waits, and a later grant comes as an [`Output`].
    ///
    /// # Errors
    ///
    /// It is refused, and was never in flight.
    pub fn on_arrival(&mut self, now: Timestamp, arrival: Arrival) -> Result<Ticket, Refusal> {
        let now = self.advance(now);
        let model = self.row_of(arrival.model);
        if let Some(reason) = self.objection(now, &arrival) {
            return Err(self.refuse(now, model, reason));
        }
        // Whoever waits for this model could not use a slot that is free, or would have it.
        let place = self.pick(model, None, arrival.draw);
        if place.is_none()
            && let Some(reason) = self
                .queue_objection()
                .or_else(|| self.lateness(now, model, arrival.deadline))
        {
            return Err(self.refuse(now, model, reason));
        }
        let session = self.begin_session(now, arrival.session);
        self.in_flight.begin(now);
        self.models[model].in_flight.begin(now);
        self.models[model].arrivals += 1;
        self.retries.on_request(now);
        let state = match place {
            Some(at) => State::Granted {
                replica: self.take(now, at, model),
                since: now,
                told: true,
            },
            None => State::Queued {
                since: now,
                avoid: None,
            },
        };
        let request = Request::new(model, session, arrival.deadline, arrival.draw, state);
        let ticket = self.requests.insert(request);
        self.check(model);
        Ok(ticket)
    }

    /// Returns the replica a slot of which the request has.
    #[must_use]
    pub fn granted(&self, ticket: Ticket) -> Option<ReplicaId> {
        match self.requests.get(ticket)?.state {
            State::Granted { replica, .. } => Some(replica),
            State::Queued { .. } => None,
        }
    }

    /// Counts `more` bytes of the body of a request that waits. `false`: over the bound and not
    /// counted, or the request has ended; do not hold them. What a request with a slot holds is
    /// passed on and not counted.
    pub fn on_held_bytes(&mut self, now: Timestamp, ticket: Ticket, more: Bytes) -> bool {
        self.advance(now);
        match self.requests.get(ticket).map(|request| request.state) {
            Some(State::Queued { .. }) => self.requests.hold(ticket.key(), more, self.queue.bytes),
            Some(State::Granted { .. }) => true,
            None => false,
        }
    }

    /// Takes a request back whose replica failed before it took anything: it gives its slot back
    /// and waits again, at the head of its line whatever the bounds, or has another slot at once
    /// ([`granted`](Self::granted) tells; there is no [`Output`] then). The replica that failed is
    /// not picked for it while another is ready. It stays the same one request in flight.
    /// Its wait is bounded afresh, so that the shell must bound the number of retries.
    ///
    /// Does nothing for a request that has no slot.
    pub fn on_retry(&mut self, now: Timestamp, ticket: Ticket) {
        let now = self.advance(now);
        let Some(Request {
            model,
            state: State::Granted { replica, .. },
            ..
        }) = self.requests.get(ticket)
        else {
            return;
        };
        let (model, replica) = (*model, *replica);
        self.give_back(now, model, replica);
        self.requests.rejoin(ticket.key(), now, replica);
        self.grant_waiting(now, model, Some(ticket.key()));
        self.check(model);
    }

    /// Tells whether a request that a replica may have seen can be sent again, and counts that:
    /// such retries are at most a tenth of the requests of the last ten seconds, and ten or, if
    /// those are more, the slots of a replica.
    pub fn take_retry(&mut self, now: Timestamp) -> bool {
        let now = self.advance(now);
        let slots = self.models.iter().map(|model| model.slots.get()).max();
        self.retries.take(now, slots.unwrap_or(0))
    }

    /// Ends a request in whatever state; its slot goes to the next in the same call.
    ///
    /// Does nothing for a request that ended before.
    pub fn on_end(&mut self, now: Timestamp, ticket: Ticket, outcome: Outcome) {
        let now = self.advance(now);
        let Some(request) = self.requests.remove(ticket) else {
            return;
        };
        self.ended[outcome as usize] += 1;
        self.count_end(now, &request);
        if let State::Granted { replica, since, .. } = request.state {
            self.give_back(now, request.model, replica);
            let model = &mut self.models[request.model];
            model.completions += 1;
            model.service_nanos += now.since(since).as_nanos();
            model.rate.on_completion(now);
            self.grant_waiting(now, request.model, None);
        }
        self.check(request.model);
    }

    /// Returns what the shell has to do next; `None` when that is nothing.
    pub fn poll_output(&mut self) -> Option<Output> {
        while let Some(output) = self.outputs.pop_front() {
            match output {
                Output::Granted { ticket, .. } => {
                    // It may have ended, or lost this slot and got another, since it was put here.
                    if let Some(replica) = self.requests.tell(ticket) {
                        return Some(Output::Granted { ticket, replica });
                    }
                }
                Output::Refused { .. } | Output::Drained { .. } => return Some(output),
            }
        }
        None
    }

    /// Returns when [`on_timeout`](Self::on_timeout) is to be called next: when a wait ends. The
    /// admission gate is judged by whatever call comes next, exactly as of its time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let wait = self
            .requests
            .oldest()
            .map(|(_, since)| self.wait_until(since));
        let deadline = self.requests.first_deadline().map(|(deadline, _)| deadline);
        [wait, deadline].into_iter().flatten().min()
    }

    /// Refuses those that waited too long, and judges the admission gate.
    pub fn on_timeout(&mut self, now: Timestamp) {
        self.advance(now);
    }

    /// Adds an endpoint or changes its state; one that is ready gets waiters at once.
    pub fn set_endpoint(&mut self, now: Timestamp, replica: ReplicaId, state: ReplicaState) {
        let now = self.advance(now);
        let had_ready = self.has_ready();
        if self.endpoints.set(now, replica, state) {
            self.outputs.push_back(Output::Drained { replica });
        }
        self.after_endpoint_change(now, had_ready);
    }

    /// Takes an endpoint away. Its requests keep their slots until each of them ends or is
    /// retried; it is not told as drained.
    pub fn remove_endpoint(&mut self, now: Timestamp, replica: ReplicaId) {
        let now = self.advance(now);
        let had_ready = self.has_ready();
        self.endpoints.remove(now, replica);
        self.after_endpoint_change(now, had_ready);
    }

    /// Changes the slots of a model. Fewer cut nobody off: there are no grants until enough ended.
    pub fn set_slots(&mut self, now: Timestamp, model: ModelIndex, slots: Slots) {
        let now = self.advance(now);
        let model = self.row_of(model);
        self.models[model].slots = slots;
        self.grant_waiting(now, model, None);
    }

    /// Returns how many requests the endpoint holds, also after it was removed.
    #[must_use]
    pub fn endpoint_in_flight(&self, replica: ReplicaId) -> u32 {
        self.endpoints.get(replica).map_or(0, Endpoint::in_flight)
    }

    /// Returns how many requests wait for a slot.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.requests.queued()
    }

    /// Takes from a decision whether the fleet can grow.
    pub fn on_decision(&mut self, now: Timestamp, decision: &Decision) {
        self.advance(now);
        self.at_max = decision.at_max;
    }

    /// Tells that sessions were forgotten by a restart: for as long as a session may be idle,
    /// those that are not known count as old.
    pub fn on_restart(&mut self, now: Timestamp) {
        let now = self.advance(now);
        self.sessions.on_restart(now);
    }

    /// Does what was due by `now` and returns the time that counts.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        let counts = Counts::of(&self.in_flight, &self.executing, self.endpoints.ready());
        self.inflation.judge(self.now, counts, &self.admission);
        self.expire();
        self.now
    }

    fn begin_session(&mut self, now: Timestamp, session: Option<SessionKey>) -> Option<usize> {
        match self.admission.scope {
            AdmissionScope::Off => None,
            AdmissionScope::NewSessions => session.map(|key| self.sessions.begin(now, key)),
        }
    }

    /// Takes a request that was removed out of the counts.
    fn count_end(&mut self, now: Timestamp, request: &Request) {
        self.in_flight.end(now);
        self.models[request.model].in_flight.end(now);
        if let Some(session) = request.session {
            self.sessions.end(now, session);
        }
    }

    fn after_endpoint_change(&mut self, now: Timestamp, had_ready: bool) {
        if self.has_ready() != had_ready {
            self.ready_changed = now;
        }
        // Whom a waiter avoids depends on which others are ready, so any change may free a slot.
        for model in 0..self.models.len() {
            self.grant_waiting(now, model, None);
        }
    }

    /// Gives the free slots of a model to its waiters, first in line first. Whoever avoids the
    /// only replica with a free slot is passed over and keeps its place. `caller` sees its grant
    /// without an output.
    fn grant_waiting(&mut self, now: Timestamp, model: usize, caller: Option<usize>) {
        let mut waiter = self.requests.first(model);
        while let Some(key) = waiter {
            waiter = self.requests.after(key);
            let request = self.requests.at(key);
            let State::Queued { avoid, .. } = request.state else {
                return;
            };
            let draw = request.draw;
            match self.pick(model, avoid, draw) {
                Some(at) => {
                    let replica = self.take(now, at, model);
                    let told = caller == Some(key);
                    self.requests.grant(key, replica, now, told);
                    if !told {
                        let ticket = self.requests.ticket(key);
                        self.outputs.push_back(Output::Granted { ticket, replica });
                    }
                }
                // Passed over only if another could have what it avoids; else nothing is free.
                None if avoid.is_none() || self.pick(model, None, draw).is_none() => return,
                None => {}
            }
        }
    }

    fn pick(&self, model: usize, avoid: Option<ReplicaId>, draw: u64) -> Option<usize> {
        pick(
            self.endpoints.as_slice(),
            model,
            self.models[model].slots.get(),
            avoid,
            draw,
        )
    }

    fn take(&mut self, now: Timestamp, at: usize, model: usize) -> ReplicaId {
        invariant!(
            "permits of a replica and model stay within its slots when one is granted",
            self.endpoints.as_slice()[at].permits(model) < self.models[model].slots.get()
        );
        self.executing.begin(now);
        self.models[model].executing.begin(now);
        self.endpoints.take(at, model)
    }

    fn give_back(&mut self, now: Timestamp, model: usize, replica: ReplicaId) {
        self.executing.end(now);
        self.models[model].executing.end(now);
        if self.endpoints.give_back(replica, model) {
            self.outputs.push_back(Output::Drained { replica });
        }
    }

    const fn has_ready(&self) -> bool {
        self.endpoints.ready().count() > 0
    }

    /// Returns the row of a model; of one that is not configured, the last.
    fn row_of(&self, model: ModelIndex) -> usize {
        invariant!(
            "models are those of the configuration",
            model.0 < self.models.len()
        );
        model.0.min(self.models.len() - 1)
    }

    fn check(&self, model: usize) {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let row = &self.models[model];
        invariant!(
            "in flight = queued + executing",
            row.in_flight.count() == count(self.requests.queued_of(model)) + row.executing.count()
        );
        invariant!(
            "every request in flight has a ticket",
            self.in_flight.count() == count(self.requests.count())
        );
        invariant!(
            "who executes holds a slot of a replica",
            self.executing.count()
                == self
                    .endpoints
                    .as_slice()
                    .iter()
                    .map(|e| u64::from(e.in_flight()))
                    .sum::<u64>()
        );
    }
}
