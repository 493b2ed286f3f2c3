//! A socket that others ask at over gRPC: bounded in connections, and ended in order.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::body::Body;

use super::{Activity, Connections, Watched};

/// A peer that is gone without a word, or hangs, is found out after these two, and with it those
/// who wait.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// How long answers that were begun may take after a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// The pause after a failed accept (out of file descriptors, mostly), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub struct GrpcListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// Who asks, and how much at once.
#[derive(Debug)]
pub struct Askers {
    /// Their name in the log.
    pub name: &'static str,
    /// Connections at the same time.
    pub connections_max: usize,
    /// What one connection may do.
    pub protocol: http2::Builder<TokioExecutor>,
}

/// Returns HTTP/2 as all of our gRPC servers speak it: with pings, and so many calls at once on one
/// connection, those that wait and streams included.
#[must_use]
pub fn protocol(calls_max: u32) -> http2::Builder<TokioExecutor> {
    let mut protocol = http2::Builder::new(TokioExecutor::new());
    protocol
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWERED_WITHIN)
        .max_concurrent_streams(calls_max);
    protocol
}

impl GrpcListener {
    /// Binds an address; port 0 takes any free port.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::adopt(StdListener::bind(address)?)
    }

    /// Goes on listening where another process of ours does.
    ///
    /// # Errors
    /// The socket is not one to listen on.
    pub fn adopt(listener: StdListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
        })
    }

    /// Returns a copy of the socket.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Returns where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`: each connection's calls by what `connect` makes for it. Then sets
    /// `end`, on which calls without an end of their own have to end, and lets answers that were
    /// begun end.
    pub async fn serve<C, A, F>(
        self,
        askers: Askers,
        connect: C,
        end: watch::Sender<bool>,
        stop: impl Future<Output = ()>,
    ) where
        C: Fn() -> A,
        A: Fn(Request<Incoming>) -> F + Send + 'static,
        F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
    {
        let Askers {
            name,
            connections_max,
            protocol,
        } = askers;
        let graceful = GracefulShutdown::new();
        let mut connections = Connections::new(connections_max);
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(()) = connections.ended() => {}
                (stream, peer) = accept(&self.listener, name) => {
                    let activity = Activity::new();
                    let stream = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
                    let connection = protocol.serve_connection(stream, service_fn(connect()));
                    let connection = graceful.watch(connection);
                    connections.add(peer.ip(), Arc::clone(&activity), async move {
                        tokio::select! {
                            served = connection => if let Err(error) = served {
                                tracing::debug!(asker = name, %error, "a connection ended early");
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
            tracing::warn!(
                asker = name,
                "connections were cut that did not end by themselves"
            );
        }
        connections.cut().await;
    }
}

/// Waits for the next connection. A failed accept is not the end: it is tried again.
async fn accept(listener: &TcpListener, name: &str) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it answers come a little later.
                stream.set_nodelay(true).ok();
                return (stream, peer);
            }
            Err(error) => {
                tracing::warn!(asker = name, %error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
