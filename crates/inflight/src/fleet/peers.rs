//! What others tell of this fleet, and what that comes to: other instances that count it, with this
//! one's own count; or proxies and servers that are read.
//!
//! The source writes, the control loop takes the sum, the API looks. Nobody waits under the lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inflight_core::load::{
    Answer, Answers, Counted, InstanceId, Measured, MeasuredBy, Observation, Patience, PeerId,
    PeerView, ProxyReading, ServerReading, Standing, Sum, Term,
};
use inflight_core::{Occupancy, Replicas, Timestamp};

/// How long a peer that does not answer keeps its part: as long as a reading is fresh.
const STALE: Duration = Duration::from_secs(30);

/// The peers of one fleet: those who are asked about it.
#[derive(Debug)]
pub struct Peers {
    state: Mutex<State>,
}

/// What a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// Another instance of ours.
    Instance,
    /// A proxy before the fleet.
    Envoy,
    /// Servers of the fleet.
    Triton,
    /// The same.
    Vllm,
    /// The same, by configured names.
    Custom,
    /// A monitoring system that is asked queries.
    Prometheus,
}

/// Who makes one reading of many.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each fleet")]
enum Join {
    /// Adds up what instances counted; `instance` is ours.
    Sum { instance: InstanceId, sum: Sum },
    /// Joins what proxies and servers tell.
    Measured(Measured),
    /// Keeps the latest answers of queries.
    Answers(Answers),
}

#[derive(Debug)]
struct State {
    join: Join,
    rows: BTreeMap<PeerId, Row>,
    next: u64,
    /// The moments that the latest sum is of, by who told its parts.
    summed: Vec<(PeerKind, Timestamp)>,
    ready: Option<Replicas>,
    levels: Levels,
}

#[derive(Debug)]
struct Row {
    kind: PeerKind,
    address: String,
    /// Why the last question was not answered.
    failure: Option<String>,
    /// Requests queued at its instance when it was read.
    queued: f64,
}

/// Requests at the moment of the latest sum; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Levels {
    /// Requests begun and not ended.
    pub in_flight: Option<f64>,
    /// Requests that a replica works on.
    pub executing: Option<f64>,
    /// Requests that wait for a slot.
    pub queued: Option<f64>,
}

/// A peer as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRow {
    /// What it is.
    pub kind: PeerKind,
    /// Where it is asked.
    pub address: String,
    /// How it stands, by what it told.
    pub view: PeerView,
    /// Why the last question was not answered; `None` when it was.
    pub failure: Option<String>,
}

impl Peers {
    /// Builds the instances that count a fleet with so many models, of which none is known;
    /// `instance` is ours.
    #[must_use]
    pub fn new(instance: InstanceId, model_count: usize) -> Self {
        let sum = Sum::new(model_count, STALE);
        Self::join(Join::Sum { instance, sum })
    }

    /// Builds the proxies and servers that are read, of which none is known.
    #[must_use]
    pub const fn measured(by: MeasuredBy) -> Self {
        Self::join(Join::Measured(Measured::new(by)))
    }

    /// Builds a monitoring system that is asked queries and answered none; how long it may be
    /// silent.
    #[must_use]
    pub const fn queried(patience: Patience) -> Self {
        Self::join(Join::Answers(Answers::new(patience)))
    }

    const fn join(join: Join) -> Self {
        Self {
            state: Mutex::new(State {
                join,
                rows: BTreeMap::new(),
                next: 0,
                summed: Vec::new(),
                ready: None,
                levels: Levels {
                    in_flight: None,
                    executing: None,
                    queued: None,
                },
            }),
        }
    }

    /// Adds a peer that is asked at `address`.
    pub fn add(&self, kind: PeerKind, address: &str) -> PeerId {
        let mut state = self.lock();
        let id = PeerId(state.next);
        state.next += 1;
        match (&mut state.join, kind) {
            (Join::Sum { sum, .. }, _) => sum.add_peer(id),
            (Join::Measured(measured), PeerKind::Envoy) => measured.add_proxy(id),
            (Join::Measured(measured), _) => measured.add_server(id),
            (Join::Answers(answers), _) => answers.set_peer(Some(id)),
        }
        let row = Row {
            kind,
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
        match &mut state.join {
            Join::Sum { sum, .. } => sum.remove_peer(peer),
            Join::Measured(measured) => measured.remove_peer(peer),
            Join::Answers(answers) => answers.set_peer(None),
        }
        state.rows.remove(&peer);
    }

    /// Takes what a peer had counted at `at`.
    pub fn on_reading(&self, at: Timestamp, peer: PeerId, counted: &Counted) {
        let mut state = self.lock();
        if let Join::Sum { sum, .. } = &mut state.join {
            sum.on_reading(at, peer, counted);
        }
        if let Some(row) = state.rows.get_mut(&peer) {
            row.failure = None;
            row.queued = counted.models.iter().map(|model| model.queued).sum();
        }
    }

    /// Takes what a proxy told at `at`.
    pub fn on_proxy(&self, at: Timestamp, peer: PeerId, reading: &ProxyReading) {
        self.on_measured(peer, |measured| {
            measured.on_proxy(at, peer, reading);
            true
        });
    }

    /// Takes what a server told at `at`, and tells whether it was one server.
    #[must_use]
    pub fn on_server(&self, at: Timestamp, peer: PeerId, reading: &ServerReading) -> bool {
        self.on_measured(peer, |measured| measured.on_server(at, peer, reading))
    }

    /// Takes what queries were answered with at `at`. Only one that is whole ends a failure: a
    /// query that has no number would else be told anew at every reading.
    pub fn on_answer(&self, at: Timestamp, peer: PeerId, answer: Answer, is_whole: bool) {
        let mut state = self.lock();
        if let Join::Answers(answers) = &mut state.join {
            answers.on_answer(at, answer);
        }
        if is_whole && let Some(row) = state.rows.get_mut(&peer) {
            row.failure = None;
        }
    }

    fn on_measured(&self, peer: PeerId, take: impl FnOnce(&mut Measured) -> bool) -> bool {
        let mut state = self.lock();
        let is_taken = match &mut state.join {
            Join::Measured(measured) => take(measured),
            Join::Sum { .. } | Join::Answers(_) => true,
        };
        if is_taken && let Some(row) = state.rows.get_mut(&peer) {
            row.failure = None;
        }
        is_taken
    }

    /// Forgets the proxies and servers that were read; others are to be read, and otherwise.
    pub fn measure_by(&self, by: MeasuredBy) {
        self.rejoin(Join::Measured(Measured::new(by)));
    }

    /// Forgets what queries were answered with; others may be asked, of another.
    pub fn query_by(&self, patience: Patience) {
        self.rejoin(Join::Answers(Answers::new(patience)));
    }

    fn rejoin(&self, join: Join) {
        let mut state = self.lock();
        state.join = join;
        state.rows.clear();
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
                kind: row.kind,
                address: row.address.clone(),
                view: match &state.join {
                    Join::Sum { sum, .. } => sum.peer(now, id),
                    Join::Measured(measured) => measured.peer(now, id),
                    Join::Answers(answers) => answers.peer(now, id),
                }?,
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

    /// Returns how old the latest sum is; `None` before the first and while it is unknown.
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        let ages = self.ages(now);
        ages.into_iter().map(|(_, age)| age).max()
    }

    /// Returns how old the parts of the latest sum are that are known, by who told them.
    #[must_use]
    pub fn ages(&self, now: Timestamp) -> Vec<(PeerKind, Duration)> {
        let state = self.lock();
        let summed = state.summed.iter();
        summed.map(|&(kind, at)| (kind, now.since(at))).collect()
    }

    /// Returns what was in flight by the latest sum.
    #[must_use]
    pub fn levels(&self) -> Levels {
        self.lock().levels
    }

    /// Returns how many replicas are ready by the latest sum; `None` is unknown.
    #[must_use]
    pub fn ready(&self) -> Option<Replicas> {
        self.lock().ready
    }

    /// Tells whether there are requests that a fleet at zero wakes for.
    pub(super) fn has_load(&self, now: Timestamp) -> bool {
        let state = self.lock();
        match &state.join {
            Join::Sum { .. } => state.rows.values().any(|row| row.queued > 0.0),
            Join::Measured(measured) => measured.has_load(now),
            Join::Answers(answers) => answers.has_load(),
        }
    }

    /// Tells whether every proxy that is read routes to a replica.
    pub(super) fn is_routed(&self, now: Timestamp) -> bool {
        match &self.lock().join {
            Join::Sum { .. } | Join::Answers(_) => true,
            Join::Measured(measured) => measured.is_routed_everywhere(now),
        }
    }

    /// Adds up: the peers, and this instance's own observation if it has a gateway.
    pub(super) fn sum(&self, now: Timestamp, own: Option<Observation>) -> Observation {
        let mut state = self.lock();
        let observation = match &mut state.join {
            Join::Sum { instance, sum } => sum.observe(now, own.map(|own| (*instance, own))),
            Join::Measured(measured) => measured.observe(now),
            Join::Answers(answers) => answers.observe(now),
        };
        state.summed = state.summed(now, &observation);
        state.ready = observation.replicas.ready().known();
        state.levels = levels(&observation);
        observation
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the moments of what is known, by who told it.
    fn summed(&self, now: Timestamp, observation: &Observation) -> Vec<(PeerKind, Timestamp)> {
        let Some(load) = observation.models.first() else {
            return Vec::new();
        };
        let counts = matches!(self.join, Join::Sum { .. });
        let kinds = counts.then_some(PeerKind::Instance).into_iter();
        let kinds = kinds.chain(self.rows.values().map(|row| row.kind));
        let of = |kind: &PeerKind| match kind {
            PeerKind::Instance => load.arrivals,
            PeerKind::Envoy => load.in_flight.integral,
            PeerKind::Triton | PeerKind::Vllm | PeerKind::Custom => load.executing.integral,
            PeerKind::Prometheus => match observation.metric {
                metric @ Term::Known { .. } => metric,
                Term::Unknown(_) => load.in_flight.now.map(Occupancy::get),
            },
        };
        let mut summed: Vec<(PeerKind, Timestamp)> = Vec::new();
        for kind in kinds {
            if let Term::Known { age, .. } = of(&kind)
                && summed.iter().all(|&(known, _)| known != kind)
            {
                summed.push((kind, now - age));
            }
        }
        summed
    }
}

fn levels(observation: &Observation) -> Levels {
    let mut levels = Levels {
        in_flight: Some(0.0),
        executing: Some(0.0),
        queued: Some(0.0),
    };
    for load in &observation.models {
        for (total, level) in [
            (&mut levels.in_flight, load.in_flight),
            (&mut levels.executing, load.executing),
            (&mut levels.queued, load.queued),
        ] {
            let level = level.now.known().map(Occupancy::get);
            *total = total.zip(level).map(|(total, level)| total + level);
        }
    }
    levels
}

impl PeerKind {
    /// Returns the name that it has in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instance => "inflight",
            Self::Envoy => "envoy",
            Self::Triton => "triton",
            Self::Vllm => "vllm",
            Self::Custom => "custom",
            Self::Prometheus => "prometheus",
        }
    }
}

#[cfg(test)]
mod tests {
    use inflight_core::load::Missing;

    use super::*;

    const PATIENCE: Patience = Patience {
        late: Duration::from_secs(15),
        stale: Duration::from_secs(30),
    };

    const fn answer(metric: f64, replicas: Result<f64, Missing>) -> Answer {
        Answer::Metric {
            metric: Ok(metric),
            replicas,
        }
    }

    #[test]
    fn a_query_without_a_number_is_told_once_and_again_after_a_whole_answer() {
        let peers = Peers::queried(PATIENCE);
        let peer = peers.add(PeerKind::Prometheus, "127.0.0.1:9090");
        let partly = answer(3.0, Err(Missing::NoRow));
        let fails = || peers.on_failure(peer, "replicas: the answer is empty".to_owned());
        peers.on_answer(Timestamp::ORIGIN, peer, partly, false);
        assert!(fails());
        peers.on_answer(Timestamp::ORIGIN, peer, partly, false);
        assert!(!fails(), "it did not answer before");
        assert!(peers.rows(Timestamp::ORIGIN)[0].failure.is_some());
        peers.on_answer(Timestamp::ORIGIN, peer, answer(3.0, Ok(1.0)), true);
        assert_eq!(peers.rows(Timestamp::ORIGIN)[0].failure, None);
        assert!(fails());
    }

    #[test]
    fn what_other_queries_were_answered_with_is_unknown_after_they_changed() {
        let peers = Peers::queried(PATIENCE);
        let peer = peers.add(PeerKind::Prometheus, "127.0.0.1:9090");
        peers.on_answer(Timestamp::ORIGIN, peer, answer(3.0, Ok(1.0)), true);
        let metric = || peers.sum(Timestamp::ORIGIN, None).metric.known();
        assert_eq!(metric(), Some(3.0));
        peers.query_by(PATIENCE);
        assert_eq!(metric(), None);
        assert_eq!(peers.rows(Timestamp::ORIGIN), []);
    }
}
