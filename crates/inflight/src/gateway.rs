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

pub use config::{GatewayConfig, Limits, ModelRoute, SessionBy, Timeouts, UpstreamProtocol};

use crate::fleet::Fleet;
use headers::Hop;
use route::Routes;
use straggler::Stragglers;
use upstream::Upstream;

/// A gateway that listens, but serves nobody yet.
#[derive(Debug)]
pub struct Gateway {
    config: GatewayConfig,
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

/// What all requests of a gateway share.
struct Shared {
    config: GatewayConfig,
    fleet: Arc<Fleet>,
    routes: Routes,
    upstream: Upstream,
    hop: Hop,
    stragglers: Stragglers,
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
            config,
            listener,
            address,
        })
    }

    /// Returns the address it listens on, with the port that the system chose for port 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves the fleet's clients until `shutdown` ends, then lets what is open finish for up to
    /// `timeouts.drain`, then cuts it. Dropping the future cuts everything at once.
    pub async fn serve(self, fleet: Arc<Fleet>, shutdown: impl Future<Output = ()>) {
        let shared = Arc::new(Shared {
            routes: Routes::new(&self.config),
            upstream: Upstream::new(self.config.upstream, self.config.timeouts),
            hop: Hop::new(fastrand::u64(..)),
            stragglers: Stragglers::default(),
            config: self.config,
            fleet,
        });
        listener::serve(self.listener, shared, shutdown).await;
    }
}
