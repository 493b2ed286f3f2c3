//! What the gateway's tests stand on: replicas inside this process, a real fleet and gate, and
//! plain clients, all on loopback.
#![expect(
    clippy::unwrap_used,
    reason = "a set-up that fails shall fail the test"
)]

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use inflight::clock::Clock;
use inflight::fleet::{Board, Fleet};
use inflight::gateway::{Gateway, GatewayConfig};
use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Gate, GateConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::load::ReplicaState;
use inflight_core::{ReplicaId, Replicas, Slots};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// A failing test says so after this long instead of hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a request may wait for a slot.
pub(crate) const WAIT: Duration = Duration::from_secs(15);

/// A body that a client sends.
pub(crate) type Sent = BoxBody<Bytes, Infallible>;

/// Which protocols a replica speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    Both,
    Http1,
}

/// A replica inside this process.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    server: JoinHandle<()>,
}

/// What a replica saw, and what its handlers wait for.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) executing: AtomicU64,
    pub(crate) executing_max: AtomicU64,
    pub(crate) polled_bytes: AtomicU64,
    pub(crate) in_flight_max: AtomicU64,
    pub(crate) release: Notify,
    pub(crate) heads: Mutex<Vec<(Version, HeaderMap, String)>>,
    pub(crate) events: Mutex<Option<mpsc::Receiver<Bytes>>>,
    pub(crate) fleet: Mutex<Option<Arc<Fleet>>>,
}

impl Replica {
    pub(crate) async fn start() -> Self {
        Self::speaking(Speaks::Both).await
    }

    pub(crate) async fn speaking(speaks: Speaks) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").await.unwrap(), speaks)
    }

    pub(crate) fn listening(listener: TcpListener, speaks: Speaks) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let server = tokio::spawn(serve(listener, Arc::clone(&seen), speaks));
        Self {
            address,
            seen,
            server,
        }
    }

    /// Ends the replica and all its connections at once.
    pub(crate) fn kill(&self) {
        self.server.abort();
    }

    pub(crate) fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn last_headers(&self) -> HeaderMap {
        self.seen.heads.lock().unwrap().last().unwrap().1.clone()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn serve(listener: TcpListener, seen: Arc<Seen>, speaks: Speaks) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        seen.connections.fetch_add(1, Ordering::SeqCst);
        seen.open.fetch_add(1, Ordering::SeqCst);
        let seen = Arc::clone(&seen);
        let of_end = Arc::clone(&seen);
        connections.spawn(async move {
            let service = service_fn(move |request| respond(Arc::clone(&seen), request));
            let mut server = auto::Builder::new(TokioExecutor::new());
            if speaks == Speaks::Http1 {
                server = server.http1_only();
            }
            drop(server.serve_connection(TokioIo::new(stream), service).await);
            of_end.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Counts a handler while it runs, and whether it was dropped before it was done.
struct Running(Arc<Seen>, bool);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.executing.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[derive(Debug)]
struct Dies;

impl std::fmt::Display for Dies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the replica dies")
    }
}

impl std::error::Error for Dies {}

async fn respond(
    seen: Arc<Seen>,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, hyper::Error>>, Dies> {
    seen.requests.fetch_add(1, Ordering::SeqCst);
    let executing = seen.executing.fetch_add(1, Ordering::SeqCst) + 1;
    seen.executing_max.fetch_max(executing, Ordering::SeqCst);
    if let Some(fleet) = &*seen.fleet.lock().unwrap() {
        seen.in_flight_max
            .fetch_max(fleet.load().in_flight, Ordering::SeqCst);
    }
    let mut running = Running(Arc::clone(&seen), false);
    let (head, body) = request.into_parts();
    {
        let mut heads = seen.heads.lock().unwrap();
        heads.push((head.version, head.headers.clone(), head.uri.to_string()));
        if heads.len() > 100 {
            heads.remove(0);
        }
    }
    let path = head.uri.path().to_owned();
    let response = match path.as_str() {
        "/echo" => Response::new(body.boxed()),
        "/empty" => Response::new(full("")),
        "/chunked" => Response::new(stream(&["ab", "cd", "ef"], None)),
        "/grpc" => {
            drop(body.collect().await);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            trailers.insert("grpc-message", "fine".parse().unwrap());
            Response::new(stream(&["reply"], Some(trailers)))
        }
        "/hold" => {
            seen.release.notified().await;
            Response::new(full("held"))
        }
        "/sleep" => {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Response::new(full("slept"))
        }
        "/fail" => {
            let mut response = Response::new(full("no"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
        "/die" => {
            drop(body.collect().await);
            return Err(Dies);
        }
        "/count" => {
            let bytes = body.collect().await.map_or(0, |body| body.to_bytes().len());
            Response::new(full(&bytes.to_string()))
        }
        "/tally" => Response::new(tally(body)),
        "/events" => {
            let events = seen.events.lock().unwrap().take().unwrap();
            let frames = futures_util::stream::unfold(events, |mut events| async move {
                events
                    .recv()
                    .await
                    .map(|event| (Ok(Frame::data(event)), events))
            });
            Response::new(StreamBody::new(frames).boxed())
        }
        "/big" => {
            let seen = Arc::clone(&seen);
            let chunks = futures_util::stream::unfold(0_u32, move |sent| {
                let seen = Arc::clone(&seen);
                async move {
                    (sent < 3200).then(|| {
                        seen.polled_bytes.fetch_add(65_536, Ordering::SeqCst);
                        (Ok(Frame::data(Bytes::from_static(&[7; 65_536]))), sent + 1)
                    })
                }
            });
            Response::new(StreamBody::new(chunks).boxed())
        }
        _ => Response::new(full("hello")),
    };
    running.1 = true;
    Ok(response)
}

fn full(text: &str) -> BoxBody<Bytes, hyper::Error> {
    Full::new(Bytes::copy_from_slice(text.as_bytes()))
        .map_err(|never| match never {})
        .boxed()
}

fn stream(
    chunks: &'static [&'static str],
    trailers: Option<HeaderMap>,
) -> BoxBody<Bytes, hyper::Error> {
    let frames = chunks
        .iter()
        .map(|chunk| Frame::data(Bytes::from_static(chunk.as_bytes())));
    let frames = frames.chain(trailers.map(Frame::trailers)).map(Ok);
    StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>())).boxed()
}

/// A body that says how long another was once that has ended.
fn tally(body: Incoming) -> BoxBody<Bytes, hyper::Error> {
    let counted = futures_util::stream::once(async {
        let bytes = body.collect().await?.to_bytes().len();
        Ok(Frame::data(Bytes::from(bytes.to_string())))
    });
    StreamBody::new(counted).boxed()
}

/// A gateway in front of a fleet.
pub(crate) struct World {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    timeouts: JoinHandle<()>,
}

/// What the control loop does in the product: ends the waits whose time is over.
async fn end_waits(fleet: Arc<Fleet>) {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        fleet.on_timeout();
    }
}

impl World {
    pub(crate) fn new(slots: u32, replicas: &[&Replica]) -> Self {
        Self::with(slots, 1000, replicas, |_| {})
    }

    pub(crate) fn with(
        slots: u32,
        queue: u32,
        replicas: &[&Replica],
        change: impl FnOnce(&mut GatewayConfig),
    ) -> Self {
        let clock = Clock::start();
        let slots = Slots::new(slots).unwrap();
        let gate = Gate::new(
            GateConfig {
                models: vec![ModelConfig { slots }],
                queue: QueueBounds {
                    requests: queue,
                    bytes: inflight_core::Bytes(64 << 20),
                    wait: WAIT,
                    cold_wait: Duration::from_secs(300),
                },
                admission: AdmissionConfig {
                    threshold: 3.0,
                    reopen: 2.4,
                    when: When::AtMax,
                    scope: AdmissionScope::Off,
                    sessions_max: 1000,
                    session_idle: Duration::from_secs(60),
                },
                bucket: Duration::from_millis(100),
            },
            clock.now(),
        );
        let board = Board::new("staffing", slots.get(), Replicas::ZERO, Replicas::new(8));
        let fleet = Fleet::new("tests", clock, gate, board);
        for (index, replica) in (0..).zip(replicas) {
            *replica.seen.fleet.lock().unwrap() = Some(Arc::clone(&fleet));
            fleet.set_endpoint(ReplicaId(index), replica.address, ReplicaState::Ready);
        }
        let timeouts = tokio::spawn(end_waits(Arc::clone(&fleet)));
        let mut config = GatewayConfig::new(([127, 0, 0, 1], 0).into());
        change(&mut config);
        let gateway = Gateway::bind(config).unwrap();
        let address = gateway.local_addr();
        let (shutdown, stopped) = oneshot::channel::<()>();
        let of_gateway = Arc::clone(&fleet);
        let serving = tokio::spawn(async move {
            let stopped = async {
                if stopped.await.is_err() {
                    pending::<()>().await;
                }
            };
            gateway.serve(of_gateway, stopped).await;
        });
        Self {
            fleet,
            address,
            shutdown: Some(shutdown),
            serving: Some(serving),
            timeouts,
        }
    }

    /// Begins to shut the gateway down.
    pub(crate) fn shut_down(&mut self) -> JoinHandle<()> {
        self.shutdown.take().unwrap().send(()).unwrap();
        self.serving.take().unwrap()
    }

    pub(crate) async fn http1(&self) -> Http1 {
        Http1::to(self.address).await
    }

    pub(crate) async fn http2(&self) -> Http2 {
        Http2::to(self.address).await
    }

    /// Waits until nothing is in flight, and fails if that takes longer than a second.
    pub(crate) async fn settles(&self) {
        let since = Instant::now();
        let limit = Duration::from_secs(1);
        loop {
            let load = self.fleet.load();
            if load.in_flight == 0 {
                assert_eq!((load.queued, load.executing), (0, 0));
                return;
            }
            assert!(
                since.elapsed() < limit,
                "still {} in flight",
                load.in_flight
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn until_queued(&self, count: u64) {
        eventually(|| self.fleet.load().queued == count).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.timeouts.abort();
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// Waits until something holds, and fails when it does not for too long.
pub(crate) async fn eventually(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(
            since.elapsed() < PATIENCE,
            "what was waited for did not happen"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client that speaks HTTP/1.1 on one connection, which ends when this is dropped.
pub(crate) struct Http1 {
    pub(crate) sender: http1::SendRequest<Sent>,
    driver: JoinHandle<()>,
}

impl Http1 {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        Self {
            sender,
            driver: tokio::spawn(async { drop(connection.await) }),
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Sent>) -> Response<Incoming> {
        self.sender.ready().await.unwrap();
        let sent = self.sender.send_request(request);
        tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap()
    }

    /// Gets a path and returns the response with its whole body.
    pub(crate) async fn get(&mut self, path: &str) -> Response<Bytes> {
        whole(self.send(get(path)).await).await
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A client that speaks HTTP/2 on one connection, which ends when this is dropped.
pub(crate) struct Http2 {
    pub(crate) sender: http2::SendRequest<Sent>,
    socket: std::net::TcpStream,
    _driver: JoinHandle<()>,
}

impl Http2 {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = stream.into_std().unwrap();
        let socket = stream.try_clone().unwrap();
        let io = TokioIo::new(TcpStream::from_std(stream).unwrap());
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(io)
            .await
            .unwrap();
        Self {
            sender,
            socket,
            _driver: tokio::spawn(async { drop(connection.await) }),
        }
    }

    pub(crate) async fn send(&self, request: Request<Sent>) -> Response<Incoming> {
        let mut sender = self.sender.clone();
        let sent = sender.send_request(request);
        tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Response<Bytes> {
        whole(self.send(get(&format!("http://fleet{path}"))).await).await
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        drop(self.socket.shutdown(std::net::Shutdown::Both));
    }
}

pub(crate) async fn whole<B>(response: Response<B>) -> Response<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let (head, body) = response.into_parts();
    let body = tokio::time::timeout(PATIENCE, body.collect())
        .await
        .unwrap()
        .unwrap();
    Response::from_parts(head, body.to_bytes())
}

pub(crate) fn get(path: &str) -> Request<Sent> {
    Request::get(path)
        .header("host", "fleet")
        .body(Empty::new().boxed())
        .unwrap()
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Sent> {
    Request::post(path)
        .header("host", "fleet")
        .body(Full::new(body.into()).boxed())
        .unwrap()
}

/// A gRPC call as its library sends it.
pub(crate) fn call(path: &str) -> Request<Sent> {
    let mut request = post(&format!("http://fleet{path}"), &b"\0\0\0\0\x02hi"[..]);
    let headers = request.headers_mut();
    headers.insert("content-type", "application/grpc".parse().unwrap());
    headers.insert("te", "trailers".parse().unwrap());
    request
}

/// A body that ends when its sender is dropped.
pub(crate) fn fed() -> (mpsc::Sender<Bytes>, Sent) {
    let (feed, frames) = mpsc::channel::<Bytes>(1);
    let frames = futures_util::stream::unfold(frames, |mut frames| async move {
        frames
            .recv()
            .await
            .map(|chunk| (Ok(Frame::data(chunk)), frames))
    });
    (feed, StreamBody::new(frames).boxed())
}
