//! What proxies tell: requests in flight, those that they refused, healthy replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use super::flow::Flow;
use super::{Patience, Told};
use crate::load::freshness::{Estimator, Term};
use crate::load::observation::Level;
use crate::load::series::Series;
use crate::load::sum::{PeerId, Standing};
use crate::time::Timestamp;
use crate::units::Replicas;

/// The window of the mean time of a request, by which refused ones are valued.
const REQUEST_WINDOW: Duration = Duration::from_secs(60);

const IN_FLIGHT: usize = 0;
const ARRIVALS: usize = 1;
const REFUSED: usize = 2;
const COUNT: usize = 3;

/// What one proxy tells; the counters are cumulative, and zero where it has counted nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProxyReading {
    /// Requests that are with a replica.
    pub active: f64,
    /// Requests that wait for a connection to one.
    pub pending: f64,
    /// Replicas that it routes to.
    pub healthy: Replicas,
    /// Requests that it sent to a replica.
    pub arrivals: f64,
    /// Requests that it refused since too many were in flight, or no replica was there.
    pub refused: f64,
    /// Time that completed requests took. *Units*: seconds.
    pub request_seconds: f64,
}

/// What the proxies tell together.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProxyLoad {
    pub(super) healthy: Term<Replicas>,
    pub(super) in_flight: Level,
    pub(super) arrivals: Term<f64>,
    pub(super) is_partial: bool,
}

/// The proxies before one fleet.
#[derive(Clone, Debug)]
pub(super) struct Proxies {
    rows: BTreeMap<PeerId, Proxy>,
    /// The moment of the latest reading of all.
    at: Option<Timestamp>,
    in_flight_seconds: f64,
    /// Of it, what requests would have taken that were refused.
    refused_seconds: f64,
    arrivals: f64,
    /// What grew at proxies that are gone, and was not handed on.
    departed: [f64; COUNT],
    /// In flight and arrivals over the last minute, which tell the mean time of a request.
    request_seconds: Series,
    arrived: Series,
    /// When requests were refused last whose time nobody knew.
    unvalued_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Proxy {
    latest: Option<ProxyReading>,
    flow: Flow<COUNT>,
    /// Whether it refused requests between its latest two readings.
    refuses: bool,
}

impl Proxies {
    pub(super) const fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            at: None,
            in_flight_seconds: 0.0,
            refused_seconds: 0.0,
            arrivals: 0.0,
            departed: [0.0; COUNT],
            request_seconds: Series::new(REQUEST_WINDOW),
            arrived: Series::new(REQUEST_WINDOW),
            unvalued_at: None,
        }
    }

    pub(super) fn add(&mut self, peer: PeerId) {
        self.rows.entry(peer).or_insert_with(|| Proxy {
            latest: None,
            flow: Flow::new(),
            refuses: false,
        });
    }

    pub(super) fn remove(&mut self, peer: PeerId) {
        if let Some(mut proxy) = self.rows.remove(&peer) {
            for (departed, grown) in self.departed.iter_mut().zip(proxy.flow.take()) {
                *departed += grown;
            }
        }
    }

    pub(super) fn on_reading(
        &mut self,
        at: Timestamp,
        peer: PeerId,
        reading: &ProxyReading,
        by: Estimator,
        patience: Patience,
    ) {
        if let Some(proxy) = self.rows.get_mut(&peer) {
            proxy.read(at, reading, by, patience);
        }
    }

    /// Returns when a proxy was read and what it had in flight.
    pub(super) fn peer(&self, peer: PeerId) -> Option<(Option<Timestamp>, Option<f64>)> {
        let proxy = self.rows.get(&peer)?;
        let in_flight = proxy.latest.map(|latest| latest.in_flight());
        Some((proxy.flow.read_at(), in_flight))
    }

    /// Returns the moment that the latest reading of all is of.
    pub(super) const fn at(&self) -> Option<Timestamp> {
        self.at
    }

    pub(super) fn has_load(&self, now: Timestamp, patience: Patience) -> bool {
        let is_loaded = |proxy: &Proxy| {
            proxy.refuses || proxy.latest.is_some_and(|latest| latest.in_flight() > 0.0)
        };
        self.rows.values().any(|proxy| {
            is_loaded(proxy) && patience.standing(now, proxy.flow.read_at()) != Standing::Lost
        })
    }

    /// Tells whether proxies are read in time, and each that is has a healthy replica.
    pub(super) fn all_route(&self, now: Timestamp, patience: Patience) -> bool {
        let is_read =
            |proxy: &&Proxy| patience.standing(now, proxy.flow.read_at()) == Standing::Read;
        let mut read = self.rows.values().filter(is_read).peekable();
        read.peek().is_some()
            && read.all(|proxy| {
                proxy
                    .latest
                    .is_some_and(|latest| latest.healthy > Replicas::ZERO)
            })
    }

    pub(super) fn observe(
        &mut self,
        now: Timestamp,
        patience: Patience,
        by: Estimator,
    ) -> ProxyLoad {
        let before = self.at;
        let read = self.rows.values().map(|proxy| proxy.flow.read_at());
        self.at = patience.moment(now, before, read);
        let refused = self.take(now, patience, by);
        let refused_now = self.value_refused(before, refused);
        let mut level = refused_now;
        let mut healthy = None;
        let mut is_partial = self.is_refusing_unvalued();
        for proxy in self.rows.values() {
            match proxy.latest {
                Some(latest) if patience.standing(now, proxy.flow.read_at()) != Standing::Lost => {
                    level += latest.in_flight();
                    healthy = healthy.max(Some(latest.healthy));
                }
                Some(_) | None => is_partial = true,
            }
        }
        let told = Told {
            now,
            at: self.at,
            by,
        };
        let total = |total| told.term(healthy.map(|_| total));
        let gauge = told.by(Estimator::LiveGauge);
        ProxyLoad {
            healthy: gauge.term(healthy),
            in_flight: Level {
                now: gauge.occupancy(healthy.map(|_| level)),
                integral: total(self.in_flight_seconds + self.refused_seconds),
            },
            arrivals: total(self.arrivals),
            is_partial,
        }
    }

    /// Adds up what grew, and returns how many requests were refused.
    fn take(&mut self, now: Timestamp, patience: Patience, by: Estimator) -> f64 {
        let Some(at) = self.at else { return 0.0 };
        let mut grown = std::mem::take(&mut self.departed);
        for proxy in self.rows.values_mut() {
            if patience.standing(now, proxy.flow.read_at()) == Standing::Held {
                proxy.hold(at, by);
            }
            for (total, more) in grown.iter_mut().zip(proxy.flow.take()) {
                *total += more;
            }
        }
        self.in_flight_seconds += grown[IN_FLIGHT];
        self.arrivals += grown[ARRIVALS];
        self.request_seconds
            .record(at, Some(self.in_flight_seconds), None);
        self.arrived.record(at, Some(self.arrivals), None);
        grown[REFUSED]
    }

    /// Adds requests that were refused to what is in flight, and returns how many those of this
    /// moment would be.
    ///
    /// A proxy that lets no more than so many in hides the rest. By Little's law (L = λW) the
    /// refused would have added their rate times the time that a request takes, which is in turn
    /// what was in flight by what was let in. Clients that try again at once are counted each
    /// time. While nothing was let in the time is unknown: one request is the least there was.
    fn value_refused(&mut self, before: Option<Timestamp>, refused: f64) -> f64 {
        let (Some(before), Some(at)) = (before, self.at) else {
            return 0.0;
        };
        let span = at.since(before).as_secs_f64();
        if refused <= 0.0 || span <= 0.0 {
            return 0.0;
        }
        let arrived = self.arrived.growth(REQUEST_WINDOW, Duration::ZERO);
        let seconds = self.request_seconds.growth(REQUEST_WINDOW, Duration::ZERO);
        let level = if arrived > 0.0 {
            refused / span * (seconds / arrived)
        } else {
            self.unvalued_at = Some(at);
            1.0
        };
        self.refused_seconds += level * span;
        level
    }

    /// Tells whether the last minute had refused requests that nobody could value.
    fn is_refusing_unvalued(&self) -> bool {
        let (Some(unvalued_at), Some(at)) = (self.unvalued_at, self.at) else {
            return false;
        };
        at.since(unvalued_at) < REQUEST_WINDOW
    }
}

impl Proxy {
    fn read(&mut self, at: Timestamp, reading: &ProxyReading, by: Estimator, patience: Patience) {
        let read_at = self.flow.read_at();
        if read_at.is_some_and(|read_at| at <= read_at) {
            return;
        }
        let mut growth = [0.0; COUNT];
        if let (Some(before), Some(read_at)) = (self.latest, read_at) {
            growth = [
                match by {
                    Estimator::CompletionCounter => {
                        grown(before.request_seconds, reading.request_seconds)
                    }
                    Estimator::LiveGauge | Estimator::Exact | Estimator::Query => {
                        let after = Some(reading.in_flight());
                        held_then(before.in_flight(), after, at.since(read_at), patience)
                    }
                },
                grown(before.arrivals, reading.arrivals),
                grown(before.refused, reading.refused),
            ];
        }
        self.refuses = growth[REFUSED] > 0.0;
        self.flow.read(at, growth);
        self.latest = Some(*reading);
    }

    fn hold(&mut self, at: Timestamp, by: Estimator) {
        let mut rates = self.flow.rates();
        if let (Estimator::LiveGauge, Some(latest)) = (by, self.latest) {
            rates[IN_FLIGHT] = latest.in_flight();
        }
        self.flow.hold(at, rates);
    }
}

impl ProxyReading {
    fn in_flight(&self) -> f64 {
        self.active + self.pending
    }
}

/// Returns what a level adds up to between two readings: that of before, as long as it is held, and
/// then the one of after. An outage of hours is not all as it began.
pub(super) fn held_then(before: f64, after: Option<f64>, gap: Duration, patience: Patience) -> f64 {
    let held = gap.min(patience.stale);
    let rest = gap.saturating_sub(held);
    before * held.as_secs_f64() + after.unwrap_or(before) * rest.as_secs_f64()
}

/// Returns by how much a counter grew; one that fell started again from zero.
pub(super) fn grown(before: f64, after: f64) -> f64 {
    if after >= before {
        after - before
    } else {
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Measured, MeasuredBy};

    #[test]
    fn proxies_route_to_a_replica_when_they_say_so_and_not_when_nobody_reads_them() {
        let measured = |proxies| {
            Measured::new(MeasuredBy {
                proxies,
                servers: Estimator::LiveGauge,
                patience: Patience {
                    late: Duration::from_secs(3),
                    stale: Duration::from_secs(30),
                },
            })
        };
        let at = |seconds| Timestamp::ORIGIN + Duration::from_secs(seconds);
        let healthy = |replicas| ProxyReading {
            healthy: Replicas::new(replicas),
            ..ProxyReading::default()
        };
        assert!(measured(None).is_routed_everywhere(at(0)));
        let mut measured = measured(Some(Estimator::LiveGauge));
        assert!(!measured.is_routed_everywhere(at(0)), "no address yet");
        measured.add_proxy(PeerId(1));
        measured.add_proxy(PeerId(2));
        assert!(!measured.is_routed_everywhere(at(0)));
        measured.on_proxy(at(0), PeerId(1), &healthy(1));
        assert!(measured.is_routed_everywhere(at(0)));
        measured.on_proxy(at(1), PeerId(2), &healthy(0));
        assert!(!measured.is_routed_everywhere(at(1)));
        measured.on_proxy(at(2), PeerId(2), &healthy(1));
        assert!(measured.is_routed_everywhere(at(2)));
        assert!(!measured.is_routed_everywhere(at(10)), "none in time");
    }
}
