//! HTTP/1.1 with a replica: idle connections, last used first.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::connect::{Driver, connect};
use super::patient::Patient;
use super::{Endpoint, Processed, SendError, with_head};
use crate::gateway::connection::{Io, Watcher};
use crate::gateway::fault::Fault;
use crate::gateway::headers;
use crate::gateway::upload::RequestBody;

/// Shorter than the shortest keep-alive in common use (5 s in Node, uvicorn and gunicorn), so
/// that we close first and no request meets a connection that is being closed.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// A connection that was idle for longer is looked at before it is used again.
const TRUSTED_FOR: Duration = Duration::from_millis(10);

/// Idle connections kept for one replica; more are open only while they are in use.
const KEPT_MAX: usize = 512;

/// Bytes of a response's head; of header lines hyper takes 100.
const HEAD_MAX: usize = 256 * 1024;

/// The idle connections to a replica.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

struct Connection {
    sender: SendRequest<RequestBody>,
    stream: Arc<TcpStream>,
    _driver: Driver,
}

/// A connection in use by one request. Dropping it closes the connection.
pub(in crate::gateway) struct Lease {
    endpoint: Arc<Endpoint>,
    connection: Connection,
    /// Where the replica and we may differ about a response's end, the connection ends with it.
    is_reusable: bool,
}

/// Sends a request on an idle connection or, if none takes it, on a fresh one.
pub(super) async fn send(
    endpoint: &Arc<Endpoint>,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, super::Lease), SendError> {
    let mut request = with_head(request, |head| {
        headers::address_http1(head, &endpoint.authority)
    });
    loop {
        let pooled = endpoint.http1.take(Instant::now());
        let is_fresh = pooled.is_none();
        let connection = match pooled {
            Some(connection) => connection,
            None => match open(endpoint).await {
                Ok(connection) => connection,
                Err(fault) => return Err(SendError::unsent(fault, request)),
            },
        };
        let mut lease = Lease {
            endpoint: Arc::clone(endpoint),
            connection,
            is_reusable: true,
        };
        // A connection that was just given back may still be finishing its last response.
        if !lease.connection.sender.is_ready() && lease.connection.sender.ready().await.is_err() {
            if is_fresh {
                let fault = closed(endpoint);
                return Err(SendError::unsent(fault, request));
            }
            continue;
        }
        let mut error = match lease.connection.sender.try_send_request(request).await {
            Ok(response) => {
                lease.is_reusable = !headers::has_two_lengths(response.headers());
                return Ok((response, super::Lease::Http1(lease)));
            }
            Err(error) => error,
        };
        let unsent = error.take_message();
        let fault = Fault::of_exchange(endpoint.bound.address, error.into_error());
        match unsent {
            Some(unsent) if !is_fresh => request = unsent,
            Some(unsent) => return Err(SendError::unsent(fault, unsent)),
            None => {
                return Err(SendError {
                    fault,
                    processed: Processed::Unknown,
                });
            }
        }
    }
}

impl Pool {
    /// Takes the connection that was used last; those too old to be trusted are dropped.
    fn take(&self, now: Instant) -> Option<Connection> {
        loop {
            let idle = self.lock().pop()?;
            let age = now.saturating_duration_since(idle.since);
            let connection = idle.connection;
            let is_usable = age < IDLE_MAX
                && !connection.sender.is_closed()
                && (age < TRUSTED_FOR || is_quiet(&connection.stream));
            if is_usable {
                return Some(connection);
            }
        }
    }

    fn put(&self, connection: Connection) {
        let idle = Idle {
            connection,
            since: Instant::now(),
        };
        let mut kept = self.lock();
        if kept.len() < KEPT_MAX {
            kept.push(idle);
        }
    }

    /// Drops what was idle for too long; the oldest come first.
    pub(super) fn sweep(&self, now: Instant) {
        let mut kept = self.lock();
        let old = kept
            .iter()
            .take_while(|idle| now.saturating_duration_since(idle.since) >= IDLE_MAX)
            .count();
        let dropped: Vec<Idle> = kept.drain(..old).collect();
        drop(kept);
        drop(dropped);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    pub(super) fn give_back(self) {
        if self.is_reusable && !self.connection.sender.is_closed() {
            self.endpoint.http1.put(self.connection);
        }
    }
}

async fn open(endpoint: &Endpoint) -> Result<Connection, Fault> {
    let stream = connect(endpoint).await?;
    let io = Io::new(Arc::clone(&stream), Watcher::Nobody);
    let io = TokioIo::new(Patient::new(io));
    let (sender, connection) = Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(io)
        .await
        .map_err(|source| Fault::of_exchange(endpoint.bound.address, source))?;
    Ok(Connection {
        sender,
        stream,
        _driver: Driver::spawn(connection.with_upgrades()),
    })
}

fn closed(endpoint: &Endpoint) -> Fault {
    let source = std::io::ErrorKind::ConnectionReset.into();
    Fault::Connect {
        address: endpoint.bound.address,
        source,
    }
}

/// Tells whether nothing has come on an idle connection: no byte and no end.
fn is_quiet(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let peeked = SockRef::from(stream).peek(&mut byte);
    peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}
