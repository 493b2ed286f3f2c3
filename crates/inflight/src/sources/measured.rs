//! Sources that measure a fleet which nobody of ours serves: proxies and the servers behind them,
//! or servers that stand alone. What they tell is joined by the core.

use std::sync::Arc;
use std::time::Duration;

use inflight_core::load::{Estimator, MeasuredBy, Patience, PeerId};
use tokio::sync::oneshot;

use super::envoy::{self, EnvoyPage};
use super::fetch::{Client, FetchError};
use super::follow::{Asked, Follow, Reader};
use super::servers::{ServerPage, ServerTable};
use crate::config::{EnvoyEstimator, EnvoySettings, ServerKind, ServersSettings};
use crate::fleet::{Fleet, PeerKind};

/// Proxies and servers that are asked at most.
const PROXIES_MAX: usize = 100;
const SERVERS_MAX: usize = 1_000;

/// How long a reading is fresh.
const STALE: Duration = Duration::from_secs(30);
/// Readings that a peer may miss before it is late, and the least time for them.
const LATE_READINGS: u32 = 3;
const LATE_MIN: Duration = Duration::from_secs(3);

/// Why a server is not read whose counters fall again and again.
const SEVERAL: &str = "its counters fell three times within a minute: several servers answer at this \
    address, or one that does not stay up";

/// What measures a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredConfig {
    /// The proxies; `None` where servers stand alone.
    pub envoy: Option<EnvoySettings>,
    /// The servers.
    pub servers: ServersSettings,
}

/// Asks proxies and servers of one fleet.
pub struct MeasuredSource {
    fleet: Arc<Fleet>,
    config: MeasuredConfig,
}

impl MeasuredConfig {
    /// Returns how the core joins what is read.
    #[must_use]
    pub fn measured_by(&self) -> MeasuredBy {
        let proxies = self.envoy.as_ref();
        MeasuredBy {
            proxies: proxies.map(|envoy| match envoy.estimator {
                EnvoyEstimator::Gauges => Estimator::LiveGauge,
                EnvoyEstimator::TimeSum => Estimator::CompletionCounter,
            }),
            servers: ServerTable::of(&self.servers.kind).estimator(),
            patience: Patience {
                late: LATE_MIN.max(self.servers.every * LATE_READINGS),
                stale: STALE,
            },
        }
    }
}

impl MeasuredSource {
    /// Builds a source.
    #[must_use]
    pub const fn new(fleet: Arc<Fleet>, config: MeasuredConfig) -> Self {
        Self { fleet, config }
    }

    /// Asks until `stop` fires.
    pub async fn run(self, stop: oneshot::Receiver<()>) {
        let (stop_proxies, proxies_stopped) = oneshot::channel();
        let proxies = self.config.envoy.map(|settings| {
            let asked = Asked {
                kind: PeerKind::Envoy,
                pages: settings.admin,
                most: PROXIES_MAX,
                every: settings.every,
                timeout: settings.timeout,
                is_marked: false,
            };
            let cluster: Arc<str> = settings.cluster.into();
            let reader = move |path: &str| {
                let has_path = path != "/";
                let reader = EnvoyReader {
                    cluster: Arc::clone(&cluster),
                    may_ask_for_all: !has_path,
                };
                (reader, if has_path { path } else { envoy::PAGE }.to_owned())
            };
            Follow::new(Arc::clone(&self.fleet), asked, reader).run(proxies_stopped)
        });
        let servers = self.config.servers;
        let asked = Asked {
            kind: match servers.kind {
                ServerKind::Triton { .. } => PeerKind::Triton,
                ServerKind::Vllm { .. } => PeerKind::Vllm,
                ServerKind::Custom(_) => PeerKind::Custom,
            },
            pages: servers.metrics,
            most: SERVERS_MAX,
            every: servers.every,
            timeout: servers.timeout,
            is_marked: false,
        };
        let table = Arc::new(ServerTable::of(&servers.kind));
        let reader = move |path: &str| {
            let path = if path == "/" { "/metrics" } else { path };
            (ServerReader(Arc::clone(&table)), path.to_owned())
        };
        let servers = Follow::new(self.fleet, asked, reader).run(stop);
        let servers = async {
            servers.await;
            // Without proxies nobody waits for this.
            stop_proxies.send(()).ok();
        };
        let proxies = async {
            if let Some(proxies) = proxies {
                proxies.await;
            }
        };
        tokio::join!(servers, proxies);
    }
}

struct EnvoyReader {
    cluster: Arc<str>,
    /// Whether the page with a filter is ours to replace.
    may_ask_for_all: bool,
}

impl Reader for EnvoyReader {
    async fn read(
        &mut self,
        client: &mut Client,
        fleet: &Fleet,
        peer: PeerId,
    ) -> Result<(), String> {
        let mut page = EnvoyPage::new(&self.cluster);
        let mut read = client.fetch(|sample| page.take(sample)).await;
        if self.may_ask_for_all
            && let Err(FetchError::Status(status)) = &read
            && status.is_client_error()
        {
            self.may_ask_for_all = false;
            client.ask_for(envoy::WHOLE_PAGE);
            page = EnvoyPage::new(&self.cluster);
            read = client.fetch(|sample| page.take(sample)).await;
        }
        let at = read.map_err(|error| error.to_string())?;
        let reading = page.reading().map_err(|error| error.to_string())?;
        fleet.on_peer(|peers| peers.on_proxy(at, peer, &reading));
        Ok(())
    }
}

struct ServerReader(Arc<ServerTable>);

impl Reader for ServerReader {
    async fn read(
        &mut self,
        client: &mut Client,
        fleet: &Fleet,
        peer: PeerId,
    ) -> Result<(), String> {
        let mut page = ServerPage::new(&self.0);
        let read = client.fetch(|sample| page.take(sample)).await;
        let at = read.map_err(|error| error.to_string())?;
        let reading = page.reading().map_err(|error| error.to_string())?;
        match fleet.on_peer(|peers| peers.on_server(at, peer, &reading)) {
            Some(false) => Err(SEVERAL.to_owned()),
            Some(true) | None => Ok(()),
        }
    }
}
