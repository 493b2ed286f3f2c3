//! One fleet that runs: its parts, started by one function and ended in order by another.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll};

use inflight_core::admission::Gate;
use inflight_core::load::ReplicaState;
use inflight_core::scaling::Scaler;
use inflight_core::{ReplicaId, Replicas};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinError;
use tracing::{error, info};

use super::handover::{Offer, SocketKind, Sockets};
use super::part::Part;
use super::snapshot::PastFleet;
use super::wiring;
use crate::clock::Clock;
use crate::config::{Endpoints, FleetConfig, SessionBy, Target};
use crate::control::{Control, TargetLink};
use crate::fleet::{Board, Fleet, Member};
use crate::gateway::Gateway;
use crate::ports::{FleetSettings, Order};
use crate::targets::process::{Orphan, ProcessConfig, ProcessHost, ProcessTarget};

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
    gateway: Gateway,
    listener: OwnedFd,
}

/// What an earlier process of ours left of a fleet.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// What it knew.
    pub(super) past: Option<PastFleet>,
    /// The replicas that run.
    pub(super) orphans: Vec<Orphan>,
    /// Whether the process that we take over from still has requests on them.
    pub(super) is_shared: bool,
}

/// A fleet that runs.
pub(super) struct RunningFleet {
    member: Member,
    models: Vec<String>,
    address: SocketAddr,
    /// A copy of the gateway's, for a successor.
    listener: OwnedFd,
    /// Whether the replicas stay when we end.
    keeps: bool,
    gateway: Part,
    control: Part,
    /// Ends once its control loop did.
    target: Option<Part>,
}

impl Prepared {
    /// Judges a fleet's settings and binds its listener.
    ///
    /// # Errors
    /// A setting is impossible, or the address cannot be listened on.
    pub(super) fn new(config: FleetConfig, sockets: &mut Sockets) -> anyhow::Result<Self> {
        let process = match &config.target {
            Target::Process(settings) => Some(wiring::process(&config, settings)?),
            Target::Advise => None,
        };
        let settings = wiring::settings(&config)?;
        let listen = config.gateway.listen.value;
        let passed = sockets.take_listener(SocketKind::Gateway, &config.name, listen);
        let gateway = match passed {
            Some(listener) => Gateway::adopt(wiring::gateway(&config), listener)?,
            None => Gateway::bind(wiring::gateway(&config))?,
        };
        Ok(Self {
            settings,
            process,
            listener: gateway.listener()?,
            gateway,
            config,
        })
    }

    /// Returns the fleet's name.
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the names of its models, in order.
    pub(super) fn models(&self) -> Vec<&str> {
        self.config
            .models
            .iter()
            .map(|model| model.name.as_str())
            .collect()
    }
}

impl RunningFleet {
    /// Starts the parts of a fleet.
    pub(super) fn start(prepared: Prepared, left: Left, clock: Clock, host: &ProcessHost) -> Self {
        let models = prepared.models().into_iter().map(str::to_owned).collect();
        let Prepared {
            config,
            settings,
            process,
            gateway,
            listener,
        } = prepared;
        let Left {
            past,
            orphans,
            is_shared,
        } = left;
        let now = clock.now();
        let mut gate = Gate::new(wiring::gate(&config), now);
        if let Some(past) = &past {
            gate.restore(now, &past.gate);
        }
        // Sessions that an earlier process of ours knew are not new; those of connections have
        // other connections since.
        if past.is_none() || config.session == SessionBy::Address {
            gate.on_restart(now);
        }
        let mut board = Board::new(
            config.scaling.policy.name(),
            config.models.first().map_or(1, |model| model.slots.get()),
            config.replicas_min,
            config.replicas_max,
        );
        board.is_listening = true;
        let fleet = Fleet::new(&config.name, clock, gate, board);
        let found = orphans.iter().filter(|orphan| orphan.is_live()).count();
        let mut current = config.replicas_min.max(Replicas::from_len(found));
        if let Endpoints::Static(addresses) = &config.endpoints {
            for (id, &address) in (0..).zip(addresses) {
                fleet.set_endpoint(ReplicaId(id), address, ReplicaState::Ready);
            }
            current = Replicas::from_len(addresses.len());
        }

        let keeps = process
            .as_ref()
            .is_some_and(|process| process.settings().keeps);
        let (target, link) = match process {
            Some(process) => {
                let (target, link) = start_process(process, orphans, host.clone(), &config.name);
                (Some(target), Some(link))
            }
            None => (None, None),
        };
        let mut scaler = Scaler::new(settings.scaling, now, current);
        if let Some(past) = &past {
            scaler.restore(now, &past.scaler);
        }
        let mut control = Control::new(Arc::clone(&fleet), scaler, link);
        if is_shared {
            control = control.beside_another(Replicas::from_len(found));
        }
        let (orders, orders_taken) = mpsc::channel(ORDERS_WAITING);
        let address = gateway.local_addr();
        info!(fleet = config.name, listen = %address, "gateway listens");
        Self {
            control: Part::start("a control loop", |stop| control.run(orders_taken, stop)),
            gateway: Part::start("a gateway", |stop| {
                // A dropped sender means that we are ending anyway.
                let shutdown = async { stop.await.unwrap_or_default() };
                gateway.serve(Arc::clone(&fleet), shutdown)
            }),
            target,
            address,
            listener,
            keeps,
            models,
            member: Member { fleet, orders },
        }
    }

    /// Returns what others may see and ask of the fleet.
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// Returns where its gateway listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds what a successor needs to go on listening.
    pub(super) fn offer<'a>(&'a self, offer: &mut Offer<'a>) {
        let (name, address) = (self.member.fleet.name(), self.address);
        offer.add(
            SocketKind::Gateway,
            name,
            Some(address),
            self.listener.as_fd(),
        );
    }

    /// Tells whether the replicas stay when we end.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Decides nothing more and returns what is known; `None` when the control loop has failed.
    pub(super) async fn hand_over(&self) -> Option<PastFleet> {
        hand_over(&self.member, &self.models).await
    }

    /// Decides again.
    pub(super) async fn take_back(&self) {
        // A loop that failed is told by its handle.
        self.member.orders.send(Order::TakeBack).await.ok();
    }

    /// Is ready with the name of a part that ended although nobody told it to.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let parts = [
            Some(&mut self.gateway),
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
    /// still serving what waits; then the replicas are stopped, or left running if they are to
    /// stay. Returns what is known of those.
    ///
    /// # Errors
    /// A part of it ended by a panic.
    pub(super) async fn stop(self, leave: Leave) -> (Option<PastFleet>, Result<(), JoinError>) {
        let Self {
            member,
            models,
            gateway,
            listener,
            control,
            target,
            ..
        } = self;
        member.fleet.board().is_listening = false;
        // While there is a copy the system lets clients connect, and nobody would accept them.
        drop(listener);
        let mut result = gateway.end().await;
        let past = match leave {
            Leave::Replicas => hand_over(&member, &models).await,
            Leave::Nothing => None,
        };
        result = result.and(control.end().await);
        if let Some(target) = target {
            result = result.and(target.ended().await);
        }
        (past, result)
    }
}

/// What is left of a fleet that ends, unless it was handed over before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Nothing,
    /// The replicas, if they are to stay, for a later process of ours.
    Replicas,
}

async fn hand_over(member: &Member, models: &[String]) -> Option<PastFleet> {
    let (done, known) = oneshot::channel();
    let order = Order::HandOver { done };
    member.orders.send(order).await.ok()?;
    let scaler = *known.await.ok()?;
    Some(PastFleet {
        name: member.fleet.name().to_owned(),
        models: models.to_vec(),
        gate: member.fleet.export(),
        scaler,
    })
}

fn start_process(
    process: ProcessConfig,
    orphans: Vec<Orphan>,
    host: ProcessHost,
    fleet: &str,
) -> (Part, TargetLink) {
    let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
    let (news, events) = mpsc::channel(EVENTS_WAITING);
    let target = ProcessTarget::start(process, host, orphans, commands_taken, news);
    let fleet = fleet.to_owned();
    // It ends by the end of its commands, which is the control loop's doing.
    let part = Part::start("a target", |_| async move {
        if let Err(failure) = target.stopped().await {
            error!(fleet, %failure, "the process target failed");
        }
    });
    (part, TargetLink { commands, events })
}
