//! The socket that KEDA asks at: bounded in connections, calls and bytes, and ended in order.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use inflight_proto::externalscaler::external_scaler_server::{
    ExternalScalerServer, SERVICE_NAME as SCALER,
};
use inflight_proto::health::health_server::{HealthServer, SERVICE_NAME as HEALTH};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http::Response;

use super::service::Scaler;
use crate::connections::{Activity, Connections, Watched};
use crate::fleet::Roster;

/// Connections at the same time; KEDA has one for all triggers, and probes come and go.
const CONNECTIONS_MAX: usize = 32;
/// Calls at once on one connection: all its streams, and questions beside them.
const CALLS_PER_CONNECTION: u32 = 2_560;
/// Questions are a few hundred bytes.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// Headers of a call, which KEDA has few of.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Bytes that a connection may send ahead of us.
const WINDOW: u32 = 256 << 10;
/// How long a question may take to come in whole.
const QUESTION_WITHIN: Duration = Duration::from_secs(10);
/// A peer that is gone without a word, or hangs, is found out after these two.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// How long answers that were begun may take after a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The pause after a failed accept (out of file descriptors, mostly), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens for KEDA.
#[derive(Debug)]
pub struct KedaListener {
    listener: TcpListener,
    address: SocketAddr,
    configured: SocketAddr,
}

impl KedaListener {
    /// Binds an address; port 0 takes any free port.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(configured: SocketAddr) -> io::Result<Self> {
        Self::over(configured, TcpListener::bind(configured).await?)
    }

    /// Goes on listening where another process of ours does.
    ///
    /// # Errors
    /// The socket is not one to listen on.
    pub fn adopt(configured: SocketAddr, listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Self::over(configured, TcpListener::from_std(listener)?)
    }

    fn over(configured: SocketAddr, listener: TcpListener) -> io::Result<Self> {
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            configured,
        })
    }

    /// Returns a copy of the listening socket.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn listener(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers for the fleets of the roster that are asked for here, until `stop`; then ends the
    /// streams, which have no end of their own, and lets answers that were begun end.
    pub async fn serve(self, roster: Arc<Roster>, stop: impl Future<Output = ()>) {
        let (end, ending) = watch::channel(false);
        let graceful = GracefulShutdown::new();
        let mut connections = Connections::new(CONNECTIONS_MAX);
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(()) = connections.ended() => {}
                (stream, peer) = accept(&self.listener) => {
                    let activity = Activity::new();
                    let scaler = Scaler::new(Arc::clone(&roster), self.configured, ending.clone());
                    let routes = Routes::new(scaler);
                    let service = service_fn(move |request| routes.clone().answer(request));
                    let stream = Watched::new(stream, Arc::clone(&activity));
                    let connection = protocol().serve_connection(TokioIo::new(stream), service);
                    let connection = graceful.watch(connection);
                    connections.add(peer.ip(), Arc::clone(&activity), async move {
                        tokio::select! {
                            served = connection => if let Err(error) = served {
                                tracing::debug!(%error, "a connection of KEDA ended early");
                            },
                            () = activity.is_over() => {}
                        }
                    });
                }
            }
        }
        drop(self.listener);
        end.send_replace(true);
        if timeout(STOP_GRACE, graceful.shutdown()).await.is_err() {
            tracing::warn!("connections of KEDA were cut that did not end by themselves");
        }
        connections.cut().await;
    }
}

fn protocol() -> http2::Builder<TokioExecutor> {
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWERED_WITHIN)
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    protocol
}

/// Waits for the next connection. A failed accept is not the end: it is tried again.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it answers come a little later.
                stream.set_nodelay(true).ok();
                return (stream, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of KEDA could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The services, as one connection has them.
#[derive(Clone, Debug)]
struct Routes {
    scaler: ExternalScalerServer<Scaler>,
    health: HealthServer<Scaler>,
}

impl Routes {
    fn new(scaler: Scaler) -> Self {
        let health = HealthServer::new(scaler.clone());
        let scaler = ExternalScalerServer::new(scaler);
        Self {
            scaler: scaler.max_decoding_message_size(QUESTION_BYTES_MAX),
            health: health.max_decoding_message_size(QUESTION_BYTES_MAX),
        }
    }

    async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let service = request.uri().path().split('/').nth(1);
        let answer = match service {
            Some(SCALER) => self.scaler.call(request),
            Some(HEALTH) => self.health.call(request),
            _ => {
                let status = Status::unimplemented("no such service");
                return Ok(status.into_http());
            }
        };
        match timeout(QUESTION_WITHIN, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let status = Status::deadline_exceeded("the question did not end");
                Ok(status.into_http())
            }
        }
    }
}
