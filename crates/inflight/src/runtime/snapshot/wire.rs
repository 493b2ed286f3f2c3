//! The snapshot as it is written: JSON, with the core's types mapped field by field.
//!
//! Fields that are not known are ignored and those that are missing are empty, so that a field can
//! be added without another version; the version changes when one changes its meaning.

use std::time::Duration;

use inflight_core::admission::{PastChecks, PastCounts, PastGate, PastIntegral};
use inflight_core::load::{PastLoad, PastModel, PastSeries};
use inflight_core::scaling::{Held, Hold, PastScaler};
use inflight_core::{Replicas, SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::{PastFleet, Snapshot};

pub(super) const VERSION: u32 = 1;

#[derive(Deserialize)]
pub(super) struct VersionOnly {
    pub(super) version: u32,
}

/// All points of time are in nanoseconds of one clock, which shows `at` when the machine has run
/// for `since_boot` nanoseconds.
#[derive(Serialize, Deserialize)]
pub(super) struct WireSnapshot {
    version: u32,
    pub(super) boot: String,
    since_boot: u64,
    at: u64,
    #[serde(default)]
    fleets: Vec<WireFleet>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireFleet {
    name: String,
    models: Vec<WireModel>,
    gate: WireGate,
    checks: Option<WireChecks>,
    scaler: WireScaler,
}

/// One model's rows.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireModel {
    name: String,
    in_flight_nanos: [u128; 2],
    executing_nanos: [u128; 2],
    arrived: u64,
    completed: u64,
    service_nanos: u128,
    in_flight: WireSeries,
    executing: WireSeries,
    queued: WireSeries,
    arrivals: WireSeries,
    completions: WireSeries,
    service_seconds: WireSeries,
    in_flight_max: Vec<(u64, f64)>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireSeries {
    points: Vec<(u64, f64)>,
    cumulative: Option<f64>,
    level: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct WireGate {
    in_flight_nanos: [u128; 2],
    executing_nanos: [u128; 2],
    ended: Vec<u64>,
    refused: Vec<u64>,
    is_open: bool,
    sessions: Vec<(u64, u64)>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireChecks {
    answered: [u64; 4],
    refused: Vec<u64>,
    is_closed: bool,
    called_at: Option<u64>,
    sessions: Vec<(u64, u64)>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireScaler {
    ready: WireSeries,
    peak: WireSeries,
    filled: WireSeries,
    start_delay_nanos: Vec<u64>,
    busy_at: u64,
    targets: Vec<(u64, u32)>,
    sizes: Vec<(u64, u32)>,
    unknown_since: Option<u64>,
    started: u64,
    found: u32,
    settled: u32,
    desired: u32,
    held: Option<WireHeld>,
}

/// A hold: of a size, or else of the size that there is.
#[derive(Serialize, Deserialize)]
struct WireHeld {
    size: Option<u32>,
    until: u64,
}

impl Default for WireGate {
    fn default() -> Self {
        Self {
            in_flight_nanos: [0; 2],
            executing_nanos: [0; 2],
            ended: Vec::new(),
            refused: Vec::new(),
            is_open: true,
            sessions: Vec::new(),
        }
    }
}

impl WireSnapshot {
    pub(super) fn of(snapshot: &Snapshot, boot: String, since_boot: Duration) -> Self {
        Self {
            version: VERSION,
            boot,
            since_boot: nanos(since_boot),
            at: snapshot.at.as_nanos(),
            fleets: snapshot.fleets.iter().map(WireFleet::of).collect(),
        }
    }

    pub(super) const fn since_boot(&self) -> Duration {
        Duration::from_nanos(self.since_boot)
    }
}

impl From<WireSnapshot> for Snapshot {
    fn from(wire: WireSnapshot) -> Self {
        Self {
            at: Timestamp::from_nanos(wire.at),
            fleets: wire.fleets.into_iter().map(PastFleet::from).collect(),
        }
    }
}

impl WireFleet {
    fn of(past: &PastFleet) -> Self {
        let rows = past.models.iter().enumerate();
        let models = rows.map(|(row, name)| {
            let counts = past.gate.models.get(row).copied().unwrap_or_default();
            let load = past.scaler.load.models.get(row).cloned();
            WireModel::of(name, counts, &load.unwrap_or_default())
        });
        Self {
            name: past.name.clone(),
            models: models.collect(),
            gate: WireGate::of(&past.gate),
            checks: past.checks.as_ref().map(WireChecks::of),
            scaler: WireScaler::of(&past.scaler),
        }
    }
}

impl From<WireFleet> for PastFleet {
    fn from(wire: WireFleet) -> Self {
        let mut gate = PastGate::from(wire.gate);
        let mut scaler = PastScaler::from(wire.scaler);
        let mut models = Vec::new();
        for model in wire.models {
            gate.models.push(model.counts());
            models.push(model.name.clone());
            scaler.load.models.push(PastModel::from(model));
        }
        Self {
            name: wire.name,
            models,
            gate,
            checks: wire.checks.map(PastChecks::from),
            scaler,
        }
    }
}

impl WireModel {
    fn of(name: &str, counts: PastCounts, load: &PastModel) -> Self {
        Self {
            name: name.to_owned(),
            in_flight_nanos: integral_to(counts.in_flight),
            executing_nanos: integral_to(counts.executing),
            arrived: counts.arrivals,
            completed: counts.completions,
            service_nanos: counts.service_nanos,
            in_flight: WireSeries::of(&load.in_flight),
            executing: WireSeries::of(&load.executing),
            queued: WireSeries::of(&load.queued),
            arrivals: WireSeries::of(&load.arrivals),
            completions: WireSeries::of(&load.completions),
            service_seconds: WireSeries::of(&load.service_seconds),
            in_flight_max: points_to(&load.in_flight_max),
        }
    }

    fn counts(&self) -> PastCounts {
        PastCounts {
            in_flight: integral_from(self.in_flight_nanos),
            executing: integral_from(self.executing_nanos),
            arrivals: self.arrived,
            completions: self.completed,
            service_nanos: self.service_nanos,
        }
    }
}

impl From<WireModel> for PastModel {
    fn from(wire: WireModel) -> Self {
        Self {
            in_flight: wire.in_flight.into(),
            executing: wire.executing.into(),
            queued: wire.queued.into(),
            arrivals: wire.arrivals.into(),
            completions: wire.completions.into(),
            service_seconds: wire.service_seconds.into(),
            in_flight_max: points_from(wire.in_flight_max),
        }
    }
}

impl WireSeries {
    fn of(past: &PastSeries) -> Self {
        Self {
            points: points_to(&past.points),
            cumulative: past.cumulative,
            level: past.level,
        }
    }
}

impl From<WireSeries> for PastSeries {
    fn from(wire: WireSeries) -> Self {
        Self {
            points: points_from(wire.points),
            cumulative: wire.cumulative,
            level: wire.level,
        }
    }
}

impl WireGate {
    fn of(past: &PastGate) -> Self {
        Self {
            in_flight_nanos: integral_to(past.in_flight),
            executing_nanos: integral_to(past.executing),
            ended: past.ended.clone(),
            refused: past.refused.clone(),
            is_open: past.is_open,
            sessions: sessions_to(&past.sessions),
        }
    }
}

impl From<WireGate> for PastGate {
    fn from(wire: WireGate) -> Self {
        Self {
            models: Vec::new(),
            in_flight: integral_from(wire.in_flight_nanos),
            executing: integral_from(wire.executing_nanos),
            ended: wire.ended,
            refused: wire.refused,
            is_open: wire.is_open,
            sessions: sessions_from(wire.sessions),
        }
    }
}

impl WireChecks {
    fn of(past: &PastChecks) -> Self {
        Self {
            answered: past.answered,
            refused: past.refused.clone(),
            is_closed: past.is_closed,
            called_at: past.called_at.map(Timestamp::as_nanos),
            sessions: sessions_to(&past.sessions),
        }
    }
}

impl From<WireChecks> for PastChecks {
    fn from(wire: WireChecks) -> Self {
        Self {
            answered: wire.answered,
            refused: wire.refused,
            is_closed: wire.is_closed,
            called_at: wire.called_at.map(Timestamp::from_nanos),
            sessions: sessions_from(wire.sessions),
        }
    }
}

fn sessions_to(sessions: &[(SessionKey, Timestamp)]) -> Vec<(u64, u64)> {
    let session = |&(key, last): &(SessionKey, Timestamp)| (key.0, last.as_nanos());
    sessions.iter().map(session).collect()
}

fn sessions_from(sessions: Vec<(u64, u64)>) -> Vec<(SessionKey, Timestamp)> {
    let session = |(key, last)| (SessionKey(key), Timestamp::from_nanos(last));
    sessions.into_iter().map(session).collect()
}

impl WireScaler {
    fn of(past: &PastScaler) -> Self {
        let size = |&(at, size): &(Timestamp, Replicas)| (at.as_nanos(), size.get());
        Self {
            ready: WireSeries::of(&past.load.ready),
            peak: WireSeries::of(&past.load.peak),
            filled: WireSeries::of(&past.load.filled),
            start_delay_nanos: past.start_delays.iter().copied().map(nanos).collect(),
            busy_at: past.busy_at.as_nanos(),
            targets: past.targets.iter().map(size).collect(),
            sizes: past.sizes.iter().map(size).collect(),
            unknown_since: past.unknown_since.map(Timestamp::as_nanos),
            started: past.started.as_nanos(),
            found: past.found.get(),
            settled: past.settled.get(),
            desired: past.desired.get(),
            held: past.held.map(|held| WireHeld {
                size: match held.hold {
                    Hold::Pause => None,
                    Hold::Size(size) => Some(size.get()),
                },
                until: held.until.as_nanos(),
            }),
        }
    }
}

impl From<WireScaler> for PastScaler {
    fn from(wire: WireScaler) -> Self {
        let size = |(at, size)| (Timestamp::from_nanos(at), Replicas::new(size));
        let delays = wire.start_delay_nanos.into_iter();
        Self {
            load: PastLoad {
                models: Vec::new(),
                ready: wire.ready.into(),
                peak: wire.peak.into(),
                filled: wire.filled.into(),
            },
            start_delays: delays.map(Duration::from_nanos).collect(),
            busy_at: Timestamp::from_nanos(wire.busy_at),
            targets: wire.targets.into_iter().map(size).collect(),
            sizes: wire.sizes.into_iter().map(size).collect(),
            unknown_since: wire.unknown_since.map(Timestamp::from_nanos),
            started: Timestamp::from_nanos(wire.started),
            found: Replicas::new(wire.found),
            settled: Replicas::new(wire.settled),
            desired: Replicas::new(wire.desired),
            held: wire.held.map(|held| Held {
                hold: (held.size).map_or(Hold::Pause, |size| Hold::Size(Replicas::new(size))),
                until: Timestamp::from_nanos(held.until),
            }),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

const fn integral_to(past: PastIntegral) -> [u128; 2] {
    [past.count, past.peak]
}

const fn integral_from([count, peak]: [u128; 2]) -> PastIntegral {
    PastIntegral { count, peak }
}

fn points_to(points: &[(Timestamp, f64)]) -> Vec<(u64, f64)> {
    points
        .iter()
        .map(|&(at, value)| (at.as_nanos(), value))
        .collect()
}

fn points_from(points: Vec<(u64, f64)>) -> Vec<(Timestamp, f64)> {
    let point = |(at, value)| (Timestamp::from_nanos(at), value);
    points.into_iter().map(point).collect()
}
