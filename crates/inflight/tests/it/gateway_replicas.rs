//! Replicas that hang up, go away, answer early or ask for one connection after the other, played
//! on raw sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inflight_core::ReplicaId;
use inflight_core::load::ReplicaState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::gateway_world::{PATIENCE, Replica, Speaks, World, call, eventually, fed, whole};

/// A replica that does with each of its connections what it is told.
pub(crate) struct Played {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicU64>,
    server: JoinHandle<()>,
}

impl Played {
    pub(crate) async fn start<F>(
        mut serve: impl FnMut(TcpStream, u64) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&connections);
        let server = tokio::spawn(async move {
            let mut running = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let nth = counted.fetch_add(1, Ordering::SeqCst);
                running.spawn(serve(socket, nth));
            }
        });
        Self {
            address,
            connections,
            server,
        }
    }

    pub(crate) fn join(&self, world: &World, id: u64) {
        world
            .fleet
            .set_endpoint(ReplicaId(id), self.address, ReplicaState::Ready);
    }

    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tokio::test]
async fn a_call_that_a_dying_replica_hangs_up_on_is_served_by_another() {
    let dying = Played::start(|mut socket, _| async move {
        drop(socket.read(&mut [0; 64]).await);
    })
    .await;
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    dying.join(&world, 9);
    let client = world.http2().await;
    // Which replica a call is bound to is drawn.
    for nth in 0..200 {
        if nth >= 10 && dying.connections() > 0 {
            break;
        }
        let reply = client.send(call("/echo")).await;
        assert_eq!(reply.headers().get("x-inflight-reason"), None);
        assert_eq!(whole(reply).await.body(), &b"\0\0\0\0\x02hi"[..]);
    }
    assert!(dying.connections() > 0);
    world.settles().await;
    assert_eq!(world.fleet.load().upstream_failed, 0);
}

#[tokio::test]
async fn a_call_that_a_silent_replica_is_given_is_served_by_another() {
    let silent = Played::start(|socket, _| async move {
        std::future::pending::<()>().await;
        drop(socket);
    })
    .await;
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.timeouts.connect = Duration::from_millis(100);
    });
    silent.join(&world, 9);
    let client = world.http2().await;
    for _ in 0..6 {
        let reply = whole(client.send(call("/echo")).await).await;
        assert_eq!(reply.body(), &b"\0\0\0\0\x02hi"[..]);
    }
    assert!(silent.connections() > 0);
    world.fleet.remove_endpoint(ReplicaId(0));
    let reply = client.send(call("/echo")).await;
    let reason = &reply.headers()["x-inflight-reason"];
    assert_eq!(reason, "upstream_connect_timeout");
    world.settles().await;
}

#[tokio::test]
async fn replicas_that_all_hang_up_on_http2_are_said_not_to_speak_it() {
    let replica = Replica::speaking(Speaks::Http1).await;
    let world = World::new(1, &[&replica]);
    let client = world.http2().await;
    let reply = client.send(call("/x")).await;
    assert_eq!(reply.headers()["x-inflight-reason"], "upstream_protocol");
    // One that answers in HTTP/1 all the same is known from then on.
    assert_eq!(client.get("/x").await.body(), "hello");
    let before = replica.seen.connections.load(Ordering::SeqCst);
    assert_eq!(client.get("/x").await.body(), "hello");
    assert_eq!(replica.seen.connections.load(Ordering::SeqCst), before);
    world.settles().await;
}

/// The replica takes one call a connection and says that it goes away.
#[tokio::test]
async fn calls_on_twenty_connections_to_a_replica_all_finish() {
    const CALLS: u64 = 20;
    let release = Arc::new(Notify::new());
    let of_replica = Arc::clone(&release);
    let replica = Played::start(move |socket, _| {
        let release = Arc::clone(&of_replica);
        async move {
            let mut connection = h2::server::handshake(socket).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            connection.graceful_shutdown();
            tokio::spawn(async move {
                release.notified().await;
                let head = http::Response::new(());
                respond
                    .send_response(head, false)
                    .unwrap()
                    .send_data("held".into(), true)
                    .unwrap();
            });
            while connection.accept().await.is_some() {}
        }
    })
    .await;
    let world = World::new(50, &[]);
    replica.join(&world, 0);
    let client = Arc::new(world.http2().await);
    let mut calls = Vec::new();
    for nth in 1..=CALLS {
        let client = Arc::clone(&client);
        calls.push(tokio::spawn(async move {
            whole(client.send(call("/x")).await).await
        }));
        eventually(|| replica.connections() == nth).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(world.fleet.load().in_flight, CALLS);
    release.notify_waiters();
    for call in calls {
        assert_eq!(call.await.unwrap().body(), "held");
    }
    world.settles().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gets_a_slot_gets_the_connection_that_had_it() {
    let replica = Replica::start().await;
    let world = Arc::new(World::new(1, &[&replica]));
    let mut clients = Vec::new();
    for _ in 0..8 {
        let world = Arc::clone(&world);
        clients.push(tokio::spawn(async move {
            let mut client = world.http1().await;
            for _ in 0..100 {
                assert_eq!(client.get("/x").await.status(), 200);
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(replica.seen.connections.load(Ordering::SeqCst), 1);
    assert_eq!(replica.seen.executing_max.load(Ordering::SeqCst), 1);
}

/// HTTP/2's frames by hand, for what its library does not let a server do.
struct Frames(TcpStream);

/// A frame's type, its stream and its payload.
type Frame = (u8, u32, Vec<u8>);

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

impl Frames {
    async fn accept(mut socket: TcpStream) -> Self {
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await.unwrap();
        let mut frames = Self(socket);
        frames.write(SETTINGS, 0, 0, &[]).await;
        frames
    }

    async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], stream, payload))
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// Answers a stream with 200 and nothing more.
    async fn answer(&mut self, stream: u32) {
        self.write(HEADERS, 0x5, stream, &[0x88]).await;
    }
}

/// Five streams are open as the replica says that the fourth is its last.
#[tokio::test]
async fn b62_a_stream_past_the_last_is_sent_again_and_none_begins_on_the_old_connection() {
    let began_late = Arc::new(AtomicU64::new(0));
    let (of_replica, release) = (Arc::clone(&began_late), Arc::new(Notify::new()));
    let released = Arc::clone(&release);
    let replica = Played::start(move |socket, nth| {
        let (began_late, release) = (Arc::clone(&of_replica), Arc::clone(&released));
        async move {
            let mut frames = Frames::accept(socket).await;
            let mut open = 0;
            while let Some((kind, stream, _)) = frames.read().await {
                if kind != HEADERS {
                    continue;
                }
                if nth > 0 {
                    frames.answer(stream).await;
                    continue;
                }
                open += 1;
                if open == 5 {
                    let last_and_no_error = [0, 0, 0, 7, 0, 0, 0, 0];
                    frames.write(GOAWAY, 0, 0, &last_and_no_error).await;
                    release.notified().await;
                    for stream in [1, 3, 5, 7] {
                        frames.answer(stream).await;
                    }
                } else if open > 5 {
                    began_late.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    })
    .await;
    let world = World::new(10, &[]);
    replica.join(&world, 0);
    let client = Arc::new(world.http2().await);
    let mut calls = Vec::new();
    for _ in 0..5 {
        let client = Arc::clone(&client);
        calls.push(tokio::spawn(async move {
            client.send(call("/x")).await.status()
        }));
    }
    eventually(|| replica.connections() == 2).await;
    assert_eq!(client.send(call("/x")).await.status(), 200);
    eventually(|| world.fleet.load().in_flight == 4).await;
    release.notify_one();
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    world.settles().await;
    let load = world.fleet.load();
    assert_eq!((load.arrivals, load.completed), (6, 6));
    assert_eq!(began_late.load(Ordering::SeqCst), 0);
    assert_eq!(replica.connections(), 2);
}

/// In three ways: half-closed, while it still sends, and in the middle of the answer.
#[tokio::test]
async fn b74_a_client_that_leaves_cancels_its_stream_at_the_replica() {
    let cancelled = Arc::new(AtomicU64::new(0));
    let of_replica = Arc::clone(&cancelled);
    let replica = Played::start(move |socket, _| {
        let cancelled = Arc::clone(&of_replica);
        async move {
            let mut connection = h2::server::handshake(socket).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let cancelled = Arc::clone(&cancelled);
                tokio::spawn(async move {
                    let mut begun = (request.uri().path() == "/answered").then(|| {
                        respond
                            .send_response(http::Response::new(()), false)
                            .unwrap()
                    });
                    let reset = std::future::poll_fn(|cx| match &mut begun {
                        Some(stream) => stream.poll_reset(cx),
                        None => respond.poll_reset(cx),
                    });
                    let reason = tokio::time::timeout(PATIENCE, reset).await.unwrap();
                    assert_eq!(reason.unwrap(), h2::Reason::CANCEL);
                    cancelled.fetch_add(1, Ordering::SeqCst);
                    drop(request);
                });
            }
        }
    })
    .await;
    let world = World::new(10, &[]);
    replica.join(&world, 0);
    for (nth, path) in (0..).zip(["/half-closed", "/sending", "/answered"]) {
        for leaves_whole in [false, true] {
            let client = world.http2().await;
            let (feed, body) = fed();
            let mut request = call(path);
            if path == "/sending" {
                request = request.map(|_| body);
            }
            let mut sender = client.sender.clone();
            let mut sent = Box::pin(sender.send_request(request));
            if path == "/answered" {
                let response = sent.await.unwrap();
                assert_eq!(world.fleet.load().in_flight, 1);
                if leaves_whole {
                    drop(client);
                }
                drop(response);
            } else {
                drop(feed.try_send("part".into()));
                let pause = tokio::time::sleep(Duration::from_millis(100));
                tokio::select! {
                    _ = &mut sent => panic!("answered"),
                    () = pause => {}
                }
                assert_eq!(world.fleet.load().in_flight, 1);
                if leaves_whole {
                    drop(client);
                }
                drop(sent);
            }
            let count = nth * 2 + 1 + u64::from(leaves_whole);
            eventually(|| cancelled.load(Ordering::SeqCst) == count).await;
            world.settles().await;
        }
    }
    assert_eq!(world.fleet.load().client_gone, 6);
}
