//! One replica's process: started under its shim, asked until ready, told to end, watched to the
//! end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use inflight_core::ReplicaId;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::config::ProcessConfig;
use super::output::{Tail, follow};
use super::shim;
use super::wire::{Order, Told};
use crate::probe::{Unfit, until_ready};
use crate::telemetry::Printer;

/// A shim that was told to kill and says nothing for this long is stuck itself.
const SHIM_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How long after the end its last lines are waited for: a daemon may keep the pipe open.
const LAST_LINES_WITHIN: Duration = Duration::from_millis(500);

/// Log lines in the sentence that says why a replica is gone, and characters of each.
const LINES_IN_SENTENCE: usize = 3;
const LINE_CHARS: usize = 200;

/// What a replica's process needs to start.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) id: ReplicaId,
    pub(super) index: u32,
    pub(super) address: SocketAddr,
    pub(super) config: Arc<ProcessConfig>,
    pub(super) program: PathBuf,
    pub(super) printer: Printer,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) ready: mpsc::Sender<ReplicaId>,
}

/// How a replica's process ended.
#[derive(Debug)]
pub(super) struct Exit {
    pub(super) id: ReplicaId,
    /// As one sentence.
    pub(super) how: String,
    /// The last lines it wrote, oldest first.
    pub(super) last_lines: Vec<String>,
}

/// Returns this very program, even when its file was replaced or removed since it was started.
pub(super) fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().unwrap_or_else(|_| PathBuf::from("inflight"))
    }
}

/// Runs the process to its end. Dropping this closes the channel, and the shim ends the process.
pub(super) async fn run(mut launch: Launch) -> Exit {
    let tail = Tail::default();
    let mut how = match start(&launch) {
        Ok((shim, channel)) => supervise(&mut launch, shim, channel, &tail).await,
        Err(error) => format!("cannot start its shim: {error}"),
    };
    let last_lines = tail.lines();
    describe_lines(&mut how, &last_lines);
    Exit {
        id: launch.id,
        how,
        last_lines,
    }
}

fn start(launch: &Launch) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let port = launch.address.port();
    let shim = Command::new(&launch.program)
        .arg0("inflight")
        .arg(shim::SUPERVISE)
        .arg(launch.index.to_string())
        .args(launch.config.command_for(launch.index, port))
        .envs(launch.config.env_for(launch.index, port))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C in our terminal is for us; replicas are told by us.
        .process_group(0)
        .spawn()?;
    Ok((shim, UnixStream::from_std(ours)?))
}

/// Returns how the process ended, as one sentence.
async fn supervise(
    launch: &mut Launch,
    mut shim: Child,
    channel: UnixStream,
    tail: &Tail,
) -> String {
    let settings = launch.config.settings();
    let prefix = format!("{}/{}", settings.fleet, launch.index);
    let mut logs = JoinSet::new();
    if let Some(stream) = shim.stdout.take() {
        logs.spawn(follow(
            stream,
            prefix.clone(),
            launch.printer.clone(),
            tail.clone(),
        ));
    }
    if let Some(stream) = shim.stderr.take() {
        logs.spawn(follow(stream, prefix, launch.printer.clone(), tail.clone()));
    }

    let mut last_answer = Some(Unfit::NotAsked);
    let becoming_ready = async {
        let (probe, every) = (&settings.ready, settings.ready_every);
        until_ready(probe, launch.address, every, &mut last_answer).await;
        // Nobody listens only when everything is being torn down.
        launch.ready.send(launch.id).await.ok();
    };
    let mut how = watch(&mut shim, channel, &mut launch.orders, becoming_ready).await;
    if let Some(answer) = last_answer {
        how.push_str(&format!("; when last asked it was not ready: {answer}"));
    }
    timeout(LAST_LINES_WITHIN, logs.join_all()).await.ok();
    how
}

/// Passes orders on and drives the readiness probe until the process has ended.
async fn watch(
    shim: &mut Child,
    channel: UnixStream,
    orders: &mut mpsc::Receiver<Order>,
    becoming_ready: impl Future<Output = ()>,
) -> String {
    let (told, mut ordered) = channel.into_split();
    let mut told = BufReader::new(told).lines();
    let mut becoming_ready = std::pin::pin!(becoming_ready);
    let mut asking = true;
    let mut group = None;
    let mut stuck_at = None;
    let how = loop {
        tokio::select! {
            line = told.next_line() => match line.ok().flatten().as_deref().map(Told::parse) {
                Some(Some(Told::Started(pid))) => group = Pid::from_raw(pid),
                Some(Some(Told::Exited(ending))) => break ending.to_string(),
                Some(Some(Told::Failed(why))) => break format!("could not be started: {why}"),
                Some(None) => {}
                None => {
                    kill_group(group);
                    break "its shim ended, and it was killed with it".to_owned();
                }
            },
            Some(order) = orders.recv() => {
                // A shim that is gone shows when it is read.
                ordered.write_all(order.line().as_bytes()).await.ok();
                if order == Order::Kill {
                    stuck_at = Some(Instant::now() + SHIM_ANSWERS_WITHIN);
                }
            }
            () = sleep_until(stuck_at.unwrap_or_else(Instant::now)), if stuck_at.is_some() => {
                kill_group(group);
                break "killed past its shim, which did not answer".to_owned();
            }
            () = &mut becoming_ready, if asking => asking = false,
        }
    };
    // The shim ends right after its last word; if not, the kernel ends what is bound to it.
    if timeout(SHIM_ANSWERS_WITHIN, shim.wait()).await.is_err() {
        shim.start_kill().ok();
    }
    how
}

fn kill_group(group: Option<Pid>) {
    if let Some(group) = group {
        // It fails when nobody is left, which is what is wanted.
        rustix::process::kill_process_group(group, Signal::KILL).ok();
    }
}

fn describe_lines(how: &mut String, last_lines: &[String]) {
    let written = last_lines.iter().filter(|line| !line.trim().is_empty());
    let skipped = written.clone().count().saturating_sub(LINES_IN_SENTENCE);
    let lines: Vec<String> = written
        .skip(skipped)
        .map(|line| line.trim().chars().take(LINE_CHARS).collect())
        .collect();
    if lines.is_empty() {
        how.push_str("; it wrote nothing");
    } else {
        how.push_str(&format!("; it last wrote: {}", lines.join(" / ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_holds_the_last_lines_cut_short() {
        let lines: Vec<String> = ["one", "two", "", "three", &"4".repeat(500)]
            .map(str::to_owned)
            .to_vec();
        let mut how = "exited with code 1".to_owned();
        describe_lines(&mut how, &lines);
        let expected = format!(
            "exited with code 1; it last wrote: two / three / {}",
            "4".repeat(200)
        );
        assert_eq!(how, expected);
    }

    #[test]
    fn a_silent_end_says_so() {
        let mut how = "exited with code 1".to_owned();
        describe_lines(&mut how, &[String::new()]);
        assert_eq!(how, "exited with code 1; it wrote nothing");
    }
}
