//! Target `process` beside Envoy: what the file of endpoints says as replicas come and go, and when
//! these are ended, with real processes and an Envoy that is played.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::instance::{INFLIGHT, Instance, Scratch, configuration, wait_until};

/// An Envoy that reads the file at each question, has requests where it is told to, and may hang.
#[derive(Clone)]
struct Envoy {
    admin: SocketAddr,
    played: Arc<Played>,
}

#[derive(Default)]
struct Played {
    file: Mutex<PathBuf>,
    /// Requests that it has, by port; those that are not there have none.
    in_flight: Mutex<BTreeMap<u16, u32>>,
    hangs: AtomicBool,
    /// Answers about the endpoints so far.
    answered: Mutex<u64>,
}

impl Envoy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let envoy = Self {
            admin: listener.local_addr().unwrap(),
            played: Arc::default(),
        };
        let played = Arc::clone(&envoy.played);
        // Ends with the test binary.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let played = Arc::clone(&played);
                thread::spawn(move || played.serve(stream.unwrap()));
            }
        });
        envoy
    }

    fn has(&self, port: u16, requests: u32) {
        locked(&self.played.in_flight).insert(port, requests);
    }

    fn hangs(&self, hangs: bool) {
        self.played.hangs.store(hangs, Ordering::SeqCst);
    }

    /// Waits until it was asked some times more.
    fn is_asked(&self) {
        let before = *locked(&self.played.answered);
        wait_until(
            || *locked(&self.played.answered) > before + 5,
            "it is asked",
        );
    }
}

impl Played {
    fn serve(&self, stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(line)) = lines.next() {
            let Some(path) = line.strip_prefix("GET ") else {
                continue;
            };
            while self.hangs.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(10));
            }
            let body = if path.starts_with("/clusters?format=json&filter=%5Ec%24 ") {
                *locked(&self.answered) += 1;
                self.clusters()
            } else {
                self.stats()
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            if (&stream)
                .write_all(format!("{head}{body}").as_bytes())
                .is_err()
            {
                return;
            }
        }
    }

    fn clusters(&self) -> String {
        let in_flight = locked(&self.in_flight);
        let host = |(port, health): (u16, String)| {
            let mut active = json!({"name": "rq_active", "type": "GAUGE"});
            if let Some(count) = in_flight.get(&port).filter(|&&count| count > 0) {
                active["value"] = count.to_string().into();
            }
            json!({
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                "stats": [active],
                "health_status": {"eds_health_status": health},
            })
        };
        let hosts: Vec<Value> = listed(&locked(&self.file)).into_iter().map(host).collect();
        json!({"cluster_statuses": [{"name": "c", "host_statuses": hosts}]}).to_string()
    }

    fn stats(&self) -> String {
        let healthy = listed(&locked(&self.file));
        let healthy = healthy.values().filter(|it| *it == "HEALTHY").count();
        let row = |name: &str, value: usize| {
            format!("envoy_cluster_{name}{{envoy_cluster_name=\"c\"}} {value}\n")
        };
        row("membership_healthy", healthy)
            + &row("upstream_rq_active", 0)
            + &row("upstream_rq_pending_active", 0)
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap()
}

/// What the file says of each port; a file that is not whole fails the test.
fn listed(file: &PathBuf) -> BTreeMap<u16, String> {
    let Ok(text) = fs::read_to_string(file) else {
        return BTreeMap::new();
    };
    let file: Value = serde_json::from_str(&text).unwrap();
    let resource = &file["resources"][0];
    assert_eq!(
        resource["@type"],
        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    );
    assert_eq!(resource["cluster_name"], "c");
    let endpoints = resource["endpoints"][0]["lb_endpoints"].as_array().unwrap();
    let endpoint = |one: &Value| {
        let socket = &one["endpoint"]["address"]["socket_address"];
        assert_eq!(socket["address"], "127.0.0.1");
        let port = u16::try_from(socket["port_value"].as_u64().unwrap()).unwrap();
        (port, one["health_status"].as_str().unwrap().to_owned())
    };
    endpoints.iter().map(endpoint).collect()
}

/// A fleet whose replicas an Envoy is told of.
struct Scene {
    envoy: Envoy,
    file: PathBuf,
    targets: PathBuf,
    instance: Instance,
    scratch: Scratch,
}

fn fleet(envoy: &Envoy, scratch: &Scratch, more: &str) -> String {
    format!(
        r#"
  - name: told
    slots: 1
    replicas: {{ min: 1, max: 4 }}
    source:
      envoy:
        admin: ["http://{}"]
        cluster: c
        every: 100ms
        timeout: 500ms
        backend: {{ triton: {{ port: metrics }} }}
    target:
      process:
        command: [{INFLIGHT:?}, __serve, --port, "{{port}}"]
        env: {{ METRICS: "{{port.metrics}}" }}
        ports: [metrics]
        stop_grace: 1s
        {more}
        publish:
          envoy: {{ file: {:?} }}
          prometheus: {{ file: {:?}, port: metrics }}
"#,
        envoy.admin,
        scratch.path("endpoints.json"),
        scratch.path("targets.json"),
    )
}

impl Scene {
    fn start(replicas: u32, more: &str) -> Self {
        let (envoy, scratch) = (Envoy::start(), Scratch::new());
        let file = PathBuf::from(scratch.path("endpoints.json"));
        locked(&envoy.played.file).clone_from(&file);
        let instance = Instance::start(&[fleet(&envoy, &scratch, more)]);
        let scene = Self {
            envoy,
            file,
            targets: PathBuf::from(scratch.path("targets.json")),
            instance,
            scratch,
        };
        scene.resize(replicas);
        scene.are_healthy(replicas);
        scene
    }

    fn are_healthy(&self, replicas: u32) {
        let all = usize::try_from(replicas).unwrap();
        self.wait("all are healthy", |listed| {
            listed.len() == all && listed.values().all(|it| it == "HEALTHY")
        });
    }

    fn listed(&self) -> BTreeMap<u16, String> {
        listed(&self.file)
    }

    fn ports(&self) -> Vec<u16> {
        self.listed().into_keys().collect()
    }

    fn wait(&self, what: &str, holds: impl Fn(&BTreeMap<u16, String>) -> bool) {
        wait_until(|| holds(&self.listed()), what);
    }

    /// Whether the replica at a port still runs.
    fn runs(&self, port: u16) -> bool {
        let marked = format!("--port {port}");
        let replicas = self.instance.replicas();
        (replicas.iter()).any(|command| !command.contains("__replica") && command.contains(&marked))
    }

    fn resize(&self, replicas: u32) {
        let mut stream = TcpStream::connect(self.instance.admin()).unwrap();
        let body = json!({"replicas": replicas, "for": "1h"}).to_string();
        write!(
            stream,
            "PUT /api/v1/fleets/told/size HTTP/1.0\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Nothing is left to wait for.
        locked(&self.envoy.played.in_flight).clear();
        self.envoy.hangs(false);
    }
}

#[test]
fn b60_the_replica_with_least_in_flight_goes_and_is_ended_once_envoy_has_nothing_there() {
    let scene = Scene::start(2, "");
    let targets = || -> Value {
        let text = fs::read(&scene.targets).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let count = || targets().as_array().unwrap().len();
    wait_until(|| count() == 2, "both are to be scraped");
    let targets = targets();
    assert_eq!(
        targets[0]["labels"],
        json!({"fleet": "told", "replica": "0"})
    );
    let ports = scene.ports();
    let scraped = targets[0]["targets"][0].as_str().unwrap().to_owned();
    let own = |port: &u16| scraped.ends_with(&format!(":{port}"));
    assert!(!ports.iter().any(own), "{scraped} is a port of its own");

    // The youngest would go if they were alike.
    scene.envoy.has(ports[0], 1);
    scene.envoy.has(ports[1], 5);
    scene.envoy.is_asked();
    scene.resize(1);
    scene.wait("one drains", |listed| listed[&ports[0]] == "DRAINING");
    assert_eq!(scene.listed()[&ports[1]], "HEALTHY");
    scene.envoy.is_asked();
    assert!(scene.runs(ports[0]));
    // While it says nothing what it has is unknown, and no reason to end the replica.
    scene.envoy.hangs(true);
    scene.envoy.has(ports[0], 0);
    thread::sleep(Duration::from_millis(700));
    assert!(scene.runs(ports[0]));
    assert_eq!(scene.listed()[&ports[0]], "DRAINING");
    scene.envoy.hangs(false);
    wait_until(|| !scene.runs(ports[0]), "it is ended");
    assert_eq!(scene.ports(), [ports[1]]);
    assert_eq!(scene.instance.fleet("told")["crashes"], 0);
}

#[test]
fn a_replica_that_is_wanted_again_while_it_drains_is_told_of_as_healthy() {
    let scene = Scene::start(2, "");
    let ports = scene.ports();
    scene.envoy.has(ports[0], 1);
    scene.envoy.has(ports[1], 2);
    scene.envoy.is_asked();
    scene.resize(1);
    scene.wait("one drains", |listed| listed[&ports[0]] == "DRAINING");
    scene.resize(2);
    scene.are_healthy(2);
    scene.envoy.has(ports[0], 0);
    scene.envoy.is_asked();
    assert_eq!(scene.ports(), ports);
    assert!(scene.runs(ports[0]) && scene.runs(ports[1]));
}

#[test]
fn a_drain_that_takes_too_long_ends_the_replica_after_it_is_out_of_the_file() {
    let scene = Scene::start(2, "drain_timeout: 300ms");
    let ports = scene.ports();
    ports.iter().for_each(|&port| scene.envoy.has(port, 3));
    scene.envoy.is_asked();
    scene.resize(1);
    scene.wait("it is out of the file", |listed| listed.len() == 1);
    let left = scene.ports();
    let gone = ports.iter().find(|port| !left.contains(port)).unwrap();
    wait_until(|| !scene.runs(*gone), "it is ended");
    let said = scene.instance.said();
    assert!(said.contains("Envoy has 3 requests there"), "{said}");
}

#[test]
fn a_replica_that_crashes_is_out_of_the_file_and_another_takes_its_place() {
    let scene = Scene::start(1, "");
    let before = scene.ports();
    scene.instance.kill_a_server();
    scene.wait("it is out of the file", |listed| {
        !listed.contains_key(&before[0])
    });
    scene.are_healthy(1);
    let crashes = || scene.instance.fleet("told")["crashes"].clone();
    wait_until(|| crashes() == 1, "it is counted");
}

#[test]
fn at_our_end_every_replica_drains_and_the_file_stays_without_endpoints() {
    let mut scene = Scene::start(2, "");
    let ports = scene.ports();
    scene.envoy.has(ports[1], 1);
    scene.envoy.is_asked();
    scene.instance.signal(Signal::TERM);
    scene.wait("one is gone", |listed| listed.len() == 1);
    assert_eq!(scene.listed()[&ports[1]], "DRAINING");
    scene.envoy.is_asked();
    assert!(scene.runs(ports[1]));
    scene.envoy.has(ports[1], 0);
    assert_eq!(scene.instance.ended(), Some(0), "{}", scene.instance.said());
    assert!(scene.file.exists());
    assert_eq!(scene.listed(), BTreeMap::new());
}

#[test]
fn a_file_that_cannot_be_written_is_told_and_written_as_soon_as_it_can_be() {
    let scene = Scene::start(1, "");
    let unwritten = || scene.instance.fleet("told")["unwritten"].clone();
    assert_eq!(unwritten(), json!({}));
    // A folder in its place: nothing can be renamed over it.
    fs::remove_file(&scene.file).unwrap();
    fs::create_dir(&scene.file).unwrap();
    scene.resize(2);
    wait_until(|| unwritten() != json!({}), "it is told");
    let ready = || scene.instance.fleet("told")["replicas"]["ready"] == 2;
    wait_until(ready, "the replicas are what they are to be");
    fs::remove_dir(&scene.file).unwrap();
    scene.are_healthy(2);
    wait_until(|| unwritten() == json!({}), "it is written");
    let said = scene.instance.said();
    assert_eq!(
        said.matches("a file that others read cannot be written")
            .count(),
        1
    );
}

#[test]
fn how_often_envoys_are_asked_what_they_have_changes_at_a_reload() {
    let scene = Scene::start(1, "");
    let text = configuration(&[fleet(&scene.envoy, &scene.scratch, "")]);
    let changes = || {
        scene
            .instance
            .said()
            .matches("configuration changed")
            .count()
    };
    scene
        .instance
        .rewrite(&text.replace("every: 100ms", "every: 10s"));
    scene.instance.signal(Signal::HUP);
    wait_until(|| changes() == 1, "it is in force");
    let asked = || *locked(&scene.envoy.played.answered);
    let before = asked();
    thread::sleep(Duration::from_secs(1));
    assert!(asked() <= before + 2, "asked anew, and then not for long");
    scene.instance.rewrite(&text);
    scene.instance.signal(Signal::HUP);
    scene.envoy.is_asked();
}

#[test]
fn what_cannot_be_written_at_our_start_refuses_it() {
    let (envoy, scratch) = (Envoy::start(), Scratch::new());
    let text = fleet(&envoy, &scratch, "").replace("endpoints.json", "none/endpoints.json");
    let file = scratch.file("inflight.yaml", &configuration(&[text]));
    let (code, said) = super::run(&["run", "-c", &file]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("there is no such folder"), "{said}");
}

#[test]
fn a_file_is_the_same_as_long_as_its_fleet_runs_and_is_written_for_no_other() {
    let scene = Scene::start(1, "");
    let text = configuration(&[fleet(&scene.envoy, &scene.scratch, "")]);
    for (from, to, why) in [
        (
            "endpoints.json",
            "others.json",
            "cannot change while the fleet runs",
        ),
        (
            "name: told",
            "name: other",
            "is written for a fleet that is removed",
        ),
    ] {
        scene.instance.rewrite(&text.replace(from, to));
        scene.instance.signal(Signal::HUP);
        wait_until(|| scene.instance.said().contains(why), why);
    }
    scene.are_healthy(1);
}

#[test]
fn a_change_that_is_refused_leaves_no_file_of_endpoints_behind() {
    let scene = Scene::start(1, "");
    // Its other file is the running fleet's.
    let text = configuration(&[fleet(&scene.envoy, &scene.scratch, "")])
        .replace("name: told", "name: other")
        .replace("endpoints.json", "fresh.json");
    scene.instance.rewrite(&text);
    scene.instance.signal(Signal::HUP);
    let why = "is written for a fleet that is removed";
    wait_until(|| scene.instance.said().contains(why), why);
    assert!(!PathBuf::from(scene.scratch.path("fresh.json")).exists());
}

#[test]
fn nobody_takes_over_replicas_that_end_with_us_while_envoy_sends_them_requests() {
    let (envoy, scratch) = (Envoy::start(), Scratch::new());
    let file = PathBuf::from(scratch.path("endpoints.json"));
    locked(&envoy.played.file).clone_from(&file);
    let state = format!("state: {{ dir: {:?} }}\n", scratch.path("state"));
    let ends = fleet(&envoy, &scratch, "") + &state;
    let scene = Scene {
        instance: Instance::start(std::slice::from_ref(&ends)),
        envoy,
        file,
        targets: PathBuf::from(scratch.path("targets.json")),
        scratch,
    };
    scene.are_healthy(1);
    let ports = scene.ports();
    scene.envoy.has(ports[0], 1);
    // Whatever the successor would do with its own.
    let keeps = fleet(&scene.envoy, &scene.scratch, "on_exit: keep") + &state;
    for successor in [ends, keeps] {
        let text = configuration(&[successor]);
        let file = scene.scratch.file("successor.yaml", &text);
        let output = Command::new("timeout")
            .args(["30", INFLIGHT, "run", "-c", &file, "--take-over"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("use `on_exit: keep`"), "{said}");
        scene.are_healthy(1);
        assert_eq!(scene.ports(), ports);
    }
    // It still decides, and writes.
    scene.resize(2);
    scene.are_healthy(2);
}

/// Replicas that stay when we end; nobody is left of them soon after the test.
fn kept(envoy: &Envoy, scratch: &Scratch) -> String {
    let fleet = fleet(envoy, scratch, "on_exit: keep\n        orphan_grace: 5s");
    format!("{fleet}state: {{ dir: {:?} }}\n", scratch.path("state"))
}

#[test]
fn replicas_that_are_kept_stay_in_the_file_over_a_restart_without_an_empty_moment() {
    passes_on(|first, fleet| {
        assert_eq!(first.terminate(), Some(0), "{}", first.said());
        Instance::start(fleet)
    });
}

#[test]
fn a_successor_that_takes_over_goes_on_with_the_file_without_an_empty_moment() {
    passes_on(|first, fleet| {
        let second = Instance::take_over(fleet);
        assert_eq!(first.ended(), Some(0), "{}", first.said());
        second
    });
}

/// Lets another process of ours go on, and holds that the file says the same all the time.
fn passes_on(pass_on: impl FnOnce(&mut Instance, &[String]) -> Instance) {
    let (envoy, scratch) = (Envoy::start(), Scratch::new());
    let file = PathBuf::from(scratch.path("endpoints.json"));
    locked(&envoy.played.file).clone_from(&file);
    let fleet = [kept(&envoy, &scratch)];
    let mut scene = Scene {
        instance: Instance::start(&fleet),
        envoy,
        file: file.clone(),
        targets: PathBuf::from(scratch.path("targets.json")),
        scratch,
    };
    scene.resize(3);
    scene.are_healthy(3);
    let ports = scene.ports();
    let is_over = Arc::new(AtomicBool::new(false));
    let (is_seen, seen) = (Arc::clone(&is_over), ports.clone());
    let watcher = thread::spawn(move || {
        while !is_seen.load(Ordering::SeqCst) {
            let listed = listed(&file);
            assert_eq!(listed.keys().copied().collect::<Vec<_>>(), seen);
            assert!(listed.values().all(|it| it == "HEALTHY"), "{listed:?}");
            thread::sleep(Duration::from_millis(1));
        }
    });
    let second = pass_on(&mut scene.instance, &fleet);
    let ready = || second.fleet("told")["replicas"]["ready"] == 3;
    wait_until(ready, "the successor has them");
    is_over.store(true, Ordering::SeqCst);
    watcher.join().unwrap();
    // It is the successor's from here on: a replica that dies is out of it.
    scene.instance.kill_a_server();
    scene.wait("one is out of it", |listed| {
        ports.iter().any(|port| !listed.contains_key(port))
    });
    wait_until(|| second.fleet("told")["crashes"] == 1, "it is counted");
}
