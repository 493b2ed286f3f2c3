//! One fleet that runs: its parts, started by one function and ended in order by another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use inflight_core::admission::Gate;
use inflight_core::load::{InstanceId, ReplicaState};
use inflight_core::scaling::Scaler;
use inflight_core::{ReplicaId, Replicas};
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tracing::{error, info};

use super::part::Part;
use super::wiring;
use crate::clock::Clock;
use crate::config::{Endpoints, FleetConfig, Target};
use crate::control::{Control, TargetLink};
use crate::fleet::{Board, Fleet, Member, Peers};
use crate::gateway::Gateway;
use crate::ports::FleetSettings;
use crate::sources::{PeerSource, PeersConfig};
use crate::story::Story;
use crate::targets::process::{ProcessConfig, ProcessHost, ProcessTarget};

/// Commands that a target may lag behind: sizes repeat, and of the others there is one a replica.
const COMMANDS_WAITING: usize = 256;
/// News that a control loop may lag behind; a target waits when it is full.
const EVENTS_WAITING: usize = 256;
/// Orders that a control loop may lag behind; whoever gives one waits when it is full.
const ORDERS_WAITING: usize = 16;

/// Everything that can fail about a fleet before it is started: its settings, its listener.
pub(super) struct Prepared {
    config: FleetConfig,
    settings: FleetSettings,
    process: Option<ProcessConfig>,
    gateway: Option<Gateway>,
    peers: Option<PeersConfig>,
}

/// A fleet that runs.
pub(super) struct RunningFleet {
    member: Member,
    address: Option<SocketAddr>,
    gateway: Option<Part>,
    /// Asks the peers.
    source: Option<Part>,
    control: Part,
    /// Ends once its control loop did.
    target: Option<Part>,
}

impl Prepared {
    /// Judges a fleet's settings and binds its listener.
    ///
    /// # Errors
    /// A setting is impossible, or the address cannot be listened on.
    pub(super) fn new(config: FleetConfig) -> anyhow::Result<Self> {
        let process = match &config.target {
            Target::Process(settings) => Some(wiring::process(&config, settings)?),
            Target::Advise => None,
        };
        let gateway = (config.gateway.as_ref())
            .map(|settings| {
                let line = settings.listen.place.line;
                Gateway::bind(wiring::gateway(&config, settings))
                    .with_context(|| format!("fleet {}, line {line}", config.name))
            })
            .transpose()?;
        Ok(Self {
            settings: wiring::settings(&config)?,
            process,
            gateway,
            peers: wiring::peers(&config),
            config,
        })
    }
}

impl RunningFleet {
    /// Starts the parts of a fleet.
    pub(super) fn start(
        prepared: Prepared,
        clock: Clock,
        instance: InstanceId,
        host: &ProcessHost,
        story: &Story,
    ) -> Self {
        let Prepared {
            config,
            settings,
            process,
            gateway,
            peers,
        } = prepared;
        let now = clock.now();
        let mut gate = Gate::new(wiring::gate(&config), now);
        // Sessions that an earlier process of ours knew are not new.
        gate.on_restart(now);
        let mut board = Board::new(
            config.scaling.policy.name(),
            config.models.first().map_or(1, |model| model.slots.get()),
            config.replicas_min,
            config.replicas_max,
        );
        board.is_listening = true;
        board.models = config.models.iter().map(|row| row.name.clone()).collect();
        let fleet = Fleet::with_sources(
            &config.name,
            clock,
            gate,
            board,
            gateway.is_some(),
            (peers.as_ref()).map(|_| Peers::new(instance, config.models.len())),
        );
        let mut current = config.replicas_min;
        if let Endpoints::Static(addresses) = &config.endpoints {
            for (id, &address) in (0..).zip(addresses) {
                fleet.set_endpoint(ReplicaId(id), address, ReplicaState::Ready);
            }
            current = Replicas::from_len(addresses.len());
        }

        let (target, link) = match process {
            Some(process) => {
                let (target, link) = start_process(process, host.clone(), &config.name);
                (Some(target), Some(link))
            }
            None => (None, None),
        };
        story.started(&config.name, now, &settings.scaling, current);
        let scaler = Scaler::new(settings.scaling, now, current);
        let control = Control::new(Arc::clone(&fleet), scaler, link, story.clone());
        let (orders, orders_taken) = mpsc::channel(ORDERS_WAITING);
        let address = gateway.as_ref().map(Gateway::local_addr);
        if let Some(address) = address {
            info!(fleet = config.name, listen = %address, "gateway listens");
        }
        Self {
            control: Part::start("a control loop", |stop| control.run(orders_taken, stop)),
            gateway: gateway.map(|gateway| {
                Part::start("a gateway", |stop| {
                    // A dropped sender means that we are ending anyway.
                    let shutdown = async { stop.await.unwrap_or_default() };
                    gateway.serve(Arc::clone(&fleet), shutdown)
                })
            }),
            source: peers.map(|peers| {
                let source = PeerSource::new(Arc::clone(&fleet), peers);
                Part::start("a source", |stop| source.run(stop))
            }),
            target,
            address,
            member: Member { fleet, orders },
        }
    }

    /// Returns what others may see and ask of the fleet.
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// Returns where its gateway listens; `None` without one.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Is ready with the name of a part that ended although nobody told it to.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let parts = [
            self.gateway.as_mut(),
            self.source.as_mut(),
            Some(&mut self.control),
            self.target.as_mut(),
        ];
        for part in parts.into_iter().flatten() {
            if let Poll::Ready(name) = part.poll_failed(cx) {
                return Poll::Ready(name);
            }
        }
        Poll::Pending
    }

    /// Ends the fleet in order: its gateway finishes what was accepted, with the control loop
    /// still serving what waits; then the replicas are stopped.
    ///
    /// # Errors
    /// A part of it ended by a panic.
    pub(super) async fn stop(self) -> Result<(), JoinError> {
        self.member.fleet.board().is_listening = false;
        let mut result = Ok(());
        if let Some(gateway) = self.gateway {
            result = gateway.end().await;
        }
        result = result.and(self.control.end().await);
        if let Some(source) = self.source {
            result = result.and(source.end().await);
        }
        if let Some(target) = self.target {
            result = result.and(target.ended().await);
        }
        result
    }
}

fn start_process(process: ProcessConfig, host: ProcessHost, fleet: &str) -> (Part, TargetLink) {
    let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
    let (news, events) = mpsc::channel(EVENTS_WAITING);
    let target = ProcessTarget::start(process, host, commands_taken, news);
    let fleet = fleet.to_owned();
    // It ends by the end of its commands, which is the control loop's doing.
    let part = Part::start("a target", |_| async move {
        if let Err(failure) = target.stopped().await {
            error!(fleet, %failure, "the process target failed");
        }
    });
    (part, TargetLink { commands, events })
}
