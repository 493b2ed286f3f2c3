//! KEDA's external scaler, asked by a generated client over a real connection.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use inflight::clock::Clock;
use inflight::fleet::{External, Fleet, Member, Roster};
use inflight::targets::keda::KedaListener;
use inflight_core::load::{Missing, Quantity, Unknown};
use inflight_core::scaling::{ConcurrencyFinding, Finding, OccupancyFinding};
use inflight_core::{Decision, Limit, Reason, Replicas};
use inflight_proto::externalscaler::external_scaler_client::ExternalScalerClient;
use inflight_proto::externalscaler::{GetMetricsRequest, ScaledObjectRef};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::api::instance::{estimate, fleet_named};

const PATIENCE: Duration = Duration::from_secs(20);
const HOLD: Duration = Duration::from_secs(60);

struct World {
    fleets: Vec<Arc<Fleet>>,
    client: ExternalScalerClient<Channel>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl World {
    async fn start(names: &[&str], policy: &'static str, target: f64) -> Self {
        let clock = Clock::start();
        let fleets: Vec<_> = names.iter().map(|name| fleet_named(name, clock)).collect();
        for fleet in &fleets {
            let mut board = fleet.board();
            board.policy = policy;
            board.external = Some(External { target, hold: HOLD });
        }
        let roster = Arc::new(Roster::default());
        let member = |fleet: &Arc<Fleet>| Member {
            fleet: Arc::clone(fleet),
            orders: mpsc::channel(1).0,
        };
        roster.replace(fleets.iter().map(member).collect());
        let listener = KedaListener::bind((Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let url = format!("http://{}", listener.address().unwrap());
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            listener.serve(roster, stopped).await.unwrap();
        });
        let channel = Endpoint::new(url).unwrap().connect().await.unwrap();
        Self {
            fleets,
            client: ExternalScalerClient::new(channel),
            stop,
            served,
        }
    }

    fn decide(&self, desired: u32, finding: Finding, limits: Vec<Limit>) {
        let fleet = &self.fleets[0];
        let decision = Decision {
            at: fleet.clock().now(),
            current: fleet.board().desired(),
            wanted: None,
            desired: Replicas::new(desired),
            drain: Vec::new(),
            at_max: false,
            inputs: Vec::new(),
            reason: Reason { finding, limits },
        };
        fleet.board().publish(decision, estimate());
    }

    async fn metric(&mut self, metadata: &[(&str, &str)]) -> Result<(i64, f64), Status> {
        let request = GetMetricsRequest {
            scaled_object_ref: Some(object(metadata)),
            metric_name: "inflight".to_owned(),
        };
        let answer = self.client.get_metrics(request).await?.into_inner();
        let [value] = answer.metric_values.as_slice() else {
            panic!("one value, not {answer:?}");
        };
        Ok((value.metric_value, value.metric_value_float))
    }

    async fn target(&mut self, metadata: &[(&str, &str)]) -> Result<(i64, f64), Status> {
        let answer = self.client.get_metric_spec(object(metadata)).await?;
        let spec = &answer.get_ref().metric_specs[0];
        Ok((spec.target_size, spec.target_size_float))
    }
}

fn object(metadata: &[(&str, &str)]) -> ScaledObjectRef {
    let pairs = metadata
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()));
    // KEDA sends the whole of a trigger's metadata, its own keys too.
    let own = [("scalerAddress".to_owned(), "inflight:9443".to_owned())];
    ScaledObjectRef {
        name: "triton".to_owned(),
        namespace: "default".to_owned(),
        scaler_metadata: pairs.chain(own).collect::<HashMap<_, _>>(),
    }
}

fn occupied(required: f64) -> Finding {
    Finding::Occupancy(OccupancyFinding {
        in_flight: required,
        executing: None,
        replicas: 1.0,
        required,
        threshold: 2.0,
        want: Replicas::new(1),
    })
}

fn concurrent() -> Finding {
    Finding::Concurrency(ConcurrencyFinding {
        stable: 2.5,
        burst: 0.5,
        in_burst: false,
        want: Replicas::new(3),
    })
}

fn unknown() -> Finding {
    Finding::Unknown(Unknown {
        quantity: Quantity::InFlight,
        missing: Missing::NotANumber,
    })
}

#[tokio::test]
async fn occupancy_tells_what_is_needed_and_leaves_the_division_to_the_autoscaler() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    assert_eq!(world.target(&[]).await.unwrap(), (2, 2.0));
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
    let active = world.client.is_active(object(&[])).await.unwrap();
    assert!(active.get_ref().result);
}

#[tokio::test]
async fn nothing_in_flight_is_zero_in_both_forms_and_not_active() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(0, occupied(0.0), Vec::new());
    assert_eq!(world.metric(&[]).await.unwrap(), (0, 0.0));
    let active = world.client.is_active(object(&[])).await.unwrap();
    assert!(!active.get_ref().result);
}

#[tokio::test]
async fn any_other_policy_tells_the_size_it_decided() {
    let mut world = World::start(&["triton"], "concurrency", 1.0).await;
    world.decide(3, concurrent(), Vec::new());
    assert_eq!(world.target(&[]).await.unwrap(), (1, 1.0));
    assert_eq!(world.metric(&[]).await.unwrap(), (3, 3.0));
}

#[tokio::test]
async fn unknown_load_answers_the_last_known_value_and_never_zero() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let nothing = world.metric(&[]).await.unwrap_err();
    assert_eq!(nothing.code(), Code::Unavailable);
    world.decide(4, unknown(), Vec::new());
    assert_eq!(
        world.metric(&[]).await.unwrap_err().code(),
        Code::Unavailable
    );
    world.decide(4, occupied(6.6), Vec::new());
    world.decide(4, unknown(), Vec::new());
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
}

#[tokio::test]
async fn a_configured_fallback_counts_when_the_load_is_unknown_for_too_long() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let fallback = Limit::UnknownFallback {
        fallback: Replicas::new(5),
    };
    world.decide(5, unknown(), vec![fallback]);
    assert_eq!(world.metric(&[]).await.unwrap(), (10, 10.0));
}

#[tokio::test]
async fn a_decision_older_than_the_hold_is_unavailable() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    world.fleets[0].board().external = Some(External {
        target: 2.0,
        hold: Duration::ZERO,
    });
    let stale = world.metric(&[]).await.unwrap_err();
    assert_eq!(stale.code(), Code::Unavailable);
    assert!(stale.message().contains("scaling.unknown.hold"), "{stale}");
}

#[tokio::test]
async fn a_trigger_names_its_fleet_and_may_have_a_threshold_of_its_own() {
    let mut world = World::start(&["one", "two"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    let missing = world.metric(&[]).await.unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument);
    assert!(missing.message().contains("one, two"), "{missing}");
    let wrong = world.metric(&[("fleet", "three")]).await.unwrap_err();
    assert_eq!(wrong.code(), Code::NotFound);
    assert_eq!(world.metric(&[("fleet", "one")]).await.unwrap(), (7, 6.6));
    let own = [("fleet", "one"), ("threshold", "1.5")];
    assert_eq!(world.target(&own).await.unwrap(), (2, 1.5));
    for threshold in ["0", "-1", "NaN", "inf", "abc", "1e-9", ""] {
        let metadata = [("fleet", "one"), ("threshold", threshold)];
        let refused = world.target(&metadata).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{threshold}");
    }
}

#[tokio::test]
async fn a_threshold_is_refused_where_the_policy_decides_the_size() {
    let mut world = World::start(&["one"], "staffing", 1.0).await;
    let refused = world.target(&[("threshold", "3")]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("staffing"), "{refused}");
}

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
        world.fleets[0].board().external = Some(External { target, hold: HOLD });
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
