//! A request's way through us: accepted, admitted, held until a slot is free, forwarded, relayed.
//!
//! HTTP/1.1 and HTTP/2 without TLS on one port; bodies are streamed, never parsed, never held
//! whole. It decides nothing: who is admitted and which replica serves is the fleet's gate's
//! business.

mod body;
mod config;
mod connection;
mod deadline;
mod fault;
mod headers;
mod listener;
mod proxy;
mod pulse;
mod refusal;
mod route;
mod straggler;
mod tunnel;
mod upload;
mod upstream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

pub use config::{GatewayConfig, Limits, ModelRoute, SessionBy, Timeouts, UpstreamProtocol};

use crate::fleet::Fleet;
use headers::Hop;
use route::Routes;
use straggler::Stragglers;
use upstream::Upstream;

/// A gateway that listens, but serves nobody yet.
#[derive(Debug)]
pub struct Gateway {
    settings: watch::Sender<GatewayConfig>,
    listener: TcpListener,
    address: SocketAddr,
}

/// Why a gateway cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("source.gateway.listen: cannot listen on {address}")]
pub struct BindError {
    /// Where it should have listened.
    pub address: SocketAddr,
    /// What the system said.
    pub source: io::Error,
}

/// What the requests of a gateway share that began under the same settings.
struct Shared {
    config: GatewayConfig,
    fleet: Arc<Fleet>,
    routes: Routes,
    upstream: Arc<Upstream>,
    hop: Hop,
    stragglers: Arc<Stragglers>,
}

impl Gateway {
    /// Starts to listen. Clients that connect wait until [`Gateway::serve`] takes them.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(config: GatewayConfig) -> Result<Self, BindError> {
        let address = config.listen;
        let fails = |source| BindError { address, source };
        let listener = listener::bind(address).map_err(fails)?;
        let address = listener.local_addr().map_err(fails)?;
        Ok(Self {
            settings: watch::Sender::new(config),
            listener,
            address,
        })
    }

    /// Returns the address it listens on, with the port that the system chose for port 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns where to put other settings at any time, served or not. The address in them is not
    /// looked at: another one needs a gateway of its own.
    ///
    /// Requests that began keep theirs, and connections keep what they may send (`limits.head`,
    /// `limits.headers`) and how long they may idle.
    #[must_use]
    pub fn settings(&self) -> watch::Sender<GatewayConfig> {
        self.settings.clone()
    }

    /// Serves the fleet's clients until `shutdown` ends, then lets what is open finish for up to
    /// `timeouts.drain`, then cuts it. Dropping the future cuts everything at once.
    pub async fn serve(self, fleet: Arc<Fleet>, shutdown: impl Future<Output = ()>) {
        let settings = self.settings.subscribe();
        let config = settings.borrow().clone();
        let shared = Shared {
            routes: Routes::new(&config),
            upstream: Arc::new(Upstream::new(config.upstream, config.timeouts)),
            hop: Hop::new(fastrand::u64(..)),
            stragglers: Arc::default(),
            config,
            fleet,
        };
        listener::serve(self.listener, settings, shared, shutdown).await;
    }
}

impl Shared {
    /// Returns what is shared under other settings. Connections to replicas are kept unless the
    /// way of making them changed.
    fn configured(&self, config: GatewayConfig) -> Self {
        let keeps_upstream =
            (config.upstream, config.timeouts) == (self.config.upstream, self.config.timeouts);
        Self {
            routes: Routes::new(&config),
            upstream: if keeps_upstream {
                Arc::clone(&self.upstream)
            } else {
                Arc::new(Upstream::new(config.upstream, config.timeouts))
            },
            hop: self.hop.clone(),
            stragglers: Arc::clone(&self.stragglers),
            config,
            fleet: Arc::clone(&self.fleet),
        }
    }
}
