//! Replicas that our target starts and others are told of: who sends them requests, who reads their
//! pages.
//!
//! Whoever publishes them writes; the control loop, the source and the API look.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use inflight_core::ReplicaId;
use inflight_core::load::ReplicaView;
use tokio::sync::watch;

use crate::ports::NamedPorts;

/// What is told of the replicas of one fleet, and what others tell of each.
#[derive(Debug)]
pub struct Published {
    /// Requests that proxies have at each replica; empty while that is unknown.
    in_flight: Mutex<BTreeMap<ReplicaId, u32>>,
    serving: watch::Sender<Vec<Serving>>,
    /// Why others are not told of the replicas as they are, by the file that says it.
    failures: Mutex<BTreeMap<String, String>>,
}

/// A replica that others are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Where it serves.
    pub address: SocketAddr,
    /// Its further ports.
    pub ports: NamedPorts,
}

impl Serving {
    /// Returns where one of its further ports is, by its name.
    #[must_use]
    pub fn at_port(&self, name: &str) -> Option<SocketAddr> {
        let port = self.ports.get(name)?;
        Some(SocketAddr::new(self.address.ip(), *port))
    }
}

impl Default for Published {
    fn default() -> Self {
        Self {
            in_flight: Mutex::default(),
            serving: watch::Sender::new(Vec::new()),
            failures: Mutex::default(),
        }
    }
}

impl Published {
    /// Takes what proxies have at each replica; empty: unknown.
    pub fn set_in_flight(&self, in_flight: BTreeMap<ReplicaId, u32>) {
        *lock(&self.in_flight) = in_flight;
    }

    /// Takes the replicas that others are told of from here on.
    pub fn set_serving(&self, serving: Vec<Serving>) {
        self.serving.send_if_modified(|before| {
            let is_other = *before != serving;
            *before = serving;
            is_other
        });
    }

    /// Returns the replicas that others are told of, as they come and go.
    #[must_use]
    pub fn serving(&self) -> watch::Receiver<Vec<Serving>> {
        self.serving.subscribe()
    }

    /// Notes why a file is not as it is to be, or that it is. Returns whether that is news.
    pub fn note_file(&self, file: &str, failure: Option<String>) -> bool {
        let mut failures = lock(&self.failures);
        match failure {
            Some(why) => failures.insert(file.to_owned(), why).is_none(),
            None => failures.remove(file).is_some(),
        }
    }

    /// Returns the files that are not as they are to be, each with the reason.
    #[must_use]
    pub fn failures(&self) -> BTreeMap<String, String> {
        lock(&self.failures).clone()
    }

    /// Adds what proxies have at each replica to what the target knows of it.
    pub(super) fn add_to(&self, replicas: &mut ReplicaView) {
        let in_flight = lock(&self.in_flight);
        if let ReplicaView::Rows(rows) = replicas {
            for row in rows {
                row.in_flight = in_flight.get(&row.id).copied().unwrap_or(0);
            }
        }
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
