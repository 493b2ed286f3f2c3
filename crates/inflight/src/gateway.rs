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
mod forwarded;
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
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::net::TcpListener;

pub use config::{
    GatewayConfig, Limits, ModelRoute, Network, SessionBy, Timeouts, UpstreamProtocol,
};

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
#[error("gateway.listen {address}: {source}")]
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
    /// Set once no client is accepted any more.
    is_draining: AtomicBool,
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

    /// Goes on listening where another process of ours does.
    ///
    /// # Errors
    /// The socket is not one to listen on.
    pub fn adopt(
        config: GatewayConfig,
        listener: std::net::TcpListener,
    ) -> Result<Self, BindError> {
        let fails = |source| BindError {
            address: config.listen,
            source,
        };
        listener.set_nonblocking(true).map_err(fails)?;
        let listener = TcpListener::from_std(listener).map_err(fails)?;
        let address = listener.local_addr().map_err(fails)?;
        Ok(Self {
            config,
            listener,
            address,
        })
    }

    /// Returns a copy of the listening socket; clients are accepted for as long as there is one.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn listener(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
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
            is_draining: AtomicBool::new(false),
            config: self.config,
            fleet,
        });
        listener::serve(self.listener, shared, shutdown).await;
    }
}
