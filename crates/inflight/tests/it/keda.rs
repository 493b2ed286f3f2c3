//! KEDA's external scaler, asked by a generated client over a real connection.

mod answers;
mod peers;
mod running;
mod streams;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
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
use inflight_proto::health::HealthCheckRequest;
use inflight_proto::health::health_check_response::ServingStatus;
use inflight_proto::health::health_client::HealthClient;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::api::instance::{estimate, fleet_named};

/// Where the fleets say that they are asked; any free port is taken for it.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const PATIENCE: Duration = Duration::from_secs(20);
const HOLD: Duration = Duration::from_secs(60);

struct World {
    fleets: Vec<Arc<Fleet>>,
    roster: Arc<Roster>,
    address: SocketAddr,
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
            board.external = Some(external(target));
        }
        let roster = Arc::new(Roster::default());
        let member = |fleet: &Arc<Fleet>| Member {
            fleet: Arc::clone(fleet),
            orders: mpsc::channel(1).0,
        };
        roster.replace(fleets.iter().map(member).collect());
        let listener = KedaListener::bind(LISTEN).unwrap();
        let address = listener.local_addr();
        let served_roster = Arc::clone(&roster);
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or_default() };
            listener.serve(served_roster, stopped).await;
        });
        Self {
            fleets,
            roster,
            address,
            client: ExternalScalerClient::new(connected(address).await),
            stop,
            served,
        }
    }

    fn decide(&self, desired: u32, finding: Finding, limits: Vec<Limit>) {
        self.decide_wanted(desired, desired, finding, limits);
    }

    fn decide_wanted(&self, desired: u32, wanted: u32, finding: Finding, limits: Vec<Limit>) {
        let fleet = &self.fleets[0];
        let decision = Decision {
            at: fleet.clock().now(),
            current: fleet.board().desired(),
            wanted: Some(Replicas::new(wanted)),
            desired: Replicas::new(desired),
            drain: Vec::new(),
            at_max: false,
            inputs: Vec::new(),
            reason: Reason { finding, limits },
        };
        fleet.board().publish(decision, estimate());
    }

    async fn is_active(&mut self) -> Result<bool, Status> {
        let answer = self.client.is_active(object(&[])).await?;
        Ok(answer.get_ref().result)
    }

    async fn health(&self, service: &str) -> Result<ServingStatus, Status> {
        let mut client = HealthClient::new(connected(self.address).await);
        let service = service.to_owned();
        let answer = client.check(HealthCheckRequest { service }).await?;
        Ok(answer.get_ref().status())
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

async fn connected(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

fn external(target: f64) -> External {
    External {
        listen: LISTEN,
        target,
        hold: HOLD,
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
        filled: None,
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
