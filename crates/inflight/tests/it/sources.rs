//! Source `inflight` on real sockets: a fleet whose peers are an instance of ours and servers that
//! do everything else.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inflight::clock::Clock;
use inflight::fleet::{Fleet, PeerRow, Peers, Sources};
use inflight::sources::{PeerSource, PeersConfig};
use inflight_core::load::{InstanceId, Standing, Term};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::api::instance::{Instance, arrival};

/// Long enough for any machine; nothing waits for it unless it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A fleet of ours that only peers measure, and its source.
struct Asking {
    fleet: Arc<Fleet>,
    stop: oneshot::Sender<()>,
    source: JoinHandle<()>,
}

impl Asking {
    fn start(peers: &[SocketAddr]) -> Self {
        let clock = Clock::start();
        let gate = inflight_core::admission::Gate::new(gate(), clock.now());
        let board = inflight::fleet::Board::new(
            "staffing",
            2,
            inflight_core::Replicas::ZERO,
            inflight_core::Replicas::new(8),
        );
        let ours = Peers::new(InstanceId(1), 1);
        let sources = Sources {
            peers: Some(ours),
            ..Sources::default()
        };
        let fleet = Fleet::with_sources("hello", clock, gate, board, sources);
        let config = PeersConfig {
            listed: peers.iter().map(ToString::to_string).collect(),
            dns: None,
            fleet: "hello".to_owned(),
            models: vec!["hello".to_owned()],
            every: Duration::from_millis(100),
            timeout: Duration::from_millis(1_000),
        };
        let (stop, stopped) = oneshot::channel();
        let source = PeerSource::new(Arc::clone(&fleet), config);
        Self {
            fleet,
            stop,
            source: tokio::spawn(source.run(stopped)),
        }
    }

    fn rows(&self) -> Vec<PeerRow> {
        let now = self.fleet.clock().now();
        self.fleet.peers().unwrap().rows(now)
    }

    /// What is in flight by a sum of this moment.
    fn in_flight(&self) -> Option<f64> {
        let (_, observation) = self.fleet.observe();
        match observation.models[0].in_flight.now {
            Term::Known { value, .. } => Some(value.get()),
            Term::Unknown(_) => None,
        }
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !holds(self) {
                sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "not seen: {what}: {:?}", self.rows());
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.source.await.unwrap();
    }
}

pub(crate) fn gate() -> inflight_core::admission::GateConfig {
    use inflight_core::admission::{
        AdmissionConfig, AdmissionScope, GateConfig, ModelConfig, QueueBounds, When,
    };
    GateConfig {
        models: vec![ModelConfig {
            slots: inflight_core::Slots::ONE,
        }],
        queue: QueueBounds {
            requests: 1,
            bytes: inflight_core::Bytes(1),
            wait: Duration::from_secs(1),
            cold_wait: Duration::from_secs(1),
        },
        admission: AdmissionConfig {
            threshold: 3.0,
            reopen: 2.4,
            when: When::AtMax,
            scope: AdmissionScope::Off,
            sessions_max: 1,
            session_idle: Duration::from_secs(1),
        },
        bucket: Duration::from_millis(100),
    }
}

/// A server that reads each question and does as it likes; counts its connections.
pub(crate) struct Odd {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<Infallible>,
}

impl Odd {
    pub(crate) async fn start<F>(answer: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                open.spawn(answer(stream));
            }
        });
        Self {
            address,
            connections,
            task,
        }
    }

    /// Answers every question with the same bytes.
    pub(crate) async fn saying(answer: impl Into<Vec<u8>>, close: bool) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                while asked(&mut stream).await {
                    if stream.write_all(&answer).await.is_err() || close {
                        return;
                    }
                }
            }
        })
        .await
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn asked(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

fn page(in_flight: u32) -> String {
    format!(
        r#"inflight_instance_info{{id="77"}} 1
inflight_uptime_seconds 9
inflight_model_requests{{fleet="hello",model="hello",state="executing"}} {in_flight}
inflight_model_requests{{fleet="hello",model="hello",state="queued"}} 0
inflight_model_seconds_total{{fleet="hello",model="hello",state="executing"}} 1
inflight_model_seconds_total{{fleet="hello",model="hello",state="queued"}} 1
inflight_model_arrivals_total{{fleet="hello",model="hello"}} 1
inflight_model_completions_total{{fleet="hello",model="hello"}} 1
inflight_model_service_seconds_total{{fleet="hello",model="hello"}} 1
# EOF
"#
    )
}

pub(crate) fn answer(body: &str, length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
}

#[tokio::test]
async fn what_our_page_says_is_what_the_source_reads() {
    let instance = Instance::start(&["hello", "other"]).await;
    let mut permits: Vec<_> = (0..5)
        .map(|_| instance.fleet(0).arrive(arrival()).unwrap())
        .collect();
    let elsewhere = instance.fleet(1).arrive(arrival()).unwrap();
    let asking = Asking::start(&[instance.address]);
    asking
        .until("five", |asking| asking.in_flight() == Some(5.0))
        .await;
    permits.truncate(2);
    asking
        .until("two", |asking| asking.in_flight() == Some(2.0))
        .await;
    let row = &asking.rows()[0];
    assert_eq!((row.view.standing, &row.failure), (Standing::Read, &None));
    assert_eq!(row.view.instance, Some(InstanceId(0xabc)));
    let (_, observation) = asking.fleet.observe();
    assert!(!observation.is_partial);
    assert_eq!(
        observation.replicas.ready().known(),
        Some(inflight_core::Replicas::ZERO)
    );
    drop((permits, elsewhere));
    asking.stop().await;
    instance.stop().await;
}

#[tokio::test]
async fn b25_peers_that_hang_never_end_or_talk_nonsense_take_nobody_elses_numbers() {
    let instance = Instance::start(&["hello"]).await;
    let _permit = instance.fleet(0).arrive(arrival()).unwrap();
    let hanging = Odd::start(|mut stream| async move {
        asked(&mut stream).await;
        std::future::pending().await
    })
    .await;
    let endless = Odd::start(|mut stream| async move {
        asked(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = format!(
            "10000\r\n{}\n\r\n",
            "# more".repeat(0x10000)[..0xffff].to_owned()
        );
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let html = "<html>sign in</html>";
    let odd = [
        (Odd::saying(vec![0xff_u8; 300], true).await, "HTTP"),
        (
            Odd::saying(answer(html, html.len()), false).await,
            "no metric page: line 1",
        ),
        (
            Odd::saying(answer(&page(9), page(9).len() + 50), true).await,
            "no whole HTTP answer",
        ),
        (
            Odd::saying(answer(&page(9)[..300], 300), false).await,
            "no metric page: line 6",
        ),
        (
            Odd::saying("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", false).await,
            "404",
        ),
        (
            Odd::saying(answer("m 1\n# EOF\n", 10), false).await,
            "no page of an inflight",
        ),
        (hanging, "within 1s"),
        (endless, ""),
    ];
    let peers: Vec<_> = [instance.address]
        .into_iter()
        .chain(odd.iter().map(|(odd, _)| odd.address))
        .collect();
    let asking = Asking::start(&peers);
    let all_failed = |asking: &Asking| {
        let rows = asking.rows();
        rows.len() == 9 && rows[1..].iter().all(|row| row.failure.is_some())
    };
    asking.until("eight failures", all_failed).await;
    asking
        .until("the one", |asking| asking.in_flight() == Some(1.0))
        .await;
    let rows = asking.rows();
    assert_eq!(rows[0].failure, None);
    for (row, (_, why)) in rows[1..].iter().zip(&odd) {
        let failure = row.failure.as_deref().unwrap();
        assert!(failure.contains(why), "{failure} does not say {why}");
        assert_eq!(row.view.standing, Standing::Lost);
    }
    let now = asking.fleet.clock().now();
    assert_eq!(asking.fleet.peers().unwrap().unreachable(now), 8);
    // A part of the load is not seen, so the fleet may grow on this and not shrink.
    assert!(asking.fleet.observe().1.is_partial);
    asking.stop().await;
    instance.stop().await;
}

#[tokio::test]
async fn a_peer_that_counts_another_fleet_only_says_nothing_of_ours() {
    let instance = Instance::start(&["another"]).await;
    let _permit = instance.fleet(0).arrive(arrival()).unwrap();
    let asking = Asking::start(&[instance.address]);
    asking
        .until("a failure", |asking| {
            !asking.rows().is_empty() && asking.rows()[0].failure.is_some()
        })
        .await;
    let failure = asking.rows()[0].failure.clone().unwrap();
    assert_eq!(
        failure,
        "that instance has no gateway for a fleet \"hello\""
    );
    assert_eq!(asking.in_flight(), None, "unknown is never zero");
    asking.stop().await;
    instance.stop().await;
}

#[tokio::test]
async fn a_connection_is_kept_and_replaced_when_the_peer_closes_it() {
    let kept = Odd::saying(answer(&page(3), page(3).len()), false).await;
    let closing = Odd::saying(answer(&page(3), page(3).len()), true).await;
    for (peer, is_kept) in [(kept, true), (closing, false)] {
        let asking = Asking::start(&[peer.address]);
        asking
            .until("three", |asking| asking.in_flight() == Some(3.0))
            .await;
        let read_at =
            |asking: &Asking| asking.fleet.clock().now() - asking.rows()[0].view.age.unwrap();
        for _ in 0..5 {
            let before = read_at(&asking);
            asking
                .until("another reading", |asking| {
                    read_at(asking) > before + Duration::from_millis(50)
                })
                .await;
            assert_eq!(asking.rows()[0].failure, None);
        }
        let connections = peer.connections.load(Ordering::Relaxed);
        assert_eq!(connections == 1, is_kept, "{connections} connections");
        asking.stop().await;
    }
}
