//! `inflight check`: judges a configuration and says what it would run. Starts no fleet.

mod envoy;
mod live;
mod values;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{ConfigFile, USAGE};
use crate::config::{
    AdmissionSettings, CloseWhen, Config, Endpoints, FleetConfig, Measure, MeasuredSettings,
    MetricKind, PagesSettings, PolicySettings, StaffingProfile, Target,
};

/// Says what is wrong with a configuration, or what it would run.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Which configuration.
    #[command(flatten)]
    pub config: ConfigFile,
    /// Reads the values of a SuperSONIC chart instead, and says what they do, what would be
    /// otherwise with inflight, and what to fix.
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,
    /// Reads a configuration of Envoy as well, or a dump of it (`/config_dump`), and warns of what in
    /// it loses requests, hides them from us, or opens the gate.
    #[arg(long, value_name = "FILE", conflicts_with = "values")]
    pub envoy: Option<PathBuf>,
    /// Asks every source as well, for 20 s at most, and says what each term is, how it was got and
    /// what it would lead to. Exit code 1 when one is unknown.
    #[arg(long)]
    pub live: bool,
}

/// Prints the verdict and returns the exit code: 0 right, 1 failed to print or not all known,
/// 2 wrong.
#[must_use]
pub fn run(args: &CheckArgs) -> ExitCode {
    if let Some(path) = &args.values {
        return values::run(path);
    }
    let config = match args.config.load() {
        Ok(config) => config,
        Err(error) => {
            let written = writeln!(io::stderr(), "{error}");
            return written.map_or(ExitCode::FAILURE, |()| ExitCode::from(USAGE));
        }
    };
    let proxy = args
        .envoy
        .as_deref()
        .map(|path| envoy::report(path, &config));
    let proxy = match proxy.transpose() {
        Ok(proxy) => proxy.unwrap_or_default(),
        Err(error) => {
            let written = writeln!(io::stderr(), "{error}");
            return written.map_or(ExitCode::FAILURE, |()| ExitCode::from(USAGE));
        }
    };
    let written = io::stdout().write_all((report(&config) + &proxy).as_bytes());
    match written {
        Err(_) => ExitCode::FAILURE,
        Ok(()) if args.live => live::run(&config),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Says what a configuration would run, a line per fleet, and what is worth a look.
#[must_use]
pub fn report(config: &Config) -> String {
    let mut out = String::new();
    for fleet in &config.fleets {
        out.push_str(&fleet_line(fleet));
        out.push('\n');
    }
    let token = if config.admin.token_file.is_some() {
        "with a token"
    } else {
        "without a token"
    };
    out.push_str(&format!("admin: {}, {token}\n", config.admin.listen.value));
    for warning in &config.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
    out
}

fn fleet_line(fleet: &FleetConfig) -> String {
    let runs = match (&fleet.target, &fleet.endpoints) {
        (Target::Process(process), _) => format!("runs `{}`", process.command.value.join(" ")),
        (changes, endpoints) => {
            let advises = match changes {
                Target::Keda { listen } => format!("answers KEDA at {listen}"),
                Target::Advise | Target::Process(_) => "advises".to_owned(),
            };
            match endpoints {
                Endpoints::Static(addresses) => {
                    format!("routes to {} and {advises}", listed(addresses))
                }
                Endpoints::Dns { name, .. } => {
                    format!("routes to the addresses of {name} and {advises}")
                }
                Endpoints::Target | Endpoints::Elsewhere => advises,
            }
        }
    };
    format!(
        "{}: {} {runs}; {} to {} replicas, {}; {}; {}; {} requests wait at most {:?}",
        fleet.name,
        sources(fleet),
        fleet.replicas_min,
        fleet.replicas_max,
        slots(fleet),
        policy(&fleet.scaling.policy),
        admission(fleet),
        fleet.queue.requests,
        fleet.queue.wait,
    )
}

fn sources(fleet: &FleetConfig) -> String {
    let gateway = (fleet.gateway.as_ref()).map(|gateway| gateway.listen.value.to_string());
    let peers = fleet.peers.as_ref().map(|peers| {
        let all: Vec<&str> = (peers.listed.iter())
            .chain(&peers.dns)
            .map(String::as_str)
            .collect();
        format!("the peers {}", all.join(", "))
    });
    let measured = fleet.measured.as_ref().map(measured);
    let all: Vec<String> = (gateway.into_iter()).chain(peers).chain(measured).collect();
    all.join(" and ")
}

fn measured(settings: &MeasuredSettings) -> String {
    let pages = |pages: &PagesSettings| {
        let all: Vec<&str> = (pages.listed.iter().chain(&pages.dns))
            .map(|page| page.authority.as_str())
            .collect();
        match &pages.port {
            Some(port) => format!("its replicas at their port {port}"),
            None => all.join(", "),
        }
    };
    match settings {
        MeasuredSettings::Envoy(envoy) => {
            let (admin, servers) = (pages(&envoy.admin), pages(&envoy.backend.metrics));
            format!(
                "cluster {} of Envoy {admin} before {servers}",
                envoy.cluster
            )
        }
        MeasuredSettings::Vllm(servers) => format!("vLLM {}", pages(&servers.metrics)),
        MeasuredSettings::Prometheus(prometheus) => {
            format!("Prometheus {}", prometheus.url.authority)
        }
    }
}

/// Who is refused, and where proxies ask.
fn admission(fleet: &FleetConfig) -> String {
    let gate = gate(fleet.admission.as_ref());
    match &fleet.ext_authz {
        Some(asked) => format!("{gate}, asked by Envoy at {}", asked.listen.value),
        None => gate,
    }
}

fn slots(fleet: &FleetConfig) -> String {
    let rows: Vec<String> = match fleet.models.as_slice() {
        [only] => return format!("slots {}", only.slots),
        rows => rows
            .iter()
            .map(|row| format!("{} {}", row.name, row.slots))
            .collect(),
    };
    format!("slots {}", rows.join(", "))
}

pub(super) fn policy(policy: &PolicySettings) -> String {
    let name = policy.name();
    match policy {
        PolicySettings::Staffing { profile } => match profile {
            StaffingProfile::Balanced => format!("{name} balanced"),
            StaffingProfile::Latency => format!("{name} latency"),
        },
        PolicySettings::Occupancy { threshold, window } => {
            format!("{name} {threshold} over {window:?}")
        }
        PolicySettings::Concurrency {
            utilization,
            measure,
            window,
        } => {
            let measure = match measure {
                Measure::Mean => "mean",
                Measure::Peak => "peak",
            };
            format!("{name} {utilization} of the {measure} over {window:?}")
        }
        PolicySettings::Metric { target, kind } => {
            let kind = match kind {
                MetricKind::AverageValue => "for each replica",
                MetricKind::Value => "at any size",
            };
            format!("{name} {target} {kind}")
        }
    }
}

fn gate(settings: Option<&AdmissionSettings>) -> String {
    let Some(settings) = settings else {
        return "no gate".to_owned();
    };
    let when = match settings.when {
        CloseWhen::AtMax => "when it cannot grow",
        CloseWhen::Always => "at any size",
    };
    format!("gate at inflation {} {when}", settings.threshold)
}

/// Lists the first few addresses.
fn listed(addresses: &[SocketAddr]) -> String {
    const SHOWN_MAX: usize = 3;
    let mut shown: Vec<String> = addresses
        .iter()
        .take(SHOWN_MAX)
        .map(ToString::to_string)
        .collect();
    if addresses.len() > SHOWN_MAX {
        shown.push(format!("{} more", addresses.len() - SHOWN_MAX));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Surroundings;

    #[test]
    fn the_report_says_what_would_run_and_what_is_worth_a_look() {
        let text = "\
version: 1
admin: { listen: 0.0.0.0:9900 }
fleets:
  - name: hello
    slots: 2
    replicas: { min: 0, max: 8 }
    source: { gateway: { listen: 127.0.0.1:8080 } }
    target: { process: { command: [server, --port, '{port}'] } }
  - name: fixed
    models: [{ name: a, path: /a, slots: 1 }, { name: b, path: /b, slots: 4 }]
    replicas: { max: 4 }
    source: { gateway: { listen: 127.0.0.1:8081 } }
    endpoints: { static: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80', '10.0.0.4:80'] }
    scaling: { policy: occupancy }
    admission: off
";
        let config =
            Config::from_text(Path::new("inflight.yaml"), text, &Surroundings::Elsewhere).unwrap();
        insta::assert_snapshot!(report(&config));
    }
}
