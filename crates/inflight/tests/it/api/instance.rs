//! An admin API around fleets that the test drives by hand.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use inflight::api::{Access, AdminListener, Api};
use inflight::clock::Clock;
use inflight::control::Control;
use inflight::fleet::{Board, Fleet, Member, Roster};
use inflight::ports::Order;
use inflight::story::Story;
use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::load::{Estimate, InstanceId};
use inflight_core::scaling::{
    Bounds, ConcurrencyFinding, Finding, Policy, Scaler, ScalingConfig, StaffingConfig,
};
use inflight_core::{Decision, Input, ModelIndex, Reason, Replicas, Slots, Timestamp};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// An address that is only shown to the gate.
pub(crate) const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A served admin API.
pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    fleets: Vec<Arc<Fleet>>,
    api: Api,
    /// What each fleet's control loop would be told.
    pub(crate) orders: Vec<mpsc::Receiver<Order>>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// An answer over HTTP.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl Instance {
    pub(crate) async fn start(names: &[&str]) -> Self {
        Self::start_with(names, |address| Access::new(address, None)).await
    }

    /// Starts one whose orders are taken from whom `access` says.
    pub(crate) async fn start_with(
        names: &[&str],
        access: impl FnOnce(SocketAddr) -> Access,
    ) -> Self {
        let clock = Clock::start();
        let fleets: Vec<_> = names.iter().map(|name| fleet_named(name, clock)).collect();
        let mut orders = Vec::new();
        let members = fleets.iter().map(|fleet| {
            let (sender, taken) = mpsc::channel(16);
            orders.push(taken);
            Member {
                fleet: Arc::clone(fleet),
                orders: sender,
            }
        });
        let roster = Arc::new(Roster::default());
        roster.replace(members.collect());
        let listener = AdminListener::bind((Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let address = listener.address();
        let api = Api {
            roster,
            clock,
            story: Story::new(clock, None),
            access: access(address),
            instance: InstanceId(0xabc),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let served = listener.serve(api.clone(), async { stopped.await.unwrap_or_default() });
        Self {
            address,
            fleets,
            api,
            orders,
            stop,
            served: tokio::spawn(served),
        }
    }

    pub(crate) fn fleet(&self, index: usize) -> &Arc<Fleet> {
        &self.fleets[index]
    }

    pub(crate) fn story(&self) -> &Story {
        &self.api.story
    }

    /// Runs the first fleet's control loop, which decides and changes nothing.
    pub(crate) fn control(&mut self) -> Controlled {
        let (clock, fleet) = (self.api.clock, Arc::clone(self.fleet(0)));
        let bounds = Bounds::new(Replicas::ZERO, Replicas::new(8)).unwrap();
        let policy = Policy::Staffing(StaffingConfig::balanced());
        let config = ScalingConfig::new(policy, bounds, Slots::new(2).unwrap());
        let scaler = Scaler::new(config, clock.now(), Replicas::ZERO);
        let (orders, story) = (self.orders.remove(0), self.api.story.clone());
        let control = Control::new(fleet, scaler, None, story);
        let (stop, stopped) = oneshot::channel();
        Controlled {
            stop,
            ran: tokio::spawn(control.run(orders, stopped)),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn decide(&self, index: usize, decision: Decision, estimate: Estimate) {
        let mut board = self.fleet(index).board();
        board.start_delay = Some(Duration::from_millis(2500));
        board.publish(decision, estimate);
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).await
    }

    pub(crate) async fn request(&self, method: &str, path: &str) -> Answer {
        self.send(method, path, &[], "").await
    }

    /// Sends a JSON body.
    pub(crate) async fn order(&self, method: &str, path: &str, body: &str) -> Answer {
        let headers = [("content-type", "application/json")];
        self.send(method, path, &headers, body).await
    }

    /// Sends any request; it comes from `localhost` unless a header says otherwise.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, "localhost");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_owned()));
        let request = request.body(body).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        drop(sender);
        connection.await.unwrap().ok();
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .map(|kind| kind.to_str().unwrap());
        Answer {
            status,
            headers: headers.clone(),
            content_type: content_type.unwrap_or_default().to_owned(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    /// Scrapes, and returns each series with its value.
    pub(crate) async fn samples(&self) -> BTreeMap<String, f64> {
        let page = self.get("/metrics").await.body;
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                (series.to_owned(), value.parse().unwrap())
            })
            .collect()
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.served.await.unwrap();
    }
}

/// A control loop that runs.
pub(crate) struct Controlled {
    stop: oneshot::Sender<()>,
    ran: JoinHandle<()>,
}

impl Controlled {
    pub(crate) async fn end(self) {
        self.stop.send(()).unwrap();
        self.ran.await.unwrap();
    }
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) fn fleet_named(name: &str, clock: Clock) -> Arc<Fleet> {
    let gate = GateConfig {
        models: vec![ModelConfig {
            slots: Slots::new(2).unwrap(),
        }],
        queue: QueueBounds {
            requests: 1000,
            bytes: inflight_core::Bytes(64 << 20),
            wait: Duration::from_secs(30),
            cold_wait: Duration::from_secs(300),
        },
        admission: AdmissionConfig {
            threshold: 3.0,
            reopen: 2.4,
            when: When::AtMax,
            scope: AdmissionScope::NewSessions,
            sessions_max: 100_000,
            session_idle: Duration::from_secs(60),
        },
        bucket: Duration::from_millis(100),
    };
    let mut board = Board::new("staffing", 2, Replicas::ZERO, Replicas::new(8));
    board.models = vec![name.to_owned()];
    Fleet::new(name, clock, Gate::new(gate, clock.now()), board)
}

pub(crate) fn arrival() -> Arrival {
    Arrival {
        model: ModelIndex(0),
        session: None,
        first_call: false,
        deadline: None,
        draw: 7,
    }
}

pub(crate) fn estimate() -> Estimate {
    Estimate {
        in_flight: Some(5.0),
        executing: Some(4.0),
        queued: Some(1.0),
        arrivals_per_second: Some(31.2),
        service_seconds: Some(0.128),
        inflation: Some(1.25),
        age: Some(Duration::ZERO),
    }
}

pub(crate) fn decision(current: u32, desired: u32) -> Decision {
    Decision {
        at: Timestamp::ORIGIN,
        current: Replicas::new(current),
        wanted: Some(Replicas::new(desired)),
        desired: Replicas::new(desired),
        drain: Vec::new(),
        at_max: false,
        inputs: vec![
            Input {
                name: "offered_slots",
                value: Some(3.99),
            },
            Input {
                name: "backlog",
                value: None,
            },
        ],
        reason: Reason {
            finding: Finding::Concurrency(ConcurrencyFinding {
                stable: 3.99,
                burst: 0.5,
                in_burst: false,
                want: Replicas::new(desired),
            }),
            limits: Vec::new(),
        },
    }
}

/// Makes so many decisions; the last one is for `count - 1` replicas.
pub(crate) fn decisions_before(instance: &Instance, count: u32) {
    for desired in 0..count {
        instance.decide(0, decision(desired, desired), estimate());
    }
}

/// Prints a fleet with its times masked.
pub(crate) fn redacted(fleet: &serde_json::Value) -> String {
    let mut fleet = fleet.clone();
    for pointer in ["/decision/at", "/load/age_seconds"] {
        if let Some(value) = fleet.pointer_mut(pointer).filter(|value| !value.is_null()) {
            *value = pointer.into();
        }
    }
    serde_json::to_string_pretty(&fleet).unwrap()
}

/// Masks the RFC 3339 times of a text, each of which stands in parentheses at a line's end.
pub(crate) fn without_times(text: &str) -> String {
    let mask = |line: &str| match line.rsplit_once(" (20") {
        Some((start, end)) if end.ends_with("Z)") => format!("{start} (TIME)\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(mask).collect()
}
