//! A fleet behind an Envoy that is not ours: it wakes from zero, grows, keeps its size while nobody
//! tells anything, and is measured elsewhere by another file, all in one process.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::instance::{Instance, configuration, wait_until};

/// A page that changes, or a server that only closes connections.
struct Page {
    address: SocketAddr,
    text: Arc<Mutex<Option<String>>>,
}

impl Page {
    fn start(text: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let text = Arc::new(Mutex::new(Some(text)));
        let said = Arc::clone(&text);
        // It ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let text = said.lock().unwrap().clone();
                if let (Ok(stream), Some(text)) = (stream, text) {
                    answer(stream, &text);
                }
            }
        });
        Self { address, text }
    }

    fn say(&self, text: Option<String>) {
        *self.text.lock().unwrap() = text;
    }
}

fn answer(mut stream: TcpStream, text: &str) {
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let length = text.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    // Whoever asked may have left.
    stream.write_all((head + text).as_bytes()).ok();
}

fn envoy(active: u32, refused: u32, healthy: u32) -> String {
    let rows = [
        ("upstream_rq_active", active),
        ("upstream_rq_pending_active", 0),
        ("upstream_cx_none_healthy", refused),
        ("membership_healthy", healthy),
    ];
    let row = |(name, value)| format!("envoy_cluster_{name}{{envoy_cluster_name=\"c\"}} {value}\n");
    rows.map(row).concat()
}

fn triton() -> String {
    let row = |name| format!("nv_inference_{name}_duration_us{{model=\"m\",version=\"1\"}} 5000\n");
    ["request", "queue"].map(row).concat()
}

fn fleet(envoy: &Page, triton: &Page, cluster: &str) -> String {
    let (envoy, triton) = (envoy.address, triton.address);
    format!(
        r#"
  - name: triton
    replicas: {{ min: 0, max: 8 }}
    source:
      envoy:
        admin: ["http://{envoy}"]
        cluster: {cluster}
        every: 100ms
        backend: {{ triton: {{ metrics: ["http://{triton}"] }} }}
    scaling: {{ policy: occupancy, window: 2s }}
"#
    )
}

fn desired(instance: &Instance) -> Option<u64> {
    instance.fleet("triton")["replicas"]["desired"].as_u64()
}

fn source(instance: &Instance, kind: &str) -> Value {
    let fleet = instance.fleet("triton");
    let sources = fleet["sources"].as_array().unwrap();
    let found = sources.iter().find(|source| source["kind"] == kind);
    found.cloned().unwrap_or_default()
}

#[test]
fn b15_a_fleet_behind_envoy_wakes_grows_and_keeps_its_size_while_envoy_is_gone() {
    let (proxy, server) = (Page::start(envoy(0, 0, 0)), Page::start(triton()));
    let instance = Instance::start(&[fleet(&proxy, &server, "c")]);
    let is_known = |instance: &Instance| {
        let decision = &instance.fleet("triton")["decision"];
        decision["wanted"] == 0 && source(instance, "envoy")["state"] == "read"
    };
    wait_until(|| is_known(&instance), "idle at zero");

    // Envoy refuses what it has no replica for, and nothing is ever in flight.
    proxy.say(Some(envoy(0, 3, 0)));
    wait_until(|| desired(&instance) == Some(1), "woken");

    // Six wait for each second of executing that two replicas never report.
    proxy.say(Some(envoy(12, 3, 2)));
    wait_until(|| desired(&instance) >= Some(6), "grown");
    let grown = desired(&instance);

    proxy.say(None);
    let is_away = || source(&instance, "envoy")["failure"].is_string();
    wait_until(is_away, "a failure");
    wait_until(|| source(&instance, "envoy")["state"] == "held", "held");
    assert_eq!(desired(&instance), grown);
    assert_eq!(source(&instance, "triton")["state"], "read");
    proxy.say(Some(envoy(12, 3, 2)));
    wait_until(|| source(&instance, "envoy")["state"] == "read", "back");
    assert_eq!(desired(&instance), grown);

    instance.rewrite(&configuration(&[fleet(&proxy, &server, "d")]));
    instance.signal(Signal::HUP);
    let names_others = || {
        let failure = source(&instance, "envoy")["failure"].clone();
        failure.as_str() == Some("no cluster \"d\"; it has c")
    };
    wait_until(names_others, "another cluster");
    assert_eq!(desired(&instance), grown);
}
