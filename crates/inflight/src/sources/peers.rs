//! Source `inflight`: other instances' counters of the same fleet, read from their metric pages.
//!
//! What their counters add up to is the core's matter.

use std::sync::Arc;
use std::time::Duration;

use inflight_core::load::PeerId;
use tokio::sync::oneshot;

use super::fetch::Client;
use super::follow::{Asked, Follow, Reader};
use super::page::{Page, Wanted};
use crate::config::{PageUrl, PagesSettings};
use crate::fleet::{Fleet, PeerKind};

/// Addresses of a name that are asked at most.
const PEERS_MAX: usize = 100;

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
    config: PeersConfig,
}

impl PeerSource {
    /// Builds a source for a fleet that has peers.
    #[must_use]
    pub const fn new(fleet: Arc<Fleet>, config: PeersConfig) -> Self {
        Self { fleet, config }
    }

    /// Asks until `stop` fires.
    pub async fn run(self, stop: oneshot::Receiver<()>) {
        let config = self.config;
        let path = format!("/metrics?fleet={}", config.fleet);
        let page = |authority: &String| PageUrl {
            authority: authority.clone(),
            path: path.clone(),
        };
        let asked = Asked {
            kind: PeerKind::Instance,
            pages: PagesSettings {
                listed: config.listed.iter().map(page).collect(),
                dns: config.dns.as_ref().map(page),
                port: None,
            },
            most: PEERS_MAX,
            every: config.every,
            timeout: config.timeout,
            is_marked: true,
        };
        let wanted = Arc::new(Wanted {
            fleet: config.fleet,
            models: config.models,
        });
        let reader = |path: &str| (InstanceReader(Arc::clone(&wanted)), path.to_owned());
        Follow::new(self.fleet, asked, reader).run(stop).await;
    }
}

/// Reads the counters of one fleet from an instance's page.
struct InstanceReader(Arc<Wanted>);

impl Reader for InstanceReader {
    async fn read(
        &mut self,
        client: &mut Client,
        fleet: &Fleet,
        peer: PeerId,
    ) -> Result<(), String> {
        let mut page = Page::new(&self.0);
        let read = client.fetch(|sample| page.take(sample)).await;
        let at = read.map_err(|error| error.to_string())?;
        let counted = page.counted().map_err(|error| error.to_string())?;
        fleet.on_peer(|peers| peers.on_reading(at, peer, &counted));
        Ok(())
    }
}
