//! `inflight render`: prints configuration for other systems from ours.

mod proxy;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};

use self::proxy::{EnvoyArgs, LuaArgs};
use super::{ConfigFile, USAGE};
use crate::config::{Config, FleetConfig};
use crate::render::{self, Consumer, Places, Rendered, Selector, Workload};

/// Prints configuration for other systems from ours. Asks nobody and changes nothing.
#[derive(Clone, Debug, Args)]
pub(super) struct RenderArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Queries: how many replicas are needed, and how overloaded the present ones are.
    Promql {
        #[command(flatten)]
        which: Which,
        /// Only this query of one fleet, without comments.
        #[arg(long, value_name = "WHO", value_enum)]
        only: Option<Asker>,
    },
    /// KEDA's objects: with target `keda` they ask us, else Prometheus.
    Keda {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        places: PlacesArgs,
    },
    /// What Prometheus scrapes, or its rules: terms to record, and alerts.
    Prometheus {
        #[command(flatten)]
        which: Which,
        /// The rules instead of the scrape configuration.
        #[arg(long)]
        rules: bool,
    },
    /// A filter in Lua by which Envoy refuses new clients, asking Prometheus. For one fleet.
    Lua {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        filter: LuaArgs,
    },
    /// A whole configuration of an Envoy before a fleet, each setting with its reason. For one fleet.
    Envoy {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        places: Box<EnvoyArgs>,
    },
    /// A dashboard of what inflight exports, as JSON.
    Grafana {
        #[command(flatten)]
        which: Which,
    },
}

/// Where things are in the cluster.
#[derive(Clone, Debug, Args)]
struct PlacesArgs {
    /// The object's name; by default that of the workload. For one fleet.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    name: Option<String>,
    /// The namespace of the object and of the workload.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = object_name)]
    namespace: String,
    /// What is sized: NAME, KIND/NAME or APIVERSION/KIND/NAME; by default a deployment with the
    /// fleet's name. For one fleet.
    #[arg(long, value_name = "WORKLOAD")]
    target: Option<Workload>,
    /// Where Prometheus is, as KEDA sees it.
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// Where inflight's external scaler is, as KEDA sees it.
    #[arg(long, value_name = "HOST:PORT")]
    scaler: Option<String>,
}

fn object_name(text: &str) -> Result<String, &'static str> {
    if render::is_object_name(text) {
        Ok(text.to_owned())
    } else {
        Err("is not what Kubernetes takes for a name: lower-case letters, digits, `-` and `.`")
    }
}

/// Which fleets, by which file.
#[derive(Clone, Debug, Args)]
struct Which {
    #[command(flatten)]
    config: ConfigFile,
    /// One fleet instead of all.
    #[arg(long, value_name = "NAME")]
    fleet: Option<String>,
    /// Labels that scraped series have beside those of the configuration, such as release="x".
    #[arg(long, value_name = "LABELS", default_value = "")]
    selector: Selector,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Asker {
    /// A total of the fleet.
    Scaler,
    /// A number that does not grow with the fleet.
    Gate,
}

impl Which {
    fn load(&self) -> Result<Config> {
        let mut config = self.config.load_elsewhere()?;
        if let Some(name) = &self.fleet {
            let all: Vec<String> = config.fleets.iter().map(|one| one.name.clone()).collect();
            config.fleets.retain(|fleet| fleet.name == *name);
            if config.fleets.is_empty() {
                bail!("there is no fleet `{name}`, allowed is {}", all.join(", "));
            }
        }
        Ok(config)
    }
}

/// Prints and returns the exit code: 0 done, 1 failed to print, 2 nothing that can be printed.
#[must_use]
pub(super) fn run(args: &RenderArgs) -> ExitCode {
    let (written, code) = match rendered(&args.what) {
        Ok(rendered) => (print(&rendered), ExitCode::SUCCESS),
        Err(error) => (writeln!(io::stderr(), "{error:#}"), ExitCode::from(USAGE)),
    };
    written.map_or(ExitCode::FAILURE, |()| code)
}

fn rendered(what: &What) -> Result<Rendered> {
    match what {
        What::Promql { which, only } => {
            let config = which.load()?;
            let Some(asker) = only else {
                return Ok(render::promql(&all(&config), &which.selector)?);
            };
            let consumer = match asker {
                Asker::Scaler => Consumer::Scaler,
                Asker::Gate => Consumer::Gate,
            };
            Ok(render::query(one(&config)?, &which.selector, consumer)?)
        }
        What::Keda { which, places } => {
            let config = which.load()?;
            if places.name.is_some() || places.target.is_some() {
                one(&config)?;
            }
            let places = Places {
                name: places.name.clone(),
                namespace: places.namespace.clone(),
                workload: places.target.clone(),
                prometheus: places.prometheus.clone(),
                scaler: places.scaler.clone(),
            };
            Ok(render::keda(&all(&config), &which.selector, &places)?)
        }
        What::Prometheus { which, rules } => {
            let config = which.load()?;
            if *rules {
                Ok(render::rules(&config, &which.selector)?)
            } else {
                Ok(render::scrape(&config))
            }
        }
        What::Lua { which, filter } => {
            let config = which.load()?;
            let fleet = one(&config)?;
            Ok(render::lua(fleet, &which.selector, &filter.places())?)
        }
        What::Envoy { which, places } => {
            let config = which.load()?;
            let fleet = one(&config)?;
            Ok(render::envoy(fleet, &which.selector, &places.places()?)?)
        }
        What::Grafana { which } => Ok(render::grafana(&which.load()?)),
    }
}

fn all(config: &Config) -> Vec<&FleetConfig> {
    config.fleets.iter().collect()
}

fn one(config: &Config) -> Result<&FleetConfig> {
    match config.fleets.as_slice() {
        [only] => Ok(only),
        fleets => {
            let names: Vec<&str> = fleets.iter().map(|fleet| fleet.name.as_str()).collect();
            Err(anyhow!("--fleet says which one: {}", names.join(", ")))
        }
    }
}

fn print(rendered: &Rendered) -> io::Result<()> {
    for warning in &rendered.warnings {
        writeln!(io::stderr(), "warning: {warning}")?;
    }
    let mut out = io::stdout().lock();
    out.write_all(rendered.text.as_bytes())?;
    out.flush()
}
