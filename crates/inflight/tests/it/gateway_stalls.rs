//! Clients that take nothing, and those that only seem to: a stalled reader is cut and its slot
//! given back, whatever else moves on its connection; what lives is never cut.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::mpsc;

use crate::gateway_world::{PATIENCE, Replica, World, eventually, fed, get, whole};

const IDLE: Duration = Duration::from_millis(600);

fn world(replica: &Replica) -> World {
    World::with(2, 10, &[replica], |config| config.timeouts.idle = IDLE)
}

/// Its connection is alive all the time: other requests are sent and answered on it.
#[tokio::test]
async fn b72_a_stream_that_nobody_reads_is_reset_and_another_on_its_connection_lives() {
    let replica = Replica::start().await;
    let world = world(&replica);
    let (events, of_replica) = mpsc::channel(1);
    *replica.seen.events.lock().unwrap() = Some(of_replica);
    let client = world.http2().await;
    let mut living = client.send(get("http://fleet/events")).await.into_body();
    let mut unread = client.send(get("http://fleet/big")).await.into_body();
    assert_eq!(world.fleet.load().in_flight, 2);
    for _ in 0..10_000 {
        events.send(Bytes::from("sparse")).await.unwrap();
        let event = living.frame().await.unwrap().unwrap();
        assert_eq!(event.into_data().unwrap(), "sparse");
        if world.fleet.load().in_flight == 1 {
            break;
        }
        tokio::time::sleep(IDLE / 3).await;
    }
    assert_eq!(world.fleet.load().in_flight, 1, "the slot came back");
    eventually(|| replica.seen.executing.load(Ordering::SeqCst) == 0).await;
    let end = tokio::time::timeout(PATIENCE, async {
        loop {
            match unread.frame().await {
                Some(Ok(_)) => {}
                end => break end,
            }
        }
    });
    assert!(end.await.unwrap().unwrap().is_err(), "and it was told so");
    events.send(Bytes::from("still")).await.unwrap();
    let event = living.frame().await.unwrap().unwrap();
    assert_eq!(event.into_data().unwrap(), "still");
}

#[tokio::test]
async fn a_client_that_reads_nothing_on_http1_is_cut() {
    let replica = Replica::start().await;
    let world = world(&replica);
    let mut client = world.http1().await;
    let unread = client.send(get("/big")).await;
    assert_eq!(world.fleet.load().in_flight, 1);
    eventually(|| world.fleet.load().in_flight == 0).await;
    assert!(!unread.body().is_end_stream());
}

/// Little by little, each pause shorter than the idle time and all of them longer.
#[tokio::test]
async fn a_slow_reader_is_not_cut() {
    let replica = Replica::start().await;
    let world = world(&replica);
    let client = world.http2().await;
    let mut slow = client.send(get("http://fleet/big")).await.into_body();
    let mut taken = 0;
    for _ in 0..12 {
        let pause_ends = taken + 64 * 1024;
        while taken < pause_ends {
            let frame = slow.frame().await.unwrap().unwrap();
            taken += frame.into_data().unwrap().len();
        }
        tokio::time::sleep(IDLE / 4).await;
    }
    assert_eq!(world.fleet.load().in_flight, 1);
}

#[tokio::test]
async fn an_upload_that_moves_keeps_a_response_that_waits_for_it() {
    let replica = Replica::start().await;
    let world = world(&replica);
    for is_http2 in [false, true] {
        let (feed, body) = fed();
        let base = if is_http2 { "http://fleet" } else { "" };
        let mut request = get(&format!("{base}/tally")).map(|_| body);
        *request.method_mut() = Method::POST;
        let (mut http1, http2) = (world.http1().await, world.http2().await);
        let response = if is_http2 {
            http2.send(request).await
        } else {
            http1.send(request).await
        };
        for _ in 0..12 {
            feed.send(Bytes::from(vec![0; 1000])).await.unwrap();
            tokio::time::sleep(IDLE / 4).await;
        }
        drop(feed);
        assert_eq!(whole(response).await.body(), "12000");
    }
    world.settles().await;
}

/// The slot is the replica's until it is really done.
#[tokio::test]
async fn b05_a_stalled_reader_of_a_replica_that_cannot_be_cancelled_leaves_it_its_slot() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.timeouts.idle = IDLE;
        config.cancellable = false;
    });
    let client = world.http2().await;
    let unread = client.send(get("http://fleet/big")).await;
    let taken = || replica.seen.polled_bytes.load(Ordering::SeqCst);
    eventually(|| taken() >= 3200 * 65_536).await;
    world.settles().await;
    drop(unread);
    assert_eq!(replica.seen.cancelled.load(Ordering::SeqCst), 0);
    assert_eq!(world.http2().await.get("/after").await.status(), 200);
}

/// hyper's server is gone between requests; nothing of the connection is.
#[tokio::test]
async fn a_connection_that_idled_serves_its_next_request() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut client = world.http1().await;
    for _ in 0..3 {
        assert_eq!(client.get("/chunked").await.body(), "abcdef");
        tokio::time::sleep(Duration::from_millis(1200)).await;
    }
    world.settles().await;
}

#[tokio::test]
async fn a_connection_that_idles_too_long_is_closed() {
    let replica = Replica::start().await;
    let world = World::with(1, 10, &[&replica], |config| {
        config.timeouts.idle = Duration::from_millis(1500);
    });
    let mut client = world.http1().await;
    assert_eq!(client.get("/x").await.status(), 200);
    eventually(|| client.sender.is_closed()).await;
}
