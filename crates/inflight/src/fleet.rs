//! One fleet as its gateway, control loop and API share it: the gate under a short lock, those
//! who wait at it, and what was decided last.
//!
//! The lock is never held across an await, and nobody is woken while it is held.

mod board;
mod checks;
mod external;
mod health;
mod peers;
mod permit;
mod published;
mod roster;
#[cfg(test)]
pub(crate) mod sample;
mod timings;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use inflight_core::admission::{Arrival, Gate, GateConfig, GateLoad, Output, PastGate, Refusal};
use inflight_core::load::{Observation, ReplicaState};
use inflight_core::{Decision, ReplicaId, Ticket, Timestamp};
use slab::Slab;
use tokio::sync::Notify;

pub use board::{Board, Crash, DECISIONS_KEPT, DecisionCounts};
pub use checks::Checks;
pub use external::{Asked, External, Question, Unanswered};
pub use peers::{Levels, PeerKind, PeerRow, Peers};
pub use permit::{Bound, Permit};
pub use published::{Published, Serving};
pub use roster::{ConfigurationState, Member, RefusedFile, Roster};
pub use timings::Timings;

use crate::clock::Clock;
use health::SharedHealth;

/// One fleet's shared state.
pub struct Fleet {
    name: Arc<str>,
    clock: Clock,
    state: Mutex<State>,
    board: Mutex<Board>,
    timings: Timings,
    health: SharedHealth,
    changed: Notify,
    /// Whether requests come in here: a gateway of ours hands them to the gate.
    has_gateway: bool,
    /// What others tell of this fleet, where they are asked.
    peers: Option<Peers>,
    /// The gate that proxies ask, where requests pass elsewhere.
    checks: Option<Checks>,
    /// What others are told of the replicas that our target starts.
    published: Option<Published>,
}

/// Where the load of a fleet is measured, and who else knows its replicas.
#[derive(Debug, Default)]
pub struct Sources {
    /// Whether requests come in here.
    pub has_gateway: bool,
    /// Those who are asked.
    pub peers: Option<Peers>,
    /// The gate that proxies ask.
    pub checks: Option<Checks>,
    /// What others are told of the replicas.
    pub published: Option<Published>,
}

struct State {
    gate: Gate,
    /// One for each permit that has to wait, or had to.
    waits: Slab<Wait>,
    /// The wait of a ticket that outputs may name, by the ticket's key.
    waits_by_key: Vec<usize>,
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

/// How far a request that had to wait has come.
#[derive(Debug)]
enum Wait {
    Queued(Option<Waker>),
    Granted(Bound),
    Refused(Refusal),
}

/// What a ticket has at once.
#[derive(Clone, Copy, Debug)]
enum Seat {
    Bound(Bound),
    /// The index of its wait.
    Waits(usize),
}

impl Fleet {
    /// Builds a fleet around its gate, which a gateway of ours feeds and nobody else.
    #[must_use]
    pub fn new(name: &str, clock: Clock, gate: Gate, board: Board) -> Arc<Self> {
        let sources = Sources {
            has_gateway: true,
            ..Sources::default()
        };
        Self::with_sources(name, clock, gate, board, sources)
    }

    /// Builds a fleet that is measured by our gateway, by its peers, or by both, or that proxies ask
    /// about.
    #[must_use]
    pub fn with_sources(
        name: &str,
        clock: Clock,
        gate: Gate,
        board: Board,
        sources: Sources,
    ) -> Arc<Self> {
        let Sources {
            has_gateway,
            peers,
            checks,
            published,
        } = sources;
        Arc::new(Self {
            name: name.into(),
            clock,
            state: Mutex::new(State {
                gate,
                waits: Slab::new(),
                waits_by_key: Vec::new(),
                replicas: BTreeMap::new(),
                drained: Vec::new(),
            }),
            board: Mutex::new(board),
            timings: Timings::default(),
            health: SharedHealth::default(),
            changed: Notify::new(),
            has_gateway,
            peers,
            checks,
            published,
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

    /// Tells whether requests come in here.
    #[must_use]
    pub fn has_gateway(&self) -> bool {
        self.has_gateway
    }

    /// Returns those who are asked about this fleet.
    #[must_use]
    pub fn peers(&self) -> Option<&Peers> {
        self.peers.as_ref()
    }

    /// Returns the gate that proxies ask.
    #[must_use]
    pub fn checks(&self) -> Option<&Checks> {
        self.checks.as_ref()
    }

    /// Returns what others are told of the replicas that our target starts.
    #[must_use]
    pub fn published(&self) -> Option<&Published> {
        self.published.as_ref()
    }

    /// Tells whether each replica is known by itself: our gateway or our target has them.
    #[must_use]
    pub fn knows_replicas(&self) -> bool {
        self.has_gateway || self.published.is_some()
    }

    /// Takes what a peer told; the control loop hears of a first request at zero.
    pub fn on_peer<T>(&self, take: impl FnOnce(&Peers) -> T) -> Option<T> {
        let peers = self.peers.as_ref()?;
        let taken = take(peers);
        if peers.has_load(self.clock.now()) || self.holds_calls() {
            self.changed.notify_one();
        }
        Some(taken)
    }

    /// Lets a request in, to wait or to be served at once; or refuses it.
    ///
    /// # Errors
    /// The refusal, with its reason and when to come again.
    pub fn arrive(self: &Arc<Self>, arrival: Arrival) -> Result<Permit, Refusal> {
        let now = self.clock.now();
        let (ticket, seat, must_tell) = self.with_gate(|state, wakers| {
            let timeout_before = state.gate.poll_timeout();
            let ticket = state.gate.on_arrival(now, arrival);
            // Before the ticket is seated: its key may be that of a request just refused.
            state.settle(wakers);
            let ticket = ticket?;
            let seat = state.seat(ticket);
            let timeout = state.gate.poll_timeout();
            let is_earlier = timeout.is_some_and(|at| timeout_before.is_none_or(|old| at < old));
            Ok((ticket, seat, is_earlier || matches!(seat, Seat::Waits(_))))
        })?;
        if must_tell {
            self.changed.notify_one();
        }
        Ok(Permit::new(Arc::clone(self), ticket, seat, now))
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
        self.with_gate(|state, _| state.gate.on_timeout(now));
    }

    /// Tells the gate of a replica's address and state.
    pub fn set_endpoint(&self, replica: ReplicaId, address: SocketAddr, endpoint: ReplicaState) {
        let now = self.clock.now();
        self.with_gate(|state, _| {
            state.replicas.insert(
                replica,
                Replica {
                    address,
                    state: endpoint,
                },
            );
            state.gate.set_endpoint(now, replica, endpoint);
        });
    }

    /// Takes a replica away. Requests it holds end when their connections do.
    pub fn remove_endpoint(&self, replica: ReplicaId) {
        let now = self.clock.now();
        self.with_gate(|state, _| {
            state.gate.remove_endpoint(now, replica);
            state.replicas.remove(&replica);
        });
    }

    /// Takes other settings of the gate; nobody in flight is lost to it.
    pub fn configure(&self, config: GateConfig, forgets_sessions: bool) {
        let now = self.clock.now();
        self.with_gate(|state, _| {
            state.gate.configure(now, config);
            if forgets_sessions {
                state.gate.on_restart(now);
            }
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
        let state = self.lock();
        let serves = |replica: &Replica| replica.state != ReplicaState::Draining;
        let now = self.clock.now();
        let has_load = |peers: &Peers| peers.has_load(now);
        let waits_elsewhere = || self.peers.as_ref().is_some_and(has_load);
        let waits = state.gate.queued() > 0 || waits_elsewhere() || self.is_called_at_zero();
        waits && !state.replicas.values().any(serves)
    }

    /// Tells whether anything is known to be in flight at this moment, here or at a peer, or a call
    /// at the gate that proxies ask keeps a replica.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        let load = self.load();
        let is_in_use_elsewhere = |peers: &Peers| {
            let levels = peers.levels();
            peers.has_load(self.clock.now())
                || levels.in_flight.is_some_and(|in_flight| in_flight > 0.0)
        };
        let is_called = self.checks.as_ref().is_some_and(Checks::is_called);
        let is_in_use_elsewhere = self.peers.as_ref().is_some_and(is_in_use_elsewhere);
        load.executing + load.queued > 0 || is_in_use_elsewhere || is_called
    }

    /// Returns a ready replica, for requests that are not counted: the one that `draw` falls on,
    /// and the one to avoid only if there is no other.
    #[must_use]
    pub fn any_ready(&self, draw: u64, avoid: Option<ReplicaId>) -> Option<Bound> {
        let state = self.lock();
        let ready = || {
            let replicas = state.replicas.iter();
            replicas.filter(|(_, replica)| replica.state == ReplicaState::Ready)
        };
        let count = ready().filter(|&(&id, _)| Some(id) != avoid).count();
        let (&id, _) = match draw.checked_rem(u64::try_from(count).unwrap_or(u64::MAX)) {
            None => ready().next()?,
            Some(nth) => ready()
                .filter(|&(&id, _)| Some(id) != avoid)
                .nth(usize::try_from(nth).unwrap_or(0))?,
        };
        state.bound(id)
    }

    /// Tells whether a request that a replica may have seen can be sent again, and counts that.
    #[must_use]
    pub fn take_retry(&self) -> bool {
        let now = self.clock.now();
        self.with_gate(|state, _| state.gate.take_retry(now))
    }

    /// Tells whether a replica is one of this fleet's, in whatever state.
    #[must_use]
    pub fn knows(&self, replica: ReplicaId) -> bool {
        self.lock().replicas.contains_key(&replica)
    }

    /// Reads the load for the scaler, with the moment that it is of.
    ///
    /// The clock is read under the lock: a reading that is dated even a microsecond before its
    /// totals makes the mean of one sequential client more than one.
    #[must_use]
    pub fn observe(&self) -> (Timestamp, Observation) {
        let (now, own) = self.with_gate(|state, _| {
            let now = self.clock.now();
            (now, state.gate.observe(now))
        });
        let ours = (self.published.as_ref()).filter(|_| !self.has_gateway);
        let ours = ours.map(|published| (published, own.replicas.clone()));
        let mut observation = match &self.peers {
            Some(peers) => peers.sum(now, self.has_gateway.then_some(own)),
            None => own,
        };
        // Who starts the replicas knows more of them than who sends them requests.
        if let Some((published, mut replicas)) = ours {
            published.add_to(&mut replicas);
            observation.replicas = replicas;
        }
        if let Some(checks) = &self.checks {
            let is_routed = (self.peers.as_ref()).is_none_or(|peers| peers.is_routed(now));
            checks.on_reading(now, &mut observation, is_routed);
        }
        (now, observation)
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
        (
            state.gate.load(now),
            ReplicaCounts::of(state.replicas.values()),
        )
    }

    /// Returns what the gate has counted and which sessions it knows, for a later process of ours.
    #[must_use]
    pub fn export(&self) -> PastGate {
        let now = self.clock.now();
        self.lock().gate.export(now)
    }

    /// Lets the requests that wait go to a successor of ours, each on its own, as long as no replica
    /// is ready here: it starts those that there will be.
    pub fn send_on(&self, successor: SocketAddr) {
        let now = self.clock.now();
        self.with_gate(|state, _| {
            let is_here = |replica: &Replica| {
                replica.state == ReplicaState::Ready && replica.address != successor
            };
            if state.replicas.values().any(is_here) {
                return;
            }
            // Numbers of replicas grow from zero, these from the other end.
            let sent_on = state.replicas.values().filter(|it| it.address == successor);
            let first = u64::try_from(sent_on.count()).unwrap_or(u64::MAX);
            for more in (first..).take(state.gate.queued()) {
                let id = ReplicaId(u64::MAX - more);
                let replica = Replica {
                    address: successor,
                    state: ReplicaState::Ready,
                };
                state.replicas.insert(id, replica);
                state.gate.set_endpoint(now, id, ReplicaState::Ready);
            }
        });
    }

    /// Publishes a decision: the gate learns whether the fleet is at its maximum.
    pub fn on_decision(&self, decision: &Decision) {
        let now = self.clock.now();
        self.with_gate(|state, _| state.gate.on_decision(now, decision));
        if let Some(checks) = &self.checks {
            checks.on_decision(now, decision);
        }
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

    /// Tells whether new sessions are let in, here or where proxies ask.
    #[must_use]
    pub fn admission_open(&self) -> bool {
        match &self.checks {
            Some(checks) => checks.load().is_open,
            None => self.load().admission_open,
        }
    }

    /// Tells whether calls wait at the gate that proxies ask.
    #[must_use]
    pub fn holds_calls(&self) -> bool {
        self.checks.as_ref().is_some_and(Checks::has_held)
    }

    fn is_called_at_zero(&self) -> bool {
        self.checks.as_ref().is_some_and(Checks::waits_at_zero)
    }

    /// Runs `act` on the state, then hands out what the gate put out, then wakes those concerned.
    fn with_gate<T>(&self, act: impl FnOnce(&mut State, &mut Vec<Waker>) -> T) -> T {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        let result = act(&mut state, &mut wakers);
        state.settle(&mut wakers);
        let has_drained = !state.drained.is_empty();
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

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("name", &self.name)
            .finish_non_exhaustive()
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
    /// Finds out what a ticket has at once, or gives it a wait.
    fn seat(&mut self, ticket: Ticket) -> Seat {
        let granted = self.gate.granted(ticket);
        if let Some(bound) = granted.and_then(|replica| self.bound(replica)) {
            return Seat::Bound(bound);
        }
        let wait = self.waits.insert(Wait::Queued(None));
        if self.waits_by_key.len() <= ticket.key() {
            self.waits_by_key.resize(ticket.key() + 1, usize::MAX);
        }
        self.waits_by_key[ticket.key()] = wait;
        Seat::Waits(wait)
    }

    fn bound(&self, replica: ReplicaId) -> Option<Bound> {
        let address = self.replicas.get(&replica)?.address;
        Some(Bound { replica, address })
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
            let index = self.waits_by_key.get(ticket.key()).copied();
            // Without a place its request ended in this very call, and nobody asks any more.
            let Some(place) = index.and_then(|index| self.waits.get_mut(index)) else {
                continue;
            };
            if let Wait::Queued(Some(waker)) = std::mem::replace(place, wait) {
                wakers.push(waker);
            }
        }
    }
}
