//! The socket that Envoys ask at: bounded in connections, calls and bytes, and ended in order.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use inflight_proto::ext_authz::authorization_server::{Authorization, AuthorizationServer};
use inflight_proto::ext_authz::{CheckRequest, CheckResponse};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;

use super::question::Question;
use super::{ExtAuthzConfig, answer};
use crate::connections::{Activity, Connections, Watched};
use crate::fleet::Fleet;

/// Connections at the same time: an Envoy has one for each of its threads.
const CONNECTIONS_MAX: usize = 4_096;
/// Calls at once on one connection, those that wait included. Envoy opens another beyond them.
const CALLS_PER_CONNECTION: u32 = 4_096;
/// Questions on one connection that may be given up before they were looked at.
const RESETS_MAX: usize = 4_096;
/// A question is the call's headers, which Envoy holds to 60 KiB, and its body where that is asked
/// for, which nothing here reads.
const QUESTION_BYTES_MAX: usize = 1 << 20;
/// How long a question may take to come in whole.
const QUESTION_WITHIN: Duration = Duration::from_secs(10);
/// An Envoy that is gone without a word is found out after these two, and with it those who wait.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// How long answers that were begun may take after a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The pause after a failed accept (out of file descriptors, mostly), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens for Envoys.
#[derive(Debug)]
pub struct ExtAuthz {
    listener: TcpListener,
    address: SocketAddr,
    settings: watch::Sender<ExtAuthzConfig>,
}

impl ExtAuthz {
    /// Binds the address of the settings; port 0 takes any free port.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(config: ExtAuthzConfig) -> io::Result<Self> {
        Self::adopt(config.clone(), StdListener::bind(config.listen)?)
    }

    /// Goes on listening where another process of ours does.
    ///
    /// # Errors
    /// The socket is not one to listen on.
    pub fn adopt(config: ExtAuthzConfig, listener: StdListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            settings: watch::Sender::new(config),
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
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the way to other settings; where it listens stays.
    #[must_use]
    pub fn settings(&self) -> watch::Sender<ExtAuthzConfig> {
        self.settings.clone()
    }

    /// Answers for a fleet until `stop`; then refuses those that wait, and lets answers end.
    pub async fn serve(self, fleet: Arc<Fleet>, stop: impl Future<Output = ()>) {
        let (end, ending) = watch::channel(false);
        let gate = Gate {
            fleet,
            settings: self.settings.subscribe(),
            ending,
        };
        let service = AuthorizationServer::new(gate).max_decoding_message_size(QUESTION_BYTES_MAX);
        let graceful = GracefulShutdown::new();
        let mut connections = Connections::new(CONNECTIONS_MAX);
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(()) = connections.ended() => {}
                (stream, peer) = accept(&self.listener) => {
                    let activity = Activity::new();
                    let stream = Watched::new(stream, Arc::clone(&activity));
                    let service = service.clone();
                    let answer = service_fn(move |request| answer(service.clone(), request));
                    let connection = protocol().serve_connection(TokioIo::new(stream), answer);
                    let connection = graceful.watch(connection);
                    connections.add(peer.ip(), Arc::clone(&activity), async move {
                        tokio::select! {
                            served = connection => if let Err(error) = served {
                                tracing::debug!(%error, "a connection of Envoy ended early");
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
            tracing::warn!("connections of Envoy were cut that did not end by themselves");
        }
        connections.cut().await;
    }
}

/// What one fleet answers.
#[derive(Debug)]
struct Gate {
    fleet: Arc<Fleet>,
    settings: watch::Receiver<ExtAuthzConfig>,
    ending: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl Authorization for Gate {
    async fn check(
        &self,
        request: tonic::Request<CheckRequest>,
    ) -> Result<tonic::Response<CheckResponse>, Status> {
        let Question { call, is_grpc } =
            Question::read(&request.into_inner(), &self.settings.borrow());
        let response = match self.fleet.check(call, self.ending.clone()).await {
            Ok(()) => answer::let_in(),
            Err(refusal) => answer::refused(&refusal, is_grpc, fastrand::u64(..)),
        };
        Ok(tonic::Response::new(response))
    }
}

/// Takes a question in, bounded in bytes and time, and answers it in whatever time that takes.
async fn answer(
    mut service: AuthorizationServer<Gate>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, QUESTION_BYTES_MAX).collect();
    let body: Bytes = match timeout(QUESTION_WITHIN, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return Ok(Status::invalid_argument("the question is too long").into_http()),
        Err(_) => return Ok(Status::deadline_exceeded("the question did not end").into_http()),
    };
    service
        .call(Request::from_parts(head, Full::new(body)))
        .await
}

fn protocol() -> http2::Builder<TokioExecutor> {
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWERED_WITHIN)
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        // Envoy gives questions up that are late: no reason to close a connection others wait on.
        .max_pending_accept_reset_streams(RESETS_MAX);
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
                tracing::warn!(%error, "a connection of Envoy could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
