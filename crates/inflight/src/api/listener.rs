//! The socket of the admin API: bounded in connections, and stopped without cutting an answer.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use super::Api;
use super::moving::Moving;
use crate::connections::{Activity, Connections};

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 256;

/// Bytes of a connection that are held unread or unsent; far more than a head of ours.
const BUFFER_MAX: usize = 64 << 10;

/// How long answers that were begun may take after a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The pause after a failed accept (out of file descriptors, mostly), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the admin API cannot be served.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The address cannot be had.
    #[error("admin.listen: cannot listen on {address}: {cause}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
}

/// The admin API's socket, bound and not yet served.
#[derive(Debug)]
pub struct AdminListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl AdminListener {
    /// Binds the address; port 0 takes any free port.
    ///
    /// # Errors
    /// [`ListenError::Bind`] with the address and the cause.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |cause| ListenError::Bind { address, cause };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Goes on listening where another process of ours does.
    ///
    /// # Errors
    /// [`ListenError::Bind`]: the socket is not one to listen on.
    pub fn adopt(
        configured: SocketAddr,
        listener: std::net::TcpListener,
    ) -> Result<Self, ListenError> {
        let failed = |cause| ListenError::Bind {
            address: configured,
            cause,
        };
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Returns a copy of the listening socket.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn listener(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Returns the address that was bound.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is ready, then lets answers that were begun end.
    pub async fn serve(self, api: Api, stop: impl Future<Output = ()>) {
        let events = Arc::clone(api.story.events());
        let router = api.router();
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_MAX);
        let graceful = GracefulShutdown::new();
        let mut connections = Connections::new(CONNECTIONS_MAX);
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(()) = connections.ended() => {}
                (stream, peer) = accept(&self.listener) => {
                    let activity = Activity::new();
                    let service = service(router.clone(), Arc::clone(&activity));
                    let connection = builder.serve_connection(TokioIo::new(stream), service);
                    let connection = graceful.watch(connection);
                    connections.add(peer.ip(), Arc::clone(&activity), async move {
                        tokio::select! {
                            served = connection => if let Err(error) = served {
                                tracing::debug!(%error, "an admin connection ended early");
                            },
                            () = activity.is_over() => {}
                        }
                    });
                }
            }
        }
        drop(self.listener);
        events.close();
        if timeout(STOP_GRACE, graceful.shutdown()).await.is_err() {
            tracing::warn!("admin connections were cut that did not end by themselves");
        }
        connections.cut().await;
    }
}

/// Returns the routes as one connection has them.
fn service(
    router: Router,
    activity: Arc<Activity>,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<Moving>,
    Error = Infallible,
    Future: Send,
> {
    let routes = TowerToHyperService::new(router);
    service_fn(move |request| {
        activity.touch();
        let activity = Arc::clone(&activity);
        let answer = routes.call(request);
        async move { Ok(answer.await?.map(|body| Moving::new(body, activity))) }
    })
}

/// Waits for the next connection. A failed accept is not the end: it is tried again.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
