//! The open connections of a small server of ours: bounded, and never all taken by those that say
//! nothing.
//!
//! When there is no place for another, one is closed: of the peer that has most, the one on which
//! nothing has moved for longest, so that a probe always gets in. One on which nothing comes soon is
//! closed, and one on which nothing moves for longer than a scraper pauses.

pub mod grpc;
mod watched;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep_until};

pub use watched::Watched;

/// How long the first head of a connection may take.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long nothing may move: longer than a scrape interval of one minute, so that a scraper
/// keeps its connection.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// When something last moved on a connection.
#[derive(Debug)]
pub struct Activity {
    opened: Instant,
    /// Nanoseconds since `opened`; zero before the first request.
    moved: AtomicU64,
}

/// Who is connected.
#[derive(Debug)]
pub struct Connections {
    tasks: JoinSet<()>,
    open: BTreeMap<Id, Open>,
    max: usize,
}

#[derive(Debug)]
struct Open {
    peer: IpAddr,
    activity: Arc<Activity>,
    task: AbortHandle,
}

impl Activity {
    /// Says that a connection was opened.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            moved: AtomicU64::new(0),
        })
    }

    /// Says that something moves.
    pub fn touch(&self) {
        let nanos = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.moved.store(nanos.max(1), Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.opened + Duration::from_nanos(self.moved.load(Ordering::Relaxed))
    }

    /// Waits until nothing has moved for too long.
    pub async fn is_over(&self) {
        loop {
            let is_first = self.moved.load(Ordering::Relaxed) == 0;
            let patience = if is_first { HEAD_MAX } else { IDLE_MAX };
            let end = self.last() + patience;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

impl Connections {
    /// Builds none, of which there are to be `max` at most.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            tasks: JoinSet::new(),
            open: BTreeMap::new(),
            max,
        }
    }

    /// Serves one more, in place of another if there are too many.
    pub fn add(
        &mut self,
        peer: IpAddr,
        activity: Arc<Activity>,
        serve: impl Future<Output = ()> + Send + 'static,
    ) {
        if self.open.len() >= self.max
            && let Some(open) = self.worst().and_then(|id| self.open.remove(&id))
        {
            tracing::debug!(peer = %open.peer, "a connection gives its place to another");
            open.task.abort();
        }
        let task = self.tasks.spawn(serve);
        let open = Open {
            peer,
            activity,
            task,
        };
        self.open.insert(open.task.id(), open);
    }

    /// Finds the one that goes first.
    fn worst(&self) -> Option<Id> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for open in self.open.values() {
            *counts.entry(open.peer).or_insert(0) += 1;
        }
        let order = |(_, open): &(&Id, &Open)| {
            (
                counts.get(&open.peer).copied(),
                Reverse(open.activity.last()),
            )
        };
        self.open.iter().max_by_key(order).map(|(&id, _)| id)
    }

    /// Takes away the next that ended; `None` while there is none at all.
    pub async fn ended(&mut self) -> Option<()> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        self.open.remove(&id);
        Some(())
    }

    /// Cuts all.
    pub async fn cut(mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn silent(connections: &mut Connections, peer: u8) {
        let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, peer));
        connections.add(peer, Activity::new(), std::future::pending());
    }

    #[tokio::test]
    async fn a_peer_that_takes_every_place_gives_one_up_and_nobody_else_does() {
        let mut connections = Connections::new(4);
        silent(&mut connections, 1);
        for _ in 0..20 {
            silent(&mut connections, 2);
        }
        silent(&mut connections, 3);
        let mut peers: Vec<_> = connections.open.values().map(|open| open.peer).collect();
        peers.sort();
        let last: Vec<_> = peers.iter().map(|peer| peer.to_string()).collect();
        assert_eq!(last, ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"]);
        connections.cut().await;
    }
}
