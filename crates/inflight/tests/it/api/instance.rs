//! An admin API around fleets that the test drives by hand.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use inflight::api::{AdminListener, Api};
use inflight::clock::Clock;
use inflight::fleet::{Board, Fleet, Member, Roster};
use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::load::{Estimate, InstanceId};
use inflight_core::scaling::{ConcurrencyFinding, Finding};
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
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// An answer over HTTP.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

impl Instance {
    pub(crate) async fn start(names: &[&str]) -> Self {
        let clock = Clock::start();
        let fleets: Vec<_> = names.iter().map(|name| fleet_named(name, clock)).collect();
        let roster = Arc::new(Roster::default());
        // Nobody takes orders: what is shown needs no control loop.
        let member = |fleet: &Arc<Fleet>| Member {
            fleet: Arc::clone(fleet),
            orders: mpsc::channel(1).0,
        };
        roster.replace(fleets.iter().map(member).collect());
        let instance = InstanceId(0xabc);
        let api = Api {
            roster,
            clock,
            instance,
        };
        let listener = AdminListener::bind((Ipv4Addr::LOCALHOST, 0).into())
            .await
            .unwrap();
        let address = listener.address();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = listener.serve(api, async { stopped.await.unwrap_or_default() });
        Self {
            address,
            fleets,
            stop,
            served: tokio::spawn(served),
        }
    }

    pub(crate) fn fleet(&self, index: usize) -> &Arc<Fleet> {
        &self.fleets[index]
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn decide(&self, index: usize, decision: Decision, estimate: Estimate) {
        let start_delay = Duration::from_millis(2500);
        self.fleet(index)
            .board()
            .publish(decision, estimate, start_delay);
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).await
    }

    pub(crate) async fn request(&self, method: &str, path: &str) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .body(Empty::<Bytes>::new())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        drop(sender);
        connection.await.unwrap().unwrap();
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .map(|kind| kind.to_str().unwrap());
        Answer {
            status,
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
