//! `inflight run`: serves what a configuration says until it is told to stop.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, warn};

use super::watched_file::WatchedFile;
use super::{ConfigFile, USAGE};
use crate::config::Config;
use crate::runtime::{Challenge, Running};
use crate::telemetry::{self, LogFormat, printer};

/// Runs until stopped. Reads its file again on SIGHUP and when it changes; a bad one is refused
/// whole, and the former one stays in force. SIGTERM or SIGINT finishes what was accepted, a second one ends at once.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// Takes over from the inflight that runs with the same `state.dir`, without a refused
    /// connection: its listening sockets, what it knows, and the replicas of fleets with `on_exit:
    /// keep`; other fleets start replicas anew. Starts as usual when none runs.
    #[arg(long)]
    take_over: bool,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
}

/// Runs and returns the exit code: 0 stopped as told, 1 failed, 2 bad configuration.
#[must_use]
pub fn run(args: &RunArgs) -> ExitCode {
    telemetry::start(args.log_format, "info");
    let mut file = WatchedFile::new(args.config.path.clone());
    match file.load() {
        Ok(config) => {
            for warning in &config.warnings {
                warn!(%warning, "configuration");
            }
            conclude(serve(config, file, args.take_over))
        }
        Err(error) => {
            printer().line(error.to_string().into_bytes());
            printer().flush();
            ExitCode::from(USAGE)
        }
    }
}

/// Says why a command failed, if it did, after the last lines of its log.
pub(super) fn conclude(result: anyhow::Result<ExitCode>) -> ExitCode {
    let code = result.unwrap_or_else(|failure| {
        printer().line(format!("error: {failure:#}").into_bytes());
        ExitCode::FAILURE
    });
    printer().flush();
    code
}

/// Starts as many worker threads as there are processors; on one, none beside our own.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    let processors = available_parallelism().map_or(1, NonZero::get);
    let mut builder = if processors == 1 {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    builder
        .enable_all()
        .build()
        .context("the system gives us no threads")
}

/// Takes as many file descriptors as we may have: each client and each replica's connection is one,
/// and the usual soft limit of 1024 is for programs that use `select`.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, files = limit.current, "the limit on open files cannot be raised");
    }
}

fn serve(config: Config, mut file: WatchedFile, take_over: bool) -> anyhow::Result<ExitCode> {
    raise_file_limit();
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        // Until the end, so that a SIGHUP while we stop is no death.
        let mut hang_up = signal(SignalKind::hangup()).context("signals cannot be received")?;
        let mut running = Running::start(config, take_over).await?;
        let code = loop {
            tokio::select! {
                () = signals.wait() => break ExitCode::SUCCESS,
                challenge = running.challenged() => match challenge {
                    Challenge::Failed(part) => {
                        error!(part, "a part of ours ended by itself: stopping the rest");
                        break ExitCode::FAILURE;
                    }
                    // No change of the file comes between.
                    Challenge::Asked(stream) => tokio::select! {
                        is_succeeded = running.give_way(stream) => if is_succeeded {
                            break ExitCode::SUCCESS;
                        },
                        () = signals.wait() => break ExitCode::SUCCESS,
                    },
                },
                read = file.changed(&mut hang_up) => tokio::select! {
                    () = running.reload(read) => {}
                    () = signals.wait() => break ExitCode::SUCCESS,
                },
            }
        };
        tokio::select! {
            stopped = running.stop() => stopped.map(|()| code),
            () = signals.wait_again() => {
                // The replicas end with their control channels; those to be kept after their grace.
                warn!("told to stop twice: ending at once");
                Ok(ExitCode::FAILURE)
            }
        }
    })
}

/// The signals that mean stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be received");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for somebody who means it: what comes right after the first signal is the same one,
    /// told to the process and to its group.
    async fn wait_again(&mut self) {
        const SAME_WITHIN: Duration = Duration::from_secs(1);
        let begun = Instant::now();
        loop {
            self.wait().await;
            if begun.elapsed() > SAME_WITHIN {
                return;
            }
        }
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
