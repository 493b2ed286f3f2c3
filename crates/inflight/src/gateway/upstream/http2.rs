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

/// A silent replica is asked for a sign of life this often while requests are open.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Connections that ended or are ending, kept until their last stream is done.
const DRIVERS_MAX: usize = 16;

/// The connection that requests share.
#[derive(Default)]
pub(super) struct Shared {
    sender: Mutex<Option<SendRequest<RequestBody>>>,
    drivers: Mutex<Vec<Driver>>,
    opening: tokio::sync::Mutex<()>,
}

/// Returns the shared connection, opening it if there is none.
///
/// # Errors
/// The replica does not take connections, or does not speak HTTP/2: nothing was sent.
pub(super) async fn ready(endpoint: &Endpoint) -> Result<SendRequest<RequestBody>, Fault> {
    if let Some(sender) = endpoint.http2.current() {
        return Ok(sender);
    }
    let _one_opens = endpoint.http2.opening.lock().await;
    if let Some(sender) = endpoint.http2.current() {
        return Ok(sender);
    }
    let (sender, driver) = open(endpoint).await?;
    endpoint.http2.replace(sender.clone(), driver);
    Ok(sender)
}

/// Sends a request as a stream.
pub(super) async fn send(
    endpoint: &Arc<Endpoint>,
    sender: SendRequest<RequestBody>,
    request: Request<RequestBody>,
) -> Result<(Response<Incoming>, Lease), SendError> {
    let mut request = with_head(request, |head| {
        headers::address_http2(head, &endpoint.authority)
    });
    let mut sender = sender;
    let mut is_second = false;
    loop {
        let mut error = match sender.try_send_request(request).await {
            Ok(response) => {
                return Ok((
                    response,
                    Lease::Http2 {
                        _endpoint: Arc::clone(endpoint),
                    },
                ));
            }
            Err(error) => error,
        };
        let unsent = error.take_message();
        let source = error.into_error();
        let is_refused = is_refused(&source);
        let fault = Fault::Reset {
            address: endpoint.bound.address,
            source,
        };
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
        endpoint.http2.forget_closed();
        sender = match ready(endpoint).await {
            Ok(sender) => sender,
            Err(fault) => return Err(SendError::unsent(fault, request)),
        };
    }
}

impl Shared {
    fn current(&self) -> Option<SendRequest<RequestBody>> {
        self.lock()
            .as_ref()
            .filter(|sender| !sender.is_closed())
            .cloned()
    }

    fn forget_closed(&self) {
        let mut sender = self.lock();
        if sender.as_ref().is_some_and(|sender| sender.is_closed()) {
            *sender = None;
        }
    }

    fn replace(&self, sender: SendRequest<RequestBody>, driver: Driver) {
        *self.lock() = Some(sender);
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.retain(|driver| !driver.is_finished());
        if drivers.len() >= DRIVERS_MAX {
            drivers.remove(0);
        }
        drivers.push(driver);
    }

    fn lock(&self) -> MutexGuard<'_, Option<SendRequest<RequestBody>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a connection, and waits for the first byte of the replica's settings, which it sends
/// unasked (RFC 9113, section 3.4): a replica that speaks HTTP/1 is found out before it was sent
/// a request.
async fn open(endpoint: &Endpoint) -> Result<(SendRequest<RequestBody>, Driver), Fault> {
    let address = endpoint.bound.address;
    let stream = connect(endpoint).await?;
    let (tell, first_byte) = oneshot::channel();
    let io = TokioIo::new(Io::new(
        stream,
        bytes::Bytes::new(),
        Watcher::FirstByte(Some(tell)),
    ));
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .handshake(io)
        .await
        .map_err(|source| Fault::Reset { address, source })?;
    let driver = Driver::spawn(connection);
    match timeout(endpoint.timeouts.connect, first_byte).await {
        // The highest byte of a frame's length, which settings never fill.
        Ok(Ok(0)) => {
            endpoint.speaks_no_http2.store(false, Ordering::Relaxed);
            Ok((sender, driver))
        }
        // Another protocol's words; or closed without any, or silent, as many a server of HTTP/1.
        Ok(Ok(_) | Err(_)) | Err(_) => {
            endpoint.speaks_no_http2.store(true, Ordering::Relaxed);
            Err(Fault::NoHttp2 { address })
        }
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
