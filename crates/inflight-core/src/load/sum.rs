//! One fleet counted by several instances: the sum of their exact counters.
//!
//! What is added up are the counters of *instances*, by the id that each has from its start, not
//! those of addresses: an instance that is read by two addresses counts once, several behind one
//! address count each. The integrals over time are exact, so that the sum's means are, whatever the
//! moments of reading were: the sum is that of one common moment, to which every part is
//! interpolated between its readings.
//!
//! What was not seen is held, never zero: an instance that does not answer goes on at its latest
//! rates until it is lost; one that restarted counts on from zero, without what nobody saw. Nothing
//! that was added is ever taken off again, so the sum never falls. Maxima per bucket are not summed:
//! two gateways have theirs at different moments.

mod part;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::freshness::{Estimator, Missing, Term};
use super::observation::{Level, ModelLoad, Observation, ReplicaView};
use crate::time::Timestamp;
use crate::units::{Occupancy, Replicas};

use part::{ARRIVALS, COMPLETIONS, EXECUTING, IN_FLIGHT, Part, QUEUED, SERVICE, Totals};

/// How long the sum waits for a part before it goes on without: three readings, one a second.
const LATE: Duration = Duration::from_secs(3);

/// How much later than it seems an instance may have started.
const START_SLACK: Duration = Duration::from_millis(500);

/// Instances that are added up at most; more are a fault of an address that gives a new one at every
/// reading.
const PARTS_MAX: usize = 1_000;

/// One run of one instance: drawn anew at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// Somebody who is asked for the counters of the instance behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// What one instance has counted of a fleet up to one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Which run of which instance.
    pub instance: InstanceId,
    /// How long that run has lasted.
    pub uptime: Duration,
    /// How many replicas it sees ready; `None` where it does not tell.
    pub ready: Option<Replicas>,
    /// One row for each model, in the order of the configuration.
    pub models: Vec<ModelCounts>,
}

/// The counters of one model; the totals are cumulative from the instance's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelCounts {
    /// Requests executing at that moment.
    pub executing: f64,
    /// Requests queued at that moment.
    pub queued: f64,
    /// ∫ executing. *Units*: request-seconds.
    pub executing_seconds: f64,
    /// ∫ queued. *Units*: request-seconds.
    pub queued_seconds: f64,
    /// Requests that arrived.
    pub arrivals: f64,
    /// Requests that ended after a replica had worked on them.
    pub completions: f64,
    /// Time executing, summed over the completions. *Units*: seconds.
    pub service_seconds: f64,
}

/// How a peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was read, and in time.
    Read,
    /// It does not answer; what it said last is held.
    Held,
    /// It has not answered for so long, or never, that its part is unknown.
    Lost,
}

/// A peer as it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerView {
    /// How it stands.
    pub standing: Standing,
    /// How long ago it was read; `None`: never.
    pub age: Option<Duration>,
    /// Requests in flight at its instance when it was read, unless it is lost.
    pub in_flight: Option<f64>,
    /// The instance it is.
    pub instance: Option<InstanceId>,
}

/// The sum over the instances that count one fleet.
#[derive(Clone, Debug)]
pub struct Sum {
    model_count: usize,
    stale: Duration,
    peers: BTreeMap<PeerId, Peer>,
    parts: BTreeMap<InstanceId, Part>,
    /// What parts that are gone had added.
    departed: Vec<Totals>,
    /// The moment of the latest sum.
    summed_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    read: Option<(Timestamp, InstanceId)>,
}

impl Sum {
    /// Starts a sum to which nobody has added. A part that was not read for longer than `stale` is
    /// unknown.
    #[must_use]
    pub fn new(model_count: usize, stale: Duration) -> Self {
        Self {
            model_count,
            stale,
            peers: BTreeMap::new(),
            parts: BTreeMap::new(),
            departed: vec![Totals::default(); model_count],
            summed_at: None,
        }
    }

    /// Expects readings of a peer: until it was read, and when it is lost, the sum is partial.
    pub fn add_peer(&mut self, peer: PeerId) {
        self.peers.entry(peer).or_default();
    }

    /// Expects no more of a peer. What it said last is held as long as that of one that does not
    /// answer, and then forgotten.
    pub fn remove_peer(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
    }

    /// Takes what a peer's instance had counted at `at`.
    pub fn on_reading(&mut self, at: Timestamp, peer: PeerId, counted: &Counted) {
        let Some(known) = self.peers.get_mut(&peer) else {
            return;
        };
        let before = known.read.replace((at, counted.instance));
        if let Some((read_at, instance)) = before
            && instance != counted.instance
        {
            self.on_another_instance(at, read_at, instance, counted);
        }
        self.add(at, counted);
    }

    /// Reads the sum, of this instance too if it counts requests itself: its observation is of
    /// `now`.
    ///
    /// How many replicas are ready is what `own` says or, without it, the most that any peer sees:
    /// all route to the same replicas.
    pub fn observe(
        &mut self,
        now: Timestamp,
        own: Option<(InstanceId, Observation)>,
    ) -> Observation {
        let own = own.map(|(instance, observation)| {
            self.add(now, &counted(instance, &observation));
            observation
        });
        self.forget_gone(now);
        let at = self.common_moment(now);
        for part in self.parts.values_mut() {
            part.hold_until(at);
        }
        let replicas = own.as_ref().map_or_else(
            || ReplicaView::Ready(self.most_ready(now)),
            |own| own.replicas.clone(),
        );
        Observation {
            models: (0..self.model_count)
                .map(|model| self.model(now, at, model))
                .collect(),
            replicas,
            peak_seconds: Term::Unknown(Missing::NotOffered),
            started: own.map(|own| own.started).unwrap_or_default(),
            metric: Term::Unknown(Missing::NotOffered),
            is_called: false,
            filled: Term::Unknown(Missing::NotOffered),
            is_partial: self.peers.values().any(|peer| self.is_lost(now, *peer)),
        }
    }

    /// Returns how a peer stands.
    #[must_use]
    pub fn peer(&self, now: Timestamp, peer: PeerId) -> Option<PeerView> {
        let peer = self.peers.get(&peer)?;
        let age = peer.read.map(|(at, _)| now.since(at));
        let instance = peer.read.map(|(_, instance)| instance);
        let standing = match age {
            Some(age) if age <= LATE => Standing::Read,
            Some(age) if age <= self.stale => Standing::Held,
            Some(_) | None => Standing::Lost,
        };
        let part = instance.and_then(|instance| self.parts.get(&instance));
        let in_flight = part
            .filter(|_| standing != Standing::Lost)
            .map(Part::in_flight);
        Some(PeerView {
            standing,
            age,
            in_flight,
            instance,
        })
    }

    /// An address answers for another instance than before: one that started since is the same one
    /// restarted, so the old one is gone; else both are behind that address.
    fn on_another_instance(
        &mut self,
        at: Timestamp,
        read_at: Timestamp,
        old: InstanceId,
        counted: &Counted,
    ) {
        let is_read_elsewhere = self
            .peers
            .values()
            .any(|peer| peer.read.is_some_and(|(_, instance)| instance == old));
        // Spans are compared, since points in time end at the start of our own clock.
        let is_older = counted.uptime > at.since(read_at) + START_SLACK;
        if is_read_elsewhere || is_older {
            return;
        }
        let started = at - counted.uptime;
        if let Some(part) = self.parts.get_mut(&old) {
            part.end(started);
        }
        // Whoever started since the last reading has counted nothing before.
        self.parts
            .entry(counted.instance)
            .or_insert_with(|| Part::from_zero(started, self.model_count));
    }

    fn add(&mut self, at: Timestamp, counted: &Counted) {
        if self.parts.len() >= PARTS_MAX && !self.parts.contains_key(&counted.instance) {
            return;
        }
        self.parts
            .entry(counted.instance)
            .or_insert_with(|| Part::from_reading(at, self.model_count))
            .record(at, counted);
    }

    /// Keeps only what the parts had added that are lost, or that ended before the latest sum.
    fn forget_gone(&mut self, now: Timestamp) {
        let (stale, summed_at) = (self.stale, self.summed_at);
        let is_gone = |part: &Part| {
            let has_ended = part.has_ended() && summed_at.is_some_and(|at| at >= part.newest_at());
            has_ended || now.since(part.read_at()) > stale
        };
        let gone: Vec<_> = self.parts.extract_if(.., |_, part| is_gone(part)).collect();
        for (_, part) in gone {
            self.depart(&part);
        }
    }

    /// Returns the parts that still run.
    fn running(&self) -> impl Iterator<Item = &Part> + Clone {
        self.parts.values().filter(|part| !part.has_ended())
    }

    fn depart(&mut self, part: &Part) {
        for (model, departed) in self.departed.iter_mut().enumerate() {
            departed.add(&part.newest(model));
        }
    }

    /// Returns the moment of the sum: the latest at which no part has to be guessed, but for those
    /// that are late. It never goes back.
    fn common_moment(&mut self, now: Timestamp) -> Timestamp {
        let read = self.running().map(Part::read_at);
        let in_time = read.clone().filter(|&at| now.since(at) <= LATE).min();
        // When all are late there is no moment to go to.
        let at = in_time.or(self.summed_at).or(read.max()).unwrap_or(now);
        let at = self.summed_at.map_or(at, |before| before.max(at));
        self.summed_at = Some(at);
        at
    }

    fn model(&self, now: Timestamp, at: Timestamp, model: usize) -> ModelLoad {
        let Some(read_at) = self.running().map(Part::read_at).min() else {
            let missing = Missing::NeverRead;
            return unknown(
                self.summed_at
                    .map_or(missing, |at| Missing::Stale { age: now.since(at) }),
            );
        };
        let mut totals = self.departed.get(model).copied().unwrap_or_default();
        let (mut executing, mut queued) = (0.0, 0.0);
        for part in self.parts.values() {
            totals.add(&part.at(at, model));
        }
        for level in self.running().map(|part| part.level(model)) {
            executing += level.executing;
            queued += level.queued;
        }
        let total = |index| known(totals.get(index), now.since(at));
        let level = |value, index| Level {
            now: Occupancy::new(value).map_or(Term::Unknown(Missing::NotANumber), |value| {
                known(value, now.since(read_at))
            }),
            integral: total(index),
        };
        ModelLoad {
            in_flight: level(executing + queued, IN_FLIGHT),
            executing: level(executing, EXECUTING),
            queued: level(queued, QUEUED),
            arrivals: total(ARRIVALS),
            completions: total(COMPLETIONS),
            service_seconds: total(SERVICE),
            in_flight_max: Term::Unknown(Missing::NotOffered),
        }
    }

    fn most_ready(&self, now: Timestamp) -> Term<Replicas> {
        let seen = self
            .running()
            .filter_map(|part| Some((part.ready()?, part.read_at())));
        // The youngest of those that see the most.
        seen.max()
            .map_or(Term::Unknown(Missing::NeverRead), |(ready, at)| {
                known(ready, now.since(at))
            })
    }

    fn is_lost(&self, now: Timestamp, peer: Peer) -> bool {
        peer.read.is_none_or(|(at, _)| now.since(at) > self.stale)
    }
}

fn known<T>(value: T, age: Duration) -> Term<T> {
    let estimator = Estimator::Exact;
    Term::Known {
        value,
        age,
        estimator,
    }
}

fn unknown(missing: Missing) -> ModelLoad {
    let level = Level {
        now: Term::Unknown(missing),
        integral: Term::Unknown(missing),
    };
    ModelLoad {
        in_flight: level,
        executing: level,
        queued: level,
        arrivals: Term::Unknown(missing),
        completions: Term::Unknown(missing),
        service_seconds: Term::Unknown(missing),
        in_flight_max: Term::Unknown(Missing::NotOffered),
    }
}

/// This instance's own observation, as the counters of a part.
fn counted(instance: InstanceId, own: &Observation) -> Counted {
    let total = |term: Term<f64>| term.known().unwrap_or(0.0);
    let level = |term: Term<Occupancy>| term.known().map_or(0.0, Occupancy::get);
    let counts = |load: &ModelLoad| ModelCounts {
        executing: level(load.executing.now),
        queued: level(load.queued.now),
        executing_seconds: total(load.executing.integral),
        queued_seconds: total(load.queued.integral),
        arrivals: total(load.arrivals),
        completions: total(load.completions),
        service_seconds: total(load.service_seconds),
    };
    Counted {
        instance,
        uptime: Duration::MAX,
        ready: own.replicas.ready().known(),
        models: own.models.iter().map(counts).collect(),
    }
}
