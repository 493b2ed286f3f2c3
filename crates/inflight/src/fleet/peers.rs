//! What other instances count of this fleet, and this one's sum with them.
//!
//! The source writes, the control loop takes the sum, the API looks. Nobody waits under the lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inflight_core::load::{
    Counted, InstanceId, ModelCounts, Observation, PeerId, PeerView, Standing, Sum, Term,
};
use inflight_core::{Replicas, Timestamp};

/// How long a peer that does not answer keeps its part: as long as a reading is fresh.
const STALE: Duration = Duration::from_secs(30);

/// The peers of one fleet.
#[derive(Debug)]
pub struct Peers {
    instance: InstanceId,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sum: Sum,
    rows: BTreeMap<PeerId, Row>,
    next: u64,
    /// The moment that the latest sum is of.
    summed: Option<Timestamp>,
    ready: Option<Replicas>,
    levels: Option<Levels>,
}

#[derive(Debug)]
struct Row {
    address: String,
    /// Why the last question was not answered.
    failure: Option<String>,
    /// Requests queued at its instance when it was read.
    queued: f64,
}

/// Requests at the moment of the latest sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    /// Requests that a replica works on.
    pub executing: f64,
    /// Requests that wait for a slot.
    pub queued: f64,
}

/// A peer as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRow {
    /// Where it is asked.
    pub address: String,
    /// How it stands, by what it told.
    pub view: PeerView,
    /// Why the last question was not answered; `None` when it was.
    pub failure: Option<String>,
}

impl Peers {
    /// Builds the peers of a fleet with so many models, of which none is known; `instance` is ours.
    #[must_use]
    pub fn new(instance: InstanceId, model_count: usize) -> Self {
        Self {
            instance,
            state: Mutex::new(State {
                sum: Sum::new(model_count, STALE),
                rows: BTreeMap::new(),
                next: 0,
                summed: None,
                ready: None,
                levels: None,
            }),
        }
    }

    /// Adds a peer that is asked at `address`.
    pub fn add(&self, address: &str) -> PeerId {
        let mut state = self.lock();
        let id = PeerId(state.next);
        state.next += 1;
        state.sum.add_peer(id);
        let row = Row {
            address: address.to_owned(),
            failure: None,
            queued: 0.0,
        };
        state.rows.insert(id, row);
        id
    }

    /// Takes a peer off the list.
    pub fn remove(&self, peer: PeerId) {
        let mut state = self.lock();
        state.sum.remove_peer(peer);
        state.rows.remove(&peer);
    }

    /// Takes what a peer had counted at `at`.
    pub fn on_reading(&self, at: Timestamp, peer: PeerId, counted: &Counted) {
        let mut state = self.lock();
        state.sum.on_reading(at, peer, counted);
        if let Some(row) = state.rows.get_mut(&peer) {
            row.failure = None;
            row.queued = counted.models.iter().map(|model| model.queued).sum();
        }
    }

    /// Notes why a peer did not answer. Returns whether it answered before.
    pub fn on_failure(&self, peer: PeerId, why: String) -> bool {
        let mut state = self.lock();
        let row = state.rows.get_mut(&peer);
        row.is_some_and(|row| row.failure.replace(why).is_none())
    }

    /// Returns the peers, as they were added.
    #[must_use]
    pub fn rows(&self, now: Timestamp) -> Vec<PeerRow> {
        let state = self.lock();
        let rows = state.rows.iter().filter_map(|(&id, row)| {
            Some(PeerRow {
                address: row.address.clone(),
                view: state.sum.peer(now, id)?,
                failure: row.failure.clone(),
            })
        });
        rows.collect()
    }

    /// Returns how many peers are not read in time.
    #[must_use]
    pub fn unreachable(&self, now: Timestamp) -> usize {
        let rows = self.rows(now);
        let is_away = |row: &&PeerRow| row.view.standing != Standing::Read;
        rows.iter().filter(is_away).count()
    }

    /// Returns how old the latest sum is; `None` before the first.
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        self.lock().summed.map(|at| now.since(at))
    }

    /// Returns what was in flight by the latest sum; `None` is unknown.
    #[must_use]
    pub fn levels(&self) -> Option<Levels> {
        self.lock().levels
    }

    /// Returns how many replicas are ready by the latest sum; `None` is unknown.
    #[must_use]
    pub fn ready(&self) -> Option<Replicas> {
        self.lock().ready
    }

    /// Tells whether requests wait at a peer.
    pub(super) fn has_queued(&self) -> bool {
        self.lock().rows.values().any(|row| row.queued > 0.0)
    }

    /// Adds up: the peers, and this instance's own observation if it has a gateway.
    pub(super) fn sum(&self, now: Timestamp, own: Option<Observation>) -> Observation {
        let mut state = self.lock();
        let own = own.map(|own| (self.instance, own));
        let observation = state.sum.observe(now, own);
        let first = observation.models.first().map(|load| load.arrivals);
        state.summed = match first {
            Some(Term::Known { age, .. }) => Some(now - age),
            Some(Term::Unknown(_)) | None => None,
        };
        state.ready = observation.replicas.ready().known();
        state.levels = levels(&observation);
        observation
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn levels(observation: &Observation) -> Option<Levels> {
    let mut counts = ModelCounts::default();
    for load in &observation.models {
        counts.executing += load.executing.now.known()?.get();
        counts.queued += load.queued.now.known()?.get();
    }
    Some(Levels {
        executing: counts.executing,
        queued: counts.queued,
    })
}
