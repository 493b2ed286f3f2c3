//! Builds the parts that a configuration asks for, runs them, and ends them in order.
//!
//! Every listener is bound before anything is started, so that a port in use ends us while there
//! is nothing to clean up.

mod model_rows;
mod part;
mod reload;
mod running_fleet;
mod wiring;

use std::future::poll_fn;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use anyhow::Context as _;
use inflight_core::load::InstanceId;
use tokio::task::{JoinError, JoinSet};
use tracing::info;

use crate::api::{Access, AdminListener, Api};
use crate::clock::Clock;
use crate::config::{AdminConfig, Config, JournalSettings};
use crate::fleet::{Fleet, Roster};
use crate::story::Story;
use crate::story::journal::Journal;
use crate::targets::process::ProcessHost;
use crate::telemetry::printer;
use part::Part;
use running_fleet::{Prepared, RunningFleet};

/// Everything that runs for one configuration.
pub struct Running {
    /// In the order of the configuration; names differ.
    fleets: Vec<RunningFleet>,
    roster: Arc<Roster>,
    clock: Clock,
    instance: InstanceId,
    host: ProcessHost,
    story: Story,
    journal: Option<JournalSettings>,
    admin: Admin,
    /// What a change of the configuration left to end: fleets, gateways, an admin API.
    leaving: JoinSet<Result<(), JoinError>>,
}

/// The admin API that runs.
struct Admin {
    /// As the configuration has it, which may leave the port open.
    config: AdminConfig,
    address: SocketAddr,
    part: Part,
}

impl Running {
    /// Binds every listener, then starts every part.
    ///
    /// # Errors
    /// A listener cannot be bound; then nothing was started.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let clock = Clock::start();
        // Random keys, made anew in each process.
        let instance = InstanceId(RandomState::new().hash_one(std::process::id()));
        let listener = AdminListener::bind(config.admin.listen.value).await?;
        let prepared =
            (config.fleets.into_iter().map(Prepared::new)).collect::<anyhow::Result<Vec<_>>>()?;

        let journal = config.journal.as_ref().map(wiring::journal);
        let journal = journal.map(Journal::start).transpose();
        let journal = journal.context("the journal's thread cannot be started")?;
        let story = Story::new(clock, journal);
        let host = ProcessHost::new(clock, printer().clone());
        let roster = Arc::new(Roster::default());
        let fleets: Vec<_> = (prepared.into_iter())
            .map(|fleet| RunningFleet::start(fleet, clock, instance, &host, &story))
            .collect();
        roster.replace(fleets.iter().map(|fleet| fleet.member().clone()).collect());
        roster.configuration().in_force_since = clock.now();
        let api = Api {
            roster: Arc::clone(&roster),
            clock,
            story: story.clone(),
            access: Access::new(listener.address(), config.admin.token_file.clone()),
            instance,
        };
        let admin = Admin::start(config.admin, listener, api);
        info!(admin = %admin.address, fleets = fleets.len(), "running");
        Ok(Self {
            fleets,
            roster,
            clock,
            instance,
            host,
            admin,
            journal: config.journal,
            leaving: JoinSet::new(),
            story,
        })
    }

    /// Returns the address of the admin API.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin.address
    }

    /// Returns the first fleet and the address of its gateway, if it has one.
    #[must_use]
    pub fn first(&self) -> Option<(Arc<Fleet>, SocketAddr)> {
        let fleet = self.fleets.first()?;
        Some((Arc::clone(&fleet.member().fleet), fleet.address()?))
    }

    /// Returns the address of a fleet's gateway.
    #[must_use]
    pub fn gateway(&self, fleet: &str) -> Option<SocketAddr> {
        let fleet = self.fleets.iter().find(|one| one.name() == fleet)?;
        fleet.address()
    }

    /// Waits until a part ends that nobody told to: a fault of ours, after which the rest is not
    /// to be trusted with a fleet.
    pub async fn failed(&mut self) -> &'static str {
        poll_fn(|cx| {
            for fleet in &mut self.fleets {
                if let Poll::Ready(name) = fleet.poll_failed(cx) {
                    return Poll::Ready(name);
                }
            }
            self.admin.part.poll_failed(cx)
        })
        .await
    }

    /// Ends everything in order: the fleets, all at the same time; then the API.
    ///
    /// # Errors
    /// A part of ours ended by a panic.
    pub async fn stop(self) -> anyhow::Result<()> {
        info!("stopping: finishing what was accepted");
        let mut stopping = self.leaving;
        for fleet in self.fleets {
            stopping.spawn(fleet.stop());
        }
        let mut result = Ok(());
        while let Some(stopped) = stopping.join_next().await {
            result = result.and(stopped.and_then(|stopped| stopped));
        }
        result = result.and(self.admin.part.end().await);
        if let Some(journal) = self.story.journal() {
            journal.close().await;
        }
        result.context("a part of inflight failed")
    }
}

impl Admin {
    fn start(config: AdminConfig, listener: AdminListener, api: Api) -> Self {
        Self {
            config,
            address: listener.address(),
            part: Part::start("the admin API", |stop| {
                // A dropped sender ends the API just as well.
                listener.serve(api, async { stop.await.unwrap_or_default() })
            }),
        }
    }
}

impl Running {
    fn api(&self, address: SocketAddr, config: &AdminConfig) -> Api {
        Api {
            roster: Arc::clone(&self.roster),
            clock: self.clock,
            story: self.story.clone(),
            access: Access::new(address, config.token_file.clone()),
            instance: self.instance,
        }
    }
}
