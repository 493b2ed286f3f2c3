//! What streams through the gateway: bodies both ways, trailers, events, and when a request is
//! over.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::BodyExt;
use inflight_core::Occupancy;
use tokio::sync::mpsc;

use crate::gateway_world::{Replica, World, call, eventually, fed, get, post};

#[tokio::test]
async fn a_request_is_forwarded_and_its_response_relayed() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let response = world.http1().await.get("/hello?x=1").await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.body(), "hello");
    assert!(
        response
            .headers()
            .keys()
            .all(|name| name != "x-inflight-reason")
    );
    let (version, headers, uri) = replica.seen.heads.lock().unwrap().last().unwrap().clone();
    assert_eq!((version, uri.as_str()), (Version::HTTP_11, "/hello?x=1"));
    assert_eq!(headers["host"], "fleet");
    assert_eq!(headers["x-forwarded-for"], "127.0.0.1");
    assert_eq!(headers["x-forwarded-host"], "fleet");
    assert_eq!(headers["x-forwarded-proto"], "http");
    world.settles().await;
}

#[tokio::test]
async fn a_grpc_call_gets_its_trailers_and_its_te_header_through() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let response = world.http2().await.send(call("/grpc")).await;
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.trailers().unwrap()["grpc-message"], "fine");
    assert_eq!(body.to_bytes(), "reply");
    let (version, headers, uri) = replica.seen.heads.lock().unwrap().last().unwrap().clone();
    assert_eq!(
        (version, uri.as_str()),
        (Version::HTTP_2, "http://fleet/grpc")
    );
    assert_eq!(headers["te"], "trailers");
    world.settles().await;
}

#[tokio::test]
async fn a_streaming_call_is_echoed_frame_by_frame() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let (feed, body) = fed();
    let (head, _) = call("/echo").into_parts();
    let client = world.http2().await;
    let mut response = client
        .send(Request::from_parts(head, body))
        .await
        .into_body();
    for word in ["one", "two", "three"] {
        feed.send(Bytes::from(word)).await.unwrap();
        let frame = response.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), word);
    }
    assert_eq!(world.fleet.load().in_flight, 1);
    drop(feed);
    assert_eq!(response.collect().await.unwrap().to_bytes(), "");
    world.settles().await;
}

#[tokio::test]
async fn an_event_arrives_before_the_next_is_sent() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let (events, of_replica) = mpsc::channel(1);
    *replica.seen.events.lock().unwrap() = Some(of_replica);
    let mut client = world.http1().await;
    let mut response = client.send(get("/events")).await.into_body();
    for word in ["data: 1\n\n", "data: 2\n\n"] {
        events.send(Bytes::from(word)).await.unwrap();
        assert_eq!(
            response
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap(),
            word
        );
        assert_eq!(world.fleet.load().in_flight, 1);
    }
    drop(events);
    assert!(response.frame().await.is_none());
    world.settles().await;
}

/// Silence is not the end: B72.
#[tokio::test]
async fn b72_a_stream_lives_on_past_the_first_byte_time_out() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.timeouts.first_byte = Duration::from_millis(300);
    });
    let (events, of_replica) = mpsc::channel(1);
    *replica.seen.events.lock().unwrap() = Some(of_replica);
    let mut client = world.http1().await;
    let mut response = client.send(get("/events")).await.into_body();
    events.send(Bytes::from("first")).await.unwrap();
    assert!(response.frame().await.unwrap().is_ok());
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert_eq!(world.fleet.load().in_flight, 1);
    events.send(Bytes::from("last")).await.unwrap();
    assert_eq!(
        response
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap(),
        "last"
    );
}

#[tokio::test]
async fn an_upload_is_streamed_while_it_is_sent() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let (feed, body) = fed();
    let mut request = get("/echo").map(|_| body);
    *request.method_mut() = http::Method::POST;
    let mut client = world.http1().await;
    let mut response = client.send(request).await.into_body();
    for word in ["a", "b"] {
        feed.send(Bytes::from(word)).await.unwrap();
        assert_eq!(
            response
                .frame()
                .await
                .unwrap()
                .unwrap()
                .into_data()
                .unwrap(),
            word
        );
    }
    drop(feed);
    assert!(response.frame().await.is_none());
}

#[tokio::test]
async fn a_large_upload_arrives_whole() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let bytes = vec![1; 5_000_000];
    let mut client = world.http1().await;
    let response = client.send(post("/count", bytes.clone())).await;
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "5000000"
    );
    let request = post("http://fleet/count", bytes);
    let response = world.http2().await.send(request).await;
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "5000000"
    );
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_replica_too() {
    let replica = Replica::start().await;
    let world = World::new(2, &[&replica]);
    let mut client = world.http1().await;
    let mut http1 = client.send(get("/big")).await.into_body();
    assert!(http1.frame().await.unwrap().is_ok());
    let polled = || replica.seen.polled_bytes.load(Ordering::SeqCst);
    let mut before = 0;
    eventually(|| std::mem::replace(&mut before, polled()) == polled()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        polled() < 40 << 20,
        "{} bytes were taken from the replica",
        polled()
    );

    let client = world.http2().await;
    let mut http2 = client.send(get("http://fleet/big")).await.into_body();
    assert!(http2.frame().await.unwrap().is_ok());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        polled() < 80 << 20,
        "{} bytes were taken from the replica",
        polled()
    );
}

#[tokio::test]
async fn a_sequential_client_is_never_two() {
    let replica = Replica::start().await;
    let world = World::new(4, &[&replica]);
    let mut http1 = world.http1().await;
    let http2 = world.http2().await;
    for _ in 0..2500 {
        assert_eq!(http1.get("/fixed").await.body(), "hello");
        assert_eq!(http1.get("/chunked").await.body(), "abcdef");
        assert_eq!(http1.get("/empty").await.body(), "");
        assert_eq!(http2.get("/chunked").await.body(), "abcdef");
    }
    for _ in 0..500 {
        assert_eq!(http2.get("/fixed").await.body(), "hello");
        let reply = http2
            .send(call("/grpc"))
            .await
            .into_body()
            .collect()
            .await
            .unwrap();
        assert_eq!(reply.trailers().unwrap()["grpc-status"], "0");
        let echoed = http1.send(post("/echo", "again")).await.into_body();
        assert_eq!(echoed.collect().await.unwrap().to_bytes(), "again");
    }
    assert_eq!(replica.seen.in_flight_max.load(Ordering::SeqCst), 1);
    let most = world.fleet.observe().1.models[0]
        .in_flight_max
        .known()
        .map(Occupancy::get);
    assert_eq!(most, Some(1.0));
    assert!(replica.seen.connections.load(Ordering::SeqCst) <= 4);
    world.settles().await;
}

#[tokio::test]
async fn an_upload_that_waits_does_not_starve_the_uploads_it_waits_for() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let client = world.http2().await;
    let (feed, body) = fed();
    let mut first = get("http://fleet/count").map(|_| body);
    *first.method_mut() = http::Method::POST;
    let mut sender = client.sender.clone();
    let first = tokio::spawn(sender.send_request(first));
    eventually(|| replica.requests() == 1).await;
    let mut waiting = Vec::new();
    for _ in 0..40 {
        let mut sender = client.sender.clone();
        let upload = post("http://fleet/count", vec![0; 300_000]);
        waiting.push(tokio::spawn(sender.send_request(upload)));
    }
    world.until_queued(40).await;
    for _ in 0..100 {
        feed.send(Bytes::from(vec![0; 30_000])).await.unwrap();
    }
    drop(feed);
    let counted = first
        .await
        .unwrap()
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert_eq!(counted, "3000000");
    for upload in waiting {
        let response = upload
            .await
            .unwrap()
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap();
        assert_eq!(response.to_bytes(), "300000");
    }
    world.settles().await;
}
