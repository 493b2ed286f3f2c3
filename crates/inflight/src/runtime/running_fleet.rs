//! One fleet that runs: its parts, started by one function and ended in order by another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use inflight_core::Replicas;
use inflight_core::admission::Gate;
use inflight_core::load::InstanceId;
use inflight_core::scaling::Scaler;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinError;
use tracing::{error, info};

use super::model_rows::ModelRows;
use super::part::Part;
use super::wiring;
use crate::clock::Clock;
use crate::config::{FleetConfig, Target};
use crate::control::{Control, TargetLink};
use crate::fleet::{Board, Fleet, Member, Peers};
use crate::gateway::{Gateway, GatewayConfig, SessionBy};
use crate::ports::{FleetSettings, Order};
use crate::sources::{PeerSource, PeersConfig};
use crate::story::Story;
use crate::targets::process::{ProcessConfig, ProcessHost, ProcessTarget};

/// Commands that a target may lag behind: sizes repeat, and of the others there is one a replica.
const COMMANDS_WAITING: usize = 256;
/// News that a control loop may lag behind; a target waits when it is full.
const EVENTS_WAITING: usize = 256;
/// Orders that a control loop may lag behind; whoever gives one waits when it is full.
const ORDERS_WAITING: usize = 16;

/// Why a change is refused that would make the fleet another.
const CANNOT_CHANGE: &str = "cannot change from or to `process` while the fleet runs: its replicas \
    would belong to nobody; restart inflight, or give the fleet another name";

/// Why a change is refused of who measures the load.
const SOURCE_CANNOT_CHANGE: &str = "cannot gain or lose its `gateway`, nor change `inflight` or the \
    models that are read by it, while the fleet runs: restart inflight, or give the fleet another \
    name";

/// A fleet that is ready to be started: nothing about it can fail any more.
pub(super) struct Prepared {
    config: FleetConfig,
    told: Told,
    gateway: Option<Gateway>,
}

/// Other settings for a fleet that runs, in which nothing can fail any more.
pub(super) struct Change {
    config: FleetConfig,
    told: Told,
    /// A gateway of its own where the address differs.
    gateway: Option<Gateway>,
}

/// What the parts of a fleet were told.
#[derive(Clone)]
struct Told {
    rows: ModelRows,
    control: FleetSettings,
    /// `None` where the load is measured elsewhere only.
    gateway: Option<GatewayConfig>,
    peers: Option<PeersConfig>,
    process: Option<ProcessConfig>,
}

/// A fleet that runs.
pub(super) struct RunningFleet {
    member: Member,
    told: Told,
    gateway: Option<RunningGateway>,
    /// Asks the peers.
    source: Option<Part>,
    control: Part,
    target: Option<RunningTarget>,
}

struct RunningGateway {
    address: SocketAddr,
    settings: watch::Sender<GatewayConfig>,
    part: Part,
}

struct RunningTarget {
    settings: watch::Sender<ProcessConfig>,
    /// Ends once its control loop did.
    part: Part,
}

impl Told {
    fn new(config: &FleetConfig, rows: &ModelRows) -> anyhow::Result<Self> {
        let rows = rows.with(&config.models)?;
        Ok(Self {
            control: wiring::settings(config, &rows)?,
            gateway: (config.gateway.as_ref())
                .map(|settings| wiring::gateway(config, settings, &rows)),
            peers: wiring::peers(config),
            process: match &config.target {
                Target::Process(settings) => Some(wiring::process(config, settings)?),
                Target::Advise => None,
            },
            rows,
        })
    }
}

impl Told {
    /// How sessions are known, where there are any.
    fn session(&self) -> Option<&SessionBy> {
        self.gateway.as_ref().map(|gateway| &gateway.session)
    }
}

impl Prepared {
    /// Judges a fleet's settings and binds its listener.
    ///
    /// # Errors
    /// A setting is impossible, or the address cannot be listened on.
    pub(super) fn new(config: FleetConfig) -> anyhow::Result<Self> {
        let told = Told::new(&config, &ModelRows::default())?;
        Ok(Self {
            gateway: bind(&told, &config)?,
            told,
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
            told,
            gateway,
        } = prepared;
        let now = clock.now();
        let mut gate = Gate::new(told.control.gate.clone(), now);
        // Sessions that an earlier process of ours knew are not new.
        gate.on_restart(now);
        let fleet = Fleet::with_sources(
            &config.name,
            clock,
            gate,
            board(&config, &told.rows),
            gateway.is_some(),
            (told.peers.as_ref()).map(|_| Peers::new(instance, config.models.len())),
        );
        fleet.board().is_listening = true;
        let mut current = config.replicas_min;
        if let Some(addresses) = &told.control.fixed {
            fleet.set_fixed(addresses);
            current = Replicas::from_len(addresses.len());
        }

        let (target, link) = match &told.process {
            Some(process) => {
                let (target, link) = start_process(process.clone(), host.clone(), &config.name);
                (Some(target), Some(link))
            }
            None => (None, None),
        };
        let scaling = told.control.scaling.clone();
        story.started(&config.name, now, &scaling, current);
        let scaler = Scaler::new(scaling, now, current);
        let control = Control::new(Arc::clone(&fleet), scaler, link, story.clone());
        let (orders, orders_taken) = mpsc::channel(ORDERS_WAITING);
        Self {
            control: Part::start("a control loop", |stop| control.run(orders_taken, stop)),
            gateway: gateway.map(|gateway| start_gateway(gateway, Arc::clone(&fleet))),
            source: told.peers.clone().map(|peers| {
                let source = PeerSource::new(Arc::clone(&fleet), peers);
                Part::start("a source", |stop| source.run(stop))
            }),
            target,
            told,
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
        let told = Told::new(&config, &self.told.rows)?;
        if told.process.is_some() != self.told.process.is_some() {
            anyhow::bail!("fleet {}: `target` {CANNOT_CHANGE}", config.name);
        }
        if told.gateway.is_some() != self.told.gateway.is_some() || told.peers != self.told.peers {
            anyhow::bail!("fleet {}: `source` {SOURCE_CANNOT_CHANGE}", config.name);
        }
        let listen = |told: &Told| told.gateway.as_ref().map(|gateway| gateway.listen);
        let is_elsewhere = listen(&told) != listen(&self.told);
        let is_same = told.control == self.told.control
            && told.gateway == self.told.gateway
            && told.process == self.told.process;
        if is_same {
            return Ok(None);
        }
        Ok(Some(Change {
            gateway: if is_elsewhere {
                bind(&told, &config)?
            } else {
                None
            },
            told,
            config,
        }))
    }

    /// Puts other settings in force. Returns the gateway that is to be ended, where the fleet
    /// listens elsewhere from here on.
    ///
    /// First what starts replicas, since the control loop decides at once; the gateway last, since
    /// it names rows of models that the gate must know.
    pub(super) async fn apply(&mut self, change: Change) -> Option<Part> {
        let Change {
            config,
            told,
            gateway,
        } = change;
        if let (Some(target), Some(process)) = (&self.target, &told.process)
            && told.process != self.told.process
        {
            target.settings.send_replace(process.clone());
        }
        if told.control != self.told.control || told.session() != self.told.session() {
            self.configure_control(&told).await;
        }
        if let (Some(running), Some(settings)) = (&self.gateway, &told.gateway)
            && told.gateway != self.told.gateway
        {
            running.settings.send_replace(settings.clone());
        }
        {
            let shown = board(&config, &told.rows);
            let mut board = self.member.fleet.board();
            board.policy = shown.policy;
            (board.slots, board.min, board.max) = (shown.slots, shown.min, shown.max);
            board.models = shown.models;
        }
        self.told = told;
        info!(fleet = config.name, "configuration changed");
        let gateway = start_gateway(gateway?, Arc::clone(&self.member.fleet));
        self.gateway.replace(gateway).map(|former| former.part)
    }

    async fn configure_control(&self, told: &Told) {
        let (done, is_done) = oneshot::channel();
        let order = Order::Configure {
            settings: Box::new(told.control.clone()),
            forgets_sessions: told.session() != self.told.session(),
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

    /// Returns what others may see and ask of the fleet.
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// Returns where its gateway listens; `None` without one.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.gateway.as_ref().map(|gateway| gateway.address)
    }

    /// Is ready with the name of a part that ended although nobody told it to.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let parts = [
            self.gateway.as_mut().map(|gateway| &mut gateway.part),
            self.source.as_mut(),
            Some(&mut self.control),
            self.target.as_mut().map(|target| &mut target.part),
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
            result = gateway.part.end().await;
        }
        if let Some(source) = self.source {
            result = result.and(source.end().await);
        }
        result = result.and(self.control.end().await);
        if let Some(target) = self.target {
            result = result.and(target.part.ended().await);
        }
        result
    }
}

/// # Errors
/// The address cannot be listened on; names the line that says it.
fn bind(told: &Told, config: &FleetConfig) -> anyhow::Result<Option<Gateway>> {
    let (Some(gateway), Some(settings)) = (&told.gateway, &config.gateway) else {
        return Ok(None);
    };
    let bound = Gateway::bind(gateway.clone()).with_context(|| {
        let line = settings.listen.place.line;
        format!("fleet {}, line {line}", config.name)
    });
    bound.map(Some)
}

fn board(config: &FleetConfig, rows: &ModelRows) -> Board {
    let mut board = Board::new(
        config.scaling.policy.name(),
        config.models.first().map_or(1, |model| model.slots.get()),
        config.replicas_min,
        config.replicas_max,
    );
    board.models = rows.names();
    board
}

fn start_gateway(gateway: Gateway, fleet: Arc<Fleet>) -> RunningGateway {
    let address = gateway.local_addr();
    info!(fleet = fleet.name(), listen = %address, "gateway listens");
    RunningGateway {
        address,
        settings: gateway.settings(),
        part: Part::start("a gateway", |stop| {
            // A dropped sender means that we are ending anyway.
            gateway.serve(fleet, async { stop.await.unwrap_or_default() })
        }),
    }
}

fn start_process(
    process: ProcessConfig,
    host: ProcessHost,
    fleet: &str,
) -> (RunningTarget, TargetLink) {
    let (commands, commands_taken) = mpsc::channel(COMMANDS_WAITING);
    let (news, events) = mpsc::channel(EVENTS_WAITING);
    let target = ProcessTarget::start(process, host, commands_taken, news);
    let settings = target.settings();
    let fleet = fleet.to_owned();
    // It ends by the end of its commands, which is the control loop's doing.
    let part = Part::start("a target", |_| async move {
        if let Err(failure) = target.stopped().await {
            error!(fleet, %failure, "the process target failed");
        }
    });
    (
        RunningTarget { settings, part },
        TargetLink { commands, events },
    )
}
