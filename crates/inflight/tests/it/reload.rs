//! Another configuration while requests are in flight: nothing is lost, refused or counted twice.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use inflight::config::{Config, Surroundings};
use inflight::runtime::Running;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::gateway_world::{Http1, Http2, Replica, eventually, get, post, whole};

/// One fleet in front of replicas that are here already.
fn fleet(name: &str, replicas: &[SocketAddr], more: &str) -> String {
    let addresses: Vec<_> = replicas.iter().map(|at| format!("\"{at}\"")).collect();
    format!(
        r#"
  - name: {name}
    replicas: {{ min: 1, max: 4 }}
    endpoints: {{ static: [{}] }}
{more}
"#,
        addresses.join(", ")
    )
}

fn plain(name: &str, replicas: &[SocketAddr]) -> String {
    let more = "    slots: 4\n    source: { gateway: { listen: \"127.0.0.1:0\" } }\n";
    fleet(name, replicas, more)
}

fn file(fleets: &[String]) -> String {
    let fleets = fleets.concat();
    format!("version: 1\nadmin: {{ listen: \"127.0.0.1:0\" }}\nfleets:\n{fleets}")
}

async fn start(fleets: &[String]) -> Running {
    let config = read(&file(fleets)).unwrap();
    Running::start(config).await.unwrap()
}

fn read(text: &str) -> Result<Config, inflight::config::ConfigError> {
    Config::from_text(Path::new("tests"), text, &Surroundings::Elsewhere)
}

async fn reload(running: &mut Running, fleets: &[String]) {
    running.reload(read(&file(fleets))).await;
}

async fn admin(running: &Running, path: &str) -> String {
    let answer = Http1::to(running.admin()).await.get(path).await;
    String::from_utf8(answer.body().to_vec()).unwrap()
}

async fn series(running: &Running) -> BTreeSet<String> {
    let page = admin(running, "/metrics").await;
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, _)| series.to_owned())
        .collect()
}

/// Switches every connection to another protocol and sends back what comes.
async fn echo_after_101() -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            connections.spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let switch = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
                    connection: Upgrade\r\n\r\n";
                stream.write_all(switch.as_bytes()).await.unwrap();
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await.unwrap();
            });
        }
    });
    (address, server)
}

async fn tunnel(gateway: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    let ask = "GET /chat HTTP/1.1\r\nhost: fleet\r\nconnection: Upgrade\r\n\
        upgrade: websocket\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    stream
}

async fn echoes(stream: &mut TcpStream, word: &[u8; 4]) {
    stream.write_all(word).await.unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, word);
}

/// A fleet most settings of which differ between two rounds; its models change places, and one
/// comes and goes.
fn in_round(round: usize, replica: SocketAddr) -> String {
    let even = round.is_multiple_of(2);
    let mut models = vec![
        "{ name: hold, path: /hold, slots: 1 }",
        if even {
            "{ name: all, path: /, slots: 2 }"
        } else {
            "{ name: all, path: /, slots: 3 }"
        },
    ];
    if even {
        models.reverse();
        models.push("{ name: other, path: /other, slots: 1 }");
    }
    let (policy, upstream, wait, ignored) = if even {
        ("policy: staffing", "auto", "300s", "[/healthz]")
    } else {
        ("policy: concurrency, bucket: 200ms", "http1", "200s", "[]")
    };
    let more = format!(
        r#"
    models: [{}]
    source:
      gateway:
        listen: "127.0.0.1:0"
        upstream: {upstream}
        timeouts: {{ first_byte: {}s }}
        ignore_paths: {ignored}
    scaling: {{ {policy} }}
    admission: {{ threshold: {} }}
    queue: {{ requests: {}, wait: {wait} }}
"#,
        models.join(", "),
        300 + round,
        4 + round % 3,
        100 + round,
    );
    fleet("main", &[replica], &more)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_reloads_under_load_lose_and_refuse_nothing_and_every_count_is_exact() {
    const ROUNDS: usize = 50;
    const HELD: usize = 4;
    let replica = Replica::start().await;
    let (switching, _switcher) = echo_after_101().await;
    let sockets = plain("sockets", &[switching]);
    let mut running = start(&[in_round(0, replica.address), sockets.clone()]).await;
    let (main, gateway) = running.first().unwrap();
    let second = running.gateway("sockets").unwrap();
    let mut socket = tunnel(second).await;

    let (sent, ended) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut clients = JoinSet::new();
    for number in 0..6 {
        let (sent, ended) = (Arc::clone(&sent), Arc::clone(&ended));
        clients.spawn(async move {
            let mut http1 = Http1::to(gateway).await;
            let http2 = Http2::to(gateway).await;
            while !ended.load(Ordering::SeqCst) {
                sent.fetch_add(1, Ordering::SeqCst);
                let answer: Response<Bytes> = match number {
                    0..=2 => http1.get("/sleep").await,
                    3 => whole(http2.send(post("/count", vec![7; 30_000])).await).await,
                    _ => http2.get("/sleep").await,
                };
                assert_eq!(answer.status(), StatusCode::OK);
            }
        });
    }
    let mut held = JoinSet::new();
    for _ in 0..HELD {
        held.spawn(async move {
            let mut client = Http1::to(gateway).await;
            client.get("/hold").await.status()
        });
    }
    eventually(|| replica.seen.executing.load(Ordering::SeqCst) > 0).await;

    let mut before = main.load();
    for round in 1..=ROUNDS {
        reload(
            &mut running,
            &[in_round(round, replica.address), sockets.clone()],
        )
        .await;
        let load = main.load();
        assert!(load.arrivals >= before.arrivals && load.completed >= before.completed);
        assert!(load.in_flight_seconds >= before.in_flight_seconds);
        assert!(load.peak_seconds >= before.peak_seconds);
        assert_eq!(load.refused.total(), 0);
        before = load;
        echoes(&mut socket, b"ping").await;
        let sent_before = sent.load(Ordering::SeqCst);
        eventually(|| sent.load(Ordering::SeqCst) > sent_before + 6).await;
    }
    assert_eq!(held.len(), HELD);
    assert!(held.try_join_next().is_none(), "held requests stay held");
    let page = admin(&running, "/metrics").await;
    let reloads = format!("inflight_configuration_reloads_total{{result=\"in_force\"}} {ROUNDS}");
    assert!(page.contains(&reloads), "{page}");

    ended.store(true, Ordering::SeqCst);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    while !held.is_empty() {
        replica.seen.release.notify_one();
        if let Some(status) = held.join_next().await {
            assert_eq!(status.unwrap(), StatusCode::OK);
        }
    }
    eventually(|| main.load().in_flight == 0).await;
    let load = main.load();
    let all = sent.load(Ordering::SeqCst) + HELD as u64;
    assert_eq!((load.arrivals, load.completed), (all, all));
    assert_eq!(
        (load.refused.total(), load.client_gone, load.upstream_failed),
        (0, 0, 0)
    );
    drop(socket);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn b43_a_bad_file_is_refused_whole_and_the_running_one_stays_in_force() {
    let replica = Replica::start().await;
    let mut running = start(&[plain("hello", &[replica.address])]).await;
    let (fleet, gateway) = running.first().unwrap();
    let slots = |count: &str| plain("hello", &[replica.address]).replace("slots: 4", count);

    for bad in [
        "slots: 0",
        "slots: -1",
        "slots: abc",
        "slots: .nan",
        "slots: 4\n    colour: red",
    ] {
        reload(
            &mut running,
            &[slots(bad), plain("added", &[replica.address])],
        )
        .await;
        let told = admin(&running, "/readyz").await;
        assert!(
            told.contains("configuration_refused") && told.contains("fleets[0]"),
            "{told}"
        );
        assert!(
            told.contains("running_since") && told.starts_with("{\"ready\":true"),
            "{told}"
        );
        assert_eq!(fleet.board().slots, 4);
        assert!(!admin(&running, "/metrics").await.contains("added"));
    }
    let page = admin(&running, "/metrics").await;
    assert!(page.contains("inflight_configuration_refused 1"), "{page}");
    assert!(page.contains("inflight_configuration_reloads_total{result=\"refused\"} 5"));
    let answer = Http1::to(gateway).await.get("/").await;
    assert_eq!(answer.status(), StatusCode::OK);

    reload(&mut running, &[slots("slots: 7")]).await;
    assert_eq!(fleet.board().slots, 7);
    assert!(
        !admin(&running, "/readyz")
            .await
            .contains("configuration_refused")
    );
    let page = admin(&running, "/metrics").await;
    assert!(page.contains("inflight_configuration_refused 0"), "{page}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_port_in_use_refuses_the_whole_file_before_anything_changed() {
    let replica = Replica::start().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut running = start(&[plain("hello", &[replica.address])]).await;
    let (fleet, _) = running.first().unwrap();
    let changed = plain("hello", &[replica.address]).replace("slots: 4", "slots: 9");
    let address = taken.local_addr().unwrap().to_string();
    let impossible = plain("second", &[replica.address]).replace("127.0.0.1:0", &address);
    reload(&mut running, &[changed, impossible]).await;
    assert_eq!(fleet.board().slots, 4);
    let told = admin(&running, "/readyz").await;
    assert!(
        told.contains(&address) && told.contains("fleet second"),
        "{told}"
    );
    running.stop().await.unwrap();
}

#[tokio::test]
async fn b81_a_fleet_that_listens_elsewhere_finishes_what_it_has_and_keeps_its_counts() {
    let replica = Replica::start().await;
    let mut running = start(&[plain("hello", &[replica.address])]).await;
    let (fleet, former) = running.first().unwrap();
    let held = tokio::spawn(async move { Http1::to(former).await.get("/hold").await });
    eventually(|| fleet.load().executing == 1).await;

    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let moved = plain("hello", &[replica.address]).replace("127.0.0.1:0", &address.to_string());
    reload(&mut running, &[moved]).await;
    assert_eq!(running.first().unwrap().1, address);
    assert_eq!(
        Http1::to(address).await.get("/").await.status(),
        StatusCode::OK
    );
    let load = fleet.load();
    assert_eq!((load.arrivals, load.completed, load.in_flight), (2, 1, 1));
    // One that never finished its connecting is not taken by the former listener any more.
    eventually(|| std::net::TcpStream::connect(former).is_err()).await;

    replica.seen.release.notify_one();
    assert_eq!(held.await.unwrap().status(), StatusCode::OK);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn b21_the_series_and_the_sockets_of_removed_fleets_are_gone() {
    let replica = Replica::start().await;
    let kept = plain("kept", &[replica.address]);
    let mut running = start(std::slice::from_ref(&kept)).await;
    let before = series(&running).await;
    for number in 0..20 {
        let name = format!("passing-{number}");
        let fleets = [kept.clone(), plain(&name, &[replica.address])];
        reload(&mut running, &fleets).await;
        let gateway = running.gateway(&name).unwrap();
        assert_eq!(
            Http1::to(gateway).await.get("/").await.status(),
            StatusCode::OK
        );
        assert!(admin(&running, "/metrics").await.contains(&name));
        reload(&mut running, std::slice::from_ref(&kept)).await;
        assert_eq!(series(&running).await, before);
    }
    eventually(|| replica.seen.open.load(Ordering::SeqCst) == 0).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_gone_from_the_file_drains_and_an_added_one_serves() {
    let (gone, added) = (Replica::start().await, Replica::start().await);
    let mut running = start(&[plain("hello", &[gone.address])]).await;
    let (fleet, gateway) = running.first().unwrap();
    let held = tokio::spawn(async move { Http1::to(gateway).await.get("/hold").await });
    eventually(|| gone.seen.executing.load(Ordering::SeqCst) == 1).await;

    reload(&mut running, &[plain("hello", &[added.address])]).await;
    for _ in 0..5 {
        assert_eq!(
            Http1::to(gateway).await.get("/").await.status(),
            StatusCode::OK
        );
    }
    assert_eq!((gone.requests(), added.requests()), (1, 5));
    assert_eq!(fleet.load_and_replicas().1.draining, 1);
    gone.seen.release.notify_one();
    assert_eq!(held.await.unwrap().status(), StatusCode::OK);
    eventually(|| fleet.load_and_replicas().1.draining == 0).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_goes_on_through_changes_of_its_time_outs() {
    let replica = Replica::start().await;
    let (events, received) = mpsc::channel(8);
    *replica.seen.events.lock().unwrap() = Some(received);
    let mut running = start(&[plain("hello", &[replica.address])]).await;
    let (_, gateway) = running.first().unwrap();
    let client = Http2::to(gateway).await;
    let response = client.send(get("/events")).await;
    for number in 1..=5 {
        let listen = "listen: \"127.0.0.1:0\"";
        let changed = format!("{listen}, timeouts: {{ connect: {number}s }}");
        let fleet = plain("hello", &[replica.address]).replace(listen, &changed);
        reload(&mut running, &[fleet]).await;
        events.send(Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(client.get("/").await.status(), StatusCode::OK);
    }
    drop(events);
    assert_eq!(whole(response).await.body().as_ref(), b"xxxxx");
    running.stop().await.unwrap();
}
