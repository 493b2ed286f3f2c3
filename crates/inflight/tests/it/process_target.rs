//! The process target against real processes.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inflight::clock::Clock;
use inflight::ports::{ReplicaChange, TargetCommand, TargetEvent};
use inflight::probe::Probe;
use inflight::targets::process::{ProcessConfig, ProcessHost, ProcessSettings, ProcessTarget};
use inflight::telemetry::Printer;
use inflight_core::{ReplicaId, Replicas};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

const INFLIGHT: &str = env!("CARGO_BIN_EXE_inflight");

/// Long enough for any machine; nothing here waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// What replicas wrote, as we would print it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits for a line that begins so, and returns the rest of it.
    async fn line(&self, begin: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            // The last piece may be a line that is still being written.
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(begin)) {
                return rest.to_owned();
            }
            assert!(Instant::now() < end, "no line '{begin}' in:\n{text}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

struct Fleet {
    commands: mpsc::Sender<TargetCommand>,
    events: mpsc::Receiver<TargetEvent>,
    target: ProcessTarget,
    log: Log,
}

impl Fleet {
    fn start(settings: ProcessSettings) -> Self {
        let log = Log::default();
        let mut host = ProcessHost::new(Clock::start(), Printer::to(log.clone()));
        host.program = PathBuf::from(INFLIGHT);
        let config = ProcessConfig::check(settings).unwrap();
        let (commands, received) = mpsc::channel(16);
        let (tell, events) = mpsc::channel(16);
        let target = ProcessTarget::start(config, host, Vec::new(), received, tell);
        Self {
            commands,
            events,
            target,
            log,
        }
    }

    async fn size(&self, desired: u32, drain: &[ReplicaId]) {
        let desired = Replicas::new(desired);
        self.commands
            .send(TargetCommand::Size {
                desired,
                drain: drain.to_vec(),
            })
            .await
            .unwrap();
    }

    async fn event(&mut self) -> TargetEvent {
        timeout(PATIENCE, self.events.recv())
            .await
            .expect("an event")
            .expect("a running target")
    }

    /// Returns the next event that is not that a replica starts.
    async fn change(&mut self) -> TargetEvent {
        loop {
            let event = self.event().await;
            if event.change != ReplicaChange::Starting {
                return event;
            }
        }
    }

    /// Sizes the fleet to one and waits until that one is ready.
    async fn one_ready(&mut self) -> TargetEvent {
        self.size(1, &[]).await;
        let event = self.change().await;
        assert!(is_ready(&event), "{event:?}");
        event
    }

    /// Returns why a replica crashed; the next change has to be that.
    async fn crash(&mut self) -> String {
        let event = self.change().await;
        let ReplicaChange::Gone {
            why,
            unexpected: true,
        } = event.change
        else {
            panic!("no crash: {event:?}");
        };
        why
    }

    async fn stop(self) -> Vec<TargetEvent> {
        self.commands.send(TargetCommand::Stop).await.unwrap();
        let mut events = self.events;
        let mut told = Vec::new();
        while let Some(event) = timeout(PATIENCE, events.recv()).await.expect("the end") {
            told.push(event);
        }
        timeout(PATIENCE, self.target.stopped())
            .await
            .expect("the end")
            .unwrap();
        told
    }
}

fn settings(command: &[&str]) -> ProcessSettings {
    let command = command.iter().map(|part| (*part).to_owned()).collect();
    ProcessSettings::new("hello".to_owned(), command, Replicas::new(4))
}

fn server() -> ProcessSettings {
    let mut settings = settings(&[INFLIGHT, "__serve"]);
    settings.ready = Probe::Http {
        path: "/healthz".to_owned(),
    };
    settings
}

/// A shell script, ended by the built-in server unless it does not get so far.
fn script(text: &str) -> ProcessSettings {
    let mut settings = settings(&["sh", "-c", &format!("{text}\nexec {INFLIGHT} __serve")]);
    settings.ready = Probe::Http {
        path: "/healthz".to_owned(),
    };
    settings
}

fn is_ready(event: &TargetEvent) -> bool {
    matches!(event.change, ReplicaChange::Ready { took: Some(_) })
}

fn is_gone_as_asked(event: &TargetEvent) -> bool {
    matches!(
        event.change,
        ReplicaChange::Gone {
            unexpected: false,
            ..
        }
    )
}

async fn get(event: &TargetEvent, path: &str) -> String {
    let mut stream = TcpStream::connect(event.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .expect("an answer")
        .unwrap();
    answer
}

/// Waits until a process is no more.
async fn assert_ends(pid: i32) {
    let end = Instant::now() + PATIENCE;
    while runs(pid) {
        assert!(Instant::now() < end, "process {pid} still runs");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process runs; one that has ended and is not reaped does not.
fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ")
        .unwrap()
        .1
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn replicas_get_a_port_and_a_number_each_drain_and_end() {
    let mut fleet = Fleet::start(server());
    fleet.size(2, &[]).await;
    let (first, second) = (fleet.event().await, fleet.event().await);
    assert_eq!((first.index, second.index), (0, 1));
    assert_eq!(
        (&first.change, &second.change),
        (&ReplicaChange::Starting, &ReplicaChange::Starting)
    );
    assert_ne!(first.address, second.address);
    for _ in 0..2 {
        let ready = fleet.event().await;
        assert!(is_ready(&ready), "{ready:?}");
        let own = format!("\"replica\":{}", ready.index);
        assert!(get(&ready, "/").await.contains(&own));
    }
    fleet.size(1, &[first.replica]).await;
    let draining = fleet.event().await;
    assert_eq!(
        (draining.replica, draining.change),
        (first.replica, ReplicaChange::Draining)
    );
    fleet
        .commands
        .send(TargetCommand::Drained(first.replica))
        .await
        .unwrap();
    let gone = fleet.event().await;
    assert!(
        gone.replica == first.replica && is_gone_as_asked(&gone),
        "{gone:?}"
    );
    assert!(
        TcpStream::connect(first.address).await.is_err(),
        "nobody listens there any more"
    );
    assert!(get(&second, "/").await.contains("\"replica\":1"));
    let told = fleet.stop().await;
    assert!(
        told.iter()
            .any(|event| event.replica == second.replica && is_gone_as_asked(event))
    );
    let is_crash = |event: &TargetEvent| matches!(&event.change, ReplicaChange::Gone { unexpected, .. } if *unexpected);
    assert!(!told.iter().any(is_crash), "{told:?}");
}

#[tokio::test]
async fn a_grpc_server_is_asked_through_its_health_service() {
    let mut settings = server();
    settings.ready = Probe::Grpc {
        service: "inference.GRPCInferenceService".to_owned(),
    };
    let mut fleet = Fleet::start(settings);
    fleet.one_ready().await;
    fleet.stop().await;
}

#[tokio::test]
async fn a_tcp_server_is_ready_when_it_accepts() {
    let mut settings = server();
    settings.ready = Probe::Tcp;
    let mut fleet = Fleet::start(settings);
    fleet.one_ready().await;
    fleet.stop().await;
}

#[tokio::test]
async fn a_replica_knows_its_port_and_number_and_its_lines_are_told_apart() {
    let mut settings = script("echo \"port $PORT {port} replica $INFLIGHT_REPLICA gpu $GPU\" >&2");
    settings
        .env
        .insert("GPU".to_owned(), "{replica}".to_owned());
    let mut fleet = Fleet::start(settings);
    let ready = fleet.one_ready().await;
    let port = ready.address.port();
    let line = fleet.log.line("hello/0 | port ").await;
    assert_eq!(line, format!("{port} {port} replica 0 gpu 0"));
    fleet.stop().await;
}

#[tokio::test]
async fn a_command_that_exits_at_once_says_why_and_does_not_run_away() {
    let mut fleet = Fleet::start(script("echo boom >&2; exit 3"));
    fleet.size(2, &[]).await;
    for _ in 0..4 {
        let why = fleet.crash().await;
        assert!(why.contains("exited with code 3"), "{why}");
        assert!(why.contains("it last wrote: boom"), "{why}");
        assert!(why.contains("not ready"), "{why}");
    }
    let told = fleet.stop().await;
    let starts = told
        .iter()
        .filter(|event| event.change == ReplicaChange::Starting)
        .count();
    assert!(starts <= 4, "{told:?}");
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_a_crash() {
    let mut fleet = Fleet::start(settings(&["/nowhere/server", "--port", "{port}"]));
    fleet.size(1, &[]).await;
    let why = fleet.crash().await;
    assert!(
        why.contains("code 127") && why.contains("cannot run /nowhere/server"),
        "{why}"
    );
    fleet.stop().await;
}

#[tokio::test]
async fn a_shim_that_cannot_start_is_a_crash() {
    let mut host = ProcessHost::new(Clock::start(), Printer::to(io::sink()));
    host.program = PathBuf::from("/nowhere/inflight");
    let (commands, received) = mpsc::channel(16);
    let (tell, events) = mpsc::channel(16);
    let target = ProcessTarget::start(
        ProcessConfig::check(server()).unwrap(),
        host,
        Vec::new(),
        received,
        tell,
    );
    let mut fleet = Fleet {
        commands,
        events,
        target,
        log: Log::default(),
    };
    fleet.size(1, &[]).await;
    let why = fleet.crash().await;
    assert!(why.contains("cannot start its shim"), "{why}");
    fleet.stop().await;
}

#[tokio::test]
async fn a_replica_that_is_never_ready_is_stopped_and_says_what_it_answered() {
    let mut settings = settings(&["sleep", "600"]);
    settings.start_timeout = Duration::from_millis(300);
    let mut fleet = Fleet::start(settings);
    fleet.size(1, &[]).await;
    let why = fleet.crash().await;
    assert!(
        why.starts_with("not ready within 300ms and stopped"),
        "{why}"
    );
    assert!(why.contains("no connection"), "{why}");
    fleet.stop().await;
}

#[tokio::test]
async fn a_replica_that_answers_with_an_error_is_not_ready() {
    let mut settings = server();
    settings.ready = Probe::Http {
        path: "/?status=503".to_owned(),
    };
    settings.start_timeout = Duration::from_secs(4);
    let mut fleet = Fleet::start(settings);
    fleet.size(1, &[]).await;
    let why = fleet.crash().await;
    // On a machine that is very busy it may not have come to listen.
    assert!(
        why.contains("HTTP status 503") || why.contains("no connection"),
        "{why}"
    );
    fleet.stop().await;
}

#[tokio::test]
async fn a_ready_replica_that_dies_is_replaced_with_the_same_number() {
    let mut fleet = Fleet::start(script("echo pid $$"));
    let ready = fleet.one_ready().await;
    let pid = fleet.log.line("hello/0 | pid ").await.parse().unwrap();
    send(pid, Signal::KILL);
    let why = fleet.crash().await;
    assert!(why.contains("signal 9"), "{why}");
    let again = fleet.change().await;
    assert!(
        is_ready(&again) && again.index == 0 && again.replica != ready.replica,
        "{again:?}"
    );
    fleet.stop().await;
}

#[tokio::test]
async fn a_draining_replica_is_taken_back_with_its_process() {
    let mut fleet = Fleet::start(server());
    let ready = fleet.one_ready().await;
    assert!(get(&ready, "/").await.contains("\"executed\":1"));
    fleet.size(0, &[ready.replica]).await;
    assert_eq!(fleet.event().await.change, ReplicaChange::Draining);
    fleet.size(1, &[]).await;
    let back = fleet.event().await;
    assert_eq!(
        (back.replica, back.change),
        (ready.replica, ReplicaChange::Ready { took: None })
    );
    assert!(get(&ready, "/").await.contains("\"executed\":2"));
    fleet.stop().await;
}

#[tokio::test]
async fn a_replica_that_is_deaf_to_sigterm_is_killed_after_the_grace() {
    let mut settings = script("trap '' TERM; echo pid $$");
    // The built-in server would hear it again.
    settings.command[2] =
        format!("{INFLIGHT} __serve & trap '' TERM; echo pid $$; while :; do sleep 1; done");
    settings.stop_grace = Duration::from_millis(200);
    settings.drain_timeout = Duration::from_millis(100);
    let mut fleet = Fleet::start(settings);
    fleet.one_ready().await;
    let pid = fleet.log.line("hello/0 | pid ").await.parse().unwrap();
    fleet.size(0, &[]).await;
    assert_eq!(fleet.event().await.change, ReplicaChange::Draining);
    let gone = fleet.event().await;
    let ReplicaChange::Gone {
        why,
        unexpected: false,
    } = gone.change
    else {
        panic!("{gone:?}")
    };
    assert!(why.contains("signal 9"), "{why}");
    assert!(!runs(pid));
    fleet.stop().await;
}

/// Prints the ids of the shell, of a child in its group, and of a daemon that left it.
const FAMILY: &str = "sleep 600 & echo child $!; setsid sleep 601 & echo daemon $!; echo pid $$";

async fn family(log: &Log) -> [i32; 3] {
    let mut pids = [0; 3];
    for (pid, name) in pids.iter_mut().zip(["child", "daemon", "pid"]) {
        *pid = log
            .line(&format!("hello/0 | {name} "))
            .await
            .parse()
            .unwrap();
    }
    pids
}

#[tokio::test]
async fn what_a_replica_started_ends_with_it_even_a_daemon() {
    let mut fleet = Fleet::start(script(FAMILY));
    fleet.one_ready().await;
    let [child, daemon, pid] = family(&fleet.log).await;
    assert!(runs(child) && runs(daemon) && runs(pid));
    send(pid, Signal::KILL);
    let why = fleet.crash().await;
    assert!(why.contains("signal 9"), "{why}");
    assert!(
        !runs(child) && !runs(daemon) && !runs(pid),
        "all are gone when that is told"
    );
    fleet.stop().await;
}

#[tokio::test]
async fn a_replica_ends_with_its_shim() {
    let mut fleet = Fleet::start(script("sleep 600 & echo child $!; echo pid $$"));
    fleet.one_ready().await;
    let child = fleet.log.line("hello/0 | child ").await.parse().unwrap();
    let pid = fleet.log.line("hello/0 | pid ").await.parse().unwrap();
    send(parent_of(pid), Signal::KILL);
    let why = fleet.crash().await;
    assert!(why.contains("shim"), "{why}");
    assert_ends(pid).await;
    assert_ends(child).await;
    let again = fleet.change().await;
    assert!(is_ready(&again), "{again:?}");
    fleet.stop().await;
}

#[tokio::test]
async fn a_shim_survives_the_signals_of_a_service_manager_and_has_its_own_name() {
    let mut fleet = Fleet::start(script("echo pid $$"));
    let ready = fleet.one_ready().await;
    let pid = fleet.log.line("hello/0 | pid ").await.parse().unwrap();
    let shim = parent_of(pid);
    let name = std::fs::read_to_string(format!("/proc/{shim}/comm")).unwrap();
    assert_eq!(name.trim(), "replica-0");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        send(shim, signal);
    }
    assert!(get(&ready, "/?work=100ms").await.contains("\"executed\":1"));
    assert!(runs(shim));
    let told = fleet.stop().await;
    assert!(told.iter().any(is_gone_as_asked), "{told:?}");
}

#[tokio::test]
async fn a_target_whose_commands_end_stops_everything() {
    let mut fleet = Fleet::start(script("echo pid $$"));
    fleet.one_ready().await;
    let pid = fleet.log.line("hello/0 | pid ").await.parse().unwrap();
    drop(fleet.commands);
    timeout(PATIENCE, fleet.target.stopped())
        .await
        .expect("the end")
        .unwrap();
    assert!(!runs(pid));
}

#[tokio::test]
async fn a_target_whose_events_nobody_hears_stops_everything() {
    let mut fleet = Fleet::start(script("echo pid $$"));
    fleet.one_ready().await;
    let pid = fleet.log.line("hello/0 | pid ").await.parse().unwrap();
    drop(fleet.events);
    timeout(PATIENCE, fleet.target.stopped())
        .await
        .expect("the end")
        .unwrap();
    assert!(!runs(pid));
}

/// Our SIGKILL closes the channel, as the end of a runtime does.
#[test]
fn nothing_is_left_when_the_owner_is_gone() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let owner = runtime();
    let (pids, log) = owner.block_on(async {
        let mut fleet = Fleet::start(script(FAMILY));
        fleet.one_ready().await;
        (family(&fleet.log).await, fleet.log.clone())
    });
    drop(owner);
    runtime().block_on(async {
        for pid in pids {
            assert_ends(pid).await;
        }
    });
    drop(log);
}

/// The same with the shim alone, and a command that is deaf to SIGTERM.
#[tokio::test]
async fn a_shim_whose_channel_closes_kills_what_does_not_end() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let text = "trap '' TERM; setsid sleep 600 & echo $! $$; while :; do sleep 1; done";
    let mut shim = Command::new(INFLIGHT)
        .args(["__replica", "0", "sh", "-c", text])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = shim.stdout.take().unwrap();
    io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).unwrap();
    let pids: Vec<i32> = line
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert_eq!(pids.len(), 2);
    drop(ours);
    for pid in pids {
        assert_ends(pid).await;
    }
    assert!(shim.wait().unwrap().success());
}
