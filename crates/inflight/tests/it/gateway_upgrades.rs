//! Connections that become something else: WebSocket and other upgrades, over raw sockets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inflight::gateway::GatewayConfig;
use inflight_core::ReplicaId;
use inflight_core::load::ReplicaState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::gateway_world::{PATIENCE, World, eventually};

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
    connection: Upgrade\r\nsec-websocket-accept: yes\r\n\r\n";
const ASK: &str = "GET /chat HTTP/1.1\r\nhost: fleet\r\nconnection: keep-alive, Upgrade\r\n\
    upgrade: websocket\r\nsec-websocket-key: no\r\n\r\n";
const PLAIN: &str = "GET /x HTTP/1.1\r\nhost: fleet\r\n\r\n";

/// What a replica does once it has answered a request's head.
#[derive(Clone, Copy)]
enum Then {
    /// Sends back what comes, and ends when the other side does.
    Echo,
    /// Sends nothing, and never ends.
    Ignore,
    /// Waits for the end of what comes, then says that it saw it.
    Confirm,
    /// Ends at once.
    Close,
    /// Answers nothing at all.
    Silent,
}

/// A replica that answers every head with the same words.
struct Raw {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    ended: Arc<Mutex<u32>>,
    server: JoinHandle<()>,
}

impl Raw {
    async fn start(answer: &'static str, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let ended = Arc::new(Mutex::new(0));
        let (of_server, of_ended) = (Arc::clone(&heads), Arc::clone(&ended));
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (heads, ended) = (Arc::clone(&of_server), Arc::clone(&of_ended));
                connections.spawn(async move {
                    converse(stream, answer, then, &heads).await;
                    *ended.lock().unwrap() += 1;
                });
            }
        });
        Self {
            address,
            heads,
            ended,
            server,
        }
    }

    fn world(&self, change: impl FnOnce(&mut GatewayConfig)) -> World {
        let world = World::with(1, 10, &[], change);
        world
            .fleet
            .set_endpoint(ReplicaId(0), self.address, ReplicaState::Ready);
        world
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn converse(mut stream: TcpStream, answer: &str, then: Then, heads: &Mutex<Vec<String>>) {
    loop {
        let head = read_head(&mut stream).await;
        if head.is_empty() {
            return;
        }
        heads.lock().unwrap().push(head);
        if matches!(then, Then::Silent) {
            break;
        }
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        if answer.starts_with("HTTP/1.1 101") {
            break;
        }
    }
    let mut buf = [0; 1024];
    match then {
        Then::Close => {}
        Then::Ignore => std::future::pending().await,
        Then::Echo | Then::Confirm | Then::Silent => {
            while let Ok(count) = stream.read(&mut buf).await {
                if count == 0 {
                    break;
                }
                if matches!(then, Then::Echo) && stream.write_all(&buf[..count]).await.is_err() {
                    break;
                }
            }
            if matches!(then, Then::Confirm) {
                drop(stream.write_all(b"saw the end").await);
            }
        }
    }
}

/// Reads a head to its end, and not a byte more; empty at the stream's end.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match tokio::time::timeout(PATIENCE, stream.read(&mut byte))
            .await
            .unwrap()
        {
            Ok(1) => head.push(byte[0]),
            _ => break,
        }
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

async fn ask(world: &World, words: &str) -> TcpStream {
    let mut client = TcpStream::connect(world.address).await.unwrap();
    client.set_nodelay(true).unwrap();
    client.write_all(words.as_bytes()).await.unwrap();
    client
}

/// Opens a tunnel.
async fn tunnel(world: &World) -> TcpStream {
    let mut client = ask(world, ASK).await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("http/1.1 101"), "{head}");
    client
}

async fn echoes(client: &mut TcpStream, words: &[u8]) {
    client.write_all(words).await.unwrap();
    let mut back = vec![0; words.len()];
    let read = client.read_exact(&mut back);
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    assert_eq!(back, words);
}

async fn rest(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = client.read_to_end(&mut bytes);
    drop(tokio::time::timeout(PATIENCE, read).await.unwrap());
    bytes
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_counts_until_it_is_closed() {
    let raw = Raw::start(SWITCH, Then::Echo).await;
    let world = raw.world(|_| {});
    let mut client = ask(&world, ASK).await;
    let head = read_head(&mut client).await;
    assert!(head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    assert!(head.contains("\r\nconnection: upgrade\r\n"), "{head}");
    assert!(head.contains("\r\nsec-websocket-accept: yes\r\n"), "{head}");
    assert!(!head.contains("content-length"), "{head}");
    let asked = raw.heads().remove(0);
    assert!(asked.contains("\r\nupgrade: websocket\r\n"), "{asked}");
    assert!(asked.contains("\r\nconnection: upgrade\r\n"), "{asked}");
    assert!(asked.contains("\r\nsec-websocket-key: no\r\n"), "{asked}");
    for words in [&b"one"[..], &[7; 300_000]] {
        let (mut from, mut to) = client.split();
        let mut back = vec![0; words.len()];
        let both = async {
            tokio::try_join!(to.write_all(words), async {
                from.read_exact(&mut back).await.map(|_| ())
            })
        };
        tokio::time::timeout(PATIENCE, both).await.unwrap().unwrap();
        assert_eq!(back, words);
        let load = world.fleet.load();
        assert_eq!((load.in_flight, load.executing), (1, 1));
    }
    drop(client);
    world.settles().await;
    assert_eq!(world.fleet.load().completed, 1);
    eventually(|| *raw.ended.lock().unwrap() == 1).await;
}

#[tokio::test]
async fn what_a_client_says_right_behind_its_request_goes_through_the_tunnel() {
    let raw = Raw::start(SWITCH, Then::Echo).await;
    let world = raw.world(|_| {});
    let mut client = ask(&world, &format!("{ASK}early")).await;
    assert!(read_head(&mut client).await.starts_with("http/1.1 101"));
    let mut back = [0; 5];
    client.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"early");
}

#[tokio::test]
async fn a_replica_that_closes_ends_the_tunnel() {
    let raw = Raw::start(SWITCH, Then::Close).await;
    let world = raw.world(|_| {});
    let mut client = tunnel(&world).await;
    assert_eq!(rest(&mut client).await, b"");
    drop(client);
    world.settles().await;
}

#[tokio::test]
async fn the_end_of_one_direction_is_passed_on_and_the_other_goes_on() {
    let raw = Raw::start(SWITCH, Then::Confirm).await;
    let world = raw.world(|_| {});
    let mut client = tunnel(&world).await;
    client.write_all(b"all of it").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, b"saw the end");
    world.settles().await;
    assert_eq!(world.fleet.load().completed, 1);
}

#[tokio::test]
async fn a_replica_that_ignores_the_clients_end_does_not_keep_its_slot_for_ever() {
    let raw = Raw::start(SWITCH, Then::Ignore).await;
    let world = raw.world(|config| config.timeouts.idle = Duration::from_millis(400));
    drop(tunnel(&world).await);
    eventually(|| world.fleet.load().in_flight == 0).await;
}

#[tokio::test]
async fn an_idle_tunnel_is_cut_and_bytes_in_one_direction_keep_it() {
    let raw = Raw::start(SWITCH, Then::Ignore).await;
    let world = raw.world(|config| config.timeouts.idle = Duration::from_secs(2));
    let mut client = tunnel(&world).await;
    for _ in 0..10 {
        client.write_all(b"ping").await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(world.fleet.load().in_flight, 1);
    }
    assert_eq!(rest(&mut client).await, b"");
    world.settles().await;
    assert_eq!(world.fleet.load().timed_out, 1);
}

/// Silence is not the end: B72.
#[tokio::test]
async fn b72_a_tunnel_lives_on_past_the_first_byte_time_out() {
    let raw = Raw::start(SWITCH, Then::Echo).await;
    let world = raw.world(|config| {
        config.timeouts.first_byte = Duration::from_millis(300);
        config.timeouts.head = Duration::from_millis(300);
    });
    let mut client = tunnel(&world).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.fleet.load().in_flight, 1);
    echoes(&mut client, b"still here").await;
}

#[tokio::test]
async fn any_other_answer_is_relayed_and_the_connection_goes_on() {
    let raw = Raw::start(
        "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno",
        Then::Echo,
    )
    .await;
    let world = raw.world(|_| {});
    let mut client = TcpStream::connect(world.address).await.unwrap();
    for words in [ASK, PLAIN, ASK] {
        client.write_all(words.as_bytes()).await.unwrap();
        assert!(read_head(&mut client).await.starts_with("http/1.1 403"));
        let mut body = [0; 2];
        client.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"no");
        world.settles().await;
    }
    assert_eq!(raw.heads().len(), 3);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_101_gives_its_slot_back() {
    let raw = Raw::start(SWITCH, Then::Silent).await;
    let world = raw.world(|_| {});
    let client = ask(&world, ASK).await;
    eventually(|| raw.heads().len() == 1).await;
    assert_eq!(world.fleet.load().in_flight, 1);
    drop(client);
    world.settles().await;
    eventually(|| *raw.ended.lock().unwrap() == 1).await;
}

#[tokio::test]
async fn a_101_that_nobody_asked_for_is_the_replicas_fault() {
    let raw = Raw::start(SWITCH, Then::Echo).await;
    let world = raw.world(|_| {});
    let mut client = ask(&world, PLAIN).await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("http/1.1 502"), "{head}");
    assert!(
        head.contains("x-inflight-reason: upstream_protocol"),
        "{head}"
    );
    world.settles().await;
    assert_eq!(world.fleet.load().upstream_failed, 1);
}

/// Requests inside a tunnel would not be counted.
#[tokio::test]
async fn a_wish_for_http2_is_not_passed_on() {
    let raw = Raw::start("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Then::Echo).await;
    let world = raw.world(|_| {});
    let words = "GET /x HTTP/1.1\r\nhost: fleet\r\nconnection: upgrade, http2-settings\r\n\
        upgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n";
    let mut client = ask(&world, words).await;
    assert!(read_head(&mut client).await.starts_with("http/1.1 200"));
    let asked = raw.heads().remove(0);
    assert!(!asked.contains("upgrade"), "{asked}");
    assert!(!asked.contains("http2-settings"), "{asked}");
}

#[tokio::test]
async fn a_tunnel_is_cut_when_the_drain_time_is_over() {
    let raw = Raw::start(SWITCH, Then::Echo).await;
    let mut world = raw.world(|config| config.timeouts.drain = Duration::from_secs(2));
    let mut client = tunnel(&world).await;
    let gateway = world.shut_down();
    eventually(|| std::net::TcpStream::connect(world.address).is_err()).await;
    echoes(&mut client, b"goes on").await;
    tokio::time::timeout(PATIENCE, gateway)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rest(&mut client).await, b"");
    world.settles().await;
    eventually(|| *raw.ended.lock().unwrap() == 1).await;
}
