//! What is pushed, when, and how it ends.

use inflight_core::Limit;
use inflight_proto::health::HealthCheckRequest;
use inflight_proto::health::health_check_response::ServingStatus;
use inflight_proto::health::health_client::HealthClient;
use tokio::time::timeout;
use tonic::Code;

use super::{PATIENCE, World, connected, external, object, occupied};
use crate::api::instance::arrival;

#[tokio::test]
async fn activation_is_pushed_with_the_decision_and_said_once() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let stream = world.client.stream_is_active(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    world.decide(0, occupied(0.0), Vec::new());
    let first = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(!first.unwrap().result);
    world.decide(0, occupied(0.0), Vec::new());
    world.decide(1, occupied(1.0), Vec::new());
    let next = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(next.unwrap().result);
}

#[tokio::test]
async fn a_changed_target_is_pushed() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let stream = world.client.stream_metric_spec(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    for target in [2.0, 3.0] {
        world.fleets[0].board().external = Some(external(target));
        let pushed = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
        let spec = &pushed.unwrap().metric_specs[0];
        assert_eq!(spec.target_size_float.to_bits(), target.to_bits());
    }
}

#[tokio::test]
async fn open_streams_do_not_hold_up_our_end() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let stream = world.client.stream_metric_spec(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    stream.message().await.unwrap();
    world.stop.send(()).unwrap();
    let ended = timeout(PATIENCE, stream.message()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::Unavailable);
    drop((stream, world.client));
    timeout(PATIENCE, world.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_first_request_is_pushed_before_it_is_decided_on() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(0, occupied(0.0), Vec::new());
    let stream = world.client.stream_is_active(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    let first = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(!first.unwrap().result);
    let permit = world.fleets[0].arrive(arrival()).unwrap();
    let next = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(next.unwrap().result);
    assert!(world.is_active().await.unwrap());
    drop(permit);
    let last = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(!last.unwrap().result);
}

#[tokio::test]
async fn a_slow_reader_finds_the_newest_and_nothing_piled_up() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(1, occupied(1.0), vec![Limit::Min]);
    let stream = world.client.stream_is_active(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    // Far more than a listener may lag behind, and the same in the end.
    for round in 0..1_000 {
        world.decide(round % 2, occupied(f64::from(round % 2)), Vec::new());
    }
    world.decide(1, occupied(1.0), Vec::new());
    let first = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(first.unwrap().result);
    world.decide(0, occupied(0.0), Vec::new());
    let next = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(!next.unwrap().result);
}

#[tokio::test]
async fn a_fleet_that_is_gone_ends_its_streams_and_keda_asks_again() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let stream = world.client.stream_metric_spec(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    stream.message().await.unwrap();
    world.roster.replace(Vec::new());
    let ended = timeout(PATIENCE, stream.message()).await.unwrap();
    assert_eq!(ended.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn the_health_of_a_fleet_is_pushed_when_it_changes() {
    let world = World::start(&["triton"], "occupancy", 2.0).await;
    let mut client = HealthClient::new(connected(world.address).await);
    let service = "triton".to_owned();
    let watch = client.watch(HealthCheckRequest { service }).await.unwrap();
    let mut watch = watch.into_inner();
    let mut next = async || {
        let next = timeout(PATIENCE, watch.message()).await.unwrap().unwrap();
        next.unwrap().status()
    };
    assert_eq!(next().await, ServingStatus::NotServing);
    world.decide(1, occupied(1.0), Vec::new());
    assert_eq!(next().await, ServingStatus::Serving);
    world.roster.replace(Vec::new());
    assert_eq!(next().await, ServingStatus::ServiceUnknown);
}
