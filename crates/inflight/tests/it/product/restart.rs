//! Restarts and upgrades of ours: `on_exit: keep` and `run --take-over`, with real processes.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::instance::{INFLIGHT, PATIENCE, Scratch, get, gets, marked, open, signal, wait_until};

/// A place where one `inflight` after the other runs with the same configuration.
struct House {
    scratch: Scratch,
    gateway: SocketAddr,
    admin: SocketAddr,
    /// All that were started; the last is the present one.
    processes: Vec<Child>,
}

/// A port that nobody has; two tests rarely get the same.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

impl House {
    /// A fleet of so many of our own servers that are kept; `more` are keys of the process.
    fn new(replicas: u32, more: &str) -> Self {
        Self::with_command(
            replicas,
            &format!("{INFLIGHT:?}, __serve, --port, \"{{port}}\""),
            more,
        )
    }

    fn with_command(replicas: u32, command: &str, more: &str) -> Self {
        let house = Self {
            scratch: Scratch::new(),
            gateway: free(),
            admin: free(),
            processes: Vec::new(),
        };
        house.configure("kept", replicas, command, more);
        house
    }

    fn configure(&self, name: &str, replicas: u32, command: &str, more: &str) {
        let text = format!(
            r#"
version: 1
admin: {{ listen: "{}" }}
state: {{ dir: "{}" }}
fleets:
  - name: {name}
    slots: 2
    replicas: {{ min: {replicas}, max: 4 }}
    source: {{ gateway: {{ listen: "{}" }} }}
    admission: {{ when: always }}
    target: {{ process: {{ command: [{command}], on_exit: keep, stop_grace: 1s, {more} }} }}
"#,
            self.admin,
            self.state(""),
            self.gateway,
        );
        self.scratch.file("inflight.yaml", &text);
    }

    fn state(&self, name: &str) -> String {
        format!("{}/{name}", self.scratch.path("state"))
    }

    fn command(&self) -> Command {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.scratch.path("log"));
        let mut command = Command::new(INFLIGHT);
        command
            .args([
                "run",
                "-c",
                &self.scratch.path("inflight.yaml"),
                "--log-format",
                "json",
            ])
            .env("INFLIGHT_TEST_SCRATCH", self.scratch.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        command
    }

    /// Starts another one, and waits until it is ready with so many replicas.
    fn run(&mut self, arguments: &[&str], replicas: u64) {
        let before = self.said_times("running");
        self.processes
            .push(self.command().args(arguments).spawn().unwrap());
        wait_until(|| self.said_times("running") > before, "running");
        self.wait_ready(replicas);
    }

    fn wait_ready(&self, replicas: u64) {
        wait_until(
            || self.fleet()["replicas"]["ready"] == replicas,
            "ready replicas",
        );
    }

    /// Lets another one take over, and waits for the end of the present one.
    fn succeed(&mut self, replicas: u64) {
        let before = self.processes.len() - 1;
        self.run(&["--take-over"], replicas);
        assert_eq!(
            self.processes[before].wait().unwrap().code(),
            Some(0),
            "{}",
            self.said()
        );
    }

    fn end(&mut self, with: Signal) -> Option<i32> {
        let process = self.processes.last_mut().unwrap();
        signal(process.id(), with);
        process.wait().unwrap().code()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.scratch.path("log")).unwrap_or_default()
    }

    fn said_times(&self, message: &str) -> usize {
        self.said()
            .matches(&format!("\"message\":\"{message}\""))
            .count()
    }

    fn fleet(&self) -> Value {
        let answer = get(self.admin, "/api/v1/fleets/kept", PATIENCE);
        let body = answer.map(|(_, body)| body).unwrap_or_default();
        serde_json::from_str(&body).unwrap_or_default()
    }

    /// The ids of the replicas' own processes.
    fn servers(&self) -> Vec<u32> {
        let mut servers: Vec<u32> = marked(&self.scratch.path(""))
            .into_iter()
            .filter(|(_, command)| command.starts_with(INFLIGHT) && command.contains("__serve"))
            .map(|(id, _)| id)
            .collect();
        servers.sort_unstable();
        servers
    }

    fn shims(&self) -> usize {
        let all = marked(&self.scratch.path(""));
        all.iter()
            .filter(|(_, command)| command.contains("__replica-keep"))
            .count()
    }

    fn metric(&self, name: &str) -> f64 {
        let (_, page) = get(self.admin, "/metrics", PATIENCE).unwrap();
        let of_completed = |line: &&str| line.starts_with(name) && line.contains("completed");
        let line = page.lines().find(of_completed).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        for process in &mut self.processes {
            process.kill().ok();
            process.wait().ok();
        }
        for (id, _) in marked(&self.scratch.path("")) {
            let id = rustix::process::Pid::from_raw(i32::try_from(id).unwrap());
            rustix::process::kill_process(id.unwrap(), Signal::KILL).ok();
        }
    }
}

#[test]
fn after_our_sigkill_the_same_replicas_serve() {
    let mut house = House::new(3, "");
    house.run(&[], 3);
    let servers = house.servers();
    assert_eq!(servers.len(), 3);
    house.end(Signal::KILL);
    assert_eq!(house.servers(), servers);
    house.run(&[], 3);
    assert_eq!(gets(house.gateway, "/", 20), vec![200; 20]);
    assert_eq!(house.servers(), servers, "{}", house.said());
    assert_eq!(house.said_times("replica adopted"), 3);
}

#[test]
fn after_sigterm_the_same_replicas_serve_and_the_counters_go_on() {
    let mut house = House::new(2, "");
    house.run(&[], 2);
    assert_eq!(gets(house.gateway, "/", 10), vec![200; 10]);
    let (servers, before) = (house.servers(), house.metric("inflight_requests_total"));
    assert_eq!(house.end(Signal::TERM), Some(0), "{}", house.said());
    assert!(fs::exists(house.state("snapshot.json")).unwrap());
    house.run(&[], 2);
    assert_eq!(gets(house.gateway, "/", 10), vec![200; 10]);
    assert_eq!(house.servers(), servers);
    assert!(house.metric("inflight_requests_total") >= before + 10.0);
    assert!(
        !fs::exists(house.state("snapshot.json")).unwrap(),
        "it is used once"
    );
}

#[test]
fn twenty_successors_take_over_under_load_and_nobody_notices() {
    let mut house = House::new(2, "");
    house.run(&[], 2);
    let servers = house.servers();
    let load = Command::new(INFLIGHT)
        .args(["__load", "--address", &house.gateway.to_string()])
        .args(["--clients", "4", "--seconds", "20", "--path", "/?work=5ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut arrivals = 0.0;
    for _ in 0..20 {
        house.succeed(2);
        let counted = house.metric("inflight_requests_total");
        assert!(counted >= arrivals, "{counted} after {arrivals}");
        arrivals = counted;
    }
    let tally: Value = serde_json::from_slice(&load.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        (&tally["lost"], &tally["refused"]),
        (&0.into(), &0.into()),
        "{tally}"
    );
    assert!(tally["requests"].as_u64() > Some(20), "{tally}");
    assert_eq!(house.servers(), servers, "{}", house.said());
    assert_eq!(house.shims(), 2);
}

/// Says as a successor that it could start, hears what is known, and leaves after `meanwhile`.
fn leave_in_the_middle(house: &House, meanwhile: impl FnOnce()) {
    let mut stream = UnixStream::connect(house.state("take-over.sock")).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let ask = r#"{"ask":{"protocol":1,"version":"9","pid":1,"later":true}}"#;
    writeln!(stream, "{ask}").unwrap();
    let sockets = lines.next().unwrap().unwrap();
    assert!(sockets.contains("gateway"), "{sockets}");
    writeln!(stream, r#"{{"ready":{{}}}}"#).unwrap();
    assert!(lines.next().unwrap().unwrap().contains("known"));
    assert!(lines.next().unwrap().unwrap().contains("\"boot\""));
    // It has found the replicas too.
    for entry in fs::read_dir(house.state("")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("r-")
        {
            let owner = UnixStream::connect(path).unwrap();
            let hello = BufReader::new(owner).lines().next().unwrap().unwrap();
            assert!(hello.starts_with("hello "), "{hello}");
        }
    }
    meanwhile();
}

#[test]
fn a_hang_up_while_another_takes_over_does_not_cut_that_in_the_middle() {
    let mut house = House::new(1, "");
    house.run(&[], 1);
    let servers = house.servers();
    let running = house.processes.last().unwrap().id();
    leave_in_the_middle(&house, || {
        signal(running, Signal::HUP);
        // It has heard it by then.
        thread::sleep(Duration::from_millis(300));
    });
    let line = "another inflight did not take over; we go on";
    wait_until(|| house.said_times(line) == 1, "the failure");
    // It decides again: one that dies is replaced.
    signal(servers[0], Signal::KILL);
    wait_until(|| house.fleet()["crashes"] == 1, "the crash");
    house.wait_ready(1);
}

#[test]
fn a_successor_that_dies_in_the_middle_leaves_all_as_it_was() {
    let mut house = House::new(2, "");
    house.run(&[], 2);
    let servers = house.servers();
    leave_in_the_middle(&house, || ());
    let line = "another inflight did not take over; we go on";
    wait_until(|| house.said_times(line) == 1, "the failure");
    assert_eq!(gets(house.gateway, "/", 20), vec![200; 20]);
    // It still owns the replicas: one that dies is replaced, and it decides.
    signal(servers[0], Signal::KILL);
    wait_until(|| house.fleet()["crashes"] == 1, "the crash");
    house.wait_ready(2);
    let servers = house.servers();
    house.succeed(2);
    assert_eq!(house.servers(), servers);
}

#[test]
fn a_successor_whose_configuration_is_wrong_changes_nothing() {
    let mut house = House::new(1, "");
    house.run(&[], 1);
    let good = fs::read_to_string(house.scratch.path("inflight.yaml")).unwrap();
    // Somebody else's address: known only when it is bound.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let bad = good.replace(
        &house.gateway.to_string(),
        &taken.local_addr().unwrap().to_string(),
    );
    house.scratch.file("inflight.yaml", &bad);
    let code = house.command().arg("--take-over").status().unwrap().code();
    assert_eq!(code, Some(1), "{}", house.said());
    house.scratch.file("inflight.yaml", &good);
    assert_eq!(gets(house.gateway, "/", 5), vec![200; 5]);
    house.succeed(1);
}

#[test]
fn replicas_that_nobody_comes_back_for_end_after_the_grace() {
    let mut house = House::new(2, "orphan_grace: 1s");
    house.run(&[], 2);
    house.end(Signal::KILL);
    wait_until(
        || house.servers().is_empty() && house.shims() == 0,
        "nothing left",
    );
    let left: Vec<_> = fs::read_dir(house.state("")).unwrap().collect();
    let sockets = left.iter().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_str().unwrap().starts_with("r-")
    });
    assert_eq!(sockets.count(), 0, "{left:?}");
}

#[test]
fn a_second_inflight_by_accident_ends_with_1_and_says_why() {
    let mut house = House::new(1, "");
    house.run(&[], 1);
    let output = house.command().stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("another inflight runs with it"), "{said}");
    assert_eq!(gets(house.gateway, "/", 5), vec![200; 5]);
}

#[test]
fn a_damaged_snapshot_is_left_out_and_said() {
    let mut house = House::new(1, "");
    house.run(&[], 1);
    let servers = house.servers();
    assert_eq!(house.end(Signal::TERM), Some(0));
    let text = fs::read_to_string(house.state("snapshot.json")).unwrap();
    fs::write(house.state("snapshot.json"), &text[..text.len() / 2]).unwrap();
    house.run(&[], 1);
    assert!(
        house.said().contains("starting without it"),
        "{}",
        house.said()
    );
    assert_eq!(gets(house.gateway, "/", 5), vec![200; 5]);
    assert_eq!(house.servers(), servers);
}

#[test]
fn a_replica_that_ended_meanwhile_is_told_and_replaced() {
    let mut house = House::new(2, "");
    house.run(&[], 2);
    let servers = house.servers();
    house.end(Signal::KILL);
    signal(servers[0], Signal::KILL);
    wait_until(|| house.servers().len() == 1, "one left");
    house.run(&[], 2);
    assert_eq!(house.fleet()["crashes"], 1, "{}", house.said());
    assert!(house.servers().contains(&servers[1]));
    assert_eq!(gets(house.gateway, "/", 5), vec![200; 5]);
}

#[test]
fn replicas_of_a_fleet_that_is_not_configured_any_more_are_stopped() {
    let mut house = House::new(2, "");
    house.run(&[], 2);
    house.end(Signal::KILL);
    house.configure(
        "other",
        1,
        &format!("{INFLIGHT:?}, __serve, --port, \"{{port}}\""),
        "",
    );
    house.processes.push(house.command().spawn().unwrap());
    wait_until(
        || house.servers().len() == 1 && house.shims() == 1,
        "the other's",
    );
}

#[test]
fn a_replica_that_writes_much_while_nobody_reads_is_not_held_up() {
    let script = format!(
        "(sleep 0.5; while :; do head -c 200000 /dev/zero | tr '\\\\0' x; echo; date > $INFLIGHT_TEST_SCRATCH/beat; sleep 0.05; done) & exec {INFLIGHT} __serve"
    );
    let mut house = House::with_command(1, &format!("sh, -c, \"{script}\""), "");
    house.run(&[], 1);
    house.end(Signal::KILL);
    let beat = house.scratch.path("beat");
    for _ in 0..5 {
        fs::remove_file(&beat).ok();
        wait_until(|| fs::exists(&beat).unwrap(), "that it goes on writing");
    }
    let servers = house.servers();
    house.run(&[], 1);
    assert_eq!(house.servers(), servers);
}

#[test]
fn a_request_that_runs_through_a_take_over_is_answered() {
    let mut house = House::new(1, "");
    house.run(&[], 1);
    let gateway = house.gateway;
    let client = thread::spawn(move || get(gateway, "/?work=3s", PATIENCE).unwrap().0);
    wait_until(
        || house.fleet()["load"]["in_flight"] == 1.0,
        "one in flight",
    );
    house.succeed(1);
    assert_eq!(client.join().unwrap(), 200);
}

#[test]
fn a_replica_that_ends_while_the_one_taken_over_from_drains_is_no_fault_of_ours() {
    let mut house = House::new(1, "");
    house.run(&[], 1);
    let servers = house.servers();
    let client = open(house.gateway, "/?work=30s");
    wait_until(
        || house.fleet()["load"]["in_flight"] == 1.0,
        "one in flight",
    );
    house.run(&["--take-over"], 1);
    signal(servers[0], Signal::KILL);
    wait_until(|| house.fleet()["crashes"] == 1, "the crash");
    house.wait_ready(1);
    drop(client);
    assert_eq!(house.processes[0].wait().unwrap().code(), Some(0));
    assert_eq!(house.said_times("a part of ours panicked"), 0);
}

#[test]
fn replicas_are_stopped_on_exit_unless_they_are_to_be_kept() {
    let mut house = House::new(1, "");
    let text = fs::read_to_string(house.scratch.path("inflight.yaml")).unwrap();
    house.scratch.file(
        "inflight.yaml",
        &text.replace("on_exit: keep", "on_exit: stop"),
    );
    house.run(&[], 1);
    assert_eq!(house.end(Signal::TERM), Some(0));
    assert_eq!(house.servers(), Vec::<u32>::new());
    // Without replicas to keep a successor still takes the sockets over.
    house.run(&[], 1);
    house.succeed(1);
    assert_eq!(gets(house.gateway, "/", 5), vec![200; 5]);
}

#[test]
fn no_replica_goes_while_the_one_taken_over_from_has_requests() {
    let mut house = House::new(2, "");
    house.run(&[], 2);
    let gateway = house.gateway;
    let clients = thread::spawn(move || gets(gateway, "/?work=4s", 2));
    wait_until(
        || house.fleet()["load"]["in_flight"] == 2.0,
        "two in flight",
    );
    let text = fs::read_to_string(house.scratch.path("inflight.yaml")).unwrap();
    let smaller = text.replace("min: 2, max: 4", "min: 1, max: 1");
    house.scratch.file("inflight.yaml", &smaller);
    house.run(&["--take-over"], 2);
    assert_eq!(clients.join().unwrap(), vec![200; 2]);
    wait_until(|| house.servers().len() == 1, "the smaller size");
    assert_eq!(house.processes[0].wait().unwrap().code(), Some(0));
}

#[test]
fn no_replica_goes_while_one_before_the_one_taken_over_from_has_requests() {
    let mut house = House::new(2, "");
    house.run(&[], 2);
    let gateway = house.gateway;
    let clients = thread::spawn(move || gets(gateway, "/?work=5s", 2));
    wait_until(
        || house.fleet()["load"]["in_flight"] == 2.0,
        "two in flight",
    );
    house.run(&["--take-over"], 2);
    let text = fs::read_to_string(house.scratch.path("inflight.yaml")).unwrap();
    let smaller = text.replace("min: 2, max: 4", "min: 1, max: 1");
    house.scratch.file("inflight.yaml", &smaller);
    house.run(&["--take-over"], 2);
    assert_eq!(clients.join().unwrap(), vec![200; 2]);
    wait_until(|| house.servers().len() == 1, "the smaller size");
    for process in &mut house.processes[..2] {
        assert_eq!(process.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn the_same_signal_told_twice_in_one_moment_ends_nothing_at_once() {
    let mut house = House::new(1, "");
    house.run(&[], 1);
    let gateway = house.gateway;
    let client = thread::spawn(move || get(gateway, "/?work=2s", PATIENCE).unwrap().0);
    wait_until(
        || house.fleet()["load"]["in_flight"] == 1.0,
        "one in flight",
    );
    let id = house.processes[0].id();
    signal(id, Signal::TERM);
    thread::sleep(Duration::from_millis(20));
    signal(id, Signal::TERM);
    assert_eq!(client.join().unwrap(), 200);
    assert_eq!(house.processes[0].wait().unwrap().code(), Some(0));
}

#[test]
fn requests_that_wait_for_a_first_replica_go_to_the_successor_which_starts_it() {
    let mut house = House::new(0, "");
    let text = fs::read_to_string(house.scratch.path("inflight.yaml")).unwrap();
    let text = text.replace("on_exit: keep", "on_exit: stop");
    // The one that is taken over from never gets a replica that is ready.
    let command = format!("{INFLIGHT:?}, __serve, --port, \"{{port}}\"");
    let broken = text.replace(&command, "sleep, \"60\"");
    assert_ne!(text, broken);
    house.scratch.file("inflight.yaml", &broken);
    house.run(&[], 0);
    let gateway = house.gateway;
    let clients = thread::spawn(move || gets(gateway, "/", 5));
    wait_until(|| house.fleet()["load"]["queued"] == 5.0, "five waiting");
    house.scratch.file("inflight.yaml", &text);
    house.run(&["--take-over"], 1);
    assert_eq!(clients.join().unwrap(), vec![200; 5], "{}", house.said());
    assert_eq!(house.processes[0].wait().unwrap().code(), Some(0));
}
