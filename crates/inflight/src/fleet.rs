//! One fleet as its gateway, control loop and API share it: the gate under a short lock, those
//! who wait at it, and what was decided last.
//!
//! The lock is never held across an await, and nobody is woken while it is held.

mod board;
mod permit;
mod timings;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use inflight_core::admission::{Arrival, Gate, GateLoad, Output, Refusal};
use inflight_core::load::{Observation, ReplicaState};
use inflight_core::{Decision, ReplicaId, Ticket, Timestamp};
use tokio::sync::Notify;

pub use board::{Board, DECISIONS_KEPT, DecisionCounts};
pub use permit::{Bound, Permit};
pub use timings::Timings;

use crate::clock::Clock;

/// One fleet's shared state.
pub struct Fleet {
    name: Arc<str>,
    clock: Clock,
    state: Mutex<State>,
    board: Mutex<Board>,
    timings: Timings,
    changed: Notify,
}

struct State {
    gate: Gate,
    /// By the ticket's key; a key without a waiter holds `Wait::Nobody`.
    waits: Vec<Wait>,
    replicas: BTreeMap<ReplicaId, Replica>,
    /// Draining replicas that became empty and of which the control loop was not told.
    drained: Vec<ReplicaId>,
}

/// What the shell knows of a replica.
#[derive(Clone, Copy, Debug)]
struct Replica {
    address: SocketAddr,
    state: ReplicaState,
}

/// How many replicas are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Asked for, not ready yet.
    pub starting: u32,
    /// Take requests.
    pub ready: u32,
    /// Finish what they have.
    pub draining: u32,
    /// Were ready and do not answer.
    pub unhealthy: u32,
}

/// How far the request with a ticket has come, for the task that carries it.
#[derive(Debug, Default)]
enum Wait {
    #[default]
    Nobody,
    Queued(Option<Waker>),
    Granted(Bound),
    Refused(Refusal),
}

impl Fleet {
    /// Builds a fleet around its gate.
    #[must_use]
    pub fn new(name: &str, clock: Clock, gate: Gate, board: Board) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            clock,
            state: Mutex::new(State {
                gate,
                waits: Vec::new(),
                replicas: BTreeMap::new(),
                drained: Vec::new(),
            }),
            board: Mutex::new(board),
            timings: Timings::default(),
            changed: Notify::new(),
        })
    }

    /// Returns the fleet's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the clock that the fleet's timestamps are of.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Lets a request in, to wait or to be served at once; or refuses it.
    ///
    /// # Errors
    /// The refusal, with its reason and when to come again.
    pub fn arrive(self: &Arc<Self>, arrival: Arrival) -> Result<Permit, Refusal> {
        let now = self.clock.now();
        let (ticket, must_wake) = self.with_gate(|state| {
            let timeout_before = state.gate.poll_timeout();
            let ticket = state.gate.on_arrival(now, arrival)?;
            state.seat(ticket);
            let timeout = state.gate.poll_timeout();
            Ok((ticket, timeout.is_some() && (timeout_before.is_none() || timeout < timeout_before)))
        })?;
        if must_wake {
            self.changed.notify_one();
        }
        Ok(Permit::new(Arc::clone(self), ticket, now))
    }

    /// Waits until the control loop has something to do at once: a request began to wait, a
    /// draining replica became empty, or a wait ends earlier than was known.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns when [`Fleet::on_timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.lock().gate.poll_timeout()
    }

    /// Ends the waits whose time is over.
    pub fn on_timeout(&self) {
        let now = self.clock.now();
        self.with_gate(|state| state.gate.on_timeout(now));
    }

    /// Tells the gate of a replica's address and state.
    pub fn set_endpoint(&self, replica: ReplicaId, address: SocketAddr, endpoint: ReplicaState) {
        let now = self.clock.now();
        self.with_gate(|state| {
            state.replicas.insert(replica, Replica { address, state: endpoint });
            state.gate.set_endpoint(now, replica, endpoint);
        });
    }

    /// Takes a replica away. Requests it holds end when their connections do.
    pub fn remove_endpoint(&self, replica: ReplicaId) {
        let now = self.clock.now();
        self.with_gate(|state| {
            state.gate.remove_endpoint(now, replica);
            state.replicas.remove(&replica);
        });
    }

    /// Takes the draining replicas that became empty since the last call.
    #[must_use]
    pub fn take_drained(&self) -> Vec<ReplicaId> {
        std::mem::take(&mut self.lock().drained)
    }

    /// Tells whether a request waits although no replica is there or on its way.
    #[must_use]
    pub fn waits_at_zero(&self) -> bool {
        self.lock().gate.waits_at_zero()
    }

    /// Returns the address of any ready replica, for requests that are not counted.
    #[must_use]
    pub fn any_ready(&self) -> Option<Bound> {
        let state = self.lock();
        let replica = state.gate.any_ready()?;
        state.bound(replica)
    }

    /// Tells whether a replica is one of this fleet's, in whatever state.
    #[must_use]
    pub fn knows(&self, replica: ReplicaId) -> bool {
        self.lock().addresses.contains_key(&replica)
    }

    /// Reads the load for the scaler.
    #[must_use]
    pub fn observe(&self) -> Observation {
        let now = self.clock.now();
        self.with_gate(|state| state.gate.observe(now))
    }

    /// Reads the load for people and metrics, changing nothing.
    #[must_use]
    pub fn load(&self) -> GateLoad {
        let now = self.clock.now();
        self.lock().gate.load(now)
    }

    /// Reads the load and the replicas' states of one moment, for people and metrics.
    #[must_use]
    pub fn load_and_replicas(&self) -> (GateLoad, ReplicaCounts) {
        let now = self.clock.now();
        let state = self.lock();
        (state.gate.load(now), ReplicaCounts::of(state.replicas.values()))
    }

    /// Publishes a decision: the gate learns whether the fleet is at its maximum.
    pub fn on_decision(&self, decision: &Decision) {
        let now = self.clock.now();
        self.with_gate(|state| state.gate.on_decision(now, decision));
    }

    /// Refuses every further request; those that are in go on.
    pub fn close(&self) {
        let now = self.clock.now();
        self.with_gate(|state| state.gate.close(now));
    }

    /// Returns the histograms of how long requests took and waited.
    #[must_use]
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Returns what is published of the fleet.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `act` on the state, then hands out what the gate put out, then wakes those concerned.
    fn with_gate<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = act(&mut state);
        let mut wakers = Vec::new();
        let drained_before = state.drained.len();
        state.settle(&mut wakers);
        let has_drained = state.drained.len() > drained_before;
        drop(state);
        for waker in wakers {
            waker.wake();
        }
        if has_drained {
            self.changed.notify_one();
        }
        result
    }

    /// A panic while the lock was held is a fault of ours that one request met; the fleet goes on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplicaCounts {
    fn of<'a>(replicas: impl Iterator<Item = &'a Replica>) -> Self {
        let mut counts = Self::default();
        for replica in replicas {
            let count = match replica.state {
                ReplicaState::Starting => &mut counts.starting,
                ReplicaState::Ready => &mut counts.ready,
                ReplicaState::Draining => &mut counts.draining,
                ReplicaState::Unhealthy => &mut counts.unhealthy,
            };
            *count = count.saturating_add(1);
        }
        counts
    }
}

impl State {
    /// Gives a ticket its place among the waits.
    fn seat(&mut self, ticket: Ticket) {
        if self.waits.len() <= ticket.key() {
            self.waits.resize_with(ticket.key() + 1, Wait::default);
        }
        self.waits[ticket.key()] = match self.gate.granted(ticket).and_then(|id| self.bound(id)) {
            Some(bound) => Wait::Granted(bound),
            None => Wait::Queued(None),
        };
    }

    fn bound(&self, replica: ReplicaId) -> Option<Bound> {
        self.replicas.get(&replica).map(|known| Bound { replica, address: known.address })
    }

    /// Moves the gate's outputs to those who wait for them.
    fn settle(&mut self, wakers: &mut Vec<Waker>) {
        while let Some(output) = self.gate.poll_output() {
            let (ticket, wait) = match output {
                Output::Granted { ticket, replica } => match self.bound(replica) {
                    Some(bound) => (ticket, Wait::Granted(bound)),
                    None => continue,
                },
                Output::Refused { ticket, refusal } => (ticket, Wait::Refused(refusal)),
                Output::Drained { replica } => {
                    self.drained.push(replica);
                    continue;
                }
            };
            if let Wait::Queued(Some(waker)) = std::mem::replace(&mut self.waits[ticket.key()], wait)
            {
                wakers.push(waker);
            }
        }
    }
}
