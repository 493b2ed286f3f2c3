//! The small process between us and a replica's command, and the step in front of the command.
//!
//! `inflight __replica INDEX COMMAND…` is started with one end of a socket pair as its standard
//! input. It starts the command in a process group of its own, tells how it ended, obeys orders
//! ([`super::wire`]), and ends the group when the channel closes: that is how even our own SIGKILL
//! leaves nothing behind. It adopts the command's orphans, so that a daemon that left the group is
//! found too. `inflight __replica-exec SHIM COMMAND…` asks the kernel to be killed with the shim,
//! then becomes the command.
//!
//! One thread on purpose: the parent-death signal belongs to the thread that forked. It survives
//! SIGTERM, SIGINT and SIGHUP, which a service manager may send to every process of a service;
//! nothing survives SIGKILL, and then the kernel and our side of the channel end the group.
//! Only then, when the shim itself is killed, a daemon that had left the group stays.
//!
//! A command that puts its real work into the background and exits has ended, as far as this is
//! concerned: the rest of its group is ended too.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use super::wire::{Ending, Order, Told};

/// The hidden subcommand that supervises one command.
pub(super) const SUPERVISE: &str = "__replica";

/// The hidden subcommand that becomes the command.
const BECOME: &str = "__replica-exec";

/// From the channel's end to SIGKILL; with the time to reap, nothing is left after two seconds.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// How often killed descendants are looked for again, and how often at most: a process that the
/// kernel cannot end (a hung disk or driver) must not hold the shim for ever.
const REAP_EVERY: Duration = Duration::from_millis(5);
const REAP_ROUNDS: u32 = 200;

/// Runs the shim if the arguments ask for it. To be called before anything else in `main`.
pub fn run_shim_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let subcommand = arguments.next()?;
    if subcommand == OsStr::new(SUPERVISE) {
        Some(supervise(&arguments.collect::<Vec<_>>()))
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
    let (Some(index), false) = (index.to_str(), command.is_empty()) else {
        return ExitCode::from(2);
    };
    prepare(index);
    let run = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(run(command)));
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

async fn run(command: &[OsString]) -> io::Result<()> {
    let channel = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    channel.set_nonblocking(true)?;
    let (orders, mut reports) = UnixStream::from_std(channel)?.into_split();
    let mut children = signal(SignalKind::child())?;
    let _survived = survive_signals()?;

    let mut child = match start(command) {
        Ok(child) => child,
        Err(error) => {
            let told = Told::Failed(error.to_string());
            return reports.write_all(format!("{told}\n").as_bytes()).await;
        }
    };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group =
        group.ok_or_else(|| io::Error::other("the kernel gave an impossible process id"))?;
    // A closed channel shows when it is read.
    let told = Told::Started(group.as_raw_nonzero().get());
    reports.write_all(format!("{told}\n").as_bytes()).await.ok();

    let mut orders = BufReader::new(orders).lines();
    let mut owned = true;
    let mut kill_at = None;
    while !has_ended(group)? {
        tokio::select! {
            line = orders.next_line(), if owned => match line {
                Ok(Some(line)) => match Order::parse(&line) {
                    Some(Order::Terminate) => signal_group(group, Signal::TERM),
                    Some(Order::Kill) => signal_group(group, Signal::KILL),
                    None => {}
                },
                Ok(None) | Err(_) => {
                    owned = false;
                    kill_at = Some(Instant::now() + ORPHAN_GRACE);
                    signal_group(group, Signal::TERM);
                }
            },
            _ = children.recv() => reap_strays(group),
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                kill_at = None;
                signal_group(group, Signal::KILL);
            }
        }
    }

    let ending = end_rest(group, &mut child).await?;
    let told = Told::Exited(ending);
    reports.write_all(format!("{told}\n").as_bytes()).await.ok();
    Ok(())
}

/// Takes the default, deadly action from the signals that a service manager or a terminal sends.
fn survive_signals() -> io::Result<[SignalStream; 3]> {
    Ok([
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ])
}

fn start(command: &[OsString]) -> io::Result<Child> {
    Command::new(super::replica::own_program())
        .arg0("inflight")
        .arg(BECOME)
        .arg(std::process::id().to_string())
        .args(command)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
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
