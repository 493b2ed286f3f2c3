//! The corners of HTTP and gRPC that pass through the gateway: expectations, heads without
//! bodies, interim answers, trailers, half-closed streams, deadlines.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Request};
use http_body_util::BodyExt;
use inflight_core::ReplicaId;
use inflight_core::admission::RefusalReason;
use inflight_core::load::ReplicaState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::gateway_world::{PATIENCE, Replica, Sent, World, call, eventually, fed, get, whole};

/// Reads until some words came.
async fn until(stream: &mut TcpStream, words: &str) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(words.as_bytes()) {
        let count = tokio::time::timeout(PATIENCE, stream.read(&mut byte))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(count, 1, "ended after {}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap().to_lowercase()
}

/// A replica that reads one request up to some words, answers with others, and returns what it
/// read.
async fn scripted(until_words: &'static str, answer: &'static str) -> (World, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::new(1, &[]);
    let address = listener.local_addr().unwrap();
    world
        .fleet
        .set_endpoint(ReplicaId(0), address, ReplicaState::Ready);
    let replica = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let read = until(&mut stream, until_words).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        // Until the other side has read it.
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest).await);
        read
    });
    (world, replica)
}

async fn say(world: &World, words: &str) -> TcpStream {
    let mut client = TcpStream::connect(world.address).await.unwrap();
    client.write_all(words.as_bytes()).await.unwrap();
    client
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_is_told_when_it_has_a_slot() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.timeouts.head = Duration::from_millis(300);
        config.timeouts.first_byte = Duration::from_secs(10);
    });
    let mut first = world.http1().await;
    let held = tokio::spawn(first.sender.send_request(get("/hold")));
    eventually(|| replica.requests() == 1).await;
    let mut client = say(
        &world,
        "POST /count HTTP/1.1\r\nhost: fleet\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n",
    )
    .await;
    world.until_queued(1).await;
    let mut early = [0; 1];
    let told_early = client.read(&mut early);
    let told_early = tokio::time::timeout(Duration::from_millis(800), told_early).await;
    assert!(told_early.is_err(), "asked for a body before it had a slot");
    assert_eq!(world.fleet.load().queued, 1);
    replica.seen.release.notify_one();
    whole(held.await.unwrap().unwrap()).await;
    assert_eq!(
        until(&mut client, "\r\n\r\n").await,
        "http/1.1 100 continue\r\n\r\n"
    );
    client.write_all(b"body").await.unwrap();
    assert!(
        until(&mut client, "\r\n\r\n4")
            .await
            .starts_with("http/1.1 200")
    );
    assert!(!replica.last_headers().contains_key("expect"));
    world.settles().await;
}

#[tokio::test]
async fn an_answer_to_head_keeps_its_length_and_has_no_body() {
    let (world, _replica) = scripted(
        "\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n",
    )
    .await;
    let mut client = world.http1().await;
    let mut request = get("/x");
    *request.method_mut() = Method::HEAD;
    let response = whole(client.send(request).await).await;
    assert_eq!(response.headers()["content-length"], "12345");
    assert_eq!(response.body(), "");
    world.settles().await;
}

#[tokio::test]
async fn an_interim_answer_does_not_stand_for_the_final_one() {
    let (world, _replica) = scripted(
        "\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nlink: </x.css>\r\n\r\n\
         HTTP/1.1 102 Processing\r\n\r\n\
         HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    )
    .await;
    let response = world.http1().await.get("/x").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), "ok");
    world.settles().await;
}

#[tokio::test]
async fn trailers_of_chunked_bodies_pass_both_ways() {
    let (world, replica) = scripted(
        "\r\n0\r\nx-sum: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n\r\n\
         2\r\nok\r\n0\r\nx-end: 2\r\n\r\n",
    )
    .await;
    let mut client = say(
        &world,
        "POST /x HTTP/1.1\r\nhost: fleet\r\nconnection: te\r\nte: trailers\r\n\
         trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
         2\r\nhi\r\n0\r\nx-sum: 1\r\n\r\n",
    )
    .await;
    let answer = until(&mut client, "x-end: 2\r\n\r\n").await;
    assert!(answer.contains("\r\nok\r\n0\r\n"), "{answer}");
    drop(client);
    world.settles().await;
    drop(world);
    let asked = tokio::time::timeout(PATIENCE, replica)
        .await
        .unwrap()
        .unwrap();
    assert!(asked.contains("te: trailers"), "{asked}");
    assert!(asked.contains("connection: te"), "{asked}");
}

#[tokio::test]
async fn an_absolute_target_is_forwarded_as_its_path_and_its_host_counts() {
    let (world, _replica) = scripted(
        "host: right:81\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let words = "GET http://right:81/a?b HTTP/1.1\r\nhost: wrong\r\n\r\n";
    let mut client = say(&world, words).await;
    assert!(
        until(&mut client, "\r\n\r\n")
            .await
            .starts_with("http/1.1 200")
    );
}

fn streaming(path: &str, body: Sent) -> Request<Sent> {
    let (head, _) = call(path).into_parts();
    Request::from_parts(head, body)
}

#[tokio::test]
async fn a_call_that_streams_up_is_answered_after_its_half_close() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let client = world.http2().await;
    let (feed, body) = fed();
    let mut sender = client.sender.clone();
    let answer = tokio::spawn(sender.send_request(streaming("/grpc", body)));
    for _ in 0..3 {
        feed.send(Bytes::from("message")).await.unwrap();
    }
    eventually(|| replica.requests() == 1).await;
    assert!(!answer.is_finished());
    drop(feed);
    let response = answer.await.unwrap().unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    world.settles().await;
}

#[tokio::test]
async fn a_call_that_is_half_closed_is_streamed_to_and_counted_until_the_end() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let (events, of_replica) = mpsc::channel(1);
    *replica.seen.events.lock().unwrap() = Some(of_replica);
    let client = world.http2().await;
    let mut response = client.send(call("/events")).await.into_body();
    for word in ["one", "two"] {
        events.send(Bytes::from(word)).await.unwrap();
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), word);
        assert_eq!(world.fleet.load().in_flight, 1);
    }
    drop(events);
    assert_eq!(response.collect().await.unwrap().to_bytes(), "");
    world.settles().await;
}

fn call_within(path: &str, timeout: &str) -> Request<Sent> {
    let mut request = call(path);
    let timeout = timeout.parse().unwrap();
    request.headers_mut().insert("grpc-timeout", timeout);
    request
}

#[tokio::test]
async fn a_call_whose_deadline_passes_while_it_waits_is_told_so_and_reaches_no_replica() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut first = world.http1().await;
    let held = tokio::spawn(first.sender.send_request(get("/hold")));
    eventually(|| replica.requests() == 1).await;
    let client = world.http2().await;
    let response = client.send(call_within("/grpc", "300m")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "4");
    assert_eq!(response.headers()["x-inflight-reason"], "deadline_expired");
    let refused = world.fleet.load().refused;
    assert_eq!(refused.get(RefusalReason::DeadlineExpired), 1);
    assert_eq!(world.fleet.load().in_flight, 1);
    assert_eq!(replica.requests(), 1);
    replica.seen.release.notify_one();
    whole(held.await.unwrap().unwrap()).await;
    world.settles().await;
}

#[tokio::test]
async fn a_time_out_is_passed_on_as_it_came_and_a_malformed_one_refuses_nobody() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let client = world.http2().await;
    for timeout in ["20S", "soon"] {
        let response = client.send(call_within("/grpc", timeout)).await;
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(replica.last_headers()["grpc-timeout"], timeout);
    }
    let response = client.send(call_within("/grpc", "0S")).await;
    assert_eq!(response.headers()["grpc-status"], "4");
    assert_eq!(replica.requests(), 2);
}

#[tokio::test]
async fn a_configured_header_says_how_long_a_request_may_wait() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.deadline_header = Some(HeaderName::from_static("x-time-out"));
    });
    let mut first = world.http1().await;
    let held = tokio::spawn(first.sender.send_request(get("/hold")));
    eventually(|| replica.requests() == 1).await;
    let mut request = get("/x");
    let timeout = "300ms".parse().unwrap();
    request.headers_mut().insert("x-time-out", timeout);
    let response = world.http1().await.send(request).await;
    assert!(response.status().is_server_error(), "{response:?}");
    assert_eq!(response.headers()["x-inflight-reason"], "deadline_expired");
    assert_eq!(world.fleet.load().in_flight, 1);
    replica.seen.release.notify_one();
    whole(held.await.unwrap().unwrap()).await;
    world.settles().await;
    assert_eq!(replica.requests(), 1);
}
