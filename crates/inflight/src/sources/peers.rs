//! Source `inflight`: other instances' counters of the same fleet, read from their metric pages.
//!
//! Peers are listed, or the addresses of a DNS name that is resolved again and again. What their
//! counters add up to is the core's matter; here each is asked once an interval, one that fails
//! ever more rarely, within a bound that keeps a returning one's numbers fresh.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use inflight_core::load::PeerId;
use tokio::net::lookup_host;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::fetch::{Client, FetchConfig, FetchError};
use super::page::{Page, PageError, Wanted};
use crate::fleet::{Fleet, Peers};

/// The longest pause after failures: well under the time after which a reading is stale.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// How often the name is resolved.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);
/// How long resolving may take; the resolver's own patience is longer.
const RESOLVE_WITHIN: Duration = Duration::from_secs(10);

/// Which instances are asked, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// Listed admin addresses: host and port.
    pub listed: Vec<String>,
    /// A name, with its port, each address of which is a peer.
    pub dns: Option<String>,
    /// The fleet's name at the peers.
    pub fleet: String,
    /// The fleet's models here.
    pub models: Vec<String>,
    /// How often each is asked.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Asks the peers of one fleet.
pub struct PeerSource {
    fleet: Arc<Fleet>,
    config: Arc<PeersConfig>,
    tasks: JoinSet<()>,
    resolved: BTreeMap<SocketAddr, (PeerId, AbortHandle)>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Page(#[from] PageError),
}

impl PeerSource {
    /// Builds a source for a fleet that has peers.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>, config: PeersConfig) -> Self {
        Self {
            fleet,
            config: Arc::new(config),
            tasks: JoinSet::new(),
            resolved: BTreeMap::new(),
        }
    }

    /// Asks until `stop` fires.
    pub async fn run(mut self, stop: oneshot::Receiver<()>) {
        for address in &self.config.clone().listed {
            self.follow(address);
        }
        tokio::select! {
            // A dropped sender means that we are ending anyway.
            _ = stop => {}
            () = self.keep_resolving() => {}
        }
        self.tasks.shutdown().await;
    }

    async fn keep_resolving(&mut self) {
        let config = Arc::clone(&self.config);
        let Some(name) = &config.dns else {
            return std::future::pending().await;
        };
        loop {
            match timeout(RESOLVE_WITHIN, lookup_host(name)).await {
                Ok(Ok(found)) => self.on_resolved(name, found.collect()),
                // What was found before stays: a resolver in trouble is no sign that peers went.
                Ok(Err(error)) => warn!(name, %error, "peers cannot be resolved"),
                Err(_) => warn!(name, "peers cannot be resolved in time"),
            }
            sleep(RESOLVE_EVERY).await;
        }
    }

    fn on_resolved(&mut self, name: &str, found: Vec<SocketAddr>) {
        if found.is_empty() {
            warn!(name, "no peers by that name; those known before stay");
            return;
        }
        let gone: Vec<_> = self
            .resolved
            .extract_if(.., |address, _| !found.contains(address))
            .collect();
        for (address, (peer, task)) in gone {
            info!(fleet = self.fleet.name(), %address, "peer is gone from its name");
            task.abort();
            if let Some(peers) = self.fleet.peers() {
                peers.remove(peer);
            }
        }
        for address in found {
            if !self.resolved.contains_key(&address)
                && let Some(followed) = self.follow(&address.to_string())
            {
                self.resolved.insert(address, followed);
            }
        }
    }

    fn follow(&mut self, address: &str) -> Option<(PeerId, AbortHandle)> {
        let peer = self.fleet.peers()?.add(address);
        info!(fleet = self.fleet.name(), address, "asks a peer");
        let follower = Follower {
            fleet: Arc::clone(&self.fleet),
            peer,
            address: address.to_owned(),
            every: self.config.every,
            wanted: Wanted {
                fleet: self.config.fleet.clone(),
                models: self.config.models.clone(),
            },
        };
        let client = FetchConfig {
            authority: address.to_owned(),
            path: format!("/metrics?fleet={}", self.config.fleet),
            timeout: self.config.timeout,
            is_marked: true,
        };
        let client = Client::new(client, self.fleet.clock());
        Some((peer, self.tasks.spawn(follower.run(client))))
    }
}

/// One peer's task.
struct Follower {
    fleet: Arc<Fleet>,
    peer: PeerId,
    address: String,
    every: Duration,
    wanted: Wanted,
}

impl Follower {
    async fn run(self, mut client: Client) {
        let mut failures = 0;
        loop {
            match self.ask(&mut client).await {
                Ok(()) => {
                    if failures > 0 {
                        info!(
                            fleet = self.fleet.name(),
                            peer = self.address,
                            "peer answers"
                        );
                    }
                    failures = 0;
                }
                Err(failure) => {
                    failures += 1;
                    let why = failure.to_string();
                    let was_well = self
                        .fleet
                        .peers()
                        .is_some_and(|peers: &Peers| peers.on_failure(self.peer, why.clone()));
                    if was_well {
                        warn!(
                            fleet = self.fleet.name(),
                            peer = self.address,
                            why,
                            "peer does not answer"
                        );
                    }
                }
            }
            sleep(pause(self.every, failures)).await;
        }
    }

    async fn ask(&self, client: &mut Client) -> Result<(), Failure> {
        let mut page = Page::new(&self.wanted);
        let at = client.fetch(|sample| page.take(sample)).await?;
        self.fleet.on_peer_reading(at, self.peer, &page.counted()?);
        Ok(())
    }
}

/// Returns how long to wait before the next question: twice as long after each failure, a little
/// more or less each time so that many askers do not ask at the same moment.
fn pause(every: Duration, failures: u32) -> Duration {
    let longer = every.saturating_mul(1 << failures.min(6));
    let pause = longer.min(PAUSE_MAX).max(every);
    pause.mul_f64(0.9 + 0.2 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_failures_within_a_bound() {
        let every = Duration::from_secs(1);
        for failures in 0..100 {
            let pause = pause(every, failures);
            assert!(pause >= every.mul_f64(0.9), "{failures}: {pause:?}");
            assert!(pause <= PAUSE_MAX.mul_f64(1.1), "{failures}: {pause:?}");
        }
        assert!(pause(every, 2) > every * 3);
        assert!(pause(PAUSE_MAX * 2, 5) >= PAUSE_MAX);
    }
}
