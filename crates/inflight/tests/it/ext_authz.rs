//! The gate that Envoys ask, asked by a generated client over a real connection, before a fleet
//! whose load is that of pages served here.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use inflight::api::wire;
use inflight::config::{Config, Surroundings};
use inflight::runtime::Running;
use inflight_proto::ext_authz::authorization_client::AuthorizationClient;
use inflight_proto::ext_authz::{
    Address, AttributeContext, CheckRequest, CheckResponse, HttpRequest, Peer, Request,
    SocketAddress,
};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use crate::gateway_world::{Http1, get as get_request, whole};

const PATIENCE: Duration = Duration::from_secs(30);
const INDEX: &str = "/inference.GRPCInferenceService/RepositoryIndex";
const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// What Envoy and the server behind it say.
#[derive(Clone, Copy)]
struct Load {
    in_flight: u32,
    executing: u32,
    healthy: u32,
}

const EMPTY: Load = Load {
    in_flight: 0,
    executing: 0,
    healthy: 0,
};
const OVERLOADED: Load = Load {
    in_flight: 8,
    executing: 1,
    healthy: 1,
};

struct World {
    load: Arc<Mutex<Load>>,
    pages: SocketAddr,
    _serving: JoinHandle<()>,
    running: Running,
}

impl World {
    async fn start(load: Load, gate: &str, admission: &str) -> Self {
        let load = Arc::new(Mutex::new(load));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pages = listener.local_addr().unwrap();
        let (of_envoy, of_server) = (Arc::clone(&load), Arc::clone(&load));
        let router = Router::new()
            .route("/stats/prometheus", get(|| async move { envoy(&of_envoy) }))
            .route("/metrics", get(|| async move { server(&of_server) }));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let config = read(&file(pages, gate, admission));
        let running = Running::start(config, false).await.unwrap();
        Self {
            load,
            pages,
            _serving: serving,
            running,
        }
    }

    fn set(&self, load: Load) {
        *self.load.lock().unwrap() = load;
    }

    async fn client(&self) -> AuthorizationClient<Channel> {
        let url = format!("http://{}", self.running.gate("triton").unwrap());
        let channel = Endpoint::new(url).unwrap().connect().await.unwrap();
        AuthorizationClient::new(channel)
    }

    async fn ask(&self, path: &str) -> Bytes {
        let mut request = get_request(path);
        let host = self.running.admin().to_string();
        request.headers_mut().insert("host", host.parse().unwrap());
        let mut admin = Http1::to(self.running.admin()).await;
        whole(admin.send(request).await).await.into_body()
    }

    async fn fleet(&self) -> wire::Fleet {
        serde_json::from_slice(&self.ask("/api/v1/fleets/triton").await).unwrap()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&wire::Fleet) -> bool) {
        let seen = async {
            while !is_so(&self.fleet().await) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, seen).await.expect(what);
    }

    async fn metric(&self, sample: &str) -> bool {
        let page = self.ask("/metrics").await;
        let page = std::str::from_utf8(&page).unwrap();
        page.lines().any(|line| line == sample)
    }
}

fn envoy(load: &Mutex<Load>) -> String {
    let load = *load.lock().unwrap();
    let gauge = |name: &str, value: u32| {
        format!("envoy_cluster_{name}{{envoy_cluster_name=\"triton\"}} {value}\n")
    };
    gauge("membership_healthy", load.healthy)
        + &gauge("upstream_rq_active", load.in_flight)
        + &gauge("upstream_rq_pending_active", 0)
}

fn server(load: &Mutex<Load>) -> String {
    let executing = load.lock().unwrap().executing;
    format!(
        "vllm:num_requests_running{{model_name=\"m\"}} {executing}\n\
         vllm:num_requests_waiting{{model_name=\"m\"}} 0\n"
    )
}

fn file(pages: SocketAddr, gate: &str, admission: &str) -> String {
    format!(
        r#"
version: 1
admin: {{ listen: "127.0.0.1:0" }}
fleets:
  - name: triton
    replicas: {{ min: 0, max: 4 }}
    source:
      envoy:
        admin: ["http://{pages}"]
        cluster: triton
        every: 100ms
        backend: {{ vllm: {{ metrics: ["http://{pages}/metrics"] }} }}
    admission: {{ {admission} }}
    gate: {{ ext_authz: {{ listen: "127.0.0.1:0", {gate} }} }}
"#
    )
}

fn read(text: &str) -> Config {
    Config::from_text(Path::new("tests"), text, &Surroundings::Elsewhere).unwrap()
}

/// A call of the client at `port`, as Envoy tells it.
fn call(port: u32, path: &str, content_type: &str) -> CheckRequest {
    let socket_address = SocketAddress {
        address: "10.1.2.3".to_owned(),
        port_value: port,
    };
    let address = Address {
        socket_address: Some(socket_address),
    };
    let headers = [("content-type", content_type), (":method", "POST")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let http = HttpRequest {
        headers: headers.into(),
        path: path.to_owned(),
    };
    CheckRequest {
        attributes: Some(AttributeContext {
            source: Some(Peer {
                address: Some(address),
                principal: String::new(),
            }),
            request: Some(Request { http: Some(http) }),
        }),
    }
}

async fn check(client: &mut AuthorizationClient<Channel>, port: u32, path: &str) -> CheckResponse {
    let answer = client.check(call(port, path, "application/grpc"));
    let answer = timeout(PATIENCE, answer).await.expect("an answer");
    answer.unwrap().into_inner()
}

fn passes(response: &CheckResponse) -> bool {
    response
        .status
        .as_ref()
        .is_none_or(|status| status.code == 0)
}

fn header<'a>(response: &'a CheckResponse, name: &str) -> Option<&'a str> {
    let denied = response.denied_response.as_ref()?;
    let headers = denied
        .headers
        .iter()
        .filter_map(|option| option.header.as_ref());
    let mut of_name = headers.filter(|header| header.key == name);
    of_name.next().map(|header| header.value.as_str())
}

#[tokio::test]
async fn a_new_session_is_refused_before_an_overloaded_fleet_and_a_running_one_passes() {
    let world = World::start(OVERLOADED, "", "when: always").await;
    let mut client = world.client().await;
    world
        .until("closed", |fleet| !fleet.admission.unwrap().open)
        .await;

    let refused = check(&mut client, 1, &format!("{INDEX}?x=y")).await;
    assert_eq!(refused.status.as_ref().unwrap().code, 8);
    assert_eq!(
        refused
            .denied_response
            .as_ref()
            .unwrap()
            .status
            .unwrap()
            .code,
        429
    );
    assert_eq!(refused.denied_response.as_ref().unwrap().body, "overloaded");
    assert_eq!(header(&refused, "x-inflight-reason"), Some("overloaded"));
    assert_eq!(header(&refused, "grpc-status"), Some("8"));
    let wait: u64 = header(&refused, "retry-after").unwrap().parse().unwrap();
    assert!((1..=75).contains(&wait));
    assert!(header(&refused, "grpc-retry-pushback-ms").is_some());
    assert!(header(&refused, "grpc-status-details-bin").is_some());

    let plain = client
        .check(call(1, INDEX, "application/json"))
        .await
        .unwrap();
    let plain = plain.into_inner();
    assert!(!passes(&plain));
    assert_eq!(header(&plain, "grpc-status"), None);
    assert!(header(&plain, "retry-after").is_some());

    // We may have restarted: whoever calls in the midst of a session is taken for an old one.
    assert!(passes(&check(&mut client, 1, INFER).await));
    assert_eq!(world.fleet().await.admission.unwrap().refused_total, 2);
    assert!(
        world
            .metric("inflight_checks_total{fleet=\"triton\",outcome=\"running\"} 1")
            .await
    );
    assert!(
        world
            .metric("inflight_refused_total{fleet=\"triton\",reason=\"overloaded\"} 2")
            .await
    );
    world.running.stop().await.unwrap();
}

#[tokio::test]
async fn b49_first_calls_at_zero_wait_wake_the_fleet_and_pass_together() {
    let world = World::start(EMPTY, "", "").await;
    let mut calls = JoinSet::new();
    // As two Envoys: the hold is one.
    let clients = [world.client().await, world.client().await];
    for port in 0..20 {
        let mut client = clients[usize::from(port % 2 == 0)].clone();
        calls.spawn(async move { check(&mut client, port, INDEX).await });
    }
    world
        .until("20 wait", |fleet| fleet.admission.unwrap().held == 20)
        .await;
    world
        .until("one is wanted", |fleet| fleet.replicas.desired == Some(1))
        .await;
    assert!(calls.try_join_next().is_none());
    let decision = world.fleet().await.decision.unwrap();
    assert!(decision.reason.contains("woke"), "{}", decision.reason);

    world.set(Load {
        healthy: 1,
        ..EMPTY
    });
    let answers = timeout(PATIENCE, calls.join_all()).await.unwrap();
    assert_eq!(answers.iter().filter(|answer| passes(answer)).count(), 20);
    world
        .until("nobody waits", |fleet| fleet.admission.unwrap().held == 0)
        .await;
    world.running.stop().await.unwrap();
}

#[tokio::test]
async fn b51_a_client_that_leaves_frees_its_place_and_places_are_bounded() {
    let world = World::start(EMPTY, "", "").await;
    let mut client = world.client().await;
    let mut calls = JoinSet::new();
    for port in 0..1_000 {
        let mut client = client.clone();
        calls.spawn(async move { check(&mut client, port, INDEX).await });
    }
    world
        .until("1000 wait", |fleet| fleet.admission.unwrap().held == 1_000)
        .await;
    let refused = check(&mut client, 5_000, INDEX).await;
    assert_eq!(refused.status.unwrap().code, 14);
    assert_eq!(refused.denied_response.unwrap().body, "no_replica");
    // Other calls do not wait.
    assert!(passes(&check(&mut client, 5_000, INFER).await));
    calls.shutdown().await;
    world
        .until("nobody waits", |fleet| fleet.admission.unwrap().held == 0)
        .await;
    assert!(
        world
            .metric("inflight_checks_total{fleet=\"triton\",outcome=\"left\"} 1000")
            .await
    );
    world.running.stop().await.unwrap();
}

#[tokio::test]
async fn whoever_waits_when_we_end_is_answered() {
    let world = World::start(EMPTY, "", "").await;
    let client = world.client().await;
    let mut calls = JoinSet::new();
    for port in 0..50 {
        let mut client = client.clone();
        calls.spawn(async move { check(&mut client, port, INDEX).await });
    }
    world
        .until("50 wait", |fleet| fleet.admission.unwrap().held == 50)
        .await;
    world.running.stop().await.unwrap();
    for answer in timeout(PATIENCE, calls.join_all()).await.unwrap() {
        assert_eq!(answer.status.as_ref().unwrap().code, 14);
        assert_eq!(header(&answer, "x-inflight-reason"), Some("stopping"));
        assert_eq!(header(&answer, "grpc-status"), Some("14"));
    }
}

#[tokio::test]
async fn whoever_waits_too_long_is_told_that_there_is_no_replica() {
    let world = World::start(EMPTY, "ready_timeout: 1s", "").await;
    let answer = check(&mut world.client().await, 1, INDEX).await;
    assert_eq!(answer.status.as_ref().unwrap().code, 14);
    assert_eq!(
        header(&answer, "x-inflight-reason"),
        Some("cold_wait_expired")
    );
    world.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_reload_changes_who_is_refused_and_where_it_is_asked() {
    let mut world = World::start(OVERLOADED, "", "when: always").await;
    let mut client = world.client().await;
    world
        .until("closed", |fleet| !fleet.admission.unwrap().open)
        .await;
    assert!(!passes(&check(&mut client, 1, INDEX).await));

    let text = file(world.pages, "first_calls: [/hello]", "when: always");
    world.running.reload(Ok(read(&text))).await;
    assert!(
        passes(&check(&mut client, 1, INDEX).await),
        "one of a running session"
    );
    assert!(!passes(&check(&mut client, 1, "/hello").await));

    let text = file(
        world.pages,
        "first_calls: [/hello]",
        "when: always, threshold: 100",
    );
    world.running.reload(Ok(read(&text))).await;
    world
        .until("open", |fleet| fleet.admission.unwrap().open)
        .await;
    assert!(passes(&check(&mut client, 1, "/hello").await));

    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let listen = "ext_authz: { listen: \"127.0.0.1:0\"";
    let elsewhere = format!("ext_authz: {{ listen: \"{free}\"");
    let text = file(world.pages, "", "").replace(listen, &elsewhere);
    world.running.reload(Ok(read(&text))).await;
    assert_eq!(world.running.gate("triton"), Some(free));
    assert!(passes(&check(&mut world.client().await, 1, INFER).await));
    world.running.stop().await.unwrap();
}
