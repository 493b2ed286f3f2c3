//! What one process of ours knew, for the next: windows, counters and sessions of each fleet.
//!
//! Both processes are of one machine and one boot, and replicas are too; so times need no calendar:
//! the next process's clock goes on from the first one's, the time in between included. A snapshot
//! that cannot be used is no failure: the next process starts as after a kill.

mod wire;

use std::fs;
use std::time::Duration;

use inflight_core::Timestamp;
use inflight_core::admission::{PastChecks, PastGate};
use inflight_core::scaling::PastScaler;
use rustix::time::{ClockId, clock_gettime};

use wire::{VERSION, WireSnapshot};

/// Older ones hold nothing that counts: windows reach back five minutes, sessions one.
const AGE_MAX: Duration = Duration::from_secs(600);

/// What was known of all fleets at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    /// The moment, by the clock that all times in it are of.
    pub(super) at: Timestamp,
    pub(super) fleets: Vec<PastFleet>,
}

/// What was known of one fleet. The rows of gate and scaler are of these models, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PastFleet {
    pub(super) name: String,
    pub(super) models: Vec<String>,
    pub(super) gate: PastGate,
    /// What is known where proxies ask.
    pub(super) checks: Option<PastChecks>,
    pub(super) scaler: PastScaler,
}

/// Why a snapshot is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    #[error("it has version {0}, known is {VERSION}")]
    Version(u32),
    #[error("it is from before the machine was started")]
    OtherBoot,
    #[error("it is {} s old, at most {} s are of use", .0.as_secs(), AGE_MAX.as_secs())]
    Old(Duration),
}

impl Snapshot {
    /// Returns its text.
    pub(super) fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&WireSnapshot::of(self, boot(), since_boot()))
    }

    /// Reads a text. [`Snapshot::at`] becomes the present moment, by the clock that all times in
    /// it are of.
    pub(super) fn from_text(text: &str) -> Result<Self, SnapshotError> {
        Self::from_text_at(text, &boot(), since_boot())
    }

    fn from_text_at(text: &str, boot: &str, now: Duration) -> Result<Self, SnapshotError> {
        let version = serde_json::from_str::<wire::VersionOnly>(text)?.version;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        let wire: WireSnapshot = serde_json::from_str(text)?;
        if wire.boot != boot {
            return Err(SnapshotError::OtherBoot);
        }
        let age = now.saturating_sub(wire.since_boot());
        if age > AGE_MAX {
            return Err(SnapshotError::Old(age));
        }
        let mut snapshot = Self::from(wire);
        snapshot.at = snapshot.at + age;
        Ok(snapshot)
    }

    /// Takes what was known of a fleet, with rows for these models.
    pub(super) fn take(&mut self, name: &str, models: &[String]) -> Option<PastFleet> {
        let at = self.fleets.iter().position(|fleet| fleet.name == name)?;
        Some(self.fleets.swap_remove(at).for_models(models))
    }
}

impl PastFleet {
    /// Puts the rows into the order of these models; one that was not there has an empty row.
    fn for_models(mut self, models: &[String]) -> Self {
        let places: Vec<Option<usize>> = models
            .iter()
            .map(|name| self.models.iter().position(|known| known == name))
            .collect();
        self.gate.models = rows(&self.gate.models, &places);
        self.scaler.load.models = rows(&self.scaler.load.models, &places);
        self.models = models.to_vec();
        self
    }
}

fn rows<T: Clone + Default>(rows: &[T], places: &[Option<usize>]) -> Vec<T> {
    let row = |place: &Option<usize>| place.and_then(|place| rows.get(place).cloned());
    places
        .iter()
        .map(|place| row(place).unwrap_or_default())
        .collect()
}

/// Names this run of the machine.
fn boot() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.unwrap_or_default().trim().to_owned()
}

/// Returns how long the machine runs, sleep included.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

#[cfg(test)]
mod tests;
