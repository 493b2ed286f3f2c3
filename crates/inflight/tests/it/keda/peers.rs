//! Peers that hang, ask for too much or talk nonsense, and take nothing away from others.

use std::sync::Arc;

use inflight_proto::externalscaler::external_scaler_client::ExternalScalerClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use super::{PATIENCE, World, connected, object, occupied};
use crate::gateway_world::eventually;

#[tokio::test]
async fn b25_peers_that_connect_and_say_nothing_take_nobody_elses_answers() {
    let world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    let mut client = ExternalScalerClient::new(connected(world.address).await);
    let active = timeout(PATIENCE, client.is_active(object(&[])))
        .await
        .unwrap();
    assert!(active.unwrap().get_ref().result);
    // Those that were too many were closed.
    let mut told = Vec::new();
    let closed = timeout(PATIENCE, silent[0].read_to_end(&mut told)).await;
    closed.unwrap().ok();
}

#[tokio::test]
async fn what_is_no_http2_is_cut_and_others_are_answered() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // A reset is an end as well.
    timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .ok();
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
}

#[tokio::test]
async fn a_question_that_is_too_large_is_refused_and_the_next_is_answered() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    let large = "a".repeat(100_000);
    let refused = world.metric(&[("note", &large)]).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let within = "a".repeat(60_000);
    assert_eq!(world.metric(&[("note", &within)]).await.unwrap(), (7, 6.6));
    // What is told back of it is short.
    let refused = world.metric(&[("threshold", &within)]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().len() < 400, "{refused}");
}

#[tokio::test]
async fn streams_are_bounded_and_leave_room_for_questions() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    let mut streams = Vec::new();
    let full = loop {
        assert!(streams.len() < 3_000, "no bound");
        match world.client.stream_is_active(object(&[])).await {
            Ok(stream) => streams.push(stream.into_inner()),
            Err(status) => break status,
        }
    };
    assert_eq!(full.code(), Code::ResourceExhausted, "{full}");
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
    // Another connection has room of its own, and places that are given up are taken again.
    let mut other = ExternalScalerClient::new(connected(world.address).await);
    other.stream_is_active(object(&[])).await.unwrap();
    streams.clear();
    let again = async {
        while world.client.stream_is_active(object(&[])).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.unwrap();
}

#[tokio::test]
async fn b79_connections_of_triggers_that_were_built_anew_are_gone() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    // Every connection and every stream has a share of it.
    world.metric(&[]).await.unwrap();
    let shares = Arc::strong_count(&world.roster);
    for _ in 0..200 {
        let mut client = ExternalScalerClient::new(connected(world.address).await);
        client.stream_is_active(object(&[])).await.unwrap();
        client.stream_metric_spec(object(&[])).await.unwrap();
    }
    let asked = world.fleets[0].board().asked;
    assert!(asked.questions().any(|it| it == ("stream_is_active", 200)));
    eventually(|| Arc::strong_count(&world.roster) <= shares).await;
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
}
