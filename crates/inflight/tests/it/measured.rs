//! Sources `envoy` and `vllm` on real sockets: proxies and servers that answer as they should, late,
//! without end or nonsense.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use inflight::clock::Clock;
use inflight::config::{
    EnvoyEstimator, EnvoySettings, PageUrl, PagesSettings, ServerKind, ServersSettings,
};
use inflight::fleet::{Fleet, PeerRow, Peers, Sources};
use inflight::sources::{MeasuredConfig, MeasuredSource};
use inflight_core::Replicas;
use inflight_core::load::Standing;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::sources::{Odd, PATIENCE, answer, asked, gate};

const EVERY: Duration = Duration::from_millis(100);

/// A fleet that others measure, and its source.
struct Measuring {
    fleet: Arc<Fleet>,
    stop: oneshot::Sender<()>,
    source: JoinHandle<()>,
}

impl Measuring {
    fn start(config: MeasuredConfig) -> Self {
        let clock = Clock::start();
        let gate = inflight_core::admission::Gate::new(gate(), clock.now());
        let board = inflight::fleet::Board::new("occupancy", 1, Replicas::ZERO, Replicas::new(8));
        let peers = Peers::measured(config.measured_by());
        let sources = Sources {
            peers: Some(peers),
            ..Sources::default()
        };
        let fleet = Fleet::with_sources("triton", clock, gate, board, sources);
        let (stop, stopped) = oneshot::channel();
        let source = MeasuredSource::new(Arc::clone(&fleet), config);
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

    fn in_flight(&self) -> Option<f64> {
        let (_, observation) = self.fleet.observe();
        let in_flight = observation.models[0].in_flight.now;
        in_flight.known().map(inflight_core::Occupancy::get)
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

fn pages(addresses: &[SocketAddr]) -> PagesSettings {
    let page = |address: &SocketAddr| PageUrl {
        authority: address.to_string(),
        path: "/".to_owned(),
    };
    PagesSettings {
        listed: addresses.iter().map(page).collect(),
        dns: None,
        port: None,
    }
}

fn servers(addresses: &[SocketAddr], kind: ServerKind) -> ServersSettings {
    ServersSettings {
        metrics: pages(addresses),
        kind,
        every: EVERY,
        timeout: Duration::from_secs(1),
    }
}

fn behind_envoy(envoys: &[SocketAddr], tritons: &[SocketAddr]) -> MeasuredConfig {
    let backend = servers(tritons, ServerKind::Triton { models: Vec::new() });
    MeasuredConfig {
        envoy: Some(EnvoySettings {
            admin: pages(envoys),
            cluster: "c".to_owned(),
            estimator: EnvoyEstimator::Gauges,
            every: EVERY,
            timeout: Duration::from_secs(1),
            backend: backend.clone(),
        }),
        servers: backend,
    }
}

fn envoy_page(active: u32, pending: u32, healthy: u32) -> String {
    let rows = [
        ("upstream_rq_active", active),
        ("upstream_rq_pending_active", pending),
        ("membership_healthy", healthy),
    ];
    let row = |(name, value)| format!("envoy_cluster_{name}{{envoy_cluster_name=\"c\"}} {value}\n");
    rows.map(row).concat()
}

fn triton_page(pending: u32) -> String {
    format!(
        "nv_inference_request_duration_us{{model=\"m\",version=\"1\"}} 5000000\n\
         nv_inference_queue_duration_us{{model=\"m\",version=\"1\"}} 1000000\n\
         nv_inference_pending_request_count{{model=\"m\",version=\"1\"}} {pending}\n"
    )
}

async fn saying(page: &str) -> Odd {
    Odd::saying(answer(page, page.len()), false).await
}

#[tokio::test]
async fn envoys_and_the_servers_behind_them_give_one_reading() {
    let envoys = [
        saying(&envoy_page(8, 4, 2)).await,
        saying(&envoy_page(3, 0, 1)).await,
    ];
    let tritons = [saying(&triton_page(2)).await, saying(&triton_page(5)).await];
    let addresses = |odd: &[Odd]| odd.iter().map(|odd| odd.address).collect::<Vec<_>>();
    let measuring = Measuring::start(behind_envoy(&addresses(&envoys), &addresses(&tritons)));
    measuring
        .until("all four", |measuring| {
            measuring.in_flight() == Some(15.0) && !measuring.fleet.observe().1.is_partial
        })
        .await;
    let (_, observation) = measuring.fleet.observe();
    let load = &observation.models[0];
    assert_eq!(observation.replicas.ready().known(), Some(Replicas::new(2)));
    assert_eq!(load.queued.now.known().map(|level| level.get()), Some(7.0));
    assert!(load.executing.integral.known().is_some());
    assert!(measuring.rows().iter().all(|row| row.failure.is_none()));
    measuring.stop().await;
}

#[tokio::test]
async fn servers_alone_are_what_is_in_flight() {
    let page = "vllm:num_requests_running{model_name=\"a\"} 6\n\
                vllm:num_requests_waiting{model_name=\"a\"} 9\n\
                vllm:kv_cache_usage_perc{model_name=\"a\"} 0.75\n";
    let server = saying(page).await;
    let kind = ServerKind::Vllm {
        model: Some("a".to_owned()),
        cache_target: Some(0.9),
    };
    let measuring = Measuring::start(MeasuredConfig {
        envoy: None,
        servers: servers(&[server.address], kind),
    });
    measuring
        .until("fifteen", |measuring| measuring.in_flight() == Some(15.0))
        .await;
    let (_, observation) = measuring.fleet.observe();
    assert_eq!(observation.filled.known(), Some(0.75));
    assert_eq!(observation.replicas.ready().known(), Some(Replicas::ONE));
    measuring.stop().await;
}

#[tokio::test]
async fn b25_an_envoy_and_servers_that_hang_or_never_end_take_nobody_elses_numbers() {
    let hanging = || {
        Odd::start(|mut stream| async move {
            asked(&mut stream).await;
            std::future::pending().await
        })
    };
    let endless = Odd::start(|mut stream| async move {
        asked(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = format!(
            "10000\r\n{}\n\r\n",
            "# more ".repeat(0x10000)[..0xffff].to_owned()
        );
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let envoys = [
        (saying(&envoy_page(8, 4, 3)).await, None),
        (hanging().await, Some("within 1s")),
        (
            saying(&envoy_page(5, 0, 9).replace("\"c\"", "\"d\"")).await,
            Some("no cluster \"c\"; it has d"),
        ),
    ];
    let tritons = [
        (saying(&triton_page(2)).await, None),
        (hanging().await, Some("within 1s")),
        (endless, Some("")),
        (
            saying("<html>sign in</html>").await,
            Some("no metric page: line 1"),
        ),
        (
            Odd::saying(answer(&triton_page(7)[..90], 90), false).await,
            Some("no metric page"),
        ),
        (saying("up 1\n").await, Some("no nv_inference")),
    ];
    let addresses =
        |odd: &[(Odd, Option<&str>)]| odd.iter().map(|(odd, _)| odd.address).collect::<Vec<_>>();
    let measuring = Measuring::start(behind_envoy(&addresses(&envoys), &addresses(&tritons)));
    let all = envoys.iter().chain(&tritons);
    let expected: Vec<_> = all
        .map(|(odd, why)| (odd.address.to_string(), *why))
        .collect();
    let is_as_expected = |measuring: &Measuring| {
        let rows = measuring.rows();
        rows.len() == 9
            && rows.iter().all(|row| {
                let why = expected.iter().find(|(address, _)| *address == row.address);
                match why.and_then(|(_, why)| *why) {
                    Some(why) => row.failure.as_ref().is_some_and(|said| said.contains(why)),
                    None => row.view.standing == Standing::Read && row.failure.is_none(),
                }
            })
    };
    measuring.until("seven failures", is_as_expected).await;
    assert_eq!(measuring.in_flight(), Some(12.0));
    let (now, observation) = measuring.fleet.observe();
    assert!(observation.is_partial, "it may grow and never shrink");
    assert_eq!(observation.replicas.ready().known(), Some(Replicas::new(3)));
    let queued = observation.models[0].queued.now.known();
    assert_eq!(
        queued.map(|level| level.get()),
        Some(6.0),
        "one stands for three"
    );
    assert_eq!(measuring.fleet.peers().unwrap().unreachable(now), 7);
    measuring.stop().await;
}

#[tokio::test]
async fn an_envoy_that_takes_no_filter_is_asked_for_everything() {
    let old = Odd::start(|mut stream: TcpStream| async move {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            let is_filtered = String::from_utf8_lossy(&head).contains("filter=");
            let page = envoy_page(1, 1, 1);
            let said = if is_filtered {
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_owned()
            } else {
                answer(&page, page.len())
            };
            if stream.write_all(said.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let triton = saying(&triton_page(0)).await;
    let measuring = Measuring::start(behind_envoy(&[old.address], &[triton.address]));
    measuring
        .until("two", |measuring| measuring.in_flight() == Some(2.0))
        .await;
    measuring.stop().await;
}
