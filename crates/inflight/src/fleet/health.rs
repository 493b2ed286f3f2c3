//! The health of a fleet's endpoints, as the gateway that meets them and the watcher that checks
//! them share it.
//!
//! It has a lock of its own, so that checks never hold up requests, and requests take it only while
//! something fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use inflight_core::ReplicaId;
use inflight_core::admission::{Health, HealthConfig};
use tokio::sync::Notify;

use super::Fleet;

/// What is shared; without a machine nothing is watched.
#[derive(Default)]
pub(super) struct SharedHealth {
    machine: Mutex<Option<Health>>,
    has_suspects: AtomicBool,
    changed: Notify,
}

impl Fleet {
    /// Begins to watch the fleet's endpoints, or changes the rules.
    pub fn set_health(&self, config: HealthConfig) {
        let now = self.clock.now();
        let mut machine = self
            .health
            .machine
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &mut *machine {
            Some(health) => health.set_config(now, config),
            None => *machine = Some(Health::new(config)),
        }
    }

    /// Runs `act` on what is known of the endpoints' health; `None`: they are not watched.
    pub fn with_health<T>(&self, act: impl FnOnce(&mut Health) -> T) -> Option<T> {
        let mut machine = self
            .health
            .machine
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let health = machine.as_mut()?;
        let result = act(health);
        let has_suspects = health.has_suspects();
        self.health
            .has_suspects
            .store(has_suspects, Ordering::Relaxed);
        Some(result)
    }

    /// Takes that a request failed at a replica, which was not reached or broke the connection off.
    pub fn on_replica_failed(&self, replica: ReplicaId) {
        let now = self.clock.now();
        if self
            .with_health(|health| health.on_request_failed(now, replica))
            .is_some()
        {
            self.health.changed.notify_one();
        }
    }

    /// Takes that a replica answered a request.
    pub fn on_replica_answered(&self, replica: ReplicaId) {
        if self.health.has_suspects.load(Ordering::Relaxed) {
            self.with_health(|health| health.on_request_answered(replica));
        }
    }

    /// Waits until a request failed at a replica.
    pub async fn health_changed(&self) {
        self.health.changed.notified().await;
    }
}
