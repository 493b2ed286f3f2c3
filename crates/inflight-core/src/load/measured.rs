//! One fleet measured from outside: what proxies count and what servers execute, as one reading.
//!
//! Proxies tell what is in flight, how many replicas are healthy and what they refused; servers tell
//! what they execute. What is in flight is added up over the proxies, what executes over the
//! servers, and as many replicas are healthy as any proxy says, since all of them route to the same.
//! Servers that stand alone tell all of it.
//!
//! What was not seen is never zero. A peer that does not answer goes on as it did, a level at its
//! latest value and a counter at its rate of the last minute, until it is lost; what it counted
//! meanwhile is not counted again when it comes back. Without a proxy that is lost the number in
//! flight is the least there is; servers that are lost are taken to execute like the others. Either
//! may grow a fleet and never shrinks it. With nobody left a term is unknown.

mod flow;
mod proxies;
mod servers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::freshness::{Estimator, Missing, Term};
use super::observation::{Level, ModelLoad, Observation, ReplicaView};
use super::sum::{PeerId, PeerView, Standing};
use crate::time::Timestamp;
use crate::units::{Occupancy, Replicas};

use proxies::Proxies;
use servers::Servers;

pub use proxies::ProxyReading;
pub use servers::{SERIES_MAX, ServerReading, ServerSeries};

/// How a fleet is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredBy {
    /// How the number in flight is got from proxies; `None` where servers stand alone.
    pub proxies: Option<Estimator>,
    /// How the number executing is got from servers.
    pub servers: Estimator,
    /// How long after their latest reading peers are late or lost.
    pub patience: Patience,
}

/// How long a peer may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After this it is taken to go on as it did.
    pub late: Duration,
    /// After this it is lost.
    pub stale: Duration,
}

/// Joins what proxies and servers of one fleet tell.
#[derive(Clone, Debug)]
pub struct Measured {
    by: MeasuredBy,
    proxies: Proxies,
    servers: Servers,
}

impl Measured {
    /// Starts without a peer.
    #[must_use]
    pub const fn new(by: MeasuredBy) -> Self {
        Self {
            by,
            proxies: Proxies::new(),
            servers: Servers::new(),
        }
    }

    /// Expects readings of a proxy: until it was read, and when it is lost, the reading is partial.
    pub fn add_proxy(&mut self, peer: PeerId) {
        self.proxies.add(peer);
    }

    /// Expects readings of a server.
    pub fn add_server(&mut self, peer: PeerId) {
        self.servers.add(peer);
    }

    /// Expects no more of a peer; what it grew by stays.
    pub fn remove_peer(&mut self, peer: PeerId) {
        self.proxies.remove(peer);
        self.servers.remove(peer);
    }

    /// Takes what a proxy told at `at`; what is older than its latest reading changes nothing.
    pub fn on_proxy(&mut self, at: Timestamp, peer: PeerId, reading: &ProxyReading) {
        let by = self.by.proxies.unwrap_or(Estimator::LiveGauge);
        self.proxies
            .on_reading(at, peer, reading, by, self.by.patience);
    }

    /// Takes what a server told at `at`; what is older than its latest reading changes nothing.
    /// Tells whether it was one server: where several answer at one address in turn, counters fall
    /// again and again, and nothing can be made of them.
    pub fn on_server(&mut self, at: Timestamp, peer: PeerId, reading: &ServerReading) -> bool {
        self.servers.on_reading(at, peer, reading, self.by.patience)
    }

    /// Returns how a peer stands.
    #[must_use]
    pub fn peer(&self, now: Timestamp, peer: PeerId) -> Option<PeerView> {
        let told = self.proxies.peer(peer).or_else(|| self.servers.peer(peer));
        let (read_at, in_flight) = told?;
        let standing = self.by.patience.standing(now, read_at);
        Some(PeerView {
            standing,
            age: read_at.map(|at| now.since(at)),
            in_flight: in_flight.filter(|_| standing != Standing::Lost),
            instance: None,
        })
    }

    /// Tells whether a request is in flight, or was refused, by the latest reading of a peer that is
    /// not lost.
    #[must_use]
    pub fn has_load(&self, now: Timestamp) -> bool {
        match self.by.proxies {
            Some(_) => self.proxies.has_load(now, self.by.patience),
            None => self.servers.has_load(now, self.by.patience),
        }
    }

    /// Tells whether proxies are read, and each that is routes to a replica: of others nobody knows.
    /// Where none is before the fleet, whoever sends requests does.
    #[must_use]
    pub fn is_routed_everywhere(&self, now: Timestamp) -> bool {
        self.by.proxies.is_none() || self.proxies.all_route(now, self.by.patience)
    }

    /// Joins what was read into the reading of `now`.
    pub fn observe(&mut self, now: Timestamp) -> Observation {
        let patience = self.by.patience;
        let estimator = self.by.servers;
        let Some(by) = self.by.proxies else {
            let load = self.servers.observe(now, patience, estimator, None);
            let replicas = load.answering;
            return Observation {
                replicas: ReplicaView::Ready(replicas),
                ..observation(load.in_flight, Term::Unknown(Missing::NotOffered), &load)
            };
        };
        let proxied = self.proxies.observe(now, patience, by);
        let healthy = proxied.healthy.known();
        if healthy == Some(Replicas::ZERO) {
            self.servers.on_none(self.proxies.at());
        }
        let load = self.servers.observe(now, patience, estimator, healthy);
        let mut joined = observation(proxied.in_flight, proxied.arrivals, &load);
        joined.replicas = ReplicaView::Ready(proxied.healthy);
        joined.is_partial |= proxied.is_partial;
        joined
    }
}

impl Patience {
    pub(super) fn standing(self, now: Timestamp, read_at: Option<Timestamp>) -> Standing {
        match read_at.map(|at| now.since(at)) {
            Some(age) if age <= self.late => Standing::Read,
            Some(age) if age <= self.stale => Standing::Held,
            Some(_) | None => Standing::Lost,
        }
    }

    /// Returns the moment that a sum over peers is of: the mean of those that were read in time,
    /// at which the sum of linear growth is exact. It never goes back, and stands still while
    /// nobody is read.
    fn moment(
        self,
        now: Timestamp,
        before: Option<Timestamp>,
        read: impl Iterator<Item = Option<Timestamp>>,
    ) -> Option<Timestamp> {
        let (mut ages, mut count) = (Duration::ZERO, 0_u32);
        for read_at in read.filter(|&at| self.standing(now, at) == Standing::Read) {
            ages = ages.saturating_add(now.since(read_at?));
            count = count.saturating_add(1);
        }
        let mean = ages.checked_div(count).map(|age| now - age);
        mean.max(before)
    }
}

/// Returns a reading of one model; how many replicas there are is the caller's to add.
fn observation(in_flight: Level, arrivals: Term<f64>, load: &servers::ServerLoad) -> Observation {
    Observation {
        replicas: ReplicaView::Ready(Term::Unknown(Missing::NotOffered)),
        models: vec![ModelLoad {
            in_flight,
            executing: load.executing,
            queued: load.queued,
            arrivals,
            completions: load.completions,
            service_seconds: load.service_seconds,
            in_flight_max: Term::Unknown(Missing::NotOffered),
        }],
        peak_seconds: Term::Unknown(Missing::NotOffered),
        started: Vec::new(),
        metric: Term::Unknown(Missing::NotOffered),
        filled: load.filled,
        is_partial: load.is_partial,
        is_called: false,
    }
}

/// What is said of a moment, where there is one.
#[derive(Clone, Copy, Debug)]
struct Told {
    now: Timestamp,
    at: Option<Timestamp>,
    by: Estimator,
}

impl Told {
    /// Returns a value of that moment; without one it is unknown.
    fn term<T>(self, value: Option<T>) -> Term<T> {
        match (value, self.at) {
            (Some(value), Some(at)) => Term::Known {
                value,
                age: self.now.since(at),
                estimator: self.by,
            },
            (None, Some(at)) => Term::Unknown(Missing::Stale {
                age: self.now.since(at),
            }),
            (_, None) => Term::Unknown(Missing::NeverRead),
        }
    }

    fn occupancy(self, requests: Option<f64>) -> Term<Occupancy> {
        match requests.map(Occupancy::new) {
            Some(None) => Term::Unknown(Missing::NotANumber),
            Some(level @ Some(_)) => self.term(level),
            None => self.term(None),
        }
    }

    const fn by(self, by: Estimator) -> Self {
        Self { by, ..self }
    }
}
