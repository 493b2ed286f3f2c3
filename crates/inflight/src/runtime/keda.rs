//! Where KEDA asks: one server for each address, for all fleets that name it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use tokio::task::{JoinError, JoinSet};
use tracing::info;

use super::handover::{Offer, SocketKind, Sockets};
use super::leaving::Leaving;
use super::part::Part;
use crate::config::{FleetConfig, Target};
use crate::fleet::Roster;
use crate::targets::keda::KedaListener;

/// The servers, by the address that the configuration says.
#[derive(Default)]
pub(super) struct KedaServers(BTreeMap<SocketAddr, Server>);

/// What is bound and not yet served.
#[derive(Default)]
pub(super) struct Bound(Vec<(SocketAddr, KedaListener, OwnedFd)>);

/// Another set of addresses, in which nothing can fail any more.
pub(super) struct Change {
    wanted: BTreeSet<SocketAddr>,
    bound: Bound,
}

struct Server {
    address: SocketAddr,
    /// A copy of the listening socket, for a successor.
    listener: OwnedFd,
    part: Part,
}

/// Returns the addresses that fleets are asked for at.
pub(super) fn addresses(fleets: &[FleetConfig]) -> BTreeSet<SocketAddr> {
    let address = |fleet: &FleetConfig| match fleet.target {
        Target::Keda { listen } => Some(listen),
        Target::Process(_) | Target::Advise => None,
    };
    fleets.iter().filter_map(address).collect()
}

impl Bound {
    /// Binds addresses, or goes on with the sockets that were passed on.
    ///
    /// # Errors
    /// One cannot be listened on.
    pub(super) fn new(
        addresses: impl IntoIterator<Item = SocketAddr>,
        sockets: &mut Sockets,
    ) -> anyhow::Result<Self> {
        let mut bound = Vec::new();
        for configured in addresses {
            let listener = match sockets.take_listener(SocketKind::Keda, "", configured) {
                Some(listener) => KedaListener::adopt(configured, listener),
                None => KedaListener::bind(configured),
            };
            let listener = listener.and_then(|it| Ok((it.listener()?, it)));
            let (copy, listener) =
                listener.with_context(|| format!("target.keda.listen: {configured}"))?;
            bound.push((configured, listener, copy));
        }
        Ok(Self(bound))
    }
}

impl KedaServers {
    /// Serves what is bound.
    pub(super) fn start(bound: Bound, roster: &Arc<Roster>) -> Self {
        let mut servers = Self::default();
        servers.add(bound, roster);
        servers
    }

    fn add(&mut self, bound: Bound, roster: &Arc<Roster>) {
        for (configured, keda, listener) in bound.0 {
            let (address, roster) = (keda.local_addr(), Arc::clone(roster));
            info!(listen = %address, "KEDA may ask");
            let part = Part::start("the external scaler", |stop| {
                // A dropped sender ends it just as well.
                keda.serve(roster, async { stop.await.unwrap_or_default() })
            });
            let server = Server {
                address,
                listener,
                part,
            };
            self.0.insert(configured, server);
        }
    }

    /// Binds the addresses of other settings that are not served yet. Nothing is changed.
    ///
    /// # Errors
    /// One cannot be listened on.
    pub(super) fn plan(&self, fleets: &[FleetConfig]) -> anyhow::Result<Change> {
        let wanted = addresses(fleets);
        let others = wanted.iter().filter(|it| !self.0.contains_key(it)).copied();
        let bound = Bound::new(others, &mut Sockets::default())?;
        Ok(Change { wanted, bound })
    }

    /// Serves where it is wanted, and ends elsewhere.
    pub(super) fn apply(&mut self, change: Change, roster: &Arc<Roster>, leaving: &mut Leaving) {
        self.add(change.bound, roster);
        let gone = self.0.extract_if(.., |it, _| !change.wanted.contains(it));
        for (configured, server) in gone {
            info!(listen = %configured, "KEDA asks here no more");
            leaving.add(server.end());
        }
    }

    /// Returns where one listens that is configured so.
    pub(super) fn address(&self, configured: SocketAddr) -> Option<SocketAddr> {
        Some(self.0.get(&configured)?.address)
    }

    /// Adds what a successor needs to go on listening.
    pub(super) fn offer<'a>(&'a self, offer: &mut Offer<'a>) {
        for server in self.0.values() {
            let (address, listener) = (server.address, server.listener.as_fd());
            offer.add(SocketKind::Keda, "", Some(address), listener);
        }
    }

    /// Is ready with the name of a part that ended although nobody told it to.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        for server in self.0.values_mut() {
            if let Poll::Ready(name) = server.part.poll_failed(cx) {
                return Poll::Ready(name);
            }
        }
        Poll::Pending
    }

    /// Ends all: who asks is told to ask again, and finds our successor if there is one.
    ///
    /// # Errors
    /// A part of it ended by a panic.
    pub(super) async fn stop(self) -> Result<(), JoinError> {
        let mut ending: JoinSet<_> = self.0.into_values().map(Server::end).collect();
        let mut result = Ok(());
        while let Some(ended) = ending.join_next().await {
            result = result.and(ended.and_then(|ended| ended));
        }
        result
    }
}

impl Server {
    async fn end(self) -> Result<(), JoinError> {
        // While there is a copy the system lets others connect, and nobody would accept them.
        drop(self.listener);
        self.part.end().await
    }
}
