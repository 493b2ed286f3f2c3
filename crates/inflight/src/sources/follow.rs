//! Asks many systems for their pages, each in a task of its own: listed ones, the addresses of a DNS
//! name that is resolved again and again, or the replicas that our own target starts.
//!
//! What is asked and what is made of an answer is the reader's matter; here each is asked once an
//! interval, one that fails ever more rarely, within a bound that keeps a returning one's numbers
//! fresh.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use inflight_core::load::PeerId;
use tokio::net::lookup_host;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::fetch::{Client, FetchConfig};
use crate::config::{PageUrl, PagesSettings};
use crate::fleet::{Fleet, PeerKind};

/// The longest pause after failures: well under the time after which a reading is stale.
const PAUSE_MAX: Duration = Duration::from_secs(8);
/// How often the name is resolved.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);
/// How long resolving may take; the resolver's own patience is longer.
const RESOLVE_WITHIN: Duration = Duration::from_secs(10);

/// Reads one system's pages.
pub(super) trait Reader: Send + 'static {
    /// Asks once, and writes down what was read. Fails with the reason, for people.
    fn read(
        &mut self,
        client: &mut Client,
        fleet: &Fleet,
        peer: PeerId,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// Which systems are asked, and how.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: PeerKind,
    pub(super) pages: PagesSettings,
    /// The most of them that are asked; a name with more addresses is a fault.
    pub(super) most: usize,
    pub(super) every: Duration,
    pub(super) timeout: Duration,
    /// Whether a page has an end mark whatever its type.
    pub(super) is_marked: bool,
}

/// Follows systems of one kind.
pub(super) struct Follow<R, N> {
    fleet: Arc<Fleet>,
    asked: Asked,
    /// Makes a reader for one system, and the path that it asks for where one is configured.
    new_reader: N,
    tasks: JoinSet<()>,
    /// Those whose addresses come and go.
    followed: BTreeMap<SocketAddr, (PeerId, AbortHandle)>,
    /// Those that are read a last time.
    leaving: BTreeMap<SocketAddr, (PeerId, AbortHandle)>,
    /// Stands for those that nobody asks.
    unasked: Option<PeerId>,
    reader: std::marker::PhantomData<fn() -> R>,
}

/// What becomes of a system that is not to be asked any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    /// It is gone already.
    Forgotten,
    /// It is still there: read a last time, all that it has done is in its counters.
    ReadOnceMore,
}

impl<R: Reader, N: Fn(&str) -> (R, String)> Follow<R, N> {
    pub(super) fn new(fleet: Arc<Fleet>, asked: Asked, new_reader: N) -> Self {
        Self {
            fleet,
            asked,
            new_reader,
            tasks: JoinSet::new(),
            followed: BTreeMap::new(),
            leaving: BTreeMap::new(),
            unasked: None,
            reader: std::marker::PhantomData,
        }
    }

    /// Asks until `stop` fires. Panics as a reader does: without it nobody would ask one system any
    /// more, and none would be the wiser.
    pub(super) async fn run(mut self, stop: oneshot::Receiver<()>) {
        for page in self.asked.pages.listed.clone() {
            self.follow(&page.authority, &page.path);
        }
        tokio::select! {
            // A dropped sender means that we are ending anyway.
            _ = stop => {}
            () = self.keep_up() => {}
        }
        self.tasks.shutdown().await;
    }

    async fn keep_up(&mut self) {
        if let Some(port) = self.asked.pages.port.clone() {
            self.keep_to_replicas(&port).await;
        } else if let Some(page) = self.asked.pages.dns.clone() {
            self.keep_resolving(page).await;
        }
        self.ask_until(std::future::pending()).await
    }

    /// Waits for something while the tasks ask. Panics as one of them did.
    async fn ask_until<T>(&mut self, event: impl Future<Output = T>) -> T {
        let mut event = pin!(event);
        loop {
            tokio::select! {
                happened = &mut event => return happened,
                Some(ended) = self.tasks.join_next() => if let Err(error) = ended
                    && let Ok(panic) = error.try_into_panic()
                {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }

    /// Follows the replicas that others are told of.
    async fn keep_to_replicas(&mut self, port: &str) {
        let fleet = Arc::clone(&self.fleet);
        let Some(published) = fleet.published() else {
            return;
        };
        let mut serving = published.serving();
        loop {
            let replicas = serving.borrow_and_update().clone();
            let pages = replicas.iter().map(|replica| replica.at_port(port));
            // Those that an earlier process of ours started may lack it.
            let lacks = pages.clone().any(|page| page.is_none());
            self.stand_for(lacks.then(|| format!("replicas without port {port}")));
            let pages = pages.flatten().collect();
            self.follow_exactly(&pages, "/", Gone::ReadOnceMore);
            if self.ask_until(serving.changed()).await.is_err() {
                return;
            }
        }
    }

    async fn keep_resolving(&mut self, page: PageUrl) {
        let (name, fleet) = (page.authority.as_str(), Arc::clone(&self.fleet));
        let fleet = fleet.name();
        loop {
            let resolved = timeout(RESOLVE_WITHIN, lookup_host(name));
            match self.ask_until(resolved).await {
                Ok(Ok(found)) => self.on_resolved(name, &page.path, found.collect()),
                // What was found before stays: a resolver in trouble is no sign that peers went.
                Ok(Err(error)) => warn!(fleet, name, %error, "a name cannot be resolved"),
                Err(_) => warn!(fleet, name, "a name cannot be resolved in time"),
            }
            self.ask_until(sleep(RESOLVE_EVERY)).await;
        }
    }

    fn on_resolved(&mut self, name: &str, path: &str, found: BTreeSet<SocketAddr>) {
        let (fleet, most) = (Arc::clone(&self.fleet), self.asked.most);
        let (fleet, count) = (fleet.name(), found.len());
        if found.is_empty() {
            warn!(
                fleet,
                name, "no address by that name; those known before stay"
            );
            return;
        }
        if count > most {
            warn!(fleet, name, count, most, "too many addresses by that name");
        }
        self.stand_for((count > most).then(|| format!("{name} (too many addresses)")));
        let asked = found.into_iter().take(most).collect();
        self.follow_exactly(&asked, path, Gone::Forgotten);
    }

    /// Lets a peer that is never read stand for those that nobody asks, or for none: without them
    /// what is read is the least there is.
    fn stand_for(&mut self, unasked: Option<String>) {
        match unasked {
            Some(address) if self.unasked.is_none() => {
                let kind = self.asked.kind;
                self.unasked = self.fleet.peers().map(|peers| peers.add(kind, &address));
            }
            Some(_) => {}
            None => {
                if let Some(peer) = self.unasked.take() {
                    self.remove(peer);
                }
            }
        }
    }

    /// Asks those at these addresses and no others.
    fn follow_exactly(&mut self, addresses: &BTreeSet<SocketAddr>, path: &str, gone: Gone) {
        self.leaving.retain(|_, (_, task)| !task.is_finished());
        let left: Vec<_> = self
            .followed
            .extract_if(.., |address, _| !addresses.contains(address))
            .collect();
        for (address, (peer, task)) in left {
            info!(fleet = self.fleet.name(), %address, "a peer is gone");
            task.abort();
            match gone {
                Gone::Forgotten => self.remove(peer),
                Gone::ReadOnceMore => {
                    let task = self.read_last(address, peer, path);
                    self.leaving.insert(address, (peer, task));
                }
            }
        }
        for &address in addresses {
            if self.followed.contains_key(&address) {
                continue;
            }
            // One that is taken back counts once.
            if let Some((peer, task)) = self.leaving.remove(&address) {
                task.abort();
                self.remove(peer);
            }
            if let Some(followed) = self.follow(&address.to_string(), path) {
                self.followed.insert(address, followed);
            }
        }
    }

    fn read_last(&mut self, address: SocketAddr, peer: PeerId, path: &str) -> AbortHandle {
        let mut last = self.follower(peer, address.to_string(), path);
        self.tasks.spawn(async move {
            // One that ended by itself does not answer, which is no fault.
            let read = last.reader.read(&mut last.client, &last.fleet, peer);
            read.await.ok();
            if let Some(peers) = last.fleet.peers() {
                peers.remove(peer);
            }
        })
    }

    fn remove(&self, peer: PeerId) {
        if let Some(peers) = self.fleet.peers() {
            peers.remove(peer);
        }
    }

    fn follow(&mut self, authority: &str, path: &str) -> Option<(PeerId, AbortHandle)> {
        let kind = self.asked.kind;
        // The usual paths go without saying.
        let is_usual = path == "/" || path.starts_with("/metrics");
        let address = if is_usual {
            authority.to_owned()
        } else {
            format!("{authority}{path}")
        };
        let peer = self.fleet.peers()?.add(kind, &address);
        info!(
            fleet = self.fleet.name(),
            kind = kind.name(),
            address,
            "asks a peer"
        );
        let mut follower = self.follower(peer, authority.to_owned(), path);
        follower.address = address;
        Some((peer, self.tasks.spawn(follower.run())))
    }

    fn follower(&self, peer: PeerId, authority: String, path: &str) -> Follower<R> {
        let (reader, path) = (self.new_reader)(path);
        let config = FetchConfig {
            authority: authority.clone(),
            path,
            timeout: self.asked.timeout,
            is_marked: self.asked.is_marked,
        };
        Follower {
            client: Client::new(config, self.fleet.clock()),
            fleet: Arc::clone(&self.fleet),
            peer,
            address: authority,
            every: self.asked.every,
            reader,
        }
    }
}

/// One system's task.
struct Follower<R> {
    fleet: Arc<Fleet>,
    peer: PeerId,
    address: String,
    every: Duration,
    client: Client,
    reader: R,
}

impl<R: Reader> Follower<R> {
    async fn run(mut self) {
        let mut failures = 0;
        loop {
            let read = self.reader.read(&mut self.client, &self.fleet, self.peer);
            match read.await {
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
                Err(why) => {
                    failures += 1;
                    self.on_failure(why);
                }
            }
            sleep(pause(self.every, failures)).await;
        }
    }

    fn on_failure(&self, why: String) {
        let Some(peers) = self.fleet.peers() else {
            return;
        };
        if peers.on_failure(self.peer, why.clone()) {
            let fleet = self.fleet.name();
            warn!(fleet, peer = self.address, why, "peer does not answer");
        }
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
mod tests;
