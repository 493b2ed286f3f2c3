//! The snapshot as it is written: JSON, with the core's types mapped field by field.
//!
//! Fields that are not known are ignored and those that are missing are empty, so that a field can
//! be added without another version; the version changes when one changes its meaning.

use std::time::Duration;

use inflight_core::admission::{PastChecks, PastCounts, PastGate, PastIntegral};
use inflight_core::load::PastModel;
use inflight_core::scaling::PastScaler;
use inflight_core::{SessionKey, Timestamp};
use serde::{Deserialize, Serialize};

use super::{PastFleet, Snapshot};
use crate::story::{KnownModel, KnownScaler};

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
    scaler: KnownScaler,
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
    #[serde(flatten)]
    load: KnownModel,
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
            scaler: KnownScaler::from(&past.scaler),
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
            scaler.load.models.push(PastModel::from(model.load));
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
            load: KnownModel::from(load),
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

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

const fn integral_to(past: PastIntegral) -> [u128; 2] {
    [past.count, past.peak]
}

const fn integral_from([count, peak]: [u128; 2]) -> PastIntegral {
    PastIntegral { count, peak }
}
