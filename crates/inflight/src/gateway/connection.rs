//! One client connection: which protocol it speaks, hyper's server on it, its coarse timer and
//! its end.
//!
//! Time-outs of a connection are judged by one slow timer, never by a timer per request. hyper's
//! server and its buffers are there only while something happens: a connection that idles between
//! requests is nothing but its socket.

mod client;
mod io;
mod streams;

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub(super) use client::{Client, OpenRequest};
pub(super) use io::{Io, Watcher};
pub(super) use streams::{note_asked, note_given};

use super::config::{GatewayConfig, Limits, Timeouts};
use super::{Shared, proxy};
use client::{DRAIN_GRACE, Verdict, Watchdog};
use io::Protocol;
use streams::Streams;

/// Streams a client may have open at once. A request that waits in the client instead of here is
/// not seen, so this is as many as the hold queue takes by default.
const STREAMS_MAX: u32 = 1024;

/// Bytes of one upload that may be on their way unread (RFC 9113's own default).
const STREAM_WINDOW: u32 = 65_535;

/// Every stream may fill its window and none starves another, not even one whose upload nobody
/// reads because it waits for a slot.
const CONNECTION_WINDOW: u32 = STREAMS_MAX * STREAM_WINDOW;

/// A silent HTTP/2 client is asked for a sign of life this often, and cut without one.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long, and how many bytes, an upload is read on after its refusal was sent.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 1 << 20);

/// Serves a client's connection until it ends; each request under the settings of its beginning.
///
/// Its large futures are boxed, each for its time only: ten thousand connections wait for their
/// next request in this one.
pub(super) async fn serve(
    settings: watch::Receiver<Arc<Shared>>,
    stream: TcpStream,
    peer: SocketAddr,
    serial: u64,
    mut drain: watch::Receiver<bool>,
) {
    prepare(&stream);
    let first = Arc::clone(&settings.borrow());
    let GatewayConfig {
        limits, timeouts, ..
    } = first.config;
    let trusted = &first.config.trusted_proxies;
    let client = Arc::new(Client::new(Arc::new(stream), peer, serial, trusted));
    drop(first);
    let mut io = io_of(&client, Bytes::new());
    let protocol = awaited(io.sniff(), timeouts.head, &mut drain).await;
    let mut server = Server {
        settings,
        limits,
        timeouts,
        drain,
    };
    match protocol {
        None | Some(Err(_)) => return,
        Some(Ok(Protocol::Http1)) => Box::pin(server.http1(&client, io)).await,
        Some(Ok(Protocol::Http2)) => Box::pin(server.http2(&client, io)).await,
    }
    // Here and not in a task of its own, so that it counts as a connection and the drain cuts it.
    if let Some(tunnel) = client.take_tunnel() {
        Box::pin(tunnel.run()).await;
    }
    if client.must_linger.load(Ordering::Relaxed) {
        Box::pin(linger(&client.stream)).await;
    }
}

fn io_of(client: &Client, prefix: Bytes) -> Io {
    let watcher = Watcher::Client(Arc::clone(&client.activity));
    Io::new(Arc::clone(&client.stream), prefix, watcher)
}

/// Waits for what a silent client says: for so long, or only a moment when we are draining, for a
/// client that was about to speak when it could not know.
async fn awaited<T>(
    words: impl Future<Output = T>,
    limit: Duration,
    drain: &mut watch::Receiver<bool>,
) -> Option<T> {
    let mut words = pin!(words);
    tokio::select! {
        biased;
        said = words.as_mut() => return Some(said),
        () = sleep(limit) => return None,
        _ = drain.wait_for(|is_draining| *is_draining) => {}
    }
    timeout(DRAIN_GRACE.min(limit), words).await.ok()
}

/// What a connection is served by.
struct Server {
    /// What each of its requests begins under.
    settings: watch::Receiver<Arc<Shared>>,
    /// Those of its beginning, which hold for all of it.
    limits: Limits,
    timeouts: Timeouts,
    drain: watch::Receiver<bool>,
}

impl Server {
    async fn http1(&mut self, client: &Arc<Client>, mut io: Io) {
        loop {
            let served = Box::pin(self.http1_while_busy(client, io)).await;
            let Some(unread) = served else { return };
            if unread.is_empty() {
                let readable = client.stream.readable();
                let idle = self.timeouts.idle;
                if awaited(readable, idle, &mut self.drain).await.is_none() {
                    return;
                }
            }
            io = io_of(client, unread);
        }
    }

    /// Serves requests until the connection ends, or until it idles: then returns bytes that were
    /// read and are of no request yet, which is hardly ever any.
    async fn http1_while_busy(&mut self, client: &Arc<Client>, io: Io) -> Option<Bytes> {
        let settings = &self.settings;
        let service = service_fn(|request| async move {
            let shared = Arc::clone(&settings.borrow());
            let handled = proxy::handle(Arc::clone(&shared), Arc::clone(client), request);
            let mut response = handled.await?;
            let is_http = response.status() != StatusCode::SWITCHING_PROTOCOLS;
            if is_http && shared.is_draining.load(Ordering::Relaxed) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, proxy::ClientGone>(response)
        });
        let mut connection = http1_server(self.limits)
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades();
        let watchdog = Watchdog::new(self.timeouts, true, Instant::now());
        let end = drive(
            Pin::new(&mut connection),
            |connection| connection.graceful_shutdown(),
            client,
            watchdog,
            &mut self.drain,
        )
        .await;
        match end {
            End::Over => None,
            // Bytes that are empty may still hold the whole buffer they were read into.
            End::Idle => connection
                .into_parts()
                .map(|parts| Some(parts.read_buf).filter(|unread| !unread.is_empty()))
                .map(Option::unwrap_or_default),
        }
    }

    async fn http2(&mut self, client: &Arc<Client>, io: Io) {
        let (settings, of_requests) = (self.settings.clone(), Arc::clone(client));
        let service = service_fn(move |request| {
            let shared = Arc::clone(&settings.borrow());
            proxy::handle(shared, Arc::clone(&of_requests), request)
        });
        let server = http2_server(self.limits, self.timeouts.idle);
        let connection = pin!(server.serve_connection(TokioIo::new(io), service));
        let watchdog = Watchdog::new(self.timeouts, false, Instant::now());
        drive(
            connection,
            |connection| connection.graceful_shutdown(),
            client,
            watchdog,
            &mut self.drain,
        )
        .await;
    }
}

/// Failing socket options are no reason to refuse a client.
fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(PING_EVERY);
    let set = stream
        .set_nodelay(true)
        .and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "socket options were not set");
    }
}

fn http1_server(limits: Limits) -> http1::Builder {
    let mut server = http1::Builder::new();
    server
        .auto_date_header(false)
        .max_headers(limits.headers)
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes.max(8 * 1024));
    server
}

fn http2_server(limits: Limits, idle: Duration) -> http2::Builder<Streams> {
    let mut server = http2::Builder::new(Streams { idle });
    server
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY);
    server
}

/// How the driving of a connection ended.
enum End {
    /// It is over.
    Over,
    /// It waits for its next request.
    Idle,
}

async fn drive<C: Future>(
    mut connection: Pin<&mut C>,
    wind_down: impl Fn(Pin<&mut C>),
    client: &Client,
    mut watchdog: Watchdog,
    drain: &mut watch::Receiver<bool>,
) -> End {
    let period = watchdog.period();
    let mut tick = pin!(sleep(period));
    let mut is_draining = false;
    loop {
        tokio::select! {
            biased;
            _ = connection.as_mut() => return End::Over,
            () = tick.as_mut() => {
                match watchdog.judge(&client.activity, Instant::now()) {
                    Verdict::Keep => {}
                    Verdict::Park => return End::Idle,
                    Verdict::Close => wind_down(connection.as_mut()),
                    Verdict::Cut => return End::Over,
                }
                tick.as_mut().reset(tokio::time::Instant::now() + period);
            }
            _ = drain.wait_for(|is_draining| *is_draining), if !is_draining => {
                is_draining = true;
                if watchdog.drain(&client.activity) {
                    wind_down(connection.as_mut());
                }
            }
        }
    }
}

/// Reads what a refused client still sends, so that it gets to see the answer.
async fn linger(stream: &TcpStream) {
    let (time, mut bytes) = LINGER;
    let read_on = async {
        let mut scratch = [0; 8 * 1024];
        while bytes > 0 && stream.readable().await.is_ok() {
            match stream.try_read(&mut scratch) {
                Ok(0) => return,
                Ok(count) => bytes = bytes.saturating_sub(count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // Whether it ended or the time is over, the socket is closed next.
    let _ended: Result<(), _> = timeout(time, read_on).await;
}
