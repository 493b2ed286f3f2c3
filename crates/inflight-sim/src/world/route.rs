//! A request's way: it arrives, is bound to a replica at once or by the gate, waits, is executed,
//! and its answer travels back.

use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, ModelConfig, Outcome, Output,
    QueueBounds, When,
};
use inflight_core::{Bytes, ModelIndex, SessionKey, Ticket, Timestamp};

use super::requests::NOWHERE;
use super::{Event, World};
use crate::control::Control;
use crate::engine::Rank;
use crate::replica::State;
use crate::scenario::{Binding, Scenario, Service};
use crate::units::{duration, index, nanos, timestamp};
use crate::workload::{Client, Sent};

/// A client that is refused waits as long as the shortest `Retry-After`: a second.
const REFUSED_WAIT: u64 = 1_000_000_000;

/// Builds the gate of a scenario that binds late.
pub(super) fn gate(scenario: &Scenario) -> Option<Gate> {
    let Binding::Late {
        queue,
        wait,
        cold_wait,
        admission,
    } = scenario.fleet.binding
    else {
        return None;
    };
    let threshold = admission.unwrap_or(f64::NAN);
    let models = scenario
        .models
        .iter()
        .map(|model| ModelConfig { slots: model.slots });
    let config = GateConfig {
        models: models.collect(),
        queue: QueueBounds {
            requests: queue,
            bytes: Bytes(0),
            wait: duration(wait),
            cold_wait: duration(cold_wait),
        },
        admission: AdmissionConfig {
            threshold,
            // The product's default of 2.4 for a threshold of 3.
            reopen: 0.8 * threshold,
            when: When::AtMax,
            scope: admission.map_or(AdmissionScope::Off, |_| AdmissionScope::NewSessions),
            sessions_max: 100_000,
            session_idle: Duration::from_secs(60),
        },
        bucket: Duration::from_millis(100),
    };
    Some(Gate::new(config, Timestamp::ORIGIN))
}

impl World<'_> {
    pub(super) fn arrive(&mut self, sent: Sent) {
        let now = self.events.now();
        let model = sent.model as usize;
        self.counts[model].arrivals += 1;
        self.counts[model].in_flight.begin(timestamp(now));
        if let Some(total) = &mut self.total {
            total.in_flight.begin(timestamp(now));
        }
        let request = self.requests.add(now, sent);
        if self.is_late() {
            self.ask_gate(request);
        } else {
            self.place(request);
        }
        self.wake_from_zero();
    }

    /// The product's control loop is woken by the first request at zero replicas.
    fn wake_from_zero(&mut self) {
        let is_core = matches!(self.control, Control::Core(_));
        if self.desired == 0 && is_core && !self.woken {
            self.woken = true;
            self.events
                .push(self.events.now(), Rank::Look, Event::FromZero);
        }
    }

    /// Binds a request to a replica, or holds it while none is ready.
    pub(super) fn place(&mut self, request: u32) {
        let bound = match self.scenario.fleet.binding {
            Binding::LeastOfTwo { queue } | Binding::LeastRequest { queue } => queue as usize,
            Binding::Late { .. } => usize::MAX,
        };
        let Some(replica) = self.choose() else {
            if self.held.len() < bound {
                self.held.push_back(request);
            } else {
                self.refuse(request);
            }
            return;
        };
        let one = &self.fleet.all[replica as usize];
        let model = self.requests.at(request).model as usize;
        if self.is_busy(replica, model) && one.queued() >= bound {
            self.refuse(request);
        } else {
            self.give(request, replica);
        }
    }

    /// Binds a request again whose replica is gone.
    pub(super) fn place_again(&mut self, request: u32) {
        let ticket = self.requests.at(request).ticket;
        self.requests.at_mut(request).replica = NOWHERE;
        let now = timestamp(self.events.now());
        match (&mut self.gate, ticket) {
            (Some(gate), Some(ticket)) => {
                gate.on_retry(now, ticket);
                self.give_if_granted(request, ticket);
            }
            (Some(_), None) | (None, _) => self.place(request),
        }
    }

    fn choose(&mut self) -> Option<u32> {
        let ready = &self.fleet.ready;
        let held = |replica: u32| self.fleet.all[replica as usize].held;
        match (self.scenario.fleet.binding, ready.as_slice()) {
            (_, []) => None,
            (_, &[only]) => Some(only),
            (Binding::LeastOfTwo { .. }, _) => {
                let count = index(ready.len());
                let first = self.placement.below(count);
                let mut second = self.placement.below(count - 1);
                second += u32::from(second >= first);
                let (first, second) = (ready[first as usize], ready[second as usize]);
                Some(if held(second) < held(first) {
                    second
                } else {
                    first
                })
            }
            (Binding::LeastRequest { .. } | Binding::Late { .. }, ready) => {
                let least = ready.iter().map(|&replica| held(replica)).min()?;
                let mut equals = ready.iter().filter(|&&replica| held(replica) == least);
                let count = index(equals.clone().count());
                equals.nth(self.placement.below(count) as usize).copied()
            }
        }
    }

    fn is_busy(&self, replica: u32, model: usize) -> bool {
        let lane = &self.fleet.all[replica as usize].lanes[model];
        let model = &self.scenario.models[model];
        match model.service {
            Service::Each(_) => lane.executing.len() >= model.slots.get() as usize,
            Service::Batches { .. } => !lane.executing.is_empty(),
        }
    }

    /// Puts a request into a replica, which begins it if it can.
    fn give(&mut self, request: u32, replica: u32) {
        let model = self.requests.at(request).model as usize;
        self.requests.at_mut(request).replica = replica;
        self.fleet.all[replica as usize].held += 1;
        self.fleet.all[replica as usize].lanes[model]
            .queue
            .push_back(request);
        self.begin_next(replica, model);
    }

    fn begin_next(&mut self, replica: u32, model: usize) {
        while !self.is_busy(replica, model) {
            let lane = &mut self.fleet.all[replica as usize].lanes[model];
            if lane.queue.is_empty() {
                return;
            }
            match self.scenario.models[model].service {
                Service::Each(_) => {
                    let Some(request) = lane.queue.pop_front() else {
                        return;
                    };
                    lane.executing.push(request);
                    self.begin(request);
                    let one = self.requests.at(request);
                    let (serial, work) = (one.serial, one.work);
                    let at = self.events.now() + self.stretched(replica, work);
                    self.counts[model].executions += 1;
                    let event = Event::Executed { request, serial };
                    self.events.push(at, Rank::End, event);
                }
                Service::Batches {
                    batch,
                    each,
                    largest,
                } => {
                    let size = lane.queue.len().min(largest as usize);
                    let batched: Vec<u32> = lane.queue.drain(..size).collect();
                    lane.executing.clone_from(&batched);
                    for request in batched {
                        self.begin(request);
                    }
                    let work = batch + each * f64::from(index(size));
                    let at = self.events.now() + self.stretched(replica, work);
                    self.counts[model].executions += 1;
                    let model = index(model);
                    let event = Event::Batch { replica, model };
                    self.events.push(at, Rank::End, event);
                }
            }
        }
    }

    fn begin(&mut self, request: u32) {
        let now = self.events.now();
        let one = self.requests.at_mut(request);
        one.began = Some(now);
        let model = one.model as usize;
        self.counts[model].executing.begin(timestamp(now));
    }

    pub(super) fn executed(&mut self, request: u32, serial: u32) {
        if !self.requests.is_still(request, serial) {
            return;
        }
        let one = self.requests.at(request);
        let (replica, model) = (one.replica, one.model as usize);
        self.fleet.all[replica as usize].lanes[model].finish(request);
        self.leave_replica(request);
        self.begin_next(replica, model);
        self.remove_if_drained(replica);
    }

    pub(super) fn batch_executed(&mut self, replica: u32, model: u32) {
        if self.fleet.all[replica as usize].state == State::Gone {
            return;
        }
        let model = model as usize;
        let batch = std::mem::take(&mut self.fleet.all[replica as usize].lanes[model].executing);
        for request in batch {
            self.leave_replica(request);
        }
        self.begin_next(replica, model);
        self.remove_if_drained(replica);
    }

    /// Takes a request that was executed out of its replica and sends its answer on the wire.
    fn leave_replica(&mut self, request: u32) {
        let now = self.events.now();
        let one = self.requests.at(request);
        let (replica, model) = (one.replica, one.model as usize);
        let began = one.began.unwrap_or(now);
        let (work, wait) = (one.work, began - one.arrived);
        self.fleet.all[replica as usize].held -= 1;
        let counts = &mut self.counts[model];
        counts.executing.end(timestamp(now));
        counts.completions += 1;
        counts.service_nanos += u128::from(now - began);
        counts.wait_nanos += u128::from(wait);
        self.measured.work[model] += match self.scenario.models[model].service {
            Service::Each(_) => work,
            service @ Service::Batches { .. } => service.seconds_each(),
        };
        let Some(law) = self.scenario.fleet.wire else {
            self.answered(request);
            return;
        };
        self.counts[model].on_wire.begin(timestamp(now));
        let at = now + nanos(law.draw(&mut self.wire));
        self.events.push(at, Rank::End, Event::Answered { request });
    }

    pub(super) fn answered(&mut self, request: u32) {
        let now = self.events.now();
        let one = *self.requests.at(request);
        let model = one.model as usize;
        if self.scenario.fleet.wire.is_some() {
            self.counts[model].on_wire.end(timestamp(now));
        }
        self.measured.served += 1;
        let wait = one.began.unwrap_or(now) - one.arrived;
        self.measured.within_slo += u64::from(wait <= self.slo(one.model));
        self.measured.sojourn.record(now - one.arrived);
        if let Some(recorder) = &mut self.recorder {
            recorder.ended(now - one.arrived);
        }
        self.end(request, Outcome::Completed);
    }

    /// Ends a request that a replica took with it.
    pub(super) fn fail(&mut self, request: u32) {
        let now = timestamp(self.events.now());
        let model = self.requests.at(request).model as usize;
        self.counts[model].executing.end(now);
        self.measured.failed += 1;
        self.end(request, Outcome::UpstreamFailed);
    }

    fn refuse(&mut self, request: u32) {
        self.measured.refused += 1;
        self.end_and_wait(request, Outcome::TimedOut, REFUSED_WAIT);
    }

    fn end(&mut self, request: u32, outcome: Outcome) {
        self.end_and_wait(request, outcome, 0);
    }

    /// Ends a request, after which its client waits a while at least.
    fn end_and_wait(&mut self, request: u32, outcome: Outcome, wait: u64) {
        let now = self.events.now();
        let one = self.requests.remove(request);
        let model = one.model as usize;
        let sojourn = u128::from(now - one.arrived);
        self.counts[model].in_flight.end(timestamp(now));
        self.counts[model].sojourn_nanos += sojourn;
        self.measured.sojourn_area += sojourn;
        if let Some(total) = &mut self.total {
            total.in_flight.end(timestamp(now));
        }
        if let Some(client) = one.client
            && let Some((at, sender)) = self.workload.on_answer(now, client)
        {
            self.events
                .push(at.max(now + wait), Rank::Begin, Event::Wake(sender));
        }
        if let (Some(gate), Some(ticket)) = (&mut self.gate, one.ticket) {
            gate.on_end(timestamp(now), ticket, outcome);
            self.gate_outputs();
        }
    }

    fn ask_gate(&mut self, request: u32) {
        let now = timestamp(self.events.now());
        let one = self.requests.at(request);
        let arrival = Arrival {
            model: ModelIndex(one.model as usize),
            session: one.client.map(session_of),
            first_call: false,
            deadline: None,
            draw: self.placement.bits(),
        };
        let Some(gate) = &mut self.gate else { return };
        match gate.on_arrival(now, arrival) {
            Ok(ticket) => {
                self.requests.at_mut(request).ticket = Some(ticket);
                let key = ticket.key();
                if key >= self.tickets.len() {
                    self.tickets.resize(key + 1, NOWHERE);
                }
                self.tickets[key] = request;
                self.give_if_granted(request, ticket);
            }
            Err(_) => self.refuse(request),
        }
        self.gate_outputs();
    }

    fn give_if_granted(&mut self, request: u32, ticket: Ticket) {
        let granted = self.gate.as_ref().and_then(|gate| gate.granted(ticket));
        if let Some(replica) = granted.and_then(|id| u32::try_from(id.0).ok()) {
            self.give(request, replica);
        }
    }

    pub(super) fn gate_timeout(&mut self) {
        self.timer = u64::MAX;
        let now = timestamp(self.events.now());
        if let Some(gate) = &mut self.gate {
            gate.on_timeout(now);
        }
        self.gate_outputs();
    }

    /// Does what the gate says is to be done, until it says no more.
    pub(super) fn gate_outputs(&mut self) {
        while let Some(output) = self.gate.as_mut().and_then(Gate::poll_output) {
            match output {
                Output::Granted { ticket, .. } => {
                    self.give_if_granted(self.tickets[ticket.key()], ticket);
                }
                Output::Refused { ticket, .. } => {
                    let request = self.tickets[ticket.key()];
                    self.requests.at_mut(request).ticket = None;
                    self.refuse(request);
                }
                // The replica says so itself: it counts what it holds.
                Output::Drained { .. } => {}
            }
        }
        let due = self.gate.as_ref().and_then(Gate::poll_timeout);
        if let Some(due) = due.map(Timestamp::as_nanos)
            && due < self.timer
        {
            self.timer = due;
            self.events.push(due, Rank::Begin, Event::Timer);
        }
    }
}

/// A job is a session.
fn session_of(client: Client) -> SessionKey {
    SessionKey((u64::from(client.load) << 32) | u64::from(client.job))
}
