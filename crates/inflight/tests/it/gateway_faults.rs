//! Replicas that fail: what is sent again, what is not, and what the client is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inflight_core::ReplicaId;
use inflight_core::load::ReplicaState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::gateway_world::{Replica, Speaks, World, call, eventually, get, post, whole};

#[tokio::test]
async fn no_get_is_lost_when_a_replica_is_killed_in_the_middle() {
    let replicas = [
        Replica::start().await,
        Replica::start().await,
        Replica::start().await,
    ];
    let world = Arc::new(World::new(2, &[&replicas[0], &replicas[1], &replicas[2]]));
    let done = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::new();
    for _ in 0..6 {
        let world = Arc::clone(&world);
        let done = Arc::clone(&done);
        clients.push(tokio::spawn(async move {
            let mut client = world.http1().await;
            for _ in 0..150 {
                let response = client.get("/sleep").await;
                let reason = response.headers().get("x-inflight-reason").cloned();
                assert_eq!(response.status(), 200, "{reason:?}");
                done.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    eventually(|| done.load(Ordering::SeqCst) > 200).await;
    replicas[0].kill();
    tokio::time::sleep(Duration::from_millis(50)).await;
    world
        .fleet
        .set_endpoint(ReplicaId(0), replicas[0].address, ReplicaState::Unhealthy);
    for client in clients {
        client.await.unwrap();
    }
    world.settles().await;
}

#[tokio::test]
async fn a_replica_that_takes_no_connection_is_told_from_others() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    world
        .fleet
        .set_endpoint(ReplicaId(9), address, ReplicaState::Ready);
    let mut client = world.http1().await;
    for _ in 0..10 {
        assert_eq!(
            whole(client.send(post("/echo", "all")).await).await.body(),
            "all"
        );
    }
    world.fleet.remove_endpoint(ReplicaId(0));
    let response = whole(client.send(post("/echo", "all")).await).await;
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["x-inflight-reason"], "upstream_connect");
    let response = world.http2().await.send(call("/x")).await;
    assert_eq!(response.headers()["grpc-status"], "14");
    assert_eq!(response.headers()["grpc-message"], "upstream_connect");
    world.settles().await;
}

/// A server whose keep-alive ends after one request, without saying so.
#[tokio::test]
async fn b65_a_stale_connection_never_becomes_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut scratch = [0; 4096];
                if socket.read(&mut scratch).await.unwrap() > 0 {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    socket.write_all(answer).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
    });
    let world = World::new(1, &[]);
    world
        .fleet
        .set_endpoint(ReplicaId(0), address, ReplicaState::Ready);
    let mut client = world.http1().await;
    for pause in [30, 0, 25, 21, 40, 30, 30, 22] {
        let post = post("/x", "body");
        assert_eq!(whole(client.send(post).await).await.body(), "ok");
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(client.get("/x").await.body(), "ok");
        tokio::time::sleep(Duration::from_millis(pause)).await;
        assert_eq!(client.get("/x").await.body(), "ok");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    server.abort();
    world.settles().await;
}

#[tokio::test]
async fn a_response_that_breaks_off_is_not_taken_for_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut scratch = [0; 4096];
            drop(socket.read(&mut scratch).await);
            let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";
            socket.write_all(answer).await.unwrap();
        }
    });
    let world = World::new(1, &[]);
    world
        .fleet
        .set_endpoint(ReplicaId(0), address, ReplicaState::Ready);
    let response = world.http1().await.send(get("/x")).await;
    assert_eq!(response.status(), 200);
    assert!(
        http_body_util::BodyExt::collect(response.into_body())
            .await
            .is_err()
    );
    world.settles().await;
    assert_eq!(world.fleet.load().upstream_failed, 1);
    server.abort();
}

/// GOAWAY while calls run: those the replica took finish, later ones go to a new connection.
#[tokio::test]
async fn b62_a_replica_that_goes_away_loses_no_call() {
    let replica = Replica::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = Replica::listening(listener, Speaks::Both);
    let world = Arc::new(World::new(20, &[&replica]));
    let client = Arc::new(world.http2().await);
    let mut calls = Vec::new();
    for _ in 0..20 {
        let client = Arc::clone(&client);
        calls.push(tokio::spawn(async move { client.get("/sleep").await }));
    }
    eventually(|| replica.requests() > 5).await;
    world
        .fleet
        .set_endpoint(ReplicaId(5), other.address, ReplicaState::Ready);
    replica.kill();
    for call in calls {
        assert_eq!(call.await.unwrap().status(), 200);
    }
    world.settles().await;
}

/// A gRPC call that the replica refused unprocessed is sent again, whole; B62 and B65.
#[tokio::test]
async fn a_refused_stream_is_sent_again_with_its_body() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let of_server = Arc::clone(&seen);
    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let nth = of_server.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut body = request.into_body();
                let mut bytes = Vec::new();
                while let Some(Ok(chunk)) = body.data().await {
                    bytes.extend_from_slice(&chunk);
                }
                if nth == 0 {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                    return;
                }
                let mut stream = respond
                    .send_response(http::Response::new(()), false)
                    .unwrap();
                stream.send_data(bytes.into(), true).unwrap();
            });
        }
    });
    let world = World::new(1, &[]);
    world
        .fleet
        .set_endpoint(ReplicaId(0), address, ReplicaState::Ready);
    let response = whole(world.http2().await.send(call("/x")).await).await;
    assert_eq!(response.body(), &b"\0\0\0\0\x02hi"[..]);
    assert_eq!(seen.load(Ordering::SeqCst), 2);
    world.settles().await;
    assert_eq!(world.fleet.load().arrivals, 1);
    server.abort();
}

#[tokio::test]
async fn a_get_that_no_replica_answers_is_tried_three_times_and_counts_once() {
    let replicas = [Replica::start().await, Replica::start().await];
    let world = World::new(1, &[&replicas[0], &replicas[1]]);
    let response = world.http1().await.get("/die").await;
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["x-inflight-reason"], "upstream_reset");
    assert_eq!(replicas[0].requests() + replicas[1].requests(), 3);
    assert!(replicas[0].requests().abs_diff(replicas[1].requests()) == 1);
    let load = world.fleet.load();
    assert_eq!(
        (load.arrivals, load.upstream_failed, load.in_flight),
        (1, 1, 0)
    );
}

/// B55 and B65: what is sent again stays a share of what is asked.
#[tokio::test]
async fn b55_retries_do_not_multiply_the_load_of_a_fleet_that_fails() {
    const ASKED: u64 = 60;
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut client = world.http1().await;
    for _ in 0..ASKED {
        let response = client.get("/die").await;
        assert_eq!(response.headers()["x-inflight-reason"], "upstream_reset");
    }
    let again = replica.requests() - ASKED;
    assert!((10..=10 + ASKED / 10).contains(&again), "{again} retries");
    assert_eq!(world.fleet.load().arrivals, ASKED);
    world.settles().await;
}

/// Not counted, so that no slot says where it goes.
#[tokio::test]
async fn a_request_that_is_not_counted_goes_to_any_replica_that_takes_it() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let replicas = [Replica::start().await, Replica::start().await];
    let world = World::with(1, 10, &[&replicas[0], &replicas[1]], |config| {
        config.ignore_paths = vec!["/healthz".into()];
    });
    let mut client = world.http1().await;
    for _ in 0..60 {
        assert_eq!(client.get("/healthz").await.status(), 200);
    }
    let seen = [replicas[0].requests(), replicas[1].requests()];
    assert!(seen.iter().all(|&count| count > 5), "{seen:?}");
    world.fleet.remove_endpoint(ReplicaId(1));
    // The lowest of all, and refusing.
    world
        .fleet
        .set_endpoint(ReplicaId(0), address, ReplicaState::Ready);
    world
        .fleet
        .set_endpoint(ReplicaId(1), replicas[1].address, ReplicaState::Ready);
    let begun = std::time::Instant::now();
    for _ in 0..60 {
        assert_eq!(client.get("/healthz").await.status(), 200);
    }
    // The one that failed was not tried again and again, with a pause each time.
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(world.fleet.load().arrivals, 0);
}

#[tokio::test]
async fn a_replica_that_is_taken_away_keeps_its_requests_and_no_connection() {
    let replica = Replica::start().await;
    let world = World::new(2, &[&replica]);
    let mut client = world.http1().await;
    let held = tokio::spawn(client.sender.send_request(get("/hold")));
    let streams = world.http2().await;
    let mut sender = streams.sender.clone();
    let stream = tokio::spawn(sender.send_request(call("/hold")));
    eventually(|| replica.requests() == 2).await;
    world.fleet.remove_endpoint(ReplicaId(0));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    replica.seen.release.notify_waiters();
    assert_eq!(whole(held.await.unwrap().unwrap()).await.body(), "held");
    assert_eq!(whole(stream.await.unwrap().unwrap()).await.body(), "held");
    world.settles().await;
    eventually(|| replica.seen.open.load(Ordering::SeqCst) == 0).await;
}
