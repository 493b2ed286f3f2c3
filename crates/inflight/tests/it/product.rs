//! The binary as its users meet it: its exit codes, its words, and the main job from end to end.

mod configuration;
pub(crate) mod instance;
mod measured;
mod published;
mod queried;
mod replay;
mod restart;
mod two_gateways;

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use inflight::story::wire::{Line, What};
use rustix::process::Signal;
use serde_json::Value;

use instance::{
    INFLIGHT, Instance, PATIENCE, Scratch, address_in, fleet, fleet_of, get, gets, signal,
    wait_until,
};

/// Runs `inflight` to its end and returns its exit code and what it said.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(INFLIGHT).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn a_wrong_configuration_ends_with_2_and_says_all_that_is_wrong() {
    let scratch = Scratch::new();
    let file = scratch.file(
        "inflight.yaml",
        r#"
version: 1
fleets:
  - name: hello
    slots: 0
    replicas: { min: 9, max: 2 }
    colour: blue
    source: { gateway: { listen: "127.0.0.1:0", timeouts: { idle: -5s } } }
    target: { process: { command: [no-such-command-anywhere, "{port}"] } }
"#,
    );
    for command in ["run", "check"] {
        let (code, said) = run(&[command, "-c", &file]);
        assert_eq!(code, Some(2), "{said}");
        let wanted = [
            "line 5",
            "slots",
            "line 6",
            "replicas",
            "line 7",
            "colour",
            "line 8",
            "-5s",
            "line 9",
            "no-such-command-anywhere",
        ];
        for word in wanted {
            assert!(said.contains(word), "{word} is not in:\n{said}");
        }
    }
}

#[test]
fn a_port_in_use_ends_with_1_and_names_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let scratch = Scratch::new();
    let text = fleet("hello", &["__serve"], "").replace("127.0.0.1:0", &address);
    let file = scratch.file("inflight.yaml", &format!("version: 1\nfleets:\n{text}"));
    let (code, said) = run(&["run", "-c", &file]);
    assert_eq!(code, Some(1), "{said}");
    let line = text
        .lines()
        .position(|line| line.contains(&address))
        .unwrap();
    let place = format!("fleet hello: line {}: ", line + 3);
    for part in [&address, &place] {
        assert!(said.contains(part.as_str()), "{part} is not in: {said}");
    }
    assert_eq!(said.matches("in use").count(), 1, "{said}");
}

#[test]
fn a_run_is_written_down_and_explained() {
    let fleets = [fleet("hello", &["__serve", "--work", "10ms"], "")];
    let mut instance = Instance::start(&fleets);
    assert_eq!(gets(instance.gateway(0), "/secret-path", 3), vec![200; 3]);
    let admin = format!("http://{}", instance.admin());
    let (code, said) = run(&["explain", "hello", "--admin", &admin]);
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "policy staffing looked at",
        "what would change it",
        "a request woke the fleet",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
    let (code, said) = run(&["explain", "nobody", "--admin", &admin]);
    assert_eq!(code, Some(1));
    assert!(said.contains("the fleets are: hello"), "{said}");

    assert_eq!(instance.terminate(), Some(0));
    let journal = instance.journal();
    let lines: Vec<Line> = journal
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(matches!(lines[0].what, What::Start { .. }));
    let has = |wanted: fn(&What) -> bool| lines.iter().any(|line| wanted(&line.what));
    assert!(has(
        |what| matches!(what, What::Replica { state, .. } if state == "ready")
    ));
    assert!(has(|what| matches!(
        what,
        What::Tick {
            decision: Some(_),
            ..
        }
    )));
    assert!(!journal.contains("secret-path") && !journal.contains("127.0.0.1"));
}

#[test]
fn two_hundred_requests_at_once_at_zero_replicas_are_all_answered() {
    let instance = Instance::start(&[fleet("hello", &["__serve", "--work", "100ms"], "")]);
    assert_eq!(gets(instance.gateway(0), "/", 200), vec![200; 200]);
}

#[test]
fn the_other_fleet_goes_on_beside_commands_that_fail_and_sizes_do_not_run_away() {
    let instance = Instance::start(&[
        fleet("good", &["__serve", "--work", "1ms"], ""),
        fleet_of(
            "exits",
            &["sh", "-c", "echo cannot load the model >&2; exit 3"],
            "min: 2, max: 4",
        ),
        fleet_of("silent", &["sleep", "600"], "min: 2, max: 4"),
    ]);
    // Demand on both, which they never meet.
    let held: Vec<_> = (1..=2)
        .flat_map(|index| (0..20).map(move |_| index))
        .map(|index| instance::open(instance.gateway(index), "/"))
        .collect();
    wait_until(
        || instance.said().contains("cannot load the model"),
        "the last log line",
    );
    wait_until(
        || instance.fleet("exits")["crashes"].as_u64() >= Some(2),
        "two crashes",
    );
    assert_eq!(gets(instance.gateway(0), "/", 20), vec![200; 20]);
    for name in ["exits", "silent"] {
        let replicas = instance.fleet(name)["replicas"].clone();
        let there = replicas["starting"].as_u64().unwrap() + replicas["ready"].as_u64().unwrap();
        assert!(there <= 4 && replicas["ready"] == 0, "{name}: {replicas}");
    }
    let crash = instance.fleet("exits")["last_crash"].clone();
    let why = crash["why"].as_str().unwrap_or_default();
    assert!(why.contains("cannot load the model"), "{crash}");
    let (_, told) = run(&["status", "--admin", &format!("http://{}", instance.admin())]);
    assert!(told.contains("cannot load the model"), "{told}");
    let said = instance.said();
    assert!(said.contains('3') && said.contains("exits"), "{said}");
    drop(held);
}

#[test]
fn sigterm_answers_what_was_accepted_and_ends_with_0() {
    let mut instance = Instance::start(&[fleet_of(
        "hello",
        &["__serve", "--work", "500ms"],
        "min: 2, max: 2",
    )]);
    wait_until(
        || instance.fleet("hello")["replicas"]["ready"] == 2,
        "two replicas",
    );
    let gateway = instance.gateway(0);
    let clients = thread::spawn(move || gets(gateway, "/", 12));
    wait_until(
        || instance.fleet("hello")["load"]["in_flight"] == 12.0,
        "12 in flight",
    );
    assert_eq!(instance.terminate(), Some(0), "{}", instance.said());
    assert_eq!(clients.join().unwrap(), vec![200; 12]);
    assert_eq!(instance.replicas(), Vec::<String>::new());
}

#[test]
fn our_own_sigkill_leaves_no_replica_behind() {
    let mut instance = Instance::start(&[fleet_of("hello", &["__serve"], "min: 3, max: 3")]);
    wait_until(
        || instance.fleet("hello")["replicas"]["ready"] == 3,
        "three replicas",
    );
    assert!(instance.replicas().len() >= 3);
    instance.kill();
    wait_until(|| instance.replicas().is_empty(), "nothing left behind");
}

#[test]
fn a_killed_replica_costs_no_get_and_a_new_one_comes() {
    let instance = Instance::start(&[fleet_of(
        "hello",
        &["__serve", "--work", "20ms"],
        "min: 2, max: 2",
    )]);
    wait_until(
        || instance.fleet("hello")["replicas"]["ready"] == 2,
        "two replicas",
    );
    let gateway = instance.gateway(0);
    let clients = thread::spawn(move || {
        // Few enough for the admission gate, which closes at three for each that is executed.
        let answers = (0..200).flat_map(|_| gets(gateway, "/", 3));
        answers.filter(|&status| status != 200).collect::<Vec<_>>()
    });
    instance.kill_a_server();
    wait_until(|| instance.fleet("hello")["crashes"] == 1, "the crash");
    wait_until(
        || instance.fleet("hello")["replicas"]["ready"] == 2,
        "two replicas again",
    );
    assert_eq!(clients.join().unwrap(), Vec::<u16>::new());
    let load = instance.fleet("hello")["load"].clone();
    for count in ["in_flight", "executing", "queued"] {
        assert_eq!(load[count], 0.0, "{load}");
    }
}

#[test]
fn the_demonstration_needs_one_replica_for_one_client_and_loses_nothing() {
    let scratch = Scratch::new();
    let summary = scratch.path("demo.json");
    let (code, said) = run(&["demo", "--json", &summary]);
    assert_eq!(code, Some(0), "{said}");
    let summary: Value = serde_json::from_str(&std::fs::read_to_string(summary).unwrap()).unwrap();
    assert_eq!(
        (&summary["lost"], &summary["refused"]),
        (&Value::from(0), &Value::from(0))
    );
    assert!(summary["requests"].as_u64() > Some(100), "{summary}");
    let phases = summary["phases"].as_array().unwrap();
    let of = |phase: usize, key: &str| phases[phase][key].as_u64().unwrap();
    assert_eq!((of(0, "clients"), of(0, "replicas_max")), (1, 1), "{said}");
    assert!((2..=6).contains(&of(1, "replicas_max")), "{said}");
    assert_eq!((of(2, "clients"), of(2, "replicas_end")), (0, 0), "{said}");
}

/// Runs behind a pipe that is read until it listens and never again, while a replica fills it.
#[test]
fn a_standard_error_that_nobody_empties_holds_up_neither_requests_nor_the_end() {
    let scratch = Scratch::new();
    let line = "x".repeat(200);
    let noisy = format!(
        "i=0; while [ $i -lt 3000 ]; do echo {line}; i=$((i+1)); done; exec {INFLIGHT} __serve --port $1"
    );
    let command = ["sh", "-c", &noisy, "sh", "{port}"];
    let fleet = fleet_of("noisy", &command, "min: 1, max: 1");
    let text = format!("version: 1\nadmin: {{ listen: \"127.0.0.1:0\" }}\nfleets:\n{fleet}");
    let file = scratch.file("inflight.yaml", &text);
    let mut process = Command::new(INFLIGHT)
        .args(["run", "-c", &file, "--log-format", "json"])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let gateway = log.find_map(|line| address_in(&line.unwrap(), "gateway listens", "listen"));
    // The replica has written ten times what a pipe holds before it answers.
    assert_eq!(gets(gateway.unwrap(), "/", 20), vec![200; 20]);
    signal(process.id(), Signal::TERM);
    let process = Mutex::new(process);
    let ended = || process.lock().unwrap().try_wait().unwrap();
    wait_until(|| ended().is_some(), "the end");
    assert_eq!(ended().and_then(|status| status.code()), Some(0));
    drop(log);
}

#[test]
fn an_idle_instance_answers_its_probes() {
    let instance = Instance::start(&[fleet("hello", &["__serve"], "")]);
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/fleets"] {
        let (status, body) = get(instance.admin(), path, PATIENCE).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
    }
}

#[test]
fn without_free_files_it_does_not_spin_and_accepts_again_once_there_are() {
    let instance = Instance::start(&[fleet_of(
        "hello",
        &["__serve", "--work", "1ms"],
        "min: 1, max: 1",
    )]);
    let gateway = instance.gateway(0);
    assert_eq!(gets(gateway, "/", 3), vec![200; 3]);
    let most = instance.files() + 10;
    instance.limit_files(most.try_into().unwrap());
    let crowd: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(gateway).unwrap())
        .collect();
    wait_until(|| instance.files() >= most, "no file is free");
    let before = instance.cpu_time();
    thread::sleep(Duration::from_secs(2));
    let used = instance.cpu_time() - before;
    assert!(used < Duration::from_millis(400), "{used:?} used in 2 s");
    drop(crowd);
    wait_until(
        || get(gateway, "/", PATIENCE).is_ok_and(|(status, _)| status == 200),
        "clients are accepted again",
    );
}

/// At the fleet's maximum there is no room for a stand-in, so nothing but its end helps.
#[test]
fn a_replica_that_hangs_gets_no_further_request_and_is_replaced() {
    let health = "    health: { path: /, every: 50ms, timeout: 500ms, restart_after: 1s }";
    let mut instance = Instance::start(&[
        fleet("hello", &["__serve"], health).replace("min: 0, max: 4", "min: 2, max: 2")
    ]);
    let replicas = |state: &str| instance.fleet("hello")["replicas"][state].clone();
    wait_until(|| replicas("ready") == 2, "two replicas");
    instance.stop_a_server();
    wait_until(|| replicas("unhealthy") == 1, "it is found out");
    assert_eq!(gets(instance.gateway(0), "/", 40), vec![200; 40]);
    wait_until(|| instance.fleet("hello")["crashes"] == 1, "it is ended");
    wait_until(
        || replicas("ready") == 2 && replicas("unhealthy") == 0,
        "its successor",
    );
    let said = instance.said();
    assert!(said.contains("failed 3 checks in a row"), "{said}");
    assert!(said.contains("unhealthy for too long"), "{said}");
    assert_eq!(instance.terminate(), Some(0));
}

#[test]
fn a_replica_that_hangs_has_a_stand_in_where_there_is_room() {
    let health = "    health: { path: /, every: 50ms, timeout: 500ms, restart_after: off }";
    let instance = Instance::start(&[
        fleet("hello", &["__serve"], health).replace("min: 0, max: 4", "min: 2, max: 4")
    ]);
    let replicas = |state: &str| instance.fleet("hello")["replicas"][state].clone();
    wait_until(|| replicas("ready") == 2, "two replicas");
    instance.stop_a_server();
    wait_until(
        || replicas("unhealthy") == 1 && replicas("ready") == 2,
        "a stand-in",
    );
    assert_eq!(instance.fleet("hello")["crashes"], 0);
    assert_eq!(gets(instance.gateway(0), "/", 40), vec![200; 40]);
}
