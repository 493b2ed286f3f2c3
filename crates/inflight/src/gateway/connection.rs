//! One client connection: which protocol it speaks, hyper's server on it, its coarse timer and
//! its end.
//!
//! Time-outs of a connection are judged by one slow timer, never by a timer per request.

mod client;
mod io;

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub(super) use client::{Client, OpenRequest};
pub(super) use io::{Io, Watcher};

use super::config::{GatewayConfig, Limits};
use super::{Shared, proxy};
use client::{Verdict, Watchdog};
use io::Protocol;

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
pub(super) async fn serve(
    settings: watch::Receiver<Arc<Shared>>,
    stream: TcpStream,
    peer: SocketAddr,
    serial: u64,
    mut drain: watch::Receiver<bool>,
) {
    prepare(&stream);
    let GatewayConfig {
        limits, timeouts, ..
    } = settings.borrow().config;
    let stream = Arc::new(stream);
    let client = Arc::new(Client::new(Arc::clone(&stream), peer, serial));
    let mut io = Io::new(stream, Watcher::Client(Arc::clone(&client.activity)));
    let protocol = tokio::select! {
        protocol = timeout(timeouts.head, io.sniff()) => protocol,
        _ = drain.wait_for(|is_draining| *is_draining) => return,
    };
    let Ok(Ok(protocol)) = protocol else { return };

    let of_requests = Arc::clone(&client);
    let service = service_fn(move |request| {
        let shared = Arc::clone(&settings.borrow());
        proxy::handle(shared, Arc::clone(&of_requests), request)
    });
    let io = TokioIo::new(io);
    match protocol {
        Protocol::Http1 => {
            let watchdog = Watchdog::new(timeouts, true, Instant::now());
            drive(
                http1_server(limits)
                    .serve_connection(io, service)
                    .with_upgrades(),
                |connection| connection.graceful_shutdown(),
                &client,
                watchdog,
                drain,
            )
            .await;
        }
        Protocol::Http2 => {
            let watchdog = Watchdog::new(timeouts, false, Instant::now());
            drive(
                http2_server(limits).serve_connection(io, service),
                |connection| connection.graceful_shutdown(),
                &client,
                watchdog,
                drain,
            )
            .await;
        }
    }
    // Here and not in a task of its own, so that it counts as a connection and the drain cuts it.
    if let Some(tunnel) = client.take_tunnel() {
        tunnel.run().await;
    }
    if client.must_linger.load(Ordering::Relaxed) {
        linger(&client.stream).await;
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

fn http2_server(limits: Limits) -> http2::Builder<TokioExecutor> {
    let mut server = http2::Builder::new(TokioExecutor::new());
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

async fn drive<C: Future>(
    connection: C,
    wind_down: impl Fn(Pin<&mut C>),
    client: &Client,
    mut watchdog: Watchdog,
    mut drain: watch::Receiver<bool>,
) {
    let mut connection = pin!(connection);
    let period = watchdog.period();
    let mut tick = pin!(sleep(period));
    let mut is_closing = false;
    loop {
        tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            () = tick.as_mut() => {
                match watchdog.judge(&client.activity, Instant::now()) {
                    Verdict::Keep => {}
                    Verdict::Close => wind_down(connection.as_mut()),
                    Verdict::Cut => return,
                }
                tick.as_mut().reset(tokio::time::Instant::now() + period);
            }
            _ = drain.wait_for(|is_draining| *is_draining), if !is_closing => {
                is_closing = true;
                wind_down(connection.as_mut());
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
