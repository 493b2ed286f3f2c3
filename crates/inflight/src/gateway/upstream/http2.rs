//! HTTP/2 without TLS with a replica: one connection that all requests share.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connect::{Driver, connect};
use super::{Endpoint, Lease, Processed, SendError, with_head};
use crate::gateway::connection::{Io, Watcher};
use crate::gateway::fault::Fault;
use crate::gateway::headers;
use crate::gateway::upload::RequestBody;

/// Bytes of one response that may be on their way unread.
const STREAM_WINDOW: u32 = 256 * 1024;

/// 256 responses that nobody reads do not starve another.
const CONNECTION_WINDOW: u32 = 256 * STREAM_WINDOW;

/// Bytes of a response's head, as HTTP/2 counts them.
const HEAD_MAX: u32 = 256 * 1024;

/// A silent replica is asked for a sign of life this often while requests are open.
const PING_EVERY: Duration = Duration::from_secs(30);

/// The connection that new requests share.
#[derive(Default)]
pub(super) struct Shared {
    current: Mutex<Option<Arc<Connection>>>,
    opening: tokio::sync::Mutex<()>,
}

/// A connection. It lives as long as new requests may use it, or one that began does.
pub(in crate::gateway) struct Connection {
    sender: SendRequest<RequestBody>,
    _driver: Driver,
}

/// Returns the shared connection, opening it if there is none.
///
/// # Errors
/// The replica does not take connections, or does not speak HTTP/2: nothing was sent.
pub(super) async fn ready(endpoint: &Endpoint) -> Result<Arc<Connection>, Fault> {
    if let Some(connection) = endpoint.http2.current() {
        return Ok(connection);
    }
    let _one_opens = endpoint.http2.opening.lock().await;
    if let Some(connection) = endpoint.http2.current() {
        return Ok(connection);
    }
    let connection = Arc::new(open(endpoint).await?);
    *endpoint.http2.lock() = Some(Arc::clone(&connection));
    Ok(connection)
}

/// Sends a request as a stream.
pub(super) async fn send(
    endpoint: &Endpoint,
    mut connection: Arc<Connection>,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), SendError> {
    let mut request = with_head(request, |head| {
        headers::address_http2(head, &endpoint.authority)
    });
    let mut is_second = false;
    loop {
        let mut sender = connection.sender.clone();
        let mut error = match sender.try_send_request(request).await {
            Ok(response) => {
                let lease = Lease::Http2 {
                    _connection: connection,
                };
                return Ok((response, lease));
            }
            Err(error) => error,
        };
        let unsent = error.take_message();
        let source = error.into_error();
        let is_refused = is_refused(&source);
        let fault = Fault::of_exchange(endpoint.bound.address, source);
        let Some(unsent) = unsent else {
            let processed = if is_refused {
                Processed::Refused
            } else {
                Processed::Unknown
            };
            return Err(SendError { fault, processed });
        };
        if std::mem::replace(&mut is_second, true) {
            return Err(SendError::unsent(fault, unsent));
        }
        // The connection ended before it took the request: a fresh one, once.
        request = unsent;
        endpoint.http2.forget(&connection);
        connection = match ready(endpoint).await {
            Ok(connection) => connection,
            Err(fault) => return Err(SendError::unsent(fault, request)),
        };
    }
}

impl Shared {
    fn current(&self) -> Option<Arc<Connection>> {
        self.lock()
            .as_ref()
            .filter(|connection| !connection.sender.is_closed())
            .cloned()
    }

    /// Takes no further request to a connection that refused one.
    fn forget(&self, ended: &Arc<Connection>) {
        let mut current = self.lock();
        if current
            .as_ref()
            .is_some_and(|connection| Arc::ptr_eq(connection, ended))
        {
            *current = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a connection, and waits for the first byte of the replica's settings, which it sends
/// unasked (RFC 9113, section 3.4): a replica that speaks HTTP/1 is found out before it was sent
/// a request. Only another protocol's words say so for sure: a replica that dies closes without
/// any, and one that hangs is silent.
async fn open(endpoint: &Endpoint) -> Result<Connection, Fault> {
    let address = endpoint.bound.address;
    let after = endpoint.timeouts.connect;
    let stream = connect(endpoint).await?;
    let (tell, first_byte) = oneshot::channel();
    let io = TokioIo::new(Io::new(stream, Watcher::FirstByte(Some(tell))));
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEAD_MAX)
        .keep_alive_interval(PING_EVERY)
        .handshake(io)
        .await
        .map_err(|_| Fault::ClosedUnspoken { address })?;
    let driver = Driver::spawn(connection);
    match timeout(after, first_byte).await {
        // The highest byte of a frame's length, which settings never fill.
        Ok(Ok(0)) => {
            endpoint.speaks_no_http2.store(false, Ordering::Relaxed);
            Ok(Connection {
                sender,
                _driver: driver,
            })
        }
        Ok(Ok(_)) => {
            endpoint.speaks_no_http2.store(true, Ordering::Relaxed);
            Err(Fault::NoHttp2 { address })
        }
        Ok(Err(_)) => Err(Fault::ClosedUnspoken { address }),
        Err(_) => Err(Fault::ConnectTimeout { address, after }),
    }
}

/// Tells whether the replica says that it did nothing with the request: it refused the stream, or
/// went away before it looked at it (RFC 9113, section 8.7).
fn is_refused(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(|error| {
            error.is_remote()
                && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
        })
}
