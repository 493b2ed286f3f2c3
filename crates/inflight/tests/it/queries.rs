//! Source `prometheus` on real sockets: a monitoring system that answers, fails, hangs and lies.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use inflight::clock::Clock;
use inflight::config::{PageUrl, PrometheusSettings, Queries};
use inflight::fleet::{Board, Fleet, PeerRow, Peers, Sources};
use inflight::sources::PrometheusSource;
use inflight_core::load::{Missing, Observation, Patience, Term};
use inflight_core::scaling::{MetricConfig, MetricKind, Policy, Scaler, ScalingConfig};
use inflight_core::{Occupancy, Replicas, Slots};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::sources::{PATIENCE, gate};

/// What it answers a question with; the last one stays.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    /// Numbers, by the query they belong to.
    Numbers(Vec<(&'static str, &'static str)>),
    /// A status and a body.
    Status(&'static str, &'static str),
    /// Nothing for ever.
    Nothing,
    /// A body without end.
    Endless,
}

/// A monitoring system of which everything can be said.
pub(crate) struct Monitor {
    pub(crate) address: SocketAddr,
    says: Arc<Mutex<Say>>,
    asked: Arc<Mutex<VecDeque<String>>>,
}

impl Monitor {
    pub(crate) fn start(says: Say) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let monitor = Self {
            address: listener.local_addr().unwrap(),
            says: Arc::new(Mutex::new(says)),
            asked: Arc::default(),
        };
        let (says, asked) = (Arc::clone(&monitor.says), Arc::clone(&monitor.asked));
        // Ends with the tests' process: it waits for connections and for nothing else.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (says, asked) = (Arc::clone(&says), Arc::clone(&asked));
                thread::spawn(move || while answer(&stream, &says, &asked).is_some() {});
            }
        });
        monitor
    }

    pub(crate) fn say(&self, says: Say) {
        *self.says.lock().unwrap() = says;
    }

    /// The forms that were asked, without escapes of spaces and the like.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().cloned().collect()
    }
}

/// Answers one question; `None` ends the connection.
fn answer(
    mut stream: &TcpStream,
    says: &Mutex<Say>,
    asked: &Mutex<VecDeque<String>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut first = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if first.is_empty() {
            first = line.clone();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut form = vec![0; length];
    reader.read_exact(&mut form).ok()?;
    let form = String::from_utf8(form).ok()?;
    asked
        .lock()
        .unwrap()
        .push_back(format!("{} {form}", first.trim()));
    let says = says.lock().unwrap().clone();
    let (status, body) = match says {
        Say::Numbers(numbers) => {
            let found = numbers
                .into_iter()
                .find(|(query, _)| form.starts_with(&format!("query={query}&")));
            let rows = found
                .map(|(_, number)| {
                    let rows = number.split(' ').map(|number| {
                        format!(r#"{{"metric":{{}},"value":[1732968000.5,"{number}"]}}"#)
                    });
                    rows.collect::<Vec<_>>().join(",")
                })
                .unwrap_or_default();
            let body = format!(
                r#"{{"status":"success","data":{{"resultType":"vector","result":[{rows}]}}}}"#
            );
            ("200 OK", body)
        }
        Say::Status(status, body) => (status, body.to_owned()),
        Say::Nothing => {
            thread::sleep(PATIENCE);
            return None;
        }
        Say::Endless => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
            while stream.write_all(chunk.as_bytes()).is_ok() {}
            return None;
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()
}

/// A fleet of ours that queries measure, and its source.
struct Asking {
    fleet: Arc<Fleet>,
    stop: oneshot::Sender<()>,
    source: JoinHandle<()>,
}

impl Asking {
    fn start(monitor: SocketAddr, queries: Queries) -> Self {
        let clock = Clock::start();
        let gate = inflight_core::admission::Gate::new(gate(), clock.now());
        let board = Board::new("metric", 1, Replicas::ZERO, Replicas::new(8));
        let patience = Patience {
            late: Duration::from_secs(15),
            stale: Duration::from_secs(30),
        };
        let asked = Peers::queried(patience);
        let sources = Sources {
            peers: Some(asked),
            ..Sources::default()
        };
        let fleet = Fleet::with_sources("hello", clock, gate, board, sources);
        let settings = PrometheusSettings {
            url: PageUrl {
                authority: monitor.to_string(),
                path: "/prefix/".to_owned(),
            },
            queries,
            every: Duration::from_millis(50),
            timeout: Duration::from_secs(1),
        };
        let (stop, stopped) = oneshot::channel();
        let source = PrometheusSource::new(Arc::clone(&fleet), settings);
        Self {
            fleet,
            stop,
            source: tokio::spawn(source.run(stopped)),
        }
    }

    fn row(&self) -> Option<PeerRow> {
        let now = self.fleet.clock().now();
        self.fleet.peers().unwrap().rows(now).pop()
    }

    fn failure(&self) -> String {
        self.row().and_then(|row| row.failure).unwrap_or_default()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self, &Observation) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !holds(self, &self.fleet.observe().1) {
                sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(waited.await.is_ok(), "not seen: {what}: {:?}", self.row());
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.source.await.unwrap();
    }
}

fn terms() -> Queries {
    Queries::Terms {
        in_flight: "L".to_owned(),
        executing: "S".to_owned(),
        replicas: "R".to_owned(),
    }
}

fn metric() -> Queries {
    Queries::Metric {
        query: "queue".to_owned(),
        replicas: None,
    }
}

fn in_flight(observation: &Observation) -> Option<f64> {
    observation.models[0]
        .in_flight
        .now
        .known()
        .map(Occupancy::get)
}

#[tokio::test]
async fn all_queries_are_asked_for_the_moment_of_the_first_answer() {
    let monitor = Monitor::start(Say::Numbers(vec![("L", "8"), ("S", "4.5"), ("R", "2")]));
    let asking = Asking::start(monitor.address, terms());
    asking
        .until("the terms", |_, observation| {
            let executing = observation.models[0].executing.now.known();
            in_flight(observation) == Some(8.0)
                && executing.map(Occupancy::get) == Some(4.5)
                && observation.replicas.ready().known() == Some(Replicas::new(2))
        })
        .await;
    assert_eq!(asking.failure(), "");
    asking.stop().await;
    let asked = monitor.asked();
    let head = "POST /prefix/api/v1/query HTTP/1.1 query=";
    assert_eq!(asked[0], format!("{head}L&timeout=1.000"));
    assert_eq!(
        asked[1],
        format!("{head}S&timeout=1.000&time=1732968000.500")
    );
    assert_eq!(
        asked[2],
        format!("{head}R&timeout=1.000&time=1732968000.500")
    );
}

#[tokio::test]
async fn b15_no_answer_of_any_kind_is_a_zero_and_each_says_why() {
    let numbers = || Say::Numbers(vec![("L", "8"), ("S", "4"), ("R", "2")]);
    let monitor = Monitor::start(numbers());
    let asking = Asking::start(monitor.address, terms());
    let eight = |_: &Asking, observation: &Observation| in_flight(observation) == Some(8.0);
    asking.until("eight", eight).await;
    for (says, why) in [
        (
            Say::Numbers(vec![("S", "4"), ("R", "2")]),
            "in_flight: the answer is empty",
        ),
        (
            Say::Numbers(vec![("L", "8 9"), ("S", "4"), ("R", "2")]),
            "in_flight: the answer has several rows",
        ),
        (
            Say::Status("503 Service Unavailable", "busy"),
            "in_flight: HTTP status 503 Service Unavailable",
        ),
        (
            Say::Status(
                "422 Unprocessable",
                r#"{"status":"error","error":"too many samples"}"#,
            ),
            "in_flight: HTTP status 422 Unprocessable Entity: too many samples",
        ),
        (
            Say::Status("200 OK", "<html>sign in</html>"),
            "in_flight: the answer is not of the query API",
        ),
        (
            Say::Endless,
            "in_flight: the answer is larger than 1048576 bytes",
        ),
        (Say::Nothing, "in_flight: no whole answer within 1s"),
    ] {
        monitor.say(says.clone());
        let fails = |asking: &Asking, observation: &Observation| {
            // The last number stays, or it is unknown: it is never another.
            assert!(matches!(in_flight(observation), None | Some(8.0)));
            asking.failure() == why
        };
        asking.until(why, fails).await;
        monitor.say(numbers());
        let well = |asking: &Asking, observation: &Observation| {
            asking.failure().is_empty() && in_flight(observation) == Some(8.0)
        };
        asking.until("eight again", well).await;
    }
    asking.stop().await;
}

#[tokio::test]
async fn b13_a_number_that_is_none_holds_the_size_and_says_so() {
    let monitor = Monitor::start(Say::Numbers(vec![("queue", "50")]));
    let asking = Asking::start(monitor.address, metric());
    let five = |_: &Asking, observation: &Observation| observation.metric.known() == Some(50.0);
    asking.until("fifty", five).await;
    let policy = Policy::Metric(MetricConfig::new(10.0, MetricKind::AverageValue).unwrap());
    let bounds = inflight_core::scaling::Bounds::new(Replicas::ONE, Replicas::new(20)).unwrap();
    let config = ScalingConfig::new(policy, bounds, Slots::ONE);
    let (now, read) = asking.fleet.observe();
    let mut scaler = Scaler::new(config, now, Replicas::ONE);
    scaler.observe(now, &read);
    assert_eq!(scaler.decide(now).desired, Replicas::new(5));
    for bad in ["NaN", "+Inf", "-Inf", "1e400", "-0", "0x1p3", "", "-3"] {
        monitor.say(Say::Numbers(vec![("queue", bad)]));
        let unknown = |_: &Asking, observation: &Observation| {
            observation.metric == Term::Unknown(Missing::NotANumber)
        };
        asking.until(bad, unknown).await;
        let (now, read) = asking.fleet.observe();
        scaler.observe(now, &read);
        let decision = scaler.decide(now);
        assert_eq!(decision.desired, Replicas::new(5), "{bad}");
        assert!(
            decision.reason.to_string().contains("not a finite"),
            "{bad}"
        );
        monitor.say(Say::Numbers(vec![("queue", "50")]));
        asking.until("fifty", five).await;
    }
    asking.stop().await;
}
