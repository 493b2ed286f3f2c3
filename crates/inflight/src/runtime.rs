//! Builds the parts that a configuration asks for, runs them, and ends them in order.
//!
//! Every listener is bound before anything is started, so that a port in use ends us while there
//! is nothing to clean up.

mod wiring;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use inflight_core::Replicas;
use inflight_core::admission::Gate;
use inflight_core::scaling::Scaler;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{error, info};

use crate::api::{AdminListener, Api};
use crate::clock::Clock;
use crate::config::{Config, Endpoints, FleetConfig, Target};
use crate::control::{Control, TargetLink};
use crate::endpoints::{self, Comings};
use crate::fleet::{Board, Fleet};
use crate::gateway::Gateway;
use crate::targets::process::{LogPrinter, ProcessHost, ProcessTarget};

/// Commands that a target may lag behind: sizes repeat, and of the others there is one a replica.
const COMMANDS_WAITING: usize = 256;
/// News that a control loop may lag behind; a target waits when it is full.
const EVENTS_WAITING: usize = 256;

/// Everything that runs for one configuration.
pub struct Running {
    admin: SocketAddr,
    fleets: Vec<(Arc<Fleet>, SocketAddr)>,
    /// Ends the gateways: they accept nothing more and finish what they have.
    drain: watch::Sender<bool>,
    gateways: JoinSet<()>,
    controls: JoinSet<()>,
    /// Ends the control loops.
    stops: Vec<oneshot::Sender<()>>,
    targets: JoinSet<()>,
    end_api: oneshot::Sender<()>,
    api: JoinHandle<()>,
}

impl Running {
    /// Binds every listener, then starts every part.
    ///
    /// # Errors
    /// A listener cannot be bound; then nothing was started.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let admin = AdminListener::bind(config.admin.listen.value).await?;
        let gateways = config
            .fleets
            .iter()
            .map(|fleet| Gateway::bind(wiring::gateway(fleet)))
            .collect::<Result<Vec<_>, _>>()?;

        let (drain, draining) = watch::channel(false);
        let (end_api, api_ended) = oneshot::channel();
        let printer = LogPrinter::to_stderr().context("the replicas' lines cannot be printed")?;
        let mut parts = Parts {
            clock,
            host: ProcessHost::new(clock, printer),
            draining,
            fleets: Vec::new(),
            gateways: JoinSet::new(),
            controls: JoinSet::new(),
            stops: Vec::new(),
            targets: JoinSet::new(),
        };
        let admin_address = admin.address();
        for (fleet, gateway) in config.fleets.iter().zip(gateways) {
            parts.start_fleet(fleet, gateway)?;
        }
        let fleets = parts
            .fleets
            .iter()
            .map(|(fleet, _)| Arc::clone(fleet))
            .collect();
        let api = tokio::spawn(admin.serve(Api { fleets, clock }, async {
            // A dropped sender ends the API just as well.
            api_ended.await.ok();
        }));
        info!(admin = %admin_address, fleets = config.fleets.len(), "running");
        Ok(Self {
            admin: admin_address,
            fleets: parts.fleets,
            drain,
            gateways: parts.gateways,
            controls: parts.controls,
            stops: parts.stops,
            targets: parts.targets,
            end_api,
            api,
        })
    }

    /// Returns the address of the admin API.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the first fleet and the address of its gateway.
    #[must_use]
    pub fn first(&self) -> Option<(Arc<Fleet>, SocketAddr)> {
        self.fleets
            .first()
            .map(|(fleet, address)| (Arc::clone(fleet), *address))
    }

    /// Waits until a part ends that nobody told to: a fault of ours, after which the rest is not
    /// to be trusted with a fleet.
    pub async fn failed(&mut self) -> &'static str {
        tokio::select! {
            Some(_) = self.gateways.join_next() => "a gateway",
            Some(_) = self.controls.join_next() => "a control loop",
            Some(_) = self.targets.join_next() => "a target",
            _ = &mut self.api => "the admin API",
        }
    }

    /// Ends everything in order: the gateways finish what was accepted, with the control loops
    /// still serving what waits; then the replicas are stopped; then the API.
    ///
    /// # Errors
    /// A part of ours ended by a panic.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        info!("stopping: finishing what was accepted");
        for (fleet, _) in &self.fleets {
            fleet.board().is_listening = false;
        }
        self.drain.send_replace(true);
        let mut failure = None;
        while let Some(ended) = self.gateways.join_next().await {
            failure = failure.or(ended.err());
        }
        for stop in self.stops {
            // A loop that ended by itself needs no telling; its handle says why.
            stop.send(()).ok();
        }
        while let Some(ended) = self.controls.join_next().await {
            failure = failure.or(ended.err());
        }
        while let Some(ended) = self.targets.join_next().await {
            failure = failure.or(ended.err());
        }
        self.end_api.send(()).ok();
        failure = failure.or(self.api.await.err());
        match failure {
            Some(failure) => Err(failure).context("a part of inflight failed"),
            None => Ok(()),
        }
    }
}

/// What the starting of fleets adds to.
struct Parts {
    clock: Clock,
    host: ProcessHost,
    draining: watch::Receiver<bool>,
    fleets: Vec<(Arc<Fleet>, SocketAddr)>,
    gateways: JoinSet<()>,
    controls: JoinSet<()>,
    stops: Vec<oneshot::Sender<()>>,
    targets: JoinSet<()>,
}

impl Parts {
    fn start_fleet(&mut self, config: &FleetConfig, gateway: Gateway) -> anyhow::Result<()> {
        let now = self.clock.now();
        let mut gate = Gate::new(wiring::gate(config), now);
        // Sessions that an earlier process of ours knew are not new.
        gate.on_restart(now);
        let mut board = Board::new(
            config.scaling.policy.name(),
            config.models.first().map_or(1, |model| model.slots.get()),
            config.replicas_min,
            config.replicas_max,
        );
        board.is_listening = true;
        board.models = wiring::model_names(config);
        let fleet = Fleet::new(&config.name, self.clock, gate, board);
        let address = gateway.local_addr();

        let link = match wiring::endpoints(config) {
            Some((source, comings)) => Some(self.start_endpoints(&fleet, source, comings)),
            None => self.start_target(config)?,
        };
        let target = link.map(|link| self.start_watch(&fleet, config, link));
        let current = match &config.endpoints {
            Endpoints::Static(addresses) => Replicas::from_len(addresses.len()),
            Endpoints::Dns { .. } | Endpoints::Target => config.replicas_min,
        };
        let scaling = wiring::scaling(config)?;
        let decide_every = scaling.policy.tick();
        let scaler = Scaler::new(scaling, now, current);
        let control = Control::new(Arc::clone(&fleet), scaler, decide_every, target);
        let (stop, stopped) = oneshot::channel();
        self.stops.push(stop);
        self.controls.spawn(control.run(stopped));

        let mut draining = self.draining.clone();
        let shutdown = async move {
            // A dropped sender means that we are ending anyway.
            draining.wait_for(|&is_draining| is_draining).await.ok();
        };
        self.gateways
            .spawn(gateway.serve(Arc::clone(&fleet), shutdown));
        info!(fleet = config.name, listen = %address, "gateway listens");
        self.fleets.push((fleet, address));
        Ok(())
    }

    fn start_endpoints(
        &mut self,
        fleet: &Arc<Fleet>,
        source: endpoints::Source,
        comings: Comings,
    ) -> TargetLink {
        let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
        let (news, events) = mpsc::channel(EVENTS_WAITING);
        let fleet = Arc::clone(fleet);
        self.targets.spawn(endpoints::serve(
            fleet,
            source,
            comings,
            commands_taken,
            news,
        ));
        TargetLink { commands, events }
    }

    /// Puts the watch over the replicas' health between a target and its control loop.
    fn start_watch(
        &mut self,
        fleet: &Arc<Fleet>,
        config: &FleetConfig,
        link: TargetLink,
    ) -> TargetLink {
        let Some(health) = wiring::health(config) else {
            return link;
        };
        let (watched, events) = mpsc::channel(EVENTS_WAITING);
        let fleet = Arc::clone(fleet);
        self.targets
            .spawn(endpoints::watch(fleet, health, link.events, watched));
        TargetLink {
            commands: link.commands,
            events,
        }
    }

    fn start_target(&mut self, config: &FleetConfig) -> anyhow::Result<Option<TargetLink>> {
        let Target::Process(settings) = &config.target else {
            return Ok(None);
        };
        let process = wiring::process(config, settings)?;
        let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
        let (news, events) = mpsc::channel(EVENTS_WAITING);
        let target = ProcessTarget::start(process, self.host.clone(), commands_taken, news);
        let name = config.name.clone();
        self.targets.spawn(async move {
            if let Err(failure) = target.stopped().await {
                error!(fleet = name, %failure, "the process target failed");
            }
        });
        Ok(Some(TargetLink { commands, events }))
    }
}
