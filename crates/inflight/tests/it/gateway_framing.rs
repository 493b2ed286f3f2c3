//! Where messages begin and end: lengths that contradict each other, chunks that are none, heads
//! that are too large, answers that come before the question was asked in full.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use inflight::gateway::UpstreamProtocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gateway_replicas::Played;
use crate::gateway_world::{PATIENCE, Replica, World, call, fed, get, post, whole};

/// A replica that reads a request's head and answers with some words, then closes.
async fn saying(words: impl Into<String>) -> Played {
    let words = words.into();
    Played::start(move |mut socket, _| {
        let words = words.clone();
        async move {
            read_head(&mut socket).await;
            drop(socket.write_all(words.as_bytes()).await);
            drop(socket.shutdown().await);
            drop(socket.read_to_end(&mut Vec::new()).await);
        }
    })
    .await
}

async fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tokio::time::timeout(PATIENCE, socket.read_u8())
            .await
            .unwrap()
        {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// A fleet of one that is spoken to in HTTP/1.1.
fn of_one(replica: &Played) -> World {
    let world = World::with(1, 10, &[], |config| {
        config.upstream = UpstreamProtocol::Http1
    });
    replica.join(&world, 0);
    world
}

/// Sends some words and reads until the other side closes.
async fn exchange(world: &World, words: &[u8]) -> String {
    let mut client = TcpStream::connect(world.address).await.unwrap();
    client.write_all(words).await.unwrap();
    let mut answer = Vec::new();
    let read = client.read_to_end(&mut answer);
    drop(tokio::time::timeout(PATIENCE, read).await.unwrap());
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn b67_a_response_with_two_lengths_is_whole_and_ends_its_connection() {
    let replica = Played::start(|mut socket, _| async move {
        while !read_head(&mut socket).await.is_empty() {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\
                          transfer-encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n";
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let world = of_one(&replica);
    let mut client = world.http1().await;
    for _ in 0..2 {
        let response = client.get("/x").await;
        assert_eq!(response.body(), "whole");
        assert!(!response.headers().contains_key("content-length"));
    }
    assert_eq!(replica.connections(), 2);
    assert_eq!(world.http2().await.get("/x").await.body(), "whole");
    world.settles().await;
}

#[tokio::test]
async fn a_request_without_one_host_is_refused() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    for (head, is_taken) in [
        ("GET / HTTP/1.1\r\n", false),
        ("GET http://fleet/ HTTP/1.1\r\n", false),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n", false),
        ("GET / HTTP/1.0\r\nhost: a\r\nhost: a\r\n", false),
        ("GET / HTTP/1.1\r\nhost: a\r\n", true),
        ("GET / HTTP/1.1\r\nhost:\r\n", true),
        ("GET / HTTP/1.0\r\n", true),
    ] {
        let words = format!("{head}connection: close\r\n\r\n");
        let answer = exchange(&world, words.as_bytes()).await;
        assert_eq!(answer.contains(" 200 OK\r\n"), is_taken, "{head}{answer}");
        assert_eq!(answer.contains(" 400 Bad Request\r\n"), !is_taken, "{head}");
        assert_eq!(answer.contains("not_one_host"), !is_taken, "{head}");
    }
    assert_eq!(replica.requests(), 3);
    assert_eq!(world.fleet.load().arrivals, 3);
}

#[tokio::test]
async fn a_bad_chunk_of_a_request_is_told_to_its_sender() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    for path in ["/count", "/hold"] {
        let words = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
             2\r\nok\r\nno number\r\n"
        );
        let answer = exchange(&world, words.as_bytes()).await;
        assert!(
            answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
            "{answer}"
        );
        assert!(answer.contains("x-inflight-reason: client_malformed\r\n"));
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    world.settles().await;
    let load = world.fleet.load();
    assert_eq!((load.client_gone, load.upstream_failed), (2, 0));
}

#[tokio::test]
async fn a_bad_chunk_of_a_response_comes_after_its_head() {
    for begun in ["", "2\r\nok\r\n"] {
        let head = "HTTP/1.1 200 OK\r\nx-head: here\r\ntransfer-encoding: chunked\r\n\r\n";
        let replica = saying(format!("{head}{begun}no number\r\n")).await;
        let world = of_one(&replica);
        for _ in 0..3 {
            let answer = exchange(&world, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
            assert!(answer.contains("x-head: here\r\n"), "{answer}");
            assert!(answer.ends_with(begun), "{answer}");
            assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
            let response = world.http2().await.send(get("http://fleet/x")).await;
            assert_eq!(response.headers()["x-head"], "here");
            assert!(response.into_body().collect().await.is_err());
        }
        world.settles().await;
        assert_eq!(world.fleet.load().upstream_failed, 6);
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_taken_says_whose_fault_that_is_and_is_not_asked_for_again() {
    let many = "x-a: b\r\n".repeat(101);
    let long = format!("x-a: {}\r\n", "b".repeat(2 << 20));
    for (answer, reason) in [
        (
            format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
            "upstream_head_too_large",
        ),
        (
            format!("HTTP/1.1 200 OK\r\n{long}\r\n"),
            "upstream_head_too_large",
        ),
        ("no HTTP at all\r\n\r\n".into(), "upstream_protocol"),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 999999999999999999999999\r\n\r\n".into(),
            "upstream_protocol",
        ),
    ] {
        let replica = saying(answer).await;
        let world = of_one(&replica);
        let response = world.http1().await.get("/x").await;
        assert_eq!(response.status(), 502);
        assert_eq!(response.headers()["x-inflight-reason"], reason);
        let text = String::from_utf8(response.into_body().to_vec()).unwrap();
        assert!(text.starts_with(reason), "{text}");
        assert_eq!(
            text.contains("100 lines"),
            reason == "upstream_head_too_large"
        );
        assert_eq!(replica.connections(), 1);
        world.settles().await;
    }
}

#[tokio::test]
async fn a_length_that_never_comes_is_relayed_and_breaks_off() {
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 9000000000000000000\r\n\r\nbegun";
    let replica = saying(huge).await;
    let world = of_one(&replica);
    let answer = exchange(&world, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(
        answer.contains("content-length: 9000000000000000000\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("begun"), "{answer}");
    world.settles().await;
    assert_eq!(world.fleet.load().upstream_failed, 1);
}

#[tokio::test]
async fn a_head_of_http2_that_is_too_large_is_not_taken_for_a_reset() {
    let replica = Played::start(|socket, _| async move {
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let head = http::Response::builder().header("x-a", "b".repeat(400_000));
            drop(respond.send_response(head.body(()).unwrap(), true));
        }
    })
    .await;
    let world = World::new(1, &[]);
    replica.join(&world, 0);
    let reply = world.http2().await.send(call("/x")).await;
    assert_eq!(reply.headers()["grpc-message"], "upstream_protocol");
    world.settles().await;
}

#[tokio::test]
async fn an_answer_to_head_has_its_length_and_no_body_over_http2_too() {
    let mut request = get("http://fleet/x");
    *request.method_mut() = Method::HEAD;
    let http1 = saying("HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n").await;
    let world = of_one(&http1);
    let response = whole(world.http2().await.send(request).await).await;
    assert_eq!(response.headers()["content-length"], "12345");
    assert_eq!(response.body(), "");

    let http2 = Played::start(|socket, _| async move {
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.method(), Method::HEAD);
            let head = http::Response::builder().header("content-length", "12345");
            drop(respond.send_response(head.body(()).unwrap(), true));
        }
    })
    .await;
    let world = World::new(1, &[]);
    http2.join(&world, 0);
    let mut request = get("http://fleet/x");
    *request.method_mut() = Method::HEAD;
    let response = whole(world.http2().await.send(request).await).await;
    assert_eq!(response.headers()["content-length"], "12345");
    assert_eq!(response.body(), "");
    world.settles().await;
    assert_eq!(world.fleet.load().completed, 1);
}

/// A stream that is reset without an error has not ended either.
#[tokio::test]
async fn what_a_replica_withdraws_is_not_taken_for_whole() {
    let replica = Played::start(|socket, _| async move {
        let mut connection = h2::server::handshake(socket).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let head = http::Response::new(());
                let mut stream = respond.send_response(head, false).unwrap();
                stream.send_data("half".into(), false).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                stream.send_reset(h2::Reason::NO_ERROR);
            });
        }
    })
    .await;
    let world = World::new(1, &[]);
    replica.join(&world, 0);
    let client = world.http2().await;
    let response = client.send(get("http://fleet/x")).await;
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.is_err());
    let reply = client.send(call("/x")).await.into_body().collect().await;
    let trailers = reply.unwrap().trailers().cloned().unwrap();
    assert_eq!(trailers["grpc-message"], "upstream_reset");
    world.settles().await;
    assert_eq!(world.fleet.load().upstream_failed, 2);
}

/// A replica that refuses an upload before it has read it, and closes on it.
async fn refusing() -> Played {
    Played::start(|mut socket, _| async move {
        read_head(&mut socket).await;
        let body = "x".repeat(50_000);
        let answer = format!(
            "HTTP/1.1 413 Content Too Large\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(answer.as_bytes()).await.unwrap();
        // Closed over unread bytes at once, TCP itself may throw the answer away.
        tokio::time::sleep(Duration::from_millis(50)).await;
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_answer_reaches_a_client_that_reads_only_when_it_has_sent_all() {
    let replica = refusing().await;
    let world = of_one(&replica);
    let upload = vec![0; 800_000];
    for _ in 0..20 {
        let mut words = format!(
            "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n",
            upload.len()
        )
        .into_bytes();
        words.extend_from_slice(&upload);
        let mut client = TcpStream::connect(world.address).await.unwrap();
        client.write_all(&words).await.unwrap();
        let mut answer = Vec::new();
        let read = client.read_to_end(&mut answer);
        tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:.200}");
        assert!(answer.ends_with(&"x".repeat(50_000)), "{}", answer.len());
    }
    world.settles().await;
}

#[tokio::test]
async fn b06_what_a_replica_refuses_is_not_in_flight_afterwards() {
    const ASKED: u64 = 136;
    let replica = refusing().await;
    let world = of_one(&replica);
    for _ in 0..ASKED {
        let request = post("/x", vec![0; 20_000]);
        assert_eq!(world.http1().await.send(request).await.status(), 413);
    }
    world.settles().await;
    let load = world.fleet.load();
    let ended = load.completed + load.client_gone;
    assert_eq!((load.arrivals, ended), (ASKED, ASKED));
    assert_eq!(load.refused.total(), 0);
}

#[tokio::test]
async fn an_early_answer_does_not_reset_a_stream_that_is_about_to_end() {
    let replica = refusing().await;
    let refuses = of_one(&replica);
    let without_replica = World::with(1, 0, &[], |_| {});
    for (world, status) in [(&refuses, 413), (&without_replica, 503)] {
        let socket = TcpStream::connect(world.address).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(socket).await.unwrap();
        let driver = tokio::spawn(connection);
        let request = Request::post("http://fleet/x").body(()).unwrap();
        let (answer, mut upload) = sender.send_request(request, false).unwrap();
        upload.send_data(vec![0; 10_000].into(), false).unwrap();
        let mut answer = answer.await.unwrap();
        assert_eq!(answer.status(), status);
        while let Some(chunk) = answer.body_mut().data().await {
            let length = chunk.unwrap().len();
            answer
                .body_mut()
                .flow_control()
                .release_capacity(length)
                .unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        upload.send_data(vec![0; 10_000].into(), true).unwrap();
        let reset = tokio::time::timeout(
            Duration::from_millis(300),
            std::future::poll_fn(|cx| upload.poll_reset(cx)),
        );
        assert!(reset.await.is_err(), "the stream was reset");
        driver.abort();
    }
    refuses.settles().await;
}

#[tokio::test]
async fn an_upload_that_nobody_wants_is_not_read_for_ever_over_http2() {
    let replica = refusing().await;
    let world = of_one(&replica);
    let (feed, body) = fed();
    let mut request = get("http://fleet/x").map(|_| body);
    *request.method_mut() = Method::POST;
    let client = world.http2().await;
    let response = client.send(request).await;
    assert_eq!(response.status(), 413);
    let ends = async { while feed.send(Bytes::from(vec![0; 10_000])).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, ends).await.unwrap();
    assert_eq!(client.send(post("http://fleet/x", "")).await.status(), 413);
    world.settles().await;
}
