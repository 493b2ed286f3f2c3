//! A running `inflight`, its scratch folder, and plain clients.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;

pub(super) const INFLIGHT: &str = env!("CARGO_BIN_EXE_inflight");

/// Long enough for any machine; nothing waits for it unless it fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

const JOURNAL: &str = "journal.jsonl";

/// A folder that is gone afterwards.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("inflight-it-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A fleet of up to four of our own servers, from zero.
pub(super) fn fleet(name: &str, serve: &[&str], more: &str) -> String {
    let command = [&[INFLIGHT], serve, &["--port", "{port}"]].concat();
    fleet_of_command(name, &command, "min: 0, max: 4", more)
}

/// A fleet of the command, or of our own servers where it begins with `__serve`.
pub(super) fn fleet_of(name: &str, command: &[&str], replicas: &str) -> String {
    if command.first() == Some(&"__serve") {
        let command = [&[INFLIGHT], command, &["--port", "{port}"]].concat();
        fleet_of_command(name, &command, replicas, "")
    } else {
        fleet_of_command(name, command, replicas, "")
    }
}

fn fleet_of_command(name: &str, command: &[&str], replicas: &str, more: &str) -> String {
    let command = serde_json::to_string(command).unwrap();
    format!(
        r#"
  - name: {name}
    slots: 2
    replicas: {{ {replicas} }}
    source: {{ gateway: {{ listen: "127.0.0.1:0" }} }}
    target: {{ process: {{ command: {command}, stop_grace: 1s }} }}
{more}
"#
    )
}

/// The text of a configuration file.
pub(super) fn configuration(fleets: &[String]) -> String {
    configuration_at("127.0.0.1:0", fleets)
}

fn configuration_at(admin: &str, fleets: &[String]) -> String {
    let fleets = fleets.concat();
    format!("version: 1\nadmin: {{ listen: \"{admin}\" }}\nfleets:\n{fleets}")
}

fn with_journal(text: &str, scratch: &Scratch) -> String {
    let journal = format!(
        "\njournal: {{ file: {:?} }}\nfleets:",
        scratch.path(JOURNAL)
    );
    text.replacen("\nfleets:", &journal, 1)
}

/// A running `inflight`; ended with everything it started when dropped.
pub(super) struct Instance {
    process: Child,
    scratch: Scratch,
    admin: SocketAddr,
    gateways: Vec<SocketAddr>,
}

impl Instance {
    pub(super) fn start(fleets: &[String]) -> Self {
        Self::start_at("127.0.0.1:0", fleets)
    }

    /// Starts with its admin API at an address.
    pub(super) fn start_at(admin: &str, fleets: &[String]) -> Self {
        Self::start_with(admin, fleets, &[])
    }

    /// Starts in place of one that runs with the same `state.dir`.
    pub(super) fn take_over(fleets: &[String]) -> Self {
        Self::start_with("127.0.0.1:0", fleets, &["--take-over"])
    }

    fn start_with(admin: &str, fleets: &[String], arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        let text = with_journal(&configuration_at(admin, fleets), &scratch);
        let file = scratch.file("inflight.yaml", &text);
        let log = fs::File::create(scratch.path("log")).unwrap();
        let process = Command::new(INFLIGHT)
            .args(["run", "-c", &file, "--log-format", "json"])
            .args(arguments)
            .env("INFLIGHT_TEST_SCRATCH", scratch.path(""))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut instance = Self {
            process,
            scratch,
            admin: SocketAddr::from(([127, 0, 0, 1], 0)),
            gateways: Vec::new(),
        };
        wait_until(|| instance.told("running", "admin").len() == 1, "running");
        instance.admin = instance.told("running", "admin")[0];
        instance.gateways = instance.told("gateway listens", "listen");
        let is_ready =
            || get(instance.admin, "/readyz", PATIENCE).is_ok_and(|(status, _)| status == 200);
        wait_until(is_ready, "ready");
        instance
    }

    /// Puts another text in place of its configuration file.
    pub(super) fn rewrite(&self, text: &str) {
        let text = with_journal(text, &self.scratch);
        self.scratch.file("inflight.yaml", &text);
    }

    pub(super) fn signal(&self, sent: Signal) {
        signal(self.process.id(), sent);
    }

    /// Waits for its end after it was told to, and returns its exit code.
    pub(super) fn ended(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }

    pub(super) fn admin(&self) -> SocketAddr {
        self.admin
    }

    pub(super) fn gateway(&self, fleet: usize) -> SocketAddr {
        self.gateways[fleet]
    }

    /// Everything it wrote to standard error.
    pub(super) fn said(&self) -> String {
        fs::read_to_string(self.scratch.path("log")).unwrap()
    }

    /// Everything it wrote to its journal.
    pub(super) fn journal(&self) -> String {
        fs::read_to_string(self.scratch.path(JOURNAL)).unwrap()
    }

    /// A file beside its configuration.
    pub(super) fn path(&self, name: &str) -> String {
        self.scratch.path(name)
    }

    /// Puts another file beside its configuration.
    pub(super) fn file(&self, name: &str, text: &str) -> String {
        self.scratch.file(name, text)
    }

    pub(super) fn fleet(&self, name: &str) -> Value {
        let path = format!("/api/v1/fleets/{name}");
        let (_, body) = get(self.admin, &path, PATIENCE).unwrap();
        serde_json::from_str(&body).unwrap()
    }

    /// The addresses that log lines with this message carry in this field.
    fn told(&self, message: &str, field: &str) -> Vec<SocketAddr> {
        let said = self.said();
        said.lines()
            .filter_map(|line| address_in(line, message, field))
            .collect()
    }

    /// Tells it to stop, waits for its end, and returns its exit code.
    pub(super) fn terminate(&mut self) -> Option<i32> {
        signal(self.process.id(), Signal::TERM);
        self.process.wait().unwrap().code()
    }

    /// Lets it have so many files open, sockets among them.
    pub(super) fn limit_files(&self, count: u64) {
        let process = Pid::from_raw(self.process.id().try_into().unwrap());
        let limits = Rlimit {
            current: Some(count),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        prlimit(process, Resource::Nofile, limits).unwrap();
    }

    /// Returns how many files it has open.
    pub(super) fn files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        fs::read_dir(folder).unwrap().count()
    }

    /// Returns how much processor time its threads have used.
    pub(super) fn cpu_time(&self) -> Duration {
        let folder = format!("/proc/{}/task", self.process.id());
        let nanos = fs::read_dir(folder).unwrap().map(|task| {
            let stat = task.unwrap().path().join("schedstat");
            let stat = fs::read_to_string(stat).unwrap_or_default();
            let first = stat.split(' ').next().unwrap_or_default();
            first.parse().unwrap_or(0)
        });
        Duration::from_nanos(nanos.sum())
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The command lines of what this instance started and is alive.
    pub(super) fn replicas(&self) -> Vec<String> {
        self.descendants()
            .into_iter()
            .map(|(_, command)| command)
            .collect()
    }

    pub(super) fn kill_a_server(&self) {
        self.signal_a_server(Signal::KILL);
    }

    /// Makes a server hang: its port takes connections, and nobody answers.
    pub(super) fn stop_a_server(&self) {
        self.signal_a_server(Signal::STOP);
    }

    fn signal_a_server(&self, with: Signal) {
        let servers = self.descendants();
        let is_server = |(_, command): &&(u32, String)| {
            command.contains("__serve") && !command.contains("__replica")
        };
        let (id, _) = servers.iter().find(is_server).unwrap();
        signal(*id, with);
    }

    /// Processes with our mark in their environment, which only what we start inherits.
    fn descendants(&self) -> Vec<(u32, String)> {
        let mut found = marked(&self.scratch.path(""));
        found.retain(|(id, _)| *id != self.process.id());
        found
    }
}

/// Returns the processes that are alive and have our mark in their environment, with their
/// command lines.
pub(super) fn marked(mark: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let read = |name| {
            let bytes = fs::read(entry.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let command = read("cmdline");
        let is_alive = !command.is_empty();
        if is_alive && read("environ").contains(mark) {
            found.push((id, command));
        }
    }
    found
}

impl Drop for Instance {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.terminate();
        }
    }
}

/// The address that a JSON log line with this message carries in this field.
pub(super) fn address_in(line: &str, message: &str, field: &str) -> Option<SocketAddr> {
    let fields = &serde_json::from_str::<Value>(line).ok()?["fields"];
    if fields["message"] == message {
        fields[field].as_str()?.parse().ok()
    } else {
        None
    }
}

pub(super) fn signal(id: u32, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}

pub(super) fn wait_until(holds: impl Fn() -> bool, what: &str) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not seen: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a GET and leaves the answer unread.
pub(super) fn open(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    stream
}

/// Sends a GET and returns the status and the body.
pub(super) fn get(address: SocketAddr, path: &str, limit: Duration) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(limit))?;
    write!(stream, "GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}

/// Sends so many GETs at once and returns the statuses; 0 where there was no answer.
pub(super) fn gets(address: SocketAddr, path: &str, count: usize) -> Vec<u16> {
    let clients: Vec<_> = (0..count)
        .map(|_| {
            let path = path.to_owned();
            thread::spawn(move || get(address, &path, PATIENCE).map_or(0, |(status, _)| status))
        })
        .collect();
    clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .collect()
}
