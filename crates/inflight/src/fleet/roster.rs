//! The fleets there are, as those that show them or give them orders find them.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::mpsc;

use super::Fleet;
use crate::ports::Order;

/// The fleets of this process, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Roster {
    members: RwLock<Arc<[Member]>>,
}

/// One fleet of this process.
#[derive(Clone, Debug)]
pub struct Member {
    /// What is known of it.
    pub fleet: Arc<Fleet>,
    /// The way to its control loop.
    pub orders: mpsc::Sender<Order>,
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
}
