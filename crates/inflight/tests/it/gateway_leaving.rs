//! Whoever leaves, however it leaves: nothing stays counted.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::gateway_world::{Replica, Sent, World, fed, get, post};

/// A small generator of our own, so that a failing run can be had again.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn request(draws: &mut Draws, base: &str) -> http::Request<Sent> {
    let path = match draws.below(4) {
        0 => "/sleep",
        1 => "/chunked",
        2 => "/echo",
        _ => "/x",
    };
    let uri = format!("{base}{path}");
    if draws.below(2) == 0 {
        get(&uri)
    } else {
        post(&uri, vec![1; 20_000])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_counted_when_a_third_of_a_thousand_are_cut_on_http1() {
    let replicas = [Replica::start().await, Replica::start().await];
    let world = World::new(4, &[&replicas[0], &replicas[1]]);
    let mut draws = Draws(0x5eed_0001);
    let mut running = Vec::new();
    for _ in 0..1000 {
        let mut client = world.http1().await;
        let request = request(&mut draws, "");
        let cut_after = (draws.below(3) == 0).then(|| Duration::from_micros(draws.below(40_000)));
        running.push(tokio::spawn(async move {
            let sent = client.send(request);
            match cut_after {
                None => {
                    crate::gateway_world::whole(sent.await).await;
                }
                Some(after) => drop(tokio::time::timeout(after, sent).await),
            }
        }));
    }
    for request in running {
        request.await.unwrap();
    }
    world.settles().await;
    let load = world.fleet.load();
    let ended = load.completed + load.client_gone + load.upstream_failed + load.timed_out;
    assert_eq!((ended, load.timed_out), (load.arrivals, 0));
    assert_eq!(load.upstream_failed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_counted_when_a_third_of_a_thousand_are_cut_on_http2() {
    let replicas = [Replica::start().await, Replica::start().await];
    let world = World::new(4, &[&replicas[0], &replicas[1]]);
    let mut draws = Draws(0x5eed_0002);
    let mut running = Vec::new();
    for _ in 0..20 {
        let client = world.http2().await;
        let dies_after = (draws.below(4) == 0).then(|| Duration::from_millis(draws.below(200)));
        let mut requests = Vec::new();
        for _ in 0..50 {
            let request = request(&mut draws, "http://fleet");
            let cut = (draws.below(3) == 0).then(|| Duration::from_micros(draws.below(40_000)));
            let mut sender = client.sender.clone();
            requests.push(tokio::spawn(async move {
                let sent = async {
                    if let Ok(response) = sender.send_request(request).await {
                        drop(http_body_util::BodyExt::collect(response.into_body()).await);
                    }
                };
                drop(tokio::time::timeout(cut.unwrap_or(Duration::from_secs(15)), sent).await);
            }));
        }
        running.push(tokio::spawn(async move {
            if let Some(after) = dies_after {
                tokio::time::sleep(after).await;
                drop(client);
                return;
            }
            for request in requests {
                request.await.unwrap();
            }
        }));
    }
    for client in running {
        client.await.unwrap();
    }
    world.settles().await;
    let load = world.fleet.load();
    let ended = load.completed + load.client_gone + load.upstream_failed + load.timed_out;
    assert_eq!((ended, load.timed_out), (load.arrivals, 0));
    assert_eq!(load.upstream_failed, 0);
}

/// The replica has begun to answer, and breaks off because its upload did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_echo_that_its_client_leaves_is_the_clients_doing() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    let mut feeds = Vec::new();
    for nth in 0..40 {
        let (feed, body) = fed();
        let mut request = get("http://fleet/echo").map(|_| body);
        *request.method_mut() = Method::POST;
        feed.send(Bytes::from("word")).await.unwrap();
        if nth % 2 == 0 {
            let mut client = world.http1().await;
            let response = client.send(request).await;
            drop(client);
            drop(response);
        } else {
            let client = world.http2().await;
            let response = client.send(request).await;
            drop(client);
            drop(response);
        }
        feeds.push(feed);
    }
    world.settles().await;
    let load = world.fleet.load();
    assert_eq!((load.upstream_failed, load.client_gone), (0, load.arrivals));
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_the_clients_doing() {
    let replica = Replica::start().await;
    let world = World::new(1, &[&replica]);
    for _ in 0..10 {
        let (feed, body) = fed();
        let mut request = get("/count").map(|_| body);
        *request.method_mut() = Method::POST;
        let mut client = world.http1().await;
        let sent = tokio::spawn(client.sender.send_request(request));
        feed.send(Bytes::from(vec![0; 1000])).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        drop(client);
        drop(sent.await);
    }
    world.settles().await;
    let load = world.fleet.load();
    assert_eq!(load.upstream_failed, 0);
    assert_eq!(load.client_gone, load.arrivals);
}
