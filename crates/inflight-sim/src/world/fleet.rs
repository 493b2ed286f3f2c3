//! Replicas come and go: asked for, ready, draining, gone.

use std::time::Duration;

use inflight_core::ReplicaId;
use inflight_core::load::{ReplicaRow, ReplicaState};

use super::{Event, World};
use crate::engine::Rank;
use crate::random::{Purpose, Random};
use crate::readings::{ModelReading, Readings};
use crate::replica::{Replica, State};
use crate::scenario::{Scenario, Speed, Start};
use crate::units::{index, nanos, timestamp};

/// All replicas that there ever were, by their numbers.
#[derive(Clone, Debug)]
pub(super) struct Replicas {
    pub(super) all: Vec<Replica>,
    /// Those that are not gone.
    live: Vec<u32>,
    /// Those that take requests.
    pub(super) ready: Vec<u32>,
    /// Until when those that are asked for never become ready.
    pub(super) never_until: u64,
    random: Random,
    start: Start,
    speed: Speed,
    spent: u128,
}

impl Replicas {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        Self {
            all: Vec::new(),
            live: Vec::new(),
            ready: Vec::new(),
            never_until: 0,
            random: Random::new(seed, Purpose::Replicas),
            start: scenario.fleet.start,
            speed: scenario.fleet.speed,
            spent: 0,
        }
    }

    pub(super) fn add(&mut self, now: u64, models: usize) -> u32 {
        let is_slow = self.random.chance(self.speed.slow_share);
        let speed = if is_slow { self.speed.slow } else { 1.0 };
        self.all.push(Replica::new(now, speed, models));
        let replica = index(self.all.len() - 1);
        self.live.push(replica);
        replica
    }

    /// Draws how long a start takes; `None`: it never ends.
    fn start_delay(&mut self, now: u64) -> Option<f64> {
        let Start {
            delay,
            spread,
            never,
        } = self.start;
        let drawn = delay * self.random.between(1.0 - spread, 1.0 + spread);
        let is_never = self.random.chance(never);
        (!is_never && now >= self.never_until).then_some(drawn)
    }

    /// Returns how fast a replica is at a moment.
    pub(super) fn speed(&self, replica: u32, now: u64) -> f64 {
        let one = &self.all[replica as usize];
        let is_warming = now < one.ready.saturating_add(nanos(self.speed.warm_up));
        let warming = if is_warming { self.speed.warming } else { 1.0 };
        one.speed * one.slowed * warming
    }

    pub(super) fn ready_count(&self) -> u32 {
        index(self.ready.len())
    }

    fn count(&self, state: State) -> u32 {
        let live = self.live.iter();
        index(
            live.filter(|&&replica| self.all[replica as usize].state == state)
                .count(),
        )
    }

    pub(super) fn readings(
        &self,
        models: Vec<ModelReading>,
        desired: u32,
        clients_gone: u32,
    ) -> Readings {
        Readings {
            models,
            clients_gone,
            ready: self.ready_count(),
            starting: self.count(State::Starting),
            unhealthy: self.count(State::Unhealthy),
            desired,
        }
    }

    pub(super) fn rows(&self) -> Vec<ReplicaRow> {
        let row = |&replica: &u32| {
            let one = &self.all[replica as usize];
            let state = match one.state {
                State::Starting => ReplicaState::Starting,
                State::Ready => ReplicaState::Ready,
                State::Unhealthy => ReplicaState::Unhealthy,
                State::Draining => ReplicaState::Draining,
                State::Gone => return None,
            };
            Some(ReplicaRow {
                id: ReplicaId(u64::from(replica)),
                state,
                in_flight: one.held,
            })
        };
        self.live.iter().filter_map(row).collect()
    }

    pub(super) fn replica_seconds(&self, now: u64) -> f64 {
        let live = self.live.iter();
        let living = live.map(|&replica| u128::from(now - self.all[replica as usize].asked));
        crate::units::area_seconds(self.spent + living.sum::<u128>())
    }

    /// Replicas that are asked for and shall stay, in the order in which they go when nobody says
    /// which: starting ones first, then those with the least to finish; the youngest of equals.
    fn order_to_go(&self) -> Vec<u32> {
        let stays = |replica: &u32| {
            !matches!(
                self.all[*replica as usize].state,
                State::Draining | State::Gone
            )
        };
        let mut staying: Vec<u32> = self.live.iter().copied().filter(stays).collect();
        staying.sort_by_key(|&replica| {
            let one = &self.all[replica as usize];
            let is_ready = one.state == State::Ready;
            (is_ready, one.held, std::cmp::Reverse(replica))
        });
        staying
    }

    fn no_longer_ready(&mut self, replica: u32) {
        self.ready.retain(|&other| other != replica);
    }
}

impl World<'_> {
    /// Makes the fleet as large as asked for; `drain` says which go, if any must.
    pub(super) fn resize(&mut self, desired: u32, drain: &[ReplicaId]) {
        if desired != self.desired {
            self.measured.changes += u64::from(desired.abs_diff(self.desired));
            self.desired = desired;
        }
        for id in drain {
            if let Ok(replica) = u32::try_from(id.0) {
                self.drain(replica);
            }
        }
        let staying = self.fleet.order_to_go();
        let count = index(staying.len());
        for &replica in staying.iter().take(count.saturating_sub(desired) as usize) {
            self.drain(replica);
        }
        for _ in count..desired {
            self.ask_for_replica();
        }
        self.note_size();
    }

    fn ask_for_replica(&mut self) {
        let now = self.events.now();
        let replica = self.fleet.add(now, self.scenario.models.len());
        self.tell_gate(replica, ReplicaState::Starting);
        if let Some(delay) = self.fleet.start_delay(now) {
            let at = now.saturating_add(nanos(delay));
            self.events.push(at, Rank::Begin, Event::Ready { replica });
        }
    }

    pub(super) fn start_ended(&mut self, replica: u32) {
        let one = &self.fleet.all[replica as usize];
        if one.state != State::Starting {
            return;
        }
        let took = self.events.now() - one.asked;
        self.started.push(Duration::from_nanos(took));
        self.make_ready(replica);
        self.note_size();
    }

    /// Lets a replica take requests, and gives it those that wait for one.
    pub(super) fn make_ready(&mut self, replica: u32) {
        let now = self.events.now();
        let one = &mut self.fleet.all[replica as usize];
        one.state = State::Ready;
        if one.ready == u64::MAX {
            // A replica that was there at the start is warm.
            let is_first = now == 0;
            one.ready = if is_first { 0 } else { now };
        }
        self.fleet.ready.push(replica);
        self.tell_gate(replica, ReplicaState::Ready);
        self.gate_outputs();
        for request in std::mem::take(&mut self.held) {
            self.place(request);
        }
    }

    /// Lets a replica take no more; it goes once it is empty.
    fn drain(&mut self, replica: u32) {
        let one = &mut self.fleet.all[replica as usize];
        match one.state {
            State::Starting => self.remove(replica),
            State::Ready | State::Unhealthy => {
                one.state = State::Draining;
                self.fleet.no_longer_ready(replica);
                self.tell_gate(replica, ReplicaState::Draining);
                self.remove_if_drained(replica);
            }
            State::Draining | State::Gone => {}
        }
    }

    pub(super) fn remove_if_drained(&mut self, replica: u32) {
        let one = &self.fleet.all[replica as usize];
        if one.state == State::Draining && one.held == 0 {
            self.remove(replica);
        }
    }

    pub(super) fn remove(&mut self, replica: u32) {
        let now = self.events.now();
        let one = &mut self.fleet.all[replica as usize];
        one.state = State::Gone;
        self.fleet.spent += u128::from(now - one.asked);
        self.fleet.live.retain(|&other| other != replica);
        self.fleet.no_longer_ready(replica);
        if let Some(gate) = &mut self.gate {
            gate.remove_endpoint(timestamp(now), ReplicaId(u64::from(replica)));
        }
    }

    pub(super) fn make_unhealthy(&mut self, replica: u32) {
        self.fleet.all[replica as usize].state = State::Unhealthy;
        self.fleet.no_longer_ready(replica);
        self.tell_gate(replica, ReplicaState::Unhealthy);
        self.note_size();
    }

    fn tell_gate(&mut self, replica: u32, state: ReplicaState) {
        let now = timestamp(self.events.now());
        if let Some(gate) = &mut self.gate {
            gate.set_endpoint(now, ReplicaId(u64::from(replica)), state);
        }
    }

    /// Returns the ready replicas, the longest ready first.
    pub(super) fn longest_ready(&self) -> Vec<u32> {
        let mut ready = self.fleet.ready.clone();
        ready.sort_by_key(|&replica| (self.fleet.all[replica as usize].ready, replica));
        ready
    }

    /// Returns how long a work takes on a replica from this moment.
    pub(super) fn stretched(&self, replica: u32, work: f64) -> u64 {
        let now = self.events.now();
        nanos(work / self.fleet.speed(replica, now))
    }
}
