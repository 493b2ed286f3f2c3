//! Server-sent events, as a listener meets them.

use std::time::Duration;

use inflight::api::wire;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::instance::Instance;

const PATIENCE: Duration = Duration::from_secs(60);

/// One who listens over a plain socket.
struct Listener(BufReader<TcpStream>);

impl Listener {
    async fn new(instance: &Instance, after: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(instance.address).await.unwrap();
        let after = after.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n{after}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut listener = Self(BufReader::new(stream));
        let status = listener.line().await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        while listener.line().await != "retry: 2000" {}
        listener
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.0.read_line(&mut line)).await;
        assert_ne!(read.unwrap().unwrap(), 0, "the stream ended");
        line.trim_end().to_owned()
    }

    /// Returns the next event's name and data.
    async fn next(&mut self) -> (String, String) {
        let mut name = String::new();
        loop {
            let line = self.line().await;
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (name, data.to_owned());
            }
        }
    }

    async fn next_of(&mut self, name: &str) -> wire::Event {
        loop {
            let (event, data) = self.next().await;
            if event == name {
                return serde_json::from_str(&data).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_hold_and_its_decision_are_told_as_they_happen() {
    let mut instance = Instance::start(&["hello"]).await;
    let control = instance.control();
    let mut listener = Listener::new(&instance, None).await;
    let path = "/api/v1/fleets/hello/size";
    instance
        .order("PUT", path, r#"{"replicas": 3, "for": "1s"}"#)
        .await;
    let held = listener.next_of("hold").await;
    assert_eq!(held.fleet, "hello");
    let decided = listener.next_of("decision").await;
    let wire::What::Decision { decision } = decided.what else {
        panic!("{decided:?}")
    };
    assert_eq!(decision.desired, 3);
    let released = listener.next_of("release").await;
    assert_eq!(released.what, wire::What::Release { by_hand: false });

    // Whoever was cut off after the hold hears the rest again.
    let mut again = Listener::new(&instance, Some(&held.id)).await;
    assert_eq!(again.next_of("decision").await.id, decided.id);
    control.end().await;
}

#[tokio::test]
async fn who_heard_an_earlier_run_is_told_what_is_remembered() {
    let instance = Instance::start(&["hello"]).await;
    let now = instance.fleet(0).clock().now();
    instance.story().admission("hello", now, false);
    let mut listener = Listener::new(&instance, Some("12345-678")).await;
    let (event, _) = listener.next().await;
    assert_eq!(event, "missed");
    let told = listener.next_of("admission").await;
    assert_eq!(told.what, wire::What::Admission { open: false });
    let answer = instance
        .send("GET", "/api/v1/events", &[("last-event-id", "x")], "")
        .await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn who_missed_more_than_is_remembered_is_told() {
    let instance = Instance::start(&["hello"]).await;
    let now = instance.fleet(0).clock().now();
    for _ in 0..1500 {
        instance.story().admission("hello", now, true);
    }
    let first = format!("{}-1", instance.story().events().run());
    let mut listener = Listener::new(&instance, Some(&first)).await;
    assert_eq!(listener.next().await.0, "missed");
    let id = listener.next_of("admission").await.id;
    assert!(id.ends_with("-501"), "{id}");
}

#[tokio::test]
async fn listeners_are_bounded_and_a_probe_still_gets_in() {
    let instance = Instance::start(&["hello"]).await;
    let mut listeners = Vec::new();
    for _ in 0..64 {
        listeners.push(Listener::new(&instance, None).await);
    }
    let answer = instance.get("/api/v1/events").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["retry-after"], "5");
    assert_eq!(instance.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_stop_ends_the_streams() {
    let instance = Instance::start(&["hello"]).await;
    let mut listener = Listener::new(&instance, None).await;
    instance.stop().await;
    let mut rest = String::new();
    let read = listener.0.read_to_string(&mut rest);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "ended whole: {rest:?}");
}
