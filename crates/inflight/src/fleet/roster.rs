//! What this process runs, as those that show it or give orders find it: its fleets, and what
//! became of its configuration.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use inflight_core::Timestamp;
use tokio::sync::mpsc;

use super::Fleet;
use crate::ports::Order;

/// The fleets of this process, in the order of the configuration, and the configuration's state.
#[derive(Debug, Default)]
pub struct Roster {
    members: RwLock<Arc<[Member]>>,
    configuration: Mutex<ConfigurationState>,
}

/// One fleet of this process.
#[derive(Clone, Debug)]
pub struct Member {
    /// What is known of it.
    pub fleet: Arc<Fleet>,
    /// The way to its control loop.
    pub orders: mpsc::Sender<Order>,
}

/// What became of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigurationState {
    /// Since when the running configuration is in force.
    pub in_force_since: Timestamp,
    /// Why the file as it is now is not in force; `None` when it is.
    pub refused: Option<RefusedFile>,
    /// How often a file was put in force while we ran.
    pub reloads: u64,
    /// How often one was refused.
    pub refusals: u64,
}

/// A file that was refused whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFile {
    /// Since when the file is refused, whatever was changed in it meanwhile.
    pub since: Timestamp,
    /// Everything that is wrong with it.
    pub why: String,
}

impl Roster {
    /// Returns the fleets of this moment.
    #[must_use]
    pub fn members(&self) -> Arc<[Member]> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&members)
    }

    /// Returns what is known of the fleets of this moment.
    #[must_use]
    pub fn fleets(&self) -> Vec<Arc<Fleet>> {
        let members = self.members();
        members.iter().map(|one| Arc::clone(&one.fleet)).collect()
    }

    /// Says which fleets there are from here on.
    pub fn replace(&self, members: Vec<Member>) {
        let mut shown = self.members.write().unwrap_or_else(PoisonError::into_inner);
        *shown = members.into();
    }

    /// Returns what became of the configuration.
    pub fn configuration(&self) -> MutexGuard<'_, ConfigurationState> {
        let configuration = self.configuration.lock();
        configuration.unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConfigurationState {
    /// Notes that a file was put in force.
    pub fn on_in_force(&mut self, now: Timestamp) {
        self.in_force_since = now;
        self.refused = None;
        self.reloads += 1;
    }

    /// Notes that a file was refused; what was in force stays.
    pub fn on_refused(&mut self, now: Timestamp, why: String) {
        let since = self.refused.as_ref().map_or(now, |before| before.since);
        self.refused = Some(RefusedFile { since, why });
        self.refusals += 1;
    }
}
