//! What a gateway that shuts down owes those who could not know of it.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::gateway_world::{PATIENCE, Replica, World, get};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nhost: fleet\r\n\r\n";

/// Reads until the gateway closes.
async fn rest(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    let read = stream.read_to_end(&mut said);
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    String::from_utf8(said).unwrap()
}

fn is_last_answer(said: &str) {
    let said = said.to_lowercase();
    assert!(said.starts_with("http/1.1 200"), "{said}");
    assert!(said.contains("connection: close"), "{said}");
    assert!(said.ends_with("hello"), "{said}");
}

/// One has said nothing, one has used its connection before, and of those that wait in the
/// system's queue the gateway cannot know when it is told to shut down.
#[tokio::test]
async fn b58_whoever_was_connected_before_the_drain_gets_an_answer() {
    let replica = Replica::start().await;
    let mut world = World::new(4, &[&replica]);
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    let mut idle = world.http1().await;
    assert_eq!(idle.get("/x").await.body(), "hello");
    tokio::time::sleep(Duration::from_millis(50)).await;
    // None of this task's connections is accepted before it waits for something.
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let stream = std::net::TcpStream::connect(world.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        waiting.push(TcpStream::from_std(stream).unwrap());
    }
    let gateway = world.shut_down();
    for stream in &mut waiting {
        stream.write_all(REQUEST).await.unwrap();
    }
    let answer = idle.get("/x").await;
    assert_eq!(answer.body(), "hello");
    assert_eq!(answer.headers()["connection"], "close");
    silent.write_all(REQUEST).await.unwrap();
    is_last_answer(&rest(silent).await);
    for stream in waiting {
        is_last_answer(&rest(stream).await);
    }
    let ended = tokio::time::timeout(PATIENCE, gateway).await;
    ended.unwrap().unwrap();
    assert!(std::net::TcpStream::connect(world.address).is_err());
}

#[tokio::test]
async fn the_silent_do_not_hold_a_drain_up() {
    let replica = Replica::start().await;
    let mut world = World::new(4, &[&replica]);
    let silent = TcpStream::connect(world.address).await.unwrap();
    let mut idle = world.http1().await;
    idle.get("/x").await;
    let idle_for_long = world.http1().await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let ended = tokio::time::timeout(PATIENCE, world.shut_down()).await;
    ended.unwrap().unwrap();
    assert_eq!(rest(silent).await, "");
    drop((idle, idle_for_long));
}

/// First a warning, which refuses nothing; the last stream is named when the client has seen it.
#[tokio::test]
async fn b62_http2_clients_are_told_to_go_in_two_steps() {
    let replica = Replica::start().await;
    let mut world = World::new(4, &[&replica]);
    let (events, of_replica) = mpsc::channel(1);
    *replica.seen.events.lock().unwrap() = Some(of_replica);
    let mut raw = Frames::to(&world).await;
    let client = world.http2().await;
    let mut streaming = client.send(get("http://fleet/events")).await.into_body();
    let gateway = world.shut_down();

    let warning = raw.next_of(GOAWAY).await;
    assert_eq!(warning[..4], 0x7fff_ffff_u32.to_be_bytes());
    assert_eq!(warning[4..8], [0; 4], "no error");
    let ping = raw.next_of(PING).await;
    // A request that was on its way when the warning came: GET / with indexed fields.
    raw.send(HEADERS, END_STREAM | END_HEADERS, 1, &[0x82, 0x84, 0x86])
        .await;
    raw.next_of(HEADERS).await;
    raw.send(PING, ACK, 0, &ping).await;
    let last = raw.next_of(GOAWAY).await;
    assert_eq!(last[..4], 1_u32.to_be_bytes());

    events.send("on".into()).await.unwrap();
    let event = streaming.frame().await.unwrap().unwrap();
    assert_eq!(event.into_data().unwrap(), "on");
    drop(events);
    assert_eq!(streaming.collect().await.unwrap().to_bytes(), "");
    let ended = tokio::time::timeout(PATIENCE, gateway).await;
    ended.unwrap().unwrap();
}

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// An HTTP/2 client that sends and sees single frames.
struct Frames(TcpStream);

impl Frames {
    async fn to(world: &World) -> Self {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        let mut frames = Self(stream);
        frames.send(SETTINGS, 0, 0, &[]).await;
        frames.next_of(SETTINGS).await;
        frames.send(SETTINGS, ACK, 0, &[]).await;
        frames
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    async fn next_of(&mut self, kind: u8) -> Vec<u8> {
        let next = async {
            loop {
                let mut head = [0; 9];
                self.0.read_exact(&mut head).await.unwrap();
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; usize::try_from(length).unwrap()];
                self.0.read_exact(&mut payload).await.unwrap();
                if head[3] == kind {
                    return payload;
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.unwrap()
    }
}
