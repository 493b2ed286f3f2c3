//! Replicas that hang up, go away, answer early or ask for one connection after the other, played
//! on raw sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inflight_core::ReplicaId;
use inflight_core::load::ReplicaState;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::gateway_world::{Replica, Speaks, World, call, eventually, whole};

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
    for _ in 0..10 {
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
