//! `inflight demo`: the whole thing on this machine in about a minute.
//!
//! A fleet of the small built-in servers, the gateway and the admin API, driven by one sequential
//! client, then by many, then by nobody. Nothing is shown that is not measured in this run.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use inflight_core::{Decision, Replicas};
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep, timeout};

use super::load::{Load, Tally};
use super::output::{line, write_file};
use super::run::{conclude, runtime};
use crate::config::{Config, Surroundings};
use crate::fleet::Fleet;
use crate::runtime::Running;
use crate::telemetry::{self, LogFormat};

/// What each replica does with a request: nothing but take this long.
const WORK: &str = "10ms";
/// Slots of one replica.
const SLOTS: u32 = 2;

/// What the demonstration is asked for.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Also writes the summary to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One part of the demonstration.
struct Phase {
    name: &'static str,
    clients: usize,
    duration: Duration,
    shows: &'static str,
}

const PHASES: [Phase; 3] = [
    Phase {
        name: "sequential",
        clients: 1,
        duration: Duration::from_secs(10),
        shows: "one client, one request of 10 ms after the other: about 90 a second, one in flight",
    },
    Phase {
        name: "concurrent",
        clients: 12,
        duration: Duration::from_secs(26),
        shows: "12 clients at once, 2 slots a replica: 12 / 2 replicas",
    },
    Phase {
        name: "silence",
        clients: 0,
        duration: Duration::from_secs(14),
        shows: "nobody asks: after the idle grace of 5 s the fleet goes to zero",
    },
];

#[derive(Serialize)]
struct Summary {
    requests: u64,
    lost: u64,
    refused: u64,
    p90_seconds: Option<f64>,
    phases: Vec<PhaseSummary>,
}

#[derive(Serialize)]
struct PhaseSummary {
    name: &'static str,
    clients: usize,
    replicas_max: u32,
    replicas_end: u32,
    in_flight_mean: f64,
}

/// Runs the demonstration and returns the exit code: 1 when a request was lost.
#[must_use]
pub(super) fn run(args: &DemoArgs) -> ExitCode {
    telemetry::start(LogFormat::Text, "warn");
    conclude(runtime().and_then(|runtime| runtime.block_on(show(args.json.as_deref()))))
}

async fn show(json: Option<&Path>) -> anyhow::Result<ExitCode> {
    let executable = std::env::current_exe().context("the path of this program is unknown")?;
    let text = configuration(&executable.to_string_lossy());
    let config = Config::from_text(
        Path::new("the demonstration"),
        &text,
        &Surroundings::of_this_process(),
    )?;
    let running = Running::start(config, false).await?;
    let (fleet, address) = running.first().context("the demonstration has one fleet")?;
    line(format_args!(
        "gateway http://{address}/  metrics http://{}/metrics",
        running.admin()
    ))?;

    let summary = demonstrate(&fleet, address).await;
    let stopped = running.stop().await;
    let summary = summary?;
    stopped?;

    let p90 = summary
        .p90_seconds
        .map_or_else(|| "unknown".to_owned(), |s| format!("{:.1} ms", s * 1e3));
    line(format_args!(
        "\n{} requests, {} lost, {} refused, 90 % answered within {p90}",
        summary.requests, summary.lost, summary.refused
    ))?;
    for phase in &summary.phases {
        line(format_args!(
            "{:<10} {:>2} clients, {:.2} in flight on average: at most {} replicas, {} at the end",
            phase.name, phase.clients, phase.in_flight_mean, phase.replicas_max, phase.replicas_end
        ))?;
    }
    if let Some(path) = json {
        write_file(path, &serde_json::to_vec_pretty(&summary)?)?;
    }
    Ok(if summary.lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// YAML takes JSON's strings, so the path is quoted as one.
fn configuration(executable: &str) -> String {
    let executable = serde_json::Value::from(executable);
    format!(
        r#"
version: 1
admin: {{ listen: "127.0.0.1:0" }}
fleets:
  - name: demo
    slots: {SLOTS}
    replicas: {{ min: 0, max: 8 }}
    source: {{ gateway: {{ listen: "127.0.0.1:0" }} }}
    target:
      process:
        command: [{executable}, __serve, --port, "{{port}}", --work, {WORK}, --start-delay, 300ms]
        ready: {{ path: /healthz }}
    scaling: {{ policy: staffing, down_window: 10s, idle: {{ grace: 5s }} }}
"#
    )
}

async fn demonstrate(fleet: &Arc<Fleet>, address: SocketAddr) -> anyhow::Result<Summary> {
    let begin = Instant::now();
    let mut total = Tally::default();
    let mut phases = Vec::new();
    for phase in &PHASES {
        line(format_args!("\n{}: {}", phase.name, phase.shows))?;
        let before = (Instant::now(), fleet.load().in_flight_seconds);
        let listener = fleet.board().listen();
        let load = Load {
            address,
            path: "/".to_owned(),
            clients: phase.clients,
            duration: phase.duration,
            think: Duration::ZERO,
        };
        let (tally, replicas_max) = tokio::join!(load.run(), tell(listener, begin, phase.duration));
        total.add(tally);
        if phase.clients == 0 {
            wait_for_zero(fleet).await;
        }
        let in_flight_seconds = fleet.load().in_flight_seconds - before.1;
        phases.push(PhaseSummary {
            name: phase.name,
            clients: phase.clients,
            replicas_max: replicas_max?.get(),
            replicas_end: fleet.board().desired().get(),
            in_flight_mean: in_flight_seconds / before.0.elapsed().as_secs_f64(),
        });
    }
    ensure!(total.requests > 0, "no request could be sent");
    Ok(Summary {
        requests: total.requests,
        lost: total.lost,
        refused: total.refused,
        p90_seconds: total.latency(0.9).map(|latency| latency.as_secs_f64()),
        phases,
    })
}

/// Prints a line per decision while `duration` lasts, and answers the largest size decided on.
async fn tell(
    mut decisions: Receiver<Decision>,
    begin: Instant,
    duration: Duration,
) -> anyhow::Result<Replicas> {
    let end = Instant::now() + duration;
    let mut largest = Replicas::ZERO;
    while let Ok(heard) = timeout(
        end.saturating_duration_since(Instant::now()),
        decisions.recv(),
    )
    .await
    {
        match heard {
            Ok(decision) => {
                largest = largest.max(decision.desired);
                let seconds = begin.elapsed().as_secs_f64();
                line(format_args!(
                    "{seconds:5.1} s  {} -> {}  {}",
                    decision.current, decision.desired, decision.reason
                ))?;
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => break,
        }
    }
    Ok(largest)
}

/// The last tick of the silence may come just after its end.
async fn wait_for_zero(fleet: &Fleet) {
    let end = Instant::now() + Duration::from_secs(5);
    while fleet.board().desired() > Replicas::ZERO && Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
    }
}
