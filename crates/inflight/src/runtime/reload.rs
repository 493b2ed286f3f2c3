//! Another configuration for what runs: judged whole, then put in force whole, or refused whole.
//!
//! Everything that can fail comes before the first change: settings are judged, listeners bound.
//! A fleet is known by its name: it is started, changed in place, or drained and stopped.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use anyhow::Context as _;
use tracing::{info, warn};

use super::handover::Sockets;
use super::running_fleet::{Change, Leave, Left, Prepared, RunningFleet};
use super::{Admin, Running, keda};
use crate::api::AdminListener;
use crate::config::{AdminConfig, Config, ConfigError, FleetConfig};

/// Why a fleet is refused that was removed a moment ago.
const STILL_LEAVES: &str = "was removed and still drains: its replicas would be there twice, with \
    the same numbers; wait for their end, or give it another name";

/// Why a file is refused that another fleet tells of its replicas.
const STILL_WRITTEN: &str = "is written for a fleet that is removed, until its replicas are gone; wait \
    for that, or name another file";

/// What there is to do, in which nothing can fail any more.
struct Plan {
    /// In the order of the new configuration.
    fleets: Vec<Step>,
    admin: Option<(AdminConfig, AdminListener, OwnedFd)>,
    keda: keda::Change,
}

enum Step {
    Start(Prepared),
    Keep {
        name: String,
        change: Option<Change>,
    },
}

impl Running {
    /// Puts a file in force that was read again; or refuses it whole, says why, and goes on with
    /// what there is.
    pub async fn reload(&mut self, read: Result<Config, ConfigError>) {
        self.leaving.note_ended();
        let planned = match read {
            Ok(config) => {
                let warnings = config.warnings.clone();
                let planned = self.plan(config).await;
                planned.map(|plan| (plan, warnings))
            }
            Err(error) => Err(error.into()),
        };
        match planned {
            Ok((plan, warnings)) => {
                for warning in &warnings {
                    warn!(%warning, "configuration");
                }
                self.apply(plan).await;
                self.roster.configuration().on_in_force(self.clock.now());
                info!(fleets = self.fleets.len(), "configuration in force");
            }
            Err(error) => {
                let why = format!("{error:#}");
                let now = self.clock.now();
                // Whoever reads the line finds it in `/readyz` too.
                (self.roster.configuration()).on_refused(now, why.clone());
                warn!(why, "configuration refused: the former one stays in force");
            }
        }
    }

    async fn plan(&self, config: Config) -> anyhow::Result<Plan> {
        anyhow::ensure!(
            config.journal == self.journal,
            "`journal` cannot change while inflight runs: what is written would be in two files; \
             restart"
        );
        anyhow::ensure!(
            config.state_dir == self.state_dir,
            "`state.dir` cannot change while inflight runs: who looks for us would look in the other; \
             restart"
        );
        let (listen, running) = (config.admin.listen.value, &self.admin.config);
        let admin = if listen == running.listen.value {
            anyhow::ensure!(
                config.admin.token_file == running.token_file,
                "`admin.token_file` cannot change while `admin.listen` stays; write the other token \
                 to the same file, or restart"
            );
            None
        } else {
            let bound = AdminListener::bind(listen).await?;
            let listener = bound.listener()?;
            Some((config.admin, bound, listener))
        };
        let keda = self.keda.plan(&config.fleets)?;
        let step = |config: FleetConfig| {
            let running = self.fleets.iter().find(|fleet| fleet.name() == config.name);
            let name = config.name.clone();
            let step = match running {
                Some(fleet) => fleet.plan(config).map(|change| Step::Keep {
                    name: name.clone(),
                    change,
                }),
                None if self.leaving.has(&name) => Err(anyhow::anyhow!(STILL_LEAVES)),
                None => self.prepare(config).map(Step::Start),
            };
            step.with_context(|| format!("fleet {name}"))
        };
        let fleets = config.fleets.into_iter().map(step);
        let fleets: Vec<Step> = fleets.collect::<anyhow::Result<_>>()?;
        for step in &fleets {
            if let Step::Start(prepared) = step {
                prepared.ensure_files()?;
            }
        }
        Ok(Plan {
            fleets,
            admin,
            keda,
        })
    }

    /// Prepares a fleet that is to be started beside those that run, and those that still end.
    fn prepare(&self, config: FleetConfig) -> anyhow::Result<Prepared> {
        let prepared = Prepared::new(config, &mut Sockets::default())?;
        let running = self.fleets.iter().flat_map(RunningFleet::files);
        let written: Vec<_> = running.chain(self.leaving.files().cloned()).collect();
        let mut files = prepared.files().into_iter();
        if let Some(file) = files.find(|file| written.contains(file)) {
            anyhow::bail!(
                "`target.process.publish`: {} {STILL_WRITTEN}",
                file.display()
            );
        }
        Ok(prepared)
    }

    /// Cut short, it leaves every fleet in `fleets` or leaving, so that a stop ends them all.
    async fn apply(&mut self, plan: Plan) {
        let kept: Vec<&str> = (plan.fleets.iter())
            .filter_map(|step| match step {
                Step::Keep { name, .. } => Some(name.as_str()),
                Step::Start(_) => None,
            })
            .collect();
        let (stay, gone): (Vec<_>, Vec<_>) =
            (self.fleets.drain(..)).partition(|fleet: &RunningFleet| kept.contains(&fleet.name()));
        self.fleets = stay;
        for fleet in gone {
            info!(
                fleet = fleet.name(),
                "fleet was removed: it drains and stops"
            );
            let name = fleet.name().to_owned();
            let files = fleet.files();
            self.leaving
                .add_fleet(&name, files, async { fleet.stop(Leave::Nothing).await.1 });
        }

        let mut order = BTreeMap::new();
        for (place, step) in plan.fleets.into_iter().enumerate() {
            match step {
                Step::Start(prepared) => {
                    let fleet = RunningFleet::start(
                        prepared,
                        Left::default(),
                        self.clock,
                        self.instance,
                        &self.host,
                        &self.story,
                    );
                    order.insert(fleet.name().to_owned(), place);
                    self.fleets.push(fleet);
                }
                Step::Keep { name, change } => {
                    let fleet = (self.fleets.iter_mut()).find(|fleet| fleet.name() == name);
                    if let (Some(fleet), Some(change)) = (fleet, change) {
                        fleet.apply(change).await;
                    }
                    order.insert(name, place);
                }
            }
        }
        (self.fleets).sort_by_key(|fleet| order.get(fleet.name()).copied());
        let members = self.fleets.iter().map(|fleet| fleet.member().clone());
        self.roster.replace(members.collect());
        self.keda.apply(plan.keda, &self.roster, &mut self.leaving);

        if let Some((config, bound, listener)) = plan.admin {
            let api = self.api(bound.address(), &config);
            let admin = Admin::start(config, bound, listener, api);
            info!(admin = %admin.address, "the admin API listens");
            let former = std::mem::replace(&mut self.admin, admin);
            self.leaving.add(former.part.end());
        }
    }
}
