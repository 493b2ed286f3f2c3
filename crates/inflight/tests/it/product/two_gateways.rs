//! Two gateways before one static fleet, and a third instance that decides by their sum.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::instance::{INFLIGHT, Instance, get, open, wait_until};

/// One more at the second gateway: half a replica from a whole size, since moments of reading over a
/// network are known to a millisecond only.
const CLIENTS: usize = 10;
const SIZE: u64 = 11;

/// The one server, which works on any number of requests.
struct Server(Child, SocketAddr);

impl Server {
    fn start() -> Self {
        let address = free_address();
        let port = address.port().to_string();
        let child = Command::new(INFLIGHT)
            .args(["__serve", "--slots", "1000", "--port", &port])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until(|| TcpStream::connect(address).is_ok(), "the server");
        Self(child, address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap()
}

struct Gateway {
    admin: SocketAddr,
    listen: SocketAddr,
}

impl Gateway {
    fn new() -> Self {
        Self {
            admin: free_address(),
            listen: free_address(),
        }
    }

    fn start(&self, server: SocketAddr) -> Instance {
        let fleet = format!(
            r#"
  - name: hello
    slots: 1000
    replicas: {{ min: 1, max: 8 }}
    source: {{ gateway: {{ listen: "{}" }} }}
    endpoints: {{ static: ["{server}"] }}
"#,
            self.listen
        );
        Instance::start_at(&self.admin.to_string(), &[fleet])
    }

    fn clients(&self, count: usize) -> Vec<TcpStream> {
        (0..count)
            .map(|_| open(self.listen, "/?work=600s"))
            .collect()
    }
}

fn in_flight(deciding: &Instance) -> Option<f64> {
    deciding.fleet("hello")["load"]["in_flight"].as_f64()
}

fn desired(deciding: &Instance) -> u64 {
    deciding.fleet("hello")["replicas"]["desired"]
        .as_u64()
        .unwrap()
}

fn is(value: Option<f64>, clients: usize) -> bool {
    value.is_some_and(|value| (value - clients as f64).abs() < 0.01)
}

#[test]
fn the_sum_is_what_clients_have_open_while_one_gateway_is_killed_and_started() {
    let server = Server::start();
    let (a, b) = (Gateway::new(), Gateway::new());
    let mut first = a.start(server.1);
    let second = b.start(server.1);
    let deciding = Instance::start(&[format!(
        r#"
  - name: hello
    slots: 2
    replicas: {{ min: 1, max: 40 }}
    source: {{ inflight: {{ peers: ["{}", "{}"], every: 200ms, timeout: 500ms }} }}
    scaling: {{ policy: concurrency, window: 5s }}
"#,
        a.admin, b.admin
    )]);
    let (mut at_a, at_b) = (a.clients(CLIENTS), b.clients(CLIENTS + 1));
    wait_until(|| is(in_flight(&deciding), 2 * CLIENTS + 1), "all clients");
    wait_until(|| desired(&deciding) >= SIZE, "a size for all");
    assert_eq!(
        deciding.fleet("hello")["admission"],
        serde_json::Value::Null
    );
    assert_eq!(deciding.fleet("hello")["replicas"]["ready"], 1);

    first.kill();
    drop(std::mem::take(&mut at_a));
    let held = |deciding: &Instance| deciding.fleet("hello")["sources"][0]["failure"].is_string();
    wait_until(|| held(&deciding), "that a peer does not answer");
    assert!(
        is(in_flight(&deciding), 2 * CLIENTS + 1),
        "what it said last is held"
    );
    let _restarted = a.start(server.1);
    at_a = a.clients(CLIENTS);
    let read = |deciding: &Instance| {
        let source = &deciding.fleet("hello")["sources"][0];
        source["state"] == "read" && source["in_flight"] == CLIENTS as f64
    };
    wait_until(|| read(&deciding), "the restarted gateway");
    wait_until(
        || is(in_flight(&deciding), 2 * CLIENTS + 1),
        "all clients again",
    );
    // Over the windows that decisions look at, the restart is neither a drop nor a jump.
    for _ in 0..20 {
        sleep(Duration::from_millis(250));
        let size = desired(&deciding);
        assert!((SIZE - 1..=SIZE + 1).contains(&size), "{size}");
    }
    let page = get(deciding.admin(), "/metrics", Duration::from_secs(10))
        .unwrap()
        .1;
    assert!(
        page.contains("inflight_unreachable_peers{fleet=\"hello\"} 0"),
        "{page}"
    );
    assert!(
        !page.contains("inflight_request_seconds_total{"),
        "no sum of sums"
    );
    drop((at_a, at_b, second));
}
