//! What servers tell: requests that they execute and that wait in them, memory that is in use.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::flow::Flow;
use super::proxies::{grown, held_then};
use super::{Patience, Told};
use crate::load::freshness::{Estimator, Missing, Term};
use crate::load::observation::Level;
use crate::load::sum::{PeerId, Standing};
use crate::time::Timestamp;
use crate::units::Replicas;

/// Falls of its counters within [`FALLS_WITHIN`] after which a server cannot be read.
const FALLS_MAX: usize = 3;
const FALLS_WITHIN: Duration = Duration::from_secs(60);

/// Counters that are kept of one server, those of models that it has unloaded included.
pub const SERIES_MAX: usize = 4_096;

const EXECUTING: usize = 0;
const QUEUED: usize = 1;

/// What one server tells; what it does not offer is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerReading {
    /// Requests executing, where it has a gauge of them; else they are got from `series`.
    pub executing: Option<f64>,
    /// Requests that wait in it.
    pub queued: Option<f64>,
    /// The part of its memory for requests that is in use, 0 to 1.
    pub filled: Option<f64>,
    /// Counters that move when requests complete, one row for each that may start again by itself.
    pub series: Vec<(u64, ServerSeries)>,
}

/// Cumulative counters of a part of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerSeries {
    /// Time that completed requests spent in it. *Units*: seconds.
    pub total_seconds: f64,
    /// Time of it that they waited. *Units*: seconds.
    pub waiting_seconds: f64,
    /// Requests completed; zero where it does not tell.
    pub completions: f64,
}

/// What the servers tell together.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerLoad {
    /// How many answer.
    pub(super) answering: Term<Replicas>,
    pub(super) executing: Level,
    pub(super) queued: Level,
    /// Both together.
    pub(super) in_flight: Level,
    pub(super) completions: Term<f64>,
    pub(super) service_seconds: Term<f64>,
    /// Memory in use, in replicas' worth.
    pub(super) filled: Term<f64>,
    pub(super) is_partial: bool,
}

/// The servers of one fleet.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    rows: BTreeMap<PeerId, Server>,
    /// The moment of the latest reading of all.
    at: Option<Timestamp>,
    totals: [f64; 3],
    departed: [f64; 3],
}

#[derive(Clone, Debug)]
struct Server {
    latest: Option<ServerReading>,
    flow: Flow<3>,
    /// The latest counters, those included that the latest page did not have: they may come back.
    series: BTreeMap<u64, ServerSeries>,
    /// Whether some were forgotten for others: one that is not there is then no new one.
    has_forgotten: bool,
    /// How far waiting ran ahead of the total: both are read while one is written.
    ahead: f64,
    /// When its counters fell last.
    falls: VecDeque<Timestamp>,
}

/// How many servers stand how.
#[derive(Clone, Copy, Debug, Default)]
struct Standings {
    in_time: Replicas,
    held: Replicas,
    lost: Replicas,
}

/// What is made of those that do not answer.
#[derive(Clone, Copy, Debug)]
struct Shape {
    answering: Replicas,
    /// Whether those that are late are taken to go on.
    holds: bool,
    /// Whether some are missing.
    is_short: bool,
    /// By how much those that answer are multiplied.
    factor: f64,
}

impl Servers {
    pub(super) const fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            at: None,
            totals: [0.0; 3],
            departed: [0.0; 3],
        }
    }

    pub(super) fn add(&mut self, peer: PeerId) {
        self.rows.entry(peer).or_insert_with(|| Server {
            latest: None,
            flow: Flow::new(),
            series: BTreeMap::new(),
            has_forgotten: false,
            ahead: 0.0,
            falls: VecDeque::new(),
        });
    }

    pub(super) fn remove(&mut self, peer: PeerId) {
        if let Some(mut server) = self.rows.remove(&peer) {
            for (departed, grown) in self.departed.iter_mut().zip(server.flow.take()) {
                *departed += grown;
            }
        }
    }

    /// Takes a reading, unless the server cannot be read; tells whether it can.
    pub(super) fn on_reading(
        &mut self,
        at: Timestamp,
        peer: PeerId,
        reading: &ServerReading,
        patience: Patience,
    ) -> bool {
        let Some(server) = self.rows.get_mut(&peer) else {
            return true;
        };
        if server.flow.read_at().is_some_and(|read_at| at <= read_at) {
            return true;
        }
        let is_steady = server.is_steady(at, reading);
        if is_steady {
            server.read(at, reading, patience);
        } else {
            server.set_base(reading);
        }
        is_steady
    }

    /// Returns when a server was read and what it had in flight, where it has gauges.
    pub(super) fn peer(&self, peer: PeerId) -> Option<(Option<Timestamp>, Option<f64>)> {
        let server = self.rows.get(&peer)?;
        let latest = server.latest.as_ref();
        Some((
            server.flow.read_at(),
            latest.and_then(ServerReading::in_flight),
        ))
    }

    pub(super) fn has_load(&self, now: Timestamp, patience: Patience) -> bool {
        let in_flight = |server: &Server| server.latest.as_ref()?.in_flight();
        self.rows.values().any(|server| {
            in_flight(server).is_some_and(|level| level > 0.0)
                && patience.standing(now, server.flow.read_at()) != Standing::Lost
        })
    }

    /// Takes that proxies had no replica at `at`: where no server is expected either, none executes
    /// anything, which is known.
    pub(super) fn on_none(&mut self, at: Option<Timestamp>) {
        if self.rows.is_empty() {
            self.at = self.at.max(at);
        }
    }

    /// Joins what they tell. Where fewer answer than are `healthy`, those that do stand for all;
    /// without that number each of them is one replica.
    pub(super) fn observe(
        &mut self,
        now: Timestamp,
        patience: Patience,
        by: Estimator,
        healthy: Option<Replicas>,
    ) -> ServerLoad {
        let read = self.rows.values().map(|server| server.flow.read_at());
        self.at = patience.moment(now, self.at, read);
        let mut standings = Standings::default();
        for server in self.rows.values() {
            standings.add(patience.standing(now, server.flow.read_at()));
        }
        let shape = standings.shape(healthy);
        self.take(now, patience, shape);
        let counted = self
            .rows
            .values()
            .filter(|server| shape.counts(patience.standing(now, server.flow.read_at())));
        let counted = counted.filter_map(|server| server.latest.as_ref());
        let level = |of: fn(&ServerReading) -> Option<f64>| {
            let told = counted.clone().filter_map(of);
            told.map(|value| value * shape.factor)
                .reduce(|sum, value| sum + value)
        };
        // The sum of those that tell is then the least there is.
        let is_untold_by_some = |of: fn(&ServerReading) -> Option<f64>| {
            let mut told = counted.clone().map(|reading| of(reading).is_some());
            told.next()
                .is_some_and(|first| told.any(|other| other != first))
        };
        let gauges: [fn(&ServerReading) -> Option<f64>; 3] = [
            |told| told.executing,
            |told| told.queued,
            |told| told.filled,
        ];
        let is_partial = shape.is_short || gauges.into_iter().any(is_untold_by_some);
        let tells = |of: fn(&ServerReading) -> Option<f64>| {
            let latest = self
                .rows
                .values()
                .filter_map(|server| server.latest.as_ref());
            latest.filter_map(of).next().is_some()
        };
        let (executing, queued) = (level(|told| told.executing), level(|told| told.queued));
        let has_gauge = tells(|told| told.executing);
        let tells_queued = tells(|told| told.queued);
        let is_none = self.rows.is_empty() && healthy == Some(Replicas::ZERO);
        let is_known = shape.answering > Replicas::ZERO || is_none;
        let told = Told {
            now,
            at: self.at,
            by,
        };
        let gauge = told.by(Estimator::LiveGauge);
        let total = |told: Told, total: f64| told.term(is_known.then_some(total));
        let [executing_seconds, queued_seconds, completions] = self.totals;
        let both = executing.map(|executing| executing + queued.unwrap_or(0.0));
        ServerLoad {
            answering: gauge.term(is_known.then_some(shape.answering)),
            executing: Level {
                now: offered(has_gauge, gauge.occupancy(executing)),
                integral: total(told, executing_seconds),
            },
            queued: Level {
                now: offered(tells_queued, gauge.occupancy(queued)),
                integral: offered(tells_queued, total(gauge, queued_seconds)),
            },
            in_flight: Level {
                now: offered(has_gauge, gauge.occupancy(both)),
                integral: total(told, executing_seconds + queued_seconds),
            },
            completions: offered(!has_gauge, total(told, completions)),
            service_seconds: offered(!has_gauge, total(told, executing_seconds)),
            filled: offered(
                tells(|told| told.filled),
                gauge.term(level(|told| told.filled)),
            ),
            is_partial,
        }
    }

    fn take(&mut self, now: Timestamp, patience: Patience, shape: Shape) {
        let Some(at) = self.at else { return };
        let mut grown = std::mem::take(&mut self.departed);
        for server in self.rows.values_mut() {
            let standing = patience.standing(now, server.flow.read_at());
            if standing == Standing::Held && shape.holds {
                server.hold(at);
            }
            for (total, more) in grown.iter_mut().zip(server.flow.take()) {
                *total += more;
            }
        }
        for (total, more) in self.totals.iter_mut().zip(grown) {
            *total += more * shape.factor;
        }
    }
}

impl Standings {
    fn add(&mut self, standing: Standing) {
        let count = match standing {
            Standing::Read => &mut self.in_time,
            Standing::Held => &mut self.held,
            Standing::Lost => &mut self.lost,
        };
        *count = count.plus(Replicas::ONE);
    }

    fn shape(self, healthy: Option<Replicas>) -> Shape {
        let answering = self.in_time.plus(self.held);
        // Without a proxy that knows, every server that is expected is a replica.
        let expected = healthy.unwrap_or(answering.plus(self.lost));
        let is_short = answering < expected;
        let stands_for_all = is_short && healthy.is_some() && answering > Replicas::ZERO;
        Shape {
            answering,
            // Where enough are read the others belong to a fleet that was larger.
            holds: self.in_time < expected,
            is_short,
            factor: if stands_for_all {
                expected.as_f64() / answering.as_f64()
            } else {
                1.0
            },
        }
    }
}

impl Shape {
    fn counts(self, standing: Standing) -> bool {
        match standing {
            Standing::Read => true,
            Standing::Held => self.holds,
            Standing::Lost => false,
        }
    }
}

impl Server {
    /// Tells whether the counters are those of one server, that starts again now and then. Where
    /// several answer at one address in turn, each fall is another one's count, and each rise too.
    fn is_steady(&mut self, at: Timestamp, reading: &ServerReading) -> bool {
        let fell = |&(id, after): &(u64, ServerSeries)| {
            let before = self.series.get(&id);
            before.is_some_and(|before| after.total_seconds < before.total_seconds)
        };
        if reading.series.iter().any(fell) {
            if self.falls.len() == FALLS_MAX {
                self.falls.pop_front();
            }
            self.falls.push_back(at);
        }
        let is_recent = |&fell_at: &Timestamp| at.since(fell_at) < FALLS_WITHIN;
        let is_unsteady = self.falls.len() == FALLS_MAX && self.falls.iter().all(is_recent);
        !is_unsteady
    }

    fn read(&mut self, at: Timestamp, reading: &ServerReading, patience: Patience) {
        let read_at = self.flow.read_at();
        let gap = read_at.map_or(Duration::ZERO, |read_at| at.since(read_at));
        let (executed, completed) = self.count(&reading.series, read_at.is_some());
        let gauge = |of: fn(&ServerReading) -> Option<f64>| {
            let before = of(self.latest.as_ref()?)?;
            Some(held_then(before, of(reading), gap, patience))
        };
        let growth = [
            gauge(|told| told.executing).unwrap_or(executed),
            gauge(|told| told.queued).unwrap_or(0.0),
            completed,
        ];
        self.flow.read(at, growth);
        self.latest = Some(ServerReading {
            series: Vec::new(),
            ..*reading
        });
    }

    /// Takes the counters to count from, without what they grew by: whether they fall is judged by
    /// the latest, and not by those of before all of it.
    fn set_base(&mut self, reading: &ServerReading) {
        self.count(&reading.series, true);
        self.ahead = 0.0;
    }

    /// Takes the counters, and returns by how many seconds of executing and by how many requests
    /// they grew. One that was not there before began at zero since, unless nothing was read, or it
    /// may have been forgotten.
    fn count(&mut self, series: &[(u64, ServerSeries)], was_read: bool) -> (f64, f64) {
        self.make_room(series);
        let (mut executed, mut completed) = (self.ahead, 0.0);
        for &(id, after) in series {
            let before = match self.series.get(&id) {
                Some(before) => *before,
                None if was_read && !self.has_forgotten => ServerSeries::default(),
                None => after,
            };
            executed += grown(before.total_seconds, after.total_seconds);
            executed -= grown(before.waiting_seconds, after.waiting_seconds);
            completed += grown(before.completions, after.completions);
            if self.series.len() < SERIES_MAX || self.series.contains_key(&id) {
                self.series.insert(id, after);
            }
        }
        self.ahead = executed.min(0.0);
        (executed.max(0.0), completed)
    }

    /// Forgets the counters that are not there now, where there is no place for all.
    fn make_room(&mut self, series: &[(u64, ServerSeries)]) {
        let is_new = |(id, _): &&(u64, ServerSeries)| !self.series.contains_key(id);
        if self.series.len() + series.iter().filter(is_new).count() <= SERIES_MAX {
            return;
        }
        let ids: BTreeSet<u64> = series.iter().map(|&(id, _)| id).collect();
        self.series.retain(|id, _| ids.contains(id));
        self.has_forgotten = true;
    }

    fn hold(&mut self, at: Timestamp) {
        let mut rates = self.flow.rates();
        if let Some(latest) = &self.latest {
            rates[EXECUTING] = latest.executing.unwrap_or(rates[EXECUTING]);
            rates[QUEUED] = latest.queued.unwrap_or(rates[QUEUED]);
        }
        self.flow.hold(at, rates);
    }
}

impl ServerReading {
    fn in_flight(&self) -> Option<f64> {
        Some(self.executing? + self.queued.unwrap_or(0.0))
    }
}

fn offered<T>(is_offered: bool, term: Term<T>) -> Term<T> {
    if is_offered {
        term
    } else {
        Term::Unknown(Missing::NotOffered)
    }
}
