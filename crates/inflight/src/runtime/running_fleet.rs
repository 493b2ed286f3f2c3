//! One fleet that runs: its parts, started by one function and ended in order by another.

mod fixed;
mod gate;
mod part_settings;
mod replicas;

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use inflight_core::Replicas;
use inflight_core::admission::Gate;
use inflight_core::load::InstanceId;
use inflight_core::scaling::Scaler;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tracing::{error, info};

use super::handover::{Offer, SocketKind, Sockets};
use super::model_rows::ModelRows;
use super::part::Part;
use super::snapshot::PastFleet;
use super::wiring;
use crate::clock::Clock;
use crate::config::{Endpoints, FleetConfig};
use crate::control::Control;
use crate::fleet::{Board, Checks, Fleet, Member, Peers, Published, Sources};
use crate::gateway::{Gateway, GatewayConfig};
use crate::ports::Order;
use crate::publish;
use crate::sources::{MeasuredSource, PeerSource, PrometheusSource};
use crate::story::Story;
use crate::targets::process::{Orphan, ProcessHost};
use gate::{BoundGate, RunningGate, checks};
use part_settings::PartSettings;
use replicas::RunningReplicas;

/// Orders that a control loop may lag behind; whoever gives one waits when it is full.
const ORDERS_WAITING: usize = 16;

/// A fleet that is ready to be started: nothing about it can fail any more.
pub(super) struct Prepared {
    config: FleetConfig,
    settings: PartSettings,
    gateway: Option<Bound>,
    gate: Option<BoundGate>,
}

/// A gateway, with a copy of its listening socket for a successor.
struct Bound {
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

/// Other settings for a fleet that runs, in which nothing can fail any more.
pub(super) struct Change {
    config: FleetConfig,
    settings: PartSettings,
    /// A gateway of its own where the address differs.
    gateway: Option<Bound>,
    /// The same of the gate that Envoys ask.
    gate: Option<BoundGate>,
}

/// A fleet that runs.
pub(super) struct RunningFleet {
    member: Member,
    settings: PartSettings,
    gateway: Option<RunningGateway>,
    gate: Option<RunningGate>,
    /// Those of addresses that it listened on before; they finish what they have.
    former: JoinSet<Result<(), JoinError>>,
    /// Asks the peers.
    source: Option<Part>,
    control: Part,
    replicas: RunningReplicas,
}

struct RunningGateway {
    address: SocketAddr,
    /// A copy of the listening socket, for a successor.
    listener: OwnedFd,
    settings: watch::Sender<GatewayConfig>,
    part: Part,
}

impl Prepared {
    /// Judges a fleet's settings and binds its listener.
    ///
    /// # Errors
    /// A setting is impossible, or the address cannot be listened on.
    pub(super) fn new(config: FleetConfig, sockets: &mut Sockets) -> anyhow::Result<Self> {
        let settings = PartSettings::new(&config, &ModelRows::default())?;
        Ok(Self {
            gateway: bind(&settings, &config, sockets)?,
            gate: BoundGate::bind(&settings, &config, sockets)?,
            settings,
            config,
        })
    }

    /// Returns the fleet's name.
    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    /// Tells whether it starts replicas that are not those of an earlier process of ours.
    pub(super) fn starts_anew(&self) -> bool {
        self.settings.process.is_some() && !self.settings.keeps()
    }

    /// Returns the files that are written for it.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.settings.files()
    }

    /// Makes sure that they are there, since Envoy does not start without its own, and can be written.
    /// To be called last of all that may fail: what is there may be another's.
    ///
    /// # Errors
    /// One cannot be written.
    pub(super) fn ensure_files(&self) -> anyhow::Result<()> {
        let Some(publish) = &self.settings.publish else {
            return Ok(());
        };
        let name = self.name();
        publish::prepare(&publish.publish, name).map_err(|(file, error)| {
            let file = file.display();
            anyhow::anyhow!("fleet {name}: target.process.publish: cannot write {file}: {error}")
        })
    }

    /// Returns the names of its models, by row.
    pub(super) fn models(&self) -> Vec<String> {
        self.settings.rows.names()
    }
}

impl RunningFleet {
    /// Starts the parts of a fleet.
    pub(super) fn start(
        prepared: Prepared,
        left: Left,
        clock: Clock,
        instance: InstanceId,
        host: &ProcessHost,
        story: &Story,
    ) -> Self {
        let Prepared {
            config,
            settings,
            gateway,
            gate: checked,
        } = prepared;
        let Left {
            past,
            orphans,
            is_shared,
        } = left;
        let fleet = fleet(&config, &settings, past.as_ref(), clock, instance);
        let now = clock.now();
        let found = orphans.iter().filter(|orphan| orphan.is_live()).count();
        let current = match &config.endpoints {
            // Where somebody else sizes the fleet, those that are ready tell.
            Endpoints::Static(addresses) if settings.external.is_none() => {
                Replicas::from_len(addresses.len())
            }
            Endpoints::Static(_)
            | Endpoints::Dns { .. }
            | Endpoints::Target
            | Endpoints::Elsewhere => config.replicas_min.max(Replicas::from_len(found)),
        };
        let (replicas, link) = RunningReplicas::start(&fleet, &settings, orphans, host);
        let scaling = settings.control.scaling.clone();
        let known = past.as_ref().map(|past| &past.scaler);
        story.started(&config.name, now, &scaling, current, known);
        let mut scaler = Scaler::new(scaling, now, current);
        if let Some(known) = known {
            scaler.restore(now, known);
        }
        let mut control = Control::new(Arc::clone(&fleet), scaler, link, story.clone());
        if is_shared {
            control = control.beside_another(Replicas::from_len(found));
        }
        let (orders, orders_taken) = mpsc::channel(ORDERS_WAITING);
        Self {
            control: Part::start("a control loop", |stop| control.run(orders_taken, stop)),
            gateway: gateway.map(|bound| start_gateway(bound, Arc::clone(&fleet))),
            gate: checked.map(|bound| bound.start(&fleet)),
            former: JoinSet::new(),
            source: start_source(&fleet, &settings),
            replicas,
            settings,
            member: Member { fleet, orders },
        }
    }

    /// Judges other settings, and binds their listener if it is another; `None` when they are
    /// those in force. Nothing is changed.
    ///
    /// # Errors
    /// A setting is impossible or cannot change while the fleet runs, or the address cannot be
    /// listened on.
    pub(super) fn plan(&self, config: FleetConfig) -> anyhow::Result<Option<Change>> {
        let settings = PartSettings::new(&config, &self.settings.rows)?;
        fixed::check(&settings, &self.settings)?;
        let listen =
            |settings: &PartSettings| settings.gateway.as_ref().map(|gateway| gateway.listen);
        let is_elsewhere = listen(&settings) != listen(&self.settings);
        let asked_at =
            |settings: &PartSettings| settings.ext_authz.as_ref().map(|gate| gate.listen);
        let is_asked_elsewhere = asked_at(&settings) != asked_at(&self.settings);
        let is_same = settings.control == self.settings.control
            && settings.gateway == self.settings.gateway
            && settings.ext_authz == self.settings.ext_authz
            && !settings.measures_otherwise(&self.settings)
            && settings.process == self.settings.process
            && settings.publish == self.settings.publish
            && settings.external == self.settings.external
            && settings.endpoints == self.settings.endpoints
            && settings.health == self.settings.health;
        if is_same {
            return Ok(None);
        }
        Ok(Some(Change {
            gateway: if is_elsewhere {
                bind(&settings, &config, &mut Sockets::default())?
            } else {
                None
            },
            gate: if is_asked_elsewhere {
                BoundGate::bind(&settings, &config, &mut Sockets::default())?
            } else {
                None
            },
            settings,
            config,
        }))
    }

    /// Puts other settings in force. Where the fleet listens elsewhere from here on, the former
    /// gateway finishes what it has.
    ///
    /// First what starts replicas, since the control loop decides at once; the gateway last, since
    /// it names rows of models that the gate must know.
    pub(super) async fn apply(&mut self, change: Change) {
        let Change {
            config,
            settings,
            gateway,
            gate,
        } = change;
        let fleet = Arc::clone(&self.member.fleet);
        self.replicas.configure(&fleet, &settings).await;
        // Numbers that other questions were answered with are none of the new policy's.
        let measures_otherwise = settings.measures_otherwise(&self.settings);
        if measures_otherwise {
            self.end_source(&settings).await;
        }
        if settings.control != self.settings.control || settings.forgets_sessions(&self.settings) {
            self.configure_control(&settings).await;
        }
        if let (Some(running), Some(gateway)) = (&self.gateway, &settings.gateway)
            && settings.gateway != self.settings.gateway
        {
            running.settings.send_replace(gateway.clone());
        }
        if let (Some(running), Some(gate)) = (&self.gate, &settings.ext_authz) {
            running.settings.send_replace(gate.clone());
        }
        {
            let shown = board(&config, &settings.rows);
            let mut board = self.member.fleet.board();
            board.policy = shown.policy;
            (board.slots, board.min, board.max) = (shown.slots, shown.min, shown.max);
            board.models = shown.models;
            board.external = shown.external;
        }
        if measures_otherwise {
            self.source = start_source(&self.member.fleet, &settings);
        }
        self.settings = settings;
        info!(fleet = config.name, "configuration changed");
        while let Some(ended) = self.former.try_join_next() {
            if let Err(failure) = ended.and_then(|ended| ended) {
                error!(fleet = config.name, %failure, "a former gateway failed");
            }
        }
        if let Some(bound) = gateway {
            let gateway = start_gateway(bound, Arc::clone(&self.member.fleet));
            let former = self.gateway.replace(gateway);
            former.map(|former| self.former.spawn(former.part.end()));
        }
        if let Some(bound) = gate {
            let former = self.gate.replace(bound.start(&self.member.fleet));
            former.map(|former| self.former.spawn(former.part.end()));
        }
    }

    /// Forgets what the source told last; the windows keep what was measured.
    async fn end_source(&mut self, settings: &PartSettings) {
        let fleet = &self.member.fleet;
        if let Some(source) = self.source.take()
            && let Err(failure) = source.end().await
        {
            error!(fleet = fleet.name(), %failure, "a former source failed");
        }
        match (fleet.peers(), &settings.measured, &settings.queried) {
            (Some(peers), Some(measured), _) => peers.measure_by(measured.measured_by()),
            (Some(peers), None, Some(queried)) => peers.query_by(wiring::patience(queried)),
            (Some(_), None, None) | (None, _, _) => {}
        }
    }

    async fn configure_control(&self, settings: &PartSettings) {
        let (done, is_done) = oneshot::channel();
        let order = Order::Configure {
            settings: Box::new(settings.control.clone()),
            forgets_sessions: settings.forgets_sessions(&self.settings),
            done,
        };
        // A loop that ended by itself ends all of us: whoever waits for that says so.
        if self.member.orders.send(order).await.is_ok() {
            is_done.await.ok();
        }
    }

    /// Returns the fleet's name.
    pub(super) fn name(&self) -> &str {
        self.member.fleet.name()
    }

    /// Returns the files that are written for it.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.settings.files()
    }

    /// Returns what others may see and ask of the fleet.
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// Returns where its gateway listens; `None` without one.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.gateway.as_ref().map(|gateway| gateway.address)
    }

    /// Returns where Envoys ask; `None` where none does.
    pub(super) fn gate_address(&self) -> Option<SocketAddr> {
        self.gate.as_ref().map(|gate| gate.address)
    }

    /// Adds what a successor needs to go on listening.
    pub(super) fn offer<'a>(&'a self, offer: &mut Offer<'a>) {
        if let Some(gateway) = &self.gateway {
            let (name, listener) = (self.name(), gateway.listener.as_fd());
            offer.add(SocketKind::Gateway, name, Some(gateway.address), listener);
        }
        if let Some(gate) = &self.gate {
            let (name, listener) = (self.name(), gate.listener.as_fd());
            offer.add(SocketKind::Gate, name, Some(gate.address), listener);
        }
    }

    /// Tells whether the replicas stay when we end.
    pub(super) fn keeps(&self) -> bool {
        self.settings.keeps()
    }

    /// Tells whether its replicas end with us and have requests past us: nobody can take it over.
    pub(super) fn must_drain_itself(&self) -> bool {
        let publish = self.settings.publish.as_ref();
        publish.is_some_and(|publish| publish.publish.envoy.is_some()) && !self.keeps()
    }

    /// Decides nothing more and returns what is known; `None` when the control loop has failed.
    pub(super) async fn hand_over(&self) -> Option<PastFleet> {
        hand_over(&self.member, self.settings.rows.names()).await
    }

    /// Decides again.
    pub(super) async fn take_back(&self) {
        // A loop that failed is told by its handle.
        self.member.orders.send(Order::TakeBack).await.ok();
    }

    /// Is ready with the name of a part that ended although nobody told it to.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let parts = [
            self.gateway.as_mut().map(|gateway| &mut gateway.part),
            self.gate.as_mut().map(|gate| &mut gate.part),
            self.source.as_mut(),
            Some(&mut self.control),
        ];
        for part in (parts.into_iter().flatten()).chain(self.replicas.parts()) {
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
    pub(super) async fn stop(mut self, leave: Leave) -> (Option<PastFleet>, Result<(), JoinError>) {
        self.member.fleet.board().is_listening = false;
        let mut result = Ok(());
        if let Some(gateway) = self.gateway {
            // While there is a copy the system lets clients connect, and nobody would accept them.
            drop(gateway.listener);
            result = gateway.part.end().await;
        }
        if let Some(gate) = self.gate {
            drop(gate.listener);
            result = result.and(gate.part.end().await);
        }
        // Before the control loop and the replicas, which they need as well.
        while let Some(ended) = self.former.join_next().await {
            result = result.and(ended.and_then(|ended| ended));
        }
        if let Some(source) = self.source {
            result = result.and(source.end().await);
        }
        let past = match leave {
            Leave::Replicas => hand_over(&self.member, self.settings.rows.names()).await,
            Leave::Nothing => None,
        };
        result = result.and(self.control.end().await);
        (past, result.and(self.replicas.ended().await))
    }
}

/// What is left of a fleet that ends, unless it was handed over before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Nothing,
    /// The replicas, if they are to stay, for a later process of ours.
    Replicas,
}

async fn hand_over(member: &Member, models: Vec<String>) -> Option<PastFleet> {
    let (done, known) = oneshot::channel();
    let order = Order::HandOver { done };
    member.orders.send(order).await.ok()?;
    let scaler = *known.await.ok()?;
    Some(PastFleet {
        name: member.fleet.name().to_owned(),
        models,
        gate: member.fleet.export(),
        checks: member.fleet.checks().map(Checks::export),
        scaler,
    })
}

/// Builds what the parts of a fleet share, from what an earlier process of ours knew.
fn fleet(
    config: &FleetConfig,
    settings: &PartSettings,
    past: Option<&PastFleet>,
    clock: Clock,
    instance: InstanceId,
) -> Arc<Fleet> {
    let now = clock.now();
    let mut gate = Gate::new(settings.control.gate.clone(), now);
    if let Some(past) = past {
        gate.restore(now, &past.gate);
    }
    // Sessions that an earlier process of ours knew are not new; those of connections have other
    // connections since.
    if past.is_none() || settings.has_sessions_of_connections() {
        gate.on_restart(now);
    }
    let peers = match (&settings.measured, &settings.queried) {
        (Some(measured), _) => Some(Peers::measured(measured.measured_by())),
        (None, Some(queried)) => Some(Peers::queried(wiring::patience(queried))),
        (None, None) => {
            (settings.peers.as_ref()).map(|_| Peers::new(instance, config.models.len()))
        }
    };
    let sources = Sources {
        has_gateway: settings.gateway.is_some(),
        peers,
        checks: checks(settings, past, clock),
        published: settings.publish.as_ref().map(|_| Published::default()),
    };
    let board = board(config, &settings.rows);
    let fleet = Fleet::with_sources(&config.name, clock, gate, board, sources);
    fleet.board().is_listening = true;
    fleet
}

/// # Errors
/// The address cannot be listened on; names the line that says it.
fn bind(
    settings: &PartSettings,
    config: &FleetConfig,
    sockets: &mut Sockets,
) -> anyhow::Result<Option<Bound>> {
    let (Some(gateway), Some(configured)) = (&settings.gateway, &config.gateway) else {
        return Ok(None);
    };
    let listen = configured.listen.value;
    let gateway = match sockets.take_listener(SocketKind::Gateway, &config.name, listen) {
        Some(listener) => Gateway::adopt(gateway.clone(), listener),
        None => Gateway::bind(gateway.clone()),
    };
    let gateway = gateway.with_context(|| {
        let line = configured.listen.place.line;
        format!("line {line}")
    })?;
    Ok(Some(Bound {
        listener: gateway.listener()?,
        gateway,
    }))
}

fn board(config: &FleetConfig, rows: &ModelRows) -> Board {
    let mut board = Board::new(
        config.scaling.policy.name(),
        config.models.first().map_or(1, |model| model.slots.get()),
        config.replicas_min,
        config.replicas_max,
    );
    board.models = rows.names();
    board.external = wiring::external(config);
    board
}

fn start_source(fleet: &Arc<Fleet>, settings: &PartSettings) -> Option<Part> {
    let name = "a source";
    if let Some(measured) = settings.measured.clone() {
        let source = MeasuredSource::new(Arc::clone(fleet), measured);
        return Some(Part::start(name, |stop| source.run(stop)));
    }
    if let Some(queried) = settings.queried.clone() {
        let source = PrometheusSource::new(Arc::clone(fleet), queried);
        return Some(Part::start(name, |stop| source.run(stop)));
    }
    let source = PeerSource::new(Arc::clone(fleet), settings.peers.clone()?);
    Some(Part::start(name, |stop| source.run(stop)))
}

fn start_gateway(bound: Bound, fleet: Arc<Fleet>) -> RunningGateway {
    let Bound { gateway, listener } = bound;
    let address = gateway.local_addr();
    info!(fleet = fleet.name(), listen = %address, "gateway listens");
    RunningGateway {
        address,
        listener,
        settings: gateway.settings(),
        part: Part::start("a gateway", |stop| {
            // A dropped sender means that we are ending anyway.
            gateway.serve(fleet, async { stop.await.unwrap_or_default() })
        }),
    }
}
