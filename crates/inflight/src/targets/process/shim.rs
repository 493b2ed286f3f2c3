//! The small process between us and a replica's command, and the step in front of the command.
//!
//! `inflight __replica INDEX COMMAND…` is started with one end of a socket pair as its standard
//! input. It starts the command in a process group of its own, tells how it ended, obeys orders
//! ([`super::wire`]), and ends the group when the channel closes: that is how even our own SIGKILL
//! leaves nothing behind. It adopts the command's orphans, so that a daemon that left the group is
//! found too. `inflight __replica-exec SHIM COMMAND…` asks the kernel to be killed with the shim,
//! then becomes the command.
//!
//! `inflight __replica-keep INDEX SOCKET GRACE_MS ABOUT COMMAND…` is the same for `on_exit: keep`:
//! when its owner is gone it waits `GRACE_MS` on `SOCKET` for the next one before it ends anything.
//!
//! One thread on purpose: the parent-death signal belongs to the thread that forked. It survives
//! SIGTERM, SIGINT and SIGHUP, which a service manager may send to every process of a service;
//! nothing survives SIGKILL, and then the kernel and our side of the channel end the group.
//! Only then, when the shim itself is killed, a daemon that had left the group stays.
//!
//! A command that puts its real work into the background and exits has ended, as far as this is
//! concerned: the rest of its group is ended too.

mod keep;
mod owners;

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeWriter, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::wire::{About, Ending, Hello, Order, Stage, Told};
use keep::{DRAIN_EVERY, Door, Outputs};
use owners::Owners;

/// The hidden subcommand that supervises one command.
pub(super) const SUPERVISE: &str = "__replica";

/// The hidden subcommand that supervises one command and may outlive its owner.
pub(super) const SUPERVISE_KEPT: &str = "__replica-keep";

/// The hidden subcommand that becomes the command.
const BECOME: &str = "__replica-exec";

/// From the channel's end to SIGKILL; with the time to reap, nothing is left after two seconds.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// How often killed descendants are looked for again, and how often at most: a process that the
/// kernel cannot end (a hung disk or driver) must not hold the shim for ever.
const REAP_EVERY: Duration = Duration::from_millis(5);
const REAP_ROUNDS: u32 = 200;

/// How a shim outlives its owner.
#[derive(Debug)]
struct Keep {
    socket: PathBuf,
    grace: Duration,
    about: About,
}

/// Runs the shim if the arguments ask for it. To be called before anything else in `main`.
pub fn run_shim_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let subcommand = arguments.next()?;
    if subcommand == OsStr::new(SUPERVISE) {
        Some(supervise(&arguments.collect::<Vec<_>>()))
    } else if subcommand == OsStr::new(SUPERVISE_KEPT) {
        Some(supervise_kept(&arguments.collect::<Vec<_>>()))
    } else if subcommand == OsStr::new(BECOME) {
        Some(become_command(&arguments.collect::<Vec<_>>()))
    } else {
        None
    }
}

fn supervise(arguments: &[OsString]) -> ExitCode {
    let [index, command @ ..] = arguments else {
        return ExitCode::from(2);
    };
    supervise_as(index, command, None)
}

fn supervise_kept(arguments: &[OsString]) -> ExitCode {
    let [index, socket, grace, about, command @ ..] = arguments else {
        return ExitCode::from(2);
    };
    let grace = grace.to_str().and_then(|text| text.parse().ok());
    let about = about.to_str().map(serde_json::from_str);
    let (Some(grace), Some(Ok(about))) = (grace, about) else {
        return ExitCode::from(2);
    };
    let keep = Keep {
        socket: PathBuf::from(socket),
        grace: Duration::from_millis(grace),
        about,
    };
    supervise_as(index, command, Some(&keep))
}

fn supervise_as(index: &OsStr, command: &[OsString], keep: Option<&Keep>) -> ExitCode {
    let (Some(index), false) = (index.to_str(), command.is_empty()) else {
        return ExitCode::from(2);
    };
    prepare(index);
    let run = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(run(command, keep)));
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain("cannot supervise the replica", &error),
    }
}

/// Becomes the command, bound to the life of the shim.
fn become_command(arguments: &[OsString]) -> ExitCode {
    let [shim, program, rest @ ..] = arguments else {
        return ExitCode::from(2);
    };
    let Some(shim) = shim
        .to_str()
        .and_then(|text| text.parse().ok())
        .and_then(Pid::from_raw)
    else {
        return ExitCode::from(2);
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return complain("cannot bind the replica to its shim", &error.into());
    }
    // The shim may have died before the signal was set.
    if rustix::process::getppid() != Some(shim) {
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(rest).exec();
    let what = format!("cannot run {}", program.display());
    complain(&what, &error);
    // What shells answer, so that the codes mean something to people.
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    })
}

/// Names the process so that a signal to all `inflight` processes misses it, and adopts orphans.
/// Neither is needed for the rest to work.
#[cfg(target_os = "linux")]
fn prepare(index: &str) {
    if let Ok(name) = std::ffi::CString::new(format!("replica-{index}")) {
        rustix::thread::set_name(&name).ok();
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
}

#[cfg(not(target_os = "linux"))]
fn prepare(_index: &str) {}

fn complain(what: &str, error: &io::Error) -> ExitCode {
    // Nobody is left to tell when standard error is gone.
    writeln!(io::stderr(), "{what}: {error}").ok();
    ExitCode::FAILURE
}

async fn run(command: &[OsString], keep: Option<&Keep>) -> io::Result<()> {
    let channel = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    channel.set_nonblocking(true)?;
    let first = UnixStream::from_std(channel)?;
    let mut children = signal(SignalKind::child())?;
    let _survived = survive_signals()?;
    let door = match keep {
        Some(keep) => Some(Door::open(&keep.socket, keep.grace)?),
        None => None,
    };

    let mut owners = Owners::new();
    let (outputs, ends) = match &door {
        Some(_) => Outputs::open().map(|(outputs, ends)| (Some(outputs), Some(ends)))?,
        None => (None, None),
    };
    let mut child = match start(command, ends) {
        Ok(child) => child,
        Err(error) => {
            owners.add(first).await;
            owners.tell_all(&Told::Failed(error.to_string())).await;
            return Ok(());
        }
    };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group =
        group.ok_or_else(|| io::Error::other("the kernel gave an impossible process id"))?;
    let pid = group.as_raw_nonzero().get();
    if let (Some(keep), Some(outputs)) = (keep, outputs) {
        let (about, stage) = (keep.about.clone(), Stage::Starting);
        owners.set_hello(Hello { about, pid, stage }, outputs);
    }
    owners.add(first).await;
    owners.tell_all(&Told::Started(pid)).await;

    let grace = door.as_ref().map_or(Duration::ZERO, |door| door.grace);
    let mut alone_since = None;
    let mut orphaned = Orphaned::Not;
    let mut drain = interval(DRAIN_EVERY);
    drain.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while !has_ended(group)? {
        if owners.is_empty() {
            let since = *alone_since.get_or_insert_with(Instant::now);
            if orphaned == Orphaned::Not {
                orphaned = Orphaned::Until(since + grace);
            }
        } else if let Orphaned::Until(_) = orphaned {
            (alone_since, orphaned) = (None, Orphaned::Not);
        }
        let is_open = door.is_some() && matches!(orphaned, Orphaned::Not | Orphaned::Until(_));
        tokio::select! {
            heard = owners.heard() => match owners.on_heard(heard).await {
                Some(Order::Terminate) => signal_group(group, Signal::TERM),
                Some(Order::Kill) => signal_group(group, Signal::KILL),
                Some(Order::Ready) | None => {}
            },
            owner = knock(door.as_ref()), if is_open => match owner {
                Ok(owner) => owners.add(owner).await,
                // Out of descriptors, mostly: it comes again.
                Err(_) => sleep(DRAIN_EVERY).await,
            },
            _ = children.recv() => reap_strays(group),
            _ = drain.tick(), if owners.is_empty() && door.is_some() => {
                if let Some(outputs) = owners.outputs() {
                    outputs.drain();
                }
            }
            () = orphaned.due() => {
                orphaned = match orphaned {
                    Orphaned::Not | Orphaned::Until(_) => {
                        signal_group(group, Signal::TERM);
                        Orphaned::EndedBy(Instant::now() + ORPHAN_GRACE)
                    }
                    Orphaned::EndedBy(_) | Orphaned::Killed => {
                        signal_group(group, Signal::KILL);
                        Orphaned::Killed
                    }
                };
            }
        }
    }

    let told = Told::Exited(end_rest(group, &mut child).await?);
    if let (Some(door), true) = (&door, owners.is_empty()) {
        // The next owner shall learn how it ended.
        let left =
            (alone_since.unwrap_or_else(Instant::now) + grace).duration_since(Instant::now());
        if let Ok(Ok(owner)) = timeout(left, door.knock()).await {
            owners.add(owner).await;
        }
    }
    // Its socket is gone before anyone hears that the replica is no more.
    drop(door);
    owners.tell_all(&told).await;
    Ok(())
}

/// How far the end of a replica that nobody owns has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Orphaned {
    /// Somebody owns it.
    Not,
    /// Nobody does, and it is left alone until then.
    Until(Instant),
    /// It was asked to end, and is killed then.
    EndedBy(Instant),
    Killed,
}

impl Orphaned {
    async fn due(self) {
        match self {
            Self::Until(at) | Self::EndedBy(at) => sleep_until(at).await,
            Self::Not | Self::Killed => std::future::pending().await,
        }
    }
}

async fn knock(door: Option<&Door>) -> io::Result<UnixStream> {
    match door {
        Some(door) => door.knock().await,
        None => std::future::pending().await,
    }
}

/// Takes the default, deadly action from the signals that a service manager or a terminal sends.
fn survive_signals() -> io::Result<[SignalStream; 3]> {
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ])
}

/// Starts the command; its outputs are ours unless it is given others.
fn start(command: &[OsString], outputs: Option<[PipeWriter; 2]>) -> io::Result<Child> {
    let mut starting = Command::new(super::replica::own_program());
    starting
        .arg0("inflight")
        .arg(BECOME)
        .arg(std::process::id().to_string())
        .args(command)
        .stdin(Stdio::null())
        .process_group(0);
    if let Some([out, err]) = outputs {
        starting.stdout(out).stderr(err);
    }
    starting.spawn()
}

/// Whether the command's process has ended; it is not reaped, so its id stays its own.
fn has_ended(leader: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(rustix::process::waitid(WaitId::Pid(leader), options)?.is_some())
}

fn signal_group(group: Pid, signal: Signal) {
    // It fails when nobody is left, which is what is wanted.
    rustix::process::kill_process_group(group, signal).ok();
}

/// Ends what the command left behind, reaps everything, and returns how the command ended.
async fn end_rest(group: Pid, child: &mut Child) -> io::Result<Ending> {
    // Before the leader is reaped: until then nobody else can get its id.
    signal_group(group, Signal::KILL);
    let ending = Ending::from(child.wait()?);
    for _ in 0..REAP_ROUNDS {
        let strays = adopted(None);
        if strays.is_empty() {
            break;
        }
        for stray in strays {
            rustix::process::kill_process(stray, Signal::KILL).ok();
            reap(stray);
        }
        sleep(REAP_EVERY).await;
    }
    Ok(ending)
}

fn reap_strays(leader: Pid) {
    for stray in adopted(Some(leader)) {
        reap(stray);
    }
}

fn reap(stray: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    rustix::process::waitid(WaitId::Pid(stray), options).ok();
}

/// Returns our children but the given one. Without the kernel's list there are none: then a daemon
/// that left the group is not found.
fn adopted(leader: Option<Pid>) -> Vec<Pid> {
    let own = std::process::id();
    let list = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
    list.unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|text| text.parse().ok().and_then(Pid::from_raw))
        .filter(|pid| Some(*pid) != leader)
        .collect()
}
