//! The whole of it: a configuration that runs, changes, is taken over and ends.

use std::net::SocketAddr;
use std::path::Path;

use inflight::config::{Config, Surroundings};
use inflight::runtime::{Challenge, Running};
use inflight_proto::externalscaler::external_scaler_client::ExternalScalerClient;
use inflight_proto::externalscaler::{GetMetricSpecResponse, GetMetricsRequest, MetricSpec};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::{LISTEN, PATIENCE, connected, object};
use crate::gateway_world::{Http1, Replica, WAIT};
use crate::product::instance::Scratch;

type Client = ExternalScalerClient<Channel>;

fn fleet(name: &str, threshold: f64, listen: SocketAddr, replica: SocketAddr) -> String {
    format!(
        r#"
  - name: {name}
    slots: 1
    replicas: {{ min: 0, max: 4 }}
    source: {{ gateway: {{ listen: "127.0.0.1:0" }} }}
    endpoints: {{ static: ["{replica}"] }}
    scaling: {{ policy: occupancy, threshold: {threshold} }}
    target: {{ keda: {{ listen: "{listen}" }} }}
"#
    )
}

fn read(top: &str, fleets: &[String]) -> Config {
    let fleets = fleets.concat();
    let text = format!("version: 1\nadmin: {{ listen: \"127.0.0.1:0\" }}\n{top}fleets:\n{fleets}");
    Config::from_text(Path::new("tests"), &text, &Surroundings::Elsewhere).unwrap()
}

async fn client(running: &Running, configured: SocketAddr) -> Client {
    let address = running.keda(configured).unwrap();
    ExternalScalerClient::new(connected(address).await)
}

async fn metric(client: &mut Client, metadata: &[(&str, &str)]) -> Result<f64, Status> {
    let request = GetMetricsRequest {
        scaled_object_ref: Some(object(metadata)),
        metric_name: "inflight".to_owned(),
    };
    let answer = client.get_metrics(request).await?;
    Ok(answer.get_ref().metric_values[0].metric_value_float)
}

async fn next_target(stream: &mut Streaming<GetMetricSpecResponse>) -> Result<f64, Status> {
    let pushed = timeout(PATIENCE, stream.message()).await.unwrap()?;
    let specs: Vec<MetricSpec> = pushed.unwrap().metric_specs;
    Ok(specs[0].target_size_float)
}

#[tokio::test]
async fn a_held_request_activates_a_fleet_at_zero() {
    // Nobody listens there, as with pods that are not there yet.
    let nobody = "127.0.0.1:9".parse().unwrap();
    let config = read("", &[fleet("triton", 2.0, LISTEN, nobody)]);
    let running = Running::start(config, false).await.unwrap();
    let mut client = client(&running, LISTEN).await;
    let stream = client.stream_is_active(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    // An address that nobody answers at is no replica.
    let first = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(!first.unwrap().result);
    let gateway = running.gateway("triton").unwrap();
    let held = tokio::spawn(async move {
        let mut http = Http1::to(gateway).await;
        timeout(WAIT, http.get("/")).await.ok();
    });
    let next = timeout(PATIENCE, stream.message()).await.unwrap().unwrap();
    assert!(next.unwrap().result);
    assert!(metric(&mut client, &[]).await.unwrap() >= 0.0);
    held.abort();
    drop((stream, client));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn fleets_share_an_address_and_a_reload_adds_changes_moves_and_removes_them() {
    let replica = Replica::start().await;
    let one = |threshold| fleet("one", threshold, LISTEN, replica.address);
    let two = |listen| fleet("two", 2.0, listen, replica.address);
    let mut running = Running::start(read("", &[one(2.0)]), false).await.unwrap();
    let address = running.keda(LISTEN).unwrap();
    let mut here = client(&running, LISTEN).await;
    // The only one needs no name.
    metric(&mut here, &[]).await.unwrap();
    let specs = here.stream_metric_spec(object(&[("fleet", "one")])).await;
    let mut specs = specs.unwrap().into_inner();
    assert!((next_target(&mut specs).await.unwrap() - 2.0).abs() < 1e-9);

    running.reload(Ok(read("", &[one(1.5), two(LISTEN)]))).await;
    assert_eq!(running.keda(LISTEN), Some(address), "nobody was cut");
    assert!((next_target(&mut specs).await.unwrap() - 1.5).abs() < 1e-9);
    let nameless = metric(&mut here, &[]).await.unwrap_err();
    assert_eq!(nameless.code(), Code::InvalidArgument);
    assert!(nameless.message().contains("one, two"), "{nameless}");
    metric(&mut here, &[("fleet", "two")]).await.unwrap();

    // Any address of loopback but the other one.
    let elsewhere = "127.0.0.2:0".parse().unwrap();
    running
        .reload(Ok(read("", &[one(1.5), two(elsewhere)])))
        .await;
    let moved = metric(&mut here, &[("fleet", "two")]).await.unwrap_err();
    assert_eq!(moved.code(), Code::NotFound, "{moved}");
    let mut there = client(&running, elsewhere).await;
    metric(&mut there, &[]).await.unwrap();

    running.reload(Ok(read("", &[two(elsewhere)]))).await;
    assert_eq!(running.keda(LISTEN), None);
    assert_eq!(
        next_target(&mut specs).await.unwrap_err().code(),
        Code::Unavailable
    );
    metric(&mut there, &[]).await.unwrap();
    drop((here, there, specs));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_file_that_moves_a_fleet_to_another_target_is_refused_whole() {
    let replica = Replica::start().await;
    let keda = fleet("one", 2.0, LISTEN, replica.address);
    let advise = keda.replace(&format!("{{ keda: {{ listen: \"{LISTEN}\" }} }}"), "advise");
    let mut running = Running::start(read("", &[keda]), false).await.unwrap();
    let mut client = client(&running, LISTEN).await;
    running.reload(Ok(read("", &[advise]))).await;
    metric(&mut client, &[]).await.unwrap();
    drop(client);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_successor_answers_at_the_same_socket_and_nobody_is_refused() {
    let replica = Replica::start().await;
    let scratch = Scratch::new();
    let top = format!("state: {{ dir: \"{}\" }}\n", scratch.path("state"));
    let fleets = [fleet("one", 2.0, LISTEN, replica.address)];
    let mut first = Running::start(read(&top, &fleets), false).await.unwrap();
    let address = first.keda(LISTEN).unwrap();
    let mut before = client(&first, LISTEN).await;
    metric(&mut before, &[]).await.unwrap();
    let stream = before.stream_is_active(object(&[])).await.unwrap();
    let mut stream = stream.into_inner();
    let ended = tokio::spawn(async move {
        let Challenge::Asked(asked) = first.challenged().await else {
            panic!("a part failed");
        };
        assert!(first.give_way(asked).await);
        first.stop().await.unwrap();
    });
    let second = Running::start(read(&top, &fleets), true).await.unwrap();
    assert_eq!(second.keda(LISTEN), Some(address));
    let cut = async { while stream.message().await.is_ok_and(|it| it.is_some()) {} };
    timeout(PATIENCE, cut).await.unwrap();
    // Whoever connects at any time is answered by one of the two.
    for _ in 0..20 {
        let mut client = ExternalScalerClient::new(connected(address).await);
        while metric(&mut client, &[]).await.is_err() {
            sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    timeout(PATIENCE, ended).await.unwrap().unwrap();
    drop((stream, before));
    second.stop().await.unwrap();
}
