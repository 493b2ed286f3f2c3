//! Public faults of comparable systems, by their names in the project's case list, and refusals.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use inflight::gateway::{GatewayConfig, UpstreamProtocol};
use inflight_core::ReplicaId;
use inflight_core::load::ReplicaState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::gateway_world::{
    Http1, PATIENCE, Replica, Speaks, World, call, eventually, fed, get, post, whole,
};

#[tokio::test]
async fn b01_clients_that_leave_while_they_wait_leave_nothing_behind() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = world.http1().await;
        let sent = client.sender.send_request(get("/hold"));
        clients.push((client, tokio::spawn(sent)));
    }
    world.until_queued(19).await;
    eventually(|| replica.requests() == 1).await;
    let executing = clients.remove(0);
    clients.clear();
    world.until_queued(0).await;
    assert_eq!(world.fleet.load().in_flight, 1);
    replica.seen.release.notify_one();
    assert_eq!(executing.1.await.unwrap().unwrap().status(), 200);
    world.settles().await;
    assert_eq!(replica.requests(), 1);
}

/// The first request on the connection is answered late; what is pipelined behind it hides the
/// client's leaving from whoever only reads.
#[tokio::test]
async fn a_client_that_leaves_behind_unread_bytes_is_noticed() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut holder = world.http1().await;
    let held = tokio::spawn(holder.sender.send_request(get("/hold")));
    eventually(|| replica.requests() == 1).await;

    let mut pipelined = TcpStream::connect(world.address).await.unwrap();
    pipelined
        .write_all(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\nGET /b HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut uploading = TcpStream::connect(world.address).await.unwrap();
    uploading
        .write_all(b"POST /c HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n")
        .await
        .unwrap();
    uploading.write_all(&[b'x'; 150_000]).await.unwrap();
    world.until_queued(2).await;
    drop((pipelined, uploading));
    world.until_queued(0).await;
    replica.seen.release.notify_one();
    assert_eq!(held.await.unwrap().unwrap().status(), 200);
    world.settles().await;
    assert_eq!(replica.requests(), 1);
}

#[tokio::test]
async fn b05_a_slot_stays_taken_while_a_replica_that_cannot_be_cancelled_works() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| config.cancellable = false);
    for _ in 0..5 {
        let mut client = world.http1().await;
        let sent = tokio::spawn(client.sender.send_request(get("/hold")));
        eventually(|| replica.requests() == 1).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        sent.abort();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.fleet.load().in_flight, 1);
    assert_eq!(replica.seen.cancelled.load(Ordering::SeqCst), 0);
    replica.seen.release.notify_one();
    world.settles().await;
    assert_eq!(replica.seen.executing_max.load(Ordering::SeqCst), 1);
    assert_eq!(world.http1().await.get("/after").await.status(), 200);
}

#[tokio::test]
async fn b10_configured_probes_do_not_count_and_marked_ones_do() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.ignore_paths = vec!["/healthz".into()];
    });
    let mut client = world.http1().await;
    assert_eq!(client.get("/healthz").await.status(), 200);
    assert_eq!(client.get("/healthz?full=1").await.status(), 200);
    assert_eq!(world.fleet.load().arrivals, 0);
    let mut probe = get("/other");
    probe
        .headers_mut()
        .insert("user-agent", "kube-probe/1.31".parse().unwrap());
    probe
        .headers_mut()
        .insert("k-network-probe", "queue".parse().unwrap());
    assert_eq!(whole(client.send(probe).await).await.status(), 200);
    assert_eq!(world.fleet.load().arrivals, 1);

    world
        .fleet
        .set_endpoint(ReplicaId(0), replica.address, ReplicaState::Starting);
    let response = client.get("/healthz").await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["x-inflight-reason"], "no_replica");
    assert_eq!(world.fleet.load().arrivals, 1);
}

#[tokio::test]
async fn b54_a_gateway_that_forwards_to_itself_is_found_out() {
    let world = World::new(5, &[]);
    world
        .fleet
        .set_endpoint(ReplicaId(7), world.address, ReplicaState::Ready);
    let response = world.http1().await.get("/loop").await;
    assert_eq!(response.status(), StatusCode::LOOP_DETECTED);
    assert_eq!(response.headers()["x-inflight-reason"], "loop_detected");
    assert_eq!(world.fleet.load().arrivals, 1);
    world.settles().await;
}

#[tokio::test]
async fn b55_what_a_replica_answered_or_may_have_done_is_not_sent_again() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut client = world.http1().await;
    assert_eq!(
        whole(client.send(post("/fail", "x")).await).await.status(),
        500
    );
    assert_eq!(client.get("/fail").await.status(), 500);
    assert_eq!(replica.requests(), 2);
    let response = whole(client.send(post("/die", "x")).await).await;
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["x-inflight-reason"], "upstream_reset");
    assert_eq!(replica.requests(), 3);
    let load = world.fleet.load();
    assert_eq!(
        (load.in_flight, load.completed, load.upstream_failed),
        (0, 2, 1)
    );
}

#[tokio::test]
async fn b58_a_long_call_ends_well_while_the_gateway_drains() {
    let replica = Replica::start().await;
    let mut world = World::new(1, &[&replica]);
    let mut client = world.http1().await;
    let held = tokio::spawn(client.sender.send_request(get("/hold")));
    let streams = world.http2().await;
    let mut sender = streams.sender.clone();
    let queued = tokio::spawn(sender.send_request(get("http://fleet/after")));
    world.until_queued(1).await;
    let gateway = world.shut_down();
    eventually(|| std::net::TcpStream::connect(world.address).is_err()).await;
    assert!(!gateway.is_finished());
    replica.seen.release.notify_one();
    let response = held.await.unwrap().unwrap();
    assert_eq!(response.headers()["connection"], "close");
    assert_eq!(whole(response).await.body(), "held");
    assert_eq!(whole(queued.await.unwrap().unwrap()).await.body(), "hello");
    tokio::time::timeout(PATIENCE, gateway)
        .await
        .unwrap()
        .unwrap();
    world.settles().await;
}

#[tokio::test]
async fn what_still_runs_when_the_drain_time_is_over_is_cut() {
    let replica = Replica::start().await;
    let mut world = World::with(1, 10, &[&replica], |config| {
        config.timeouts.drain = Duration::from_millis(200);
    });
    let mut client = world.http1().await;
    let held = tokio::spawn(client.sender.send_request(get("/hold")));
    eventually(|| replica.requests() == 1).await;
    tokio::time::timeout(PATIENCE, world.shut_down())
        .await
        .unwrap()
        .unwrap();
    assert!(held.await.unwrap().is_err());
    world.settles().await;
}

/// The same bytes as in request smuggling: exactly one request reaches the replica, or none.
#[tokio::test]
async fn b67_two_lengths_make_one_upstream_request_at_most() {
    const SMUGGLED: &str = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n";
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let length = SMUGGLED.len();
    for (minor, head) in [
        format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
        format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n"),
        format!("content-length: {length}\r\ncontent-length: 5\r\n"),
        format!("transfer-encoding: chunked, identity\r\ncontent-length: {length}\r\n"),
        format!("content-length: 5\r\nx-folded: a\r\n content-length: {length}\r\n"),
    ]
    .into_iter()
    .flat_map(|head| [(1, head.clone()), (0, head)])
    {
        let before = replica.requests();
        let mut socket = TcpStream::connect(world.address).await.unwrap();
        let request = format!("POST /count HTTP/1.{minor}\r\nhost: x\r\n{head}\r\n0\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        drop(
            tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer))
                .await
                .unwrap(),
        );
        world.settles().await;
        assert!(replica.requests() <= before + 1, "{head}");
        if replica.requests() > before {
            let headers = replica.last_headers();
            assert!(
                !(headers.contains_key("content-length")
                    && headers.contains_key("transfer-encoding"))
            );
        }
    }
}

#[tokio::test]
async fn b68_hop_by_hop_headers_stay_on_their_hop() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    for _ in 0..3 {
        let mut request = get("/x");
        for (name, value) in [
            ("connection", "close, X-Foo, te"),
            ("x-foo", "1"),
            ("keep-alive", "timeout=1"),
            ("te", "trailers"),
            ("proxy-authorization", "Basic x"),
            ("upgrade", "h2c"),
            ("x-bar", "kept"),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let response = world.http1().await.send(request).await;
        assert_eq!(whole(response).await.status(), 200);
        let headers = replica.last_headers();
        for name in ["x-foo", "keep-alive", "proxy-authorization", "upgrade"] {
            assert!(!headers.contains_key(name), "{name} was forwarded");
        }
        assert_eq!(headers["x-bar"], "kept");
        // Not the client's words but ours, for this hop: trailers are understood.
        assert_eq!(headers["connection"], "te");
        assert_eq!(headers["te"], "trailers");
    }
    assert_eq!(replica.seen.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn b70_what_an_untrusted_client_says_of_its_address_is_replaced() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut request = get("/x");
    let headers = request.headers_mut();
    headers.append("x-forwarded-for", "10.0.0.1".parse().unwrap());
    headers.append("x-forwarded-for", "10.0.0.2".parse().unwrap());
    headers.append("forwarded", "for=10.0.0.3".parse().unwrap());
    headers.append("x-forwarded-host", "evil".parse().unwrap());
    headers.append("x-forwarded-proto", "https".parse().unwrap());
    whole(world.http1().await.send(request).await).await;
    let headers = replica.last_headers();
    let all: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    assert_eq!(all, ["127.0.0.1"]);
    assert!(!headers.contains_key("forwarded"));
    assert_eq!(headers["x-forwarded-host"], "fleet");
    assert_eq!(headers["x-forwarded-proto"], "http");
}

#[tokio::test]
async fn b74_a_call_that_is_reset_is_reset_at_the_replica() {
    let replica = Replica::start().await;
    let world = World::new(2, &[&replica]);
    let client = world.http2().await;
    let mut sender = client.sender.clone();
    let reset = tokio::spawn(sender.send_request(call("/hold")));
    eventually(|| replica.requests() == 1).await;
    reset.abort();
    eventually(|| replica.seen.cancelled.load(Ordering::SeqCst) == 1).await;
    world.settles().await;
    let mut sender = client.sender.clone();
    let dropped = tokio::spawn(sender.send_request(call("/hold")));
    eventually(|| replica.requests() == 2).await;
    drop(client);
    eventually(|| replica.seen.cancelled.load(Ordering::SeqCst) == 2).await;
    world.settles().await;
    assert_eq!(world.fleet.load().client_gone, 2);
    drop(dropped);
}

#[tokio::test]
async fn b75_connections_to_a_replica_are_used_again() {
    let replica = Replica::start().await;
    let world = Arc::new(World::new(50, &[&replica]));
    let mut clients = Vec::new();
    for _ in 0..20 {
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
    assert!(replica.seen.connections.load(Ordering::SeqCst) <= 20);
}

#[tokio::test]
async fn a_refused_request_says_why_and_reaches_no_replica() {
    let replica = Replica::start().await;
    let world = World::with(1, 1, &[&replica], |_| {});
    let mut holder = world.http1().await;
    let held = tokio::spawn(holder.sender.send_request(get("/hold")));
    eventually(|| replica.requests() == 1).await;
    let mut waiter = world.http1().await;
    let waits = tokio::spawn(waiter.sender.send_request(get("/x")));
    world.until_queued(1).await;

    let refused = world.http1().await.get("/x").await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["x-inflight-reason"], "queue_full");
    if let Some(seconds) = refused.headers().get("retry-after") {
        assert!(seconds.to_str().unwrap().parse::<u64>().unwrap() >= 1);
    }
    let refused = world.http2().await.send(call("/x")).await;
    assert_eq!(refused.status(), 200);
    assert_eq!(refused.headers()["grpc-status"], "8");
    assert_eq!(refused.headers()["grpc-message"], "queue_full");
    assert_eq!(refused.headers()["x-inflight-reason"], "queue_full");
    assert!(hyper::body::Body::is_end_stream(refused.body()));
    assert_eq!(replica.requests(), 1);
    replica.seen.release.notify_one();
    assert_eq!(held.await.unwrap().unwrap().status(), 200);
    assert_eq!(waits.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn the_upload_of_a_refused_request_is_not_read_for_ever() {
    let world = World::with(1, 0, &[], |_| {});
    let (feed, body) = fed();
    let mut request = get("/x").map(|_| body);
    *request.method_mut() = Method::POST;
    let mut client = world.http1().await;
    let response = client.send(request).await;
    assert_eq!(response.headers()["connection"], "close");
    assert_eq!(
        whole(response).await.headers()["x-inflight-reason"],
        "no_replica"
    );
    let ends = async { while feed.send(Bytes::from(vec![0; 10_000])).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, ends).await.unwrap();
}

#[tokio::test]
async fn an_http2_client_is_served_by_a_replica_that_speaks_http1_only() {
    let replica = Replica::speaking(Speaks::Http1).await;
    let world = World::new(2, &[&replica]);
    let client = world.http2().await;
    for _ in 0..3 {
        assert_eq!(client.get("/x").await.body(), "hello");
    }
    let response = client.send(call("/x")).await;
    assert_eq!(response.headers()["grpc-status"], "14");
    assert_eq!(response.headers()["x-inflight-reason"], "upstream_protocol");
    assert_eq!(replica.last_headers()["host"], "fleet");
    world.settles().await;
}

#[tokio::test]
async fn an_http1_client_is_served_over_http2_where_that_is_configured() {
    let replica = Replica::start().await;
    let world = World::with(2, 10, &[&replica], |config| {
        config.upstream = UpstreamProtocol::Http2;
    });
    let mut client = world.http1().await;
    assert_eq!(client.get("/chunked").await.body(), "abcdef");
    assert_eq!(
        whole(client.send(post("/echo", "abc")).await).await.body(),
        "abc"
    );
    let (version, headers, uri) = replica.seen.heads.lock().unwrap().last().unwrap().clone();
    assert_eq!(
        (version, uri.as_str()),
        (http::Version::HTTP_2, "http://fleet/echo")
    );
    assert_eq!(headers["content-length"], "3");
}

#[tokio::test]
async fn an_http10_client_is_served() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut socket = TcpStream::connect(world.address).await.unwrap();
    socket
        .write_all(b"GET /chunked HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, socket.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nabcdef"), "{answer}");
    world.settles().await;
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_head_is_cut() {
    let world = World::with(1, 10, &[], |config| {
        config.timeouts.head = Duration::from_millis(200);
    });
    for begun in ["", "P", "GET / HTTP/1.1\r\nhost: x\r\n"] {
        let mut socket = TcpStream::connect(world.address).await.unwrap();
        socket.write_all(begun.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        drop(
            tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer))
                .await
                .unwrap(),
        );
    }
}

#[tokio::test]
async fn connections_over_the_limit_wait_to_be_accepted() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| config.limits.connections = 1);
    let mut first = world.http1().await;
    assert_eq!(first.get("/x").await.status(), 200);
    let mut second = Http1::to(world.address).await;
    let waits = tokio::spawn(second.sender.send_request(get("/x")));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waits.is_finished());
    drop(first);
    assert_eq!(waits.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_its_cause() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = inflight::gateway::Gateway::bind(GatewayConfig::new(address)).unwrap_err();
    let text = format!("source.gateway.listen: cannot listen on {address}");
    assert_eq!(error.to_string(), text);
    assert!(error.source.to_string().contains("in use"), "{error:?}");
}

#[tokio::test]
async fn a_replica_that_answers_too_late_is_given_up() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.timeouts.first_byte = Duration::from_millis(300);
    });
    let response = world.http1().await.get("/hold").await;
    assert_eq!(response.status(), 504);
    assert_eq!(response.headers()["x-inflight-reason"], "upstream_timeout");
    eventually(|| replica.seen.cancelled.load(Ordering::SeqCst) == 1).await;
    assert_eq!(world.fleet.load().timed_out, 1);
    let response = world.http2().await.send(call("/hold")).await;
    assert_eq!(response.headers()["grpc-status"], "4");
    let trailers = response.into_body().collect().await.unwrap();
    assert_eq!(trailers.to_bytes(), "");
    world.settles().await;
}
