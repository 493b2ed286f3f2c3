//! One replica's process: started under its shim or found under one, asked until ready, told to end, watched to the
//! end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use inflight_core::ReplicaId;
use rustix::process::{Pid, Signal};
use tokio::io::AsyncRead;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::config::ProcessConfig;
use super::orphan::{self, Orphan};
use super::output::{Tail, follow};
use super::shim;
use super::wire::{About, LINE_MAX, Order, Told};
use crate::lines::{self, LineReader, LineWriter};
use crate::ports::NamedPorts;
use crate::probe::{Unfit, until_ready};
use crate::telemetry::Printer;

/// A shim that was told to kill and says nothing for this long is stuck itself.
const SHIM_ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How long after the end its last lines are waited for: a daemon may keep the pipe open.
const LAST_LINES_WITHIN: Duration = Duration::from_millis(500);

/// Log lines in the sentence that says why a replica is gone, and characters of each.
const LINES_IN_SENTENCE: usize = 3;
const LINE_CHARS: usize = 200;

/// What the task of a replica needs.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) id: ReplicaId,
    pub(super) index: u32,
    pub(super) address: SocketAddr,
    pub(super) ports: NamedPorts,
    pub(super) config: Arc<ProcessConfig>,
    pub(super) program: PathBuf,
    pub(super) printer: Printer,
    /// Where sockets for later owners go; `None` when replicas end with us.
    pub(super) keep: Option<PathBuf>,
    /// The replica that an earlier process of ours started, if it is not to be started.
    pub(super) orphan: Option<Orphan>,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) news: mpsc::Sender<News>,
}

/// What the task of a replica tells while the replica runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Its process is there, and a later owner would find it.
    Present(ReplicaId),
    /// It answered its readiness probe.
    Ready(ReplicaId),
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

/// Runs the process to its end. Dropping this closes the channel: the shim then ends the process,
/// or waits for its next owner.
pub(super) async fn run(mut launch: Launch) -> Exit {
    let tail = Tail::default();
    let reached = match launch.orphan.take() {
        Some(orphan) => Ok(Reached::adopt(orphan)),
        None => Reached::start(&launch),
    };
    let mut how = match reached {
        Ok(reached) => supervise(&mut launch, reached, &tail).await,
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

/// A shim and what connects us.
struct Reached {
    reader: LineReader,
    writer: LineWriter,
    /// `None` when an earlier process of ours started it.
    shim: Option<Child>,
    group: Option<Pid>,
    /// What the replica writes, as far as it is not told by the shim.
    outputs: Vec<Output>,
}

type Output = Box<dyn AsyncRead + Send + Unpin>;

impl Reached {
    fn start(launch: &Launch) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let port = launch.address.port();
        let mut starting = Command::new(&launch.program);
        starting.arg0("inflight");
        match &launch.keep {
            Some(folder) => {
                let about = serde_json::to_string(&about(launch))?;
                let grace = launch.config.settings().orphan_grace;
                starting
                    .arg(shim::SUPERVISE_KEPT)
                    .arg(launch.index.to_string())
                    .arg(orphan::new_socket(folder))
                    .arg(grace.as_millis().to_string())
                    .arg(about)
                    // It may outlive whoever reads ours; the command's outputs come by the channel.
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
            }
            None => {
                starting
                    .arg(shim::SUPERVISE)
                    .arg(launch.index.to_string())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
            }
        }
        let mut shim = starting
            .args((launch.config).command_for(launch.index, port, &launch.ports))
            .envs((launch.config).env_for(launch.index, port, &launch.ports))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Ctrl-C in our terminal is for us; replicas are told by us.
            .process_group(0)
            .spawn()?;
        let out = shim.stdout.take().map(|stream| Box::new(stream) as Output);
        let err = shim.stderr.take().map(|stream| Box::new(stream) as Output);
        let (reader, writer) = lines::over(UnixStream::from_std(ours)?, LINE_MAX);
        Ok(Self {
            reader,
            writer,
            shim: Some(shim),
            group: None,
            outputs: out.into_iter().chain(err).collect(),
        })
    }

    fn adopt(orphan: Orphan) -> Self {
        let Orphan {
            hello,
            mut reader,
            writer,
        } = orphan;
        Self {
            outputs: outputs_of(&mut reader),
            reader,
            writer,
            shim: None,
            group: Pid::from_raw(hello.pid),
        }
    }
}

/// Returns what the shim of this replica tells its owners about it.
fn about(launch: &Launch) -> About {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since_1970.unwrap_or_default().as_millis();
    About {
        fleet: launch.config.settings().fleet.clone(),
        index: launch.index,
        id: launch.id.0,
        port: launch.address.port(),
        ports: launch.ports.as_ref().clone(),
        fingerprint: launch.config.fingerprint(),
        started_at: u64::try_from(millis).unwrap_or(u64::MAX),
    }
}

/// Returns the outputs of the command that came by the channel. One that cannot be read is not.
fn outputs_of(reader: &mut LineReader) -> Vec<Output> {
    let descriptors = reader.take_descriptors().into_iter();
    let pipes = descriptors.filter_map(|one| pipe::Receiver::from_owned_fd(one).ok());
    pipes.map(|one| Box::new(one) as Output).collect()
}

/// Returns how the process ended, as one sentence.
async fn supervise(launch: &mut Launch, mut reached: Reached, tail: &Tail) -> String {
    let settings = launch.config.settings();
    let mut logs = Logs {
        prefix: format!("{}/{}", settings.fleet, launch.index),
        printer: launch.printer.clone(),
        tail: tail.clone(),
        tasks: JoinSet::new(),
    };
    logs.follow(std::mem::take(&mut reached.outputs));

    let mut last_answer = Some(Unfit::NotAsked);
    let becoming_ready = async {
        let (probe, every) = (&settings.ready, settings.ready_every);
        until_ready(probe, launch.address, every, &mut last_answer).await;
        // Nobody listens only when everything is being torn down.
        launch.news.send(News::Ready(launch.id)).await.ok();
    };
    let presence = Presence {
        id: launch.id,
        news: &launch.news,
    };
    let mut how = watch(
        &mut reached,
        &mut launch.orders,
        becoming_ready,
        presence,
        &mut logs,
    )
    .await;
    if let Some(mut shim) = reached.shim {
        // It said its last word, or is stuck; what is bound to it ends with it. Reaped by tokio.
        shim.start_kill().ok();
    }
    if let Some(answer) = last_answer {
        how.push_str(&format!("; when last asked it was not ready: {answer}"));
    }
    // Some were told to stop when another process got what they read.
    let read_on = async { while logs.tasks.join_next().await.is_some() {} };
    timeout(LAST_LINES_WITHIN, read_on).await.ok();
    how
}

/// Tells that a replica's process is there.
struct Presence<'a> {
    id: ReplicaId,
    news: &'a mpsc::Sender<News>,
}

impl Presence<'_> {
    async fn tell(&self) {
        // Nobody listens only when everything is being torn down.
        self.news.send(News::Present(self.id)).await.ok();
    }
}

/// Those who read what the replica writes.
struct Logs {
    prefix: String,
    printer: Printer,
    tail: Tail,
    tasks: JoinSet<()>,
}

impl Logs {
    /// Reads these, and what was read before no more.
    fn follow(&mut self, outputs: Vec<Output>) {
        self.tasks.abort_all();
        for output in outputs {
            let (prefix, printer) = (self.prefix.clone(), self.printer.clone());
            self.tasks
                .spawn(follow(output, prefix, printer, self.tail.clone()));
        }
    }
}

/// Passes orders on and drives the readiness probe until the process has ended.
async fn watch(
    reached: &mut Reached,
    orders: &mut mpsc::Receiver<Order>,
    becoming_ready: impl Future<Output = ()>,
    presence: Presence<'_>,
    logs: &mut Logs,
) -> String {
    let Reached {
        reader,
        writer,
        group,
        ..
    } = reached;
    let mut becoming_ready = std::pin::pin!(becoming_ready);
    let mut asking = true;
    let mut stuck_at = None;
    loop {
        tokio::select! {
            line = reader.next_line() => match line.ok().flatten().as_deref().map(Told::parse) {
                Some(Some(Told::Started(pid))) => {
                    *group = Pid::from_raw(pid);
                    presence.tell().await;
                }
                Some(Some(Told::Hello(hello))) => {
                    *group = Pid::from_raw(hello.pid);
                    logs.follow(outputs_of(reader));
                    presence.tell().await;
                }
                Some(Some(Told::Superseded)) => {
                    // Its group is another owner's to kill.
                    *group = None;
                    logs.follow(Vec::new());
                }
                Some(Some(Told::Exited(ending))) => break ending.to_string(),
                Some(Some(Told::Failed(why))) => break format!("could not be started: {why}"),
                Some(None) => {}
                None => {
                    kill_group(*group);
                    break "its shim ended, and it was killed with it".to_owned();
                }
            },
            Some(order) = orders.recv() => {
                // It is told to end, and what it answers from then on is not why.
                asking = false;
                // A shim that is gone shows when it is read.
                writer.send(order.line(), &[]).await.ok();
                if order == Order::Kill {
                    stuck_at = Some(Instant::now() + SHIM_ANSWERS_WITHIN);
                }
            }
            () = sleep_until(stuck_at.unwrap_or_else(Instant::now)), if stuck_at.is_some() => {
                kill_group(*group);
                break "killed past its shim, which did not answer".to_owned();
            }
            () = &mut becoming_ready, if asking => {
                asking = false;
                writer.send(Order::Ready.line(), &[]).await.ok();
            }
        }
    }
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
