//! Builds the parts that a configuration asks for, runs them, and ends them in order.
//!
//! Every listener is bound before anything is started, so that a port in use ends us while there
//! is nothing to clean up.

mod handover;
mod keda;
mod leaving;
mod model_rows;
mod part;
mod reload;
mod running_fleet;
mod snapshot;
mod state_dir;
mod wiring;

use std::future::poll_fn;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context as _, bail};
use inflight_core::Timestamp;
use inflight_core::load::InstanceId;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::api::{Access, AdminListener, Api};
use crate::clock::Clock;
use crate::config::{AdminConfig, Config, JournalSettings};
use crate::fleet::{Fleet, Roster};
use crate::ports::Order;
use crate::story::Story;
use crate::story::journal::Journal;
use crate::targets::process::{Orphan, ProcessHost, find_orphans};
use crate::telemetry::printer;
use handover::{Doorway, Offer, Predecessor, SNAPSHOT_MAX, SocketKind, Sockets, Successor};
use keda::KedaServers;
use leaving::Leaving;
use part::Part;
pub use wiring::sizing;

use running_fleet::{Leave, Left, Prepared, RunningFleet};
use snapshot::Snapshot;
use state_dir::StateDir;

/// The file of the state folder that holds what was known.
const SNAPSHOT: &str = "snapshot.json";

/// From SIGTERM to SIGKILL for a replica of a fleet that is not configured.
const STRANGER_GRACE: Duration = Duration::from_secs(30);

/// What is said of replicas that are there twice for a while.
const TWICE: &str = "replicas are started anew beside those of the inflight that we take over from, \
    with the same numbers, until it has drained: `on_exit: keep` takes them over instead";

/// Why nobody takes over a fleet whose replicas end with us while Envoys send them requests.
const LOST_TO_ENVOY: &str = "its replicas end with the process that started them, and a successor that \
    does not have them would tell Envoy of none at once: use `on_exit: keep`, or stop it and start anew";

/// How often we look whether requests wait here for a replica that only our successor will have.
const SENT_ON_EVERY: Duration = Duration::from_millis(50);

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
    keda: KedaServers,
    /// What a change of the configuration left to end: fleets, an admin API.
    leaving: Leaving,
    /// As the configuration has it.
    state_dir: Option<PathBuf>,
    state: Option<(StateDir, Doorway)>,
    /// What is done once beside the parts: ending replicas that no fleet wants, and waiting for the
    /// end of the process that we took over from.
    aside: JoinSet<()>,
    /// Whether the process that we took over from is gone, if there was one.
    alone: watch::Receiver<bool>,
    /// Who serves instead of us; it sees that we are gone by the end of the conversation.
    successor: Option<Successor>,
}

/// What may end us although nobody told us to.
#[derive(Debug)]
pub enum Challenge {
    /// This part of ours ended by itself: a fault of ours.
    Failed(&'static str),
    /// Another process of ours asks for our place: [`Running::give_way`].
    Asked(UnixStream),
}

/// The admin API that runs.
struct Admin {
    /// As the configuration has it, which may leave the port open.
    config: AdminConfig,
    address: SocketAddr,
    /// A copy of the listening socket, for a successor.
    listener: OwnedFd,
    part: Part,
}

impl Running {
    /// Takes over from the inflight that runs with the same state folder, if that is asked and
    /// there is one. Binds every listener that was not passed on, then starts every part.
    ///
    /// # Errors
    /// A listener cannot be bound, the state folder is in use, or the other does not let go; then
    /// nothing was started, and the other goes on.
    pub async fn start(config: Config, take_over: bool) -> anyhow::Result<Self> {
        let (mut predecessor, mut sockets) = find_predecessor(&config, take_over).await?;
        let state = config.state_dir.as_deref();
        let state = state.map(|dir| open_state(dir, &mut sockets)).transpose()?;
        let configured = config.admin.listen.value;
        let listener = match sockets.take_listener(SocketKind::Admin, "", configured) {
            Some(listener) => AdminListener::adopt(configured, listener)?,
            None => AdminListener::bind(configured).await?,
        };
        let admin_listener = listener.listener()?;
        let keda = keda::addresses(&config.fleets);
        let keda = keda::Bound::new(keda, &mut sockets)?;
        let prepared = (config.fleets.into_iter())
            .map(|fleet| {
                let name = fleet.name.clone();
                Prepared::new(fleet, &mut sockets).with_context(|| format!("fleet {name}"))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        for fleet in &prepared {
            fleet.ensure_files()?;
        }
        let journal = config.journal.as_ref().map(wiring::journal);
        let journal = journal.map(Journal::start).transpose();
        let journal = journal.context("the journal's thread cannot be started")?;

        let (mut snapshot, mut orphans) = match &state {
            Some((state, _)) => (
                find_snapshot(state, predecessor.as_mut()).await?,
                find_orphans(state.path()).await?,
            ),
            None => (None, Vec::new()),
        };
        // Nothing can fail from here on, and nothing was changed until here: whoever dies in between
        // leaves the fleets to the other.
        let predecessor = match predecessor {
            Some(predecessor) => Some(predecessor.serve_instead().await?),
            None => None,
        };
        let clock = Clock::start_at(snapshot.as_ref().map_or(Timestamp::ORIGIN, |it| it.at));
        // Random keys, made anew in each process.
        let instance = InstanceId(RandomState::new().hash_one(std::process::id()));
        let story = Story::new(clock, journal);
        let mut host = ProcessHost::new(clock, printer().clone());
        host.state = state.as_ref().map(|(state, _)| state.path().to_owned());
        let roster = Arc::new(Roster::default());
        let fleets: Vec<_> = (prepared.into_iter())
            .map(|fleet| {
                let past = snapshot.as_mut();
                let past = past.and_then(|it| it.take(fleet.name(), &fleet.models()));
                let is_its = |orphan: &mut Orphan| orphan.fleet() == fleet.name();
                if predecessor.is_some() && fleet.starts_anew() {
                    warn!(fleet = fleet.name(), "{TWICE}");
                }
                let left = Left {
                    past,
                    orphans: orphans.extract_if(.., is_its).collect(),
                    is_shared: predecessor.is_some(),
                };
                RunningFleet::start(fleet, left, clock, instance, &host, &story)
            })
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
        let admin = Admin::start(config.admin, listener, admin_listener, api);
        let keda = KedaServers::start(keda, &roster);
        let (is_alone, alone) = watch::channel(predecessor.is_none());
        let mut aside = JoinSet::new();
        let of_all = Arc::clone(&roster);
        aside.spawn(async move {
            if let Some(predecessor) = predecessor {
                predecessor.gone().await;
                for member in &*of_all.members() {
                    // A loop that failed is told by its handle.
                    member.orders.send(Order::Alone).await.ok();
                }
                is_alone.send_replace(true);
            }
            // Not before: whoever we took over from may still have requests on them.
            let mut ending = JoinSet::new();
            for orphan in orphans {
                ending.spawn(orphan.end(STRANGER_GRACE));
            }
            while ending.join_next().await.is_some() {}
        });
        info!(admin = %admin.address, fleets = fleets.len(), "running");
        Ok(Self {
            fleets,
            roster,
            clock,
            instance,
            host,
            admin,
            keda,
            journal: config.journal,
            leaving: Leaving::default(),
            story,
            state_dir: config.state_dir,
            state,
            aside,
            alone,
            successor: None,
        })
    }

    /// Returns the address of the admin API.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin.address
    }

    /// Returns the fleets, in the order of the configuration.
    #[must_use]
    pub fn fleets(&self) -> Vec<Arc<Fleet>> {
        self.roster.fleets()
    }

    /// Returns the clock that the fleets' timestamps are of.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
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

    /// Returns where Envoys ask about a fleet.
    #[must_use]
    pub fn gate(&self, fleet: &str) -> Option<SocketAddr> {
        let fleet = self.fleets.iter().find(|one| one.name() == fleet)?;
        fleet.gate_address()
    }

    /// Returns where KEDA asks that is to ask at `configured`.
    #[must_use]
    pub fn keda(&self, configured: SocketAddr) -> Option<SocketAddr> {
        self.keda.address(configured)
    }

    /// Waits for what may end us and is not ours to give: a part that ends by itself, after which
    /// the rest is not to be trusted with a fleet, or another inflight that asks for our place.
    pub async fn challenged(&mut self) -> Challenge {
        let (fleets, api, keda) = (&mut self.fleets, &mut self.admin.part, &mut self.keda);
        let failed = poll_fn(|cx| {
            for fleet in fleets.iter_mut() {
                if let Poll::Ready(name) = fleet.poll_failed(cx) {
                    return Poll::Ready(name);
                }
            }
            if let Poll::Ready(name) = keda.poll_failed(cx) {
                return Poll::Ready(name);
            }
            api.poll_failed(cx)
        });
        let doorway = self.state.as_ref().map(|(_, doorway)| doorway);
        tokio::select! {
            name = failed => Challenge::Failed(name),
            stream = knock(doorway) => Challenge::Asked(stream),
        }
    }

    /// Gives our place to whoever asked, and tells whether they have it: then we are to stop.
    ///
    /// To be run to its end, unless we stop: cut in the middle, nobody or both would serve.
    pub async fn give_way(&mut self, asked: UnixStream) -> bool {
        match self.hand_over(asked).await {
            Ok(successor) => {
                self.successor = Some(successor);
                true
            }
            Err(why) => {
                let why = format!("{why:#}");
                warn!(why, "another inflight did not take over; we go on");
                false
            }
        }
    }

    /// Ends everything in order: the answers to KEDA, then the fleets, all at the same time; then
    /// the API.
    ///
    /// # Errors
    /// A part of ours ended by a panic.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        info!("stopping: finishing what was accepted");
        let is_succeeded = self.successor.is_some();
        if is_succeeded {
            // It is our successor's from here on.
            drop(self.admin.listener);
            self.admin.part.tell_to_end();
        }
        // Before the fleets: what they decide while they end is nobody's size.
        let mut result = self.keda.stop().await;
        let mut stopping = JoinSet::new();
        for fleet in self.fleets {
            if is_succeeded && let Some(gateway) = fleet.address() {
                let fleet = Arc::clone(&fleet.member().fleet);
                self.aside.spawn(send_on(fleet, gateway));
            }
            let stays = fleet.keeps() && !is_succeeded;
            let leave = if stays {
                Leave::Replicas
            } else {
                Leave::Nothing
            };
            stopping.spawn(fleet.stop(leave));
        }
        result = result.and(self.leaving.ended().await);
        let mut fleets = Vec::new();
        while let Some(stopped) = stopping.join_next().await {
            match stopped {
                Ok((past, ended)) => {
                    fleets.extend(past);
                    result = result.and(ended);
                }
                Err(panic) => result = result.and(Err(panic)),
            }
        }
        if let (Some((state, _)), false) = (&self.state, fleets.is_empty()) {
            let at = self.clock.now();
            write_snapshot(state, &Snapshot { at, fleets });
        }
        self.roster.replace(Vec::new());
        result = result.and(self.admin.part.end().await);
        if let Some(journal) = self.story.journal() {
            journal.close().await;
        }
        if is_succeeded {
            // Our end tells our successor that nobody before it has requests on its replicas.
            self.alone.wait_for(|is_alone| *is_alone).await.ok();
        }
        self.aside.shutdown().await;
        result.context("a part of inflight failed")
    }

    /// Lets another process of ours take over. Until it serves, any failure leaves all as it was.
    async fn hand_over(&self, stream: UnixStream) -> anyhow::Result<Successor> {
        let mut successor = Successor::greet(stream, self.offer()).await?;
        if let Some(fleet) = self.fleets.iter().find(|fleet| fleet.must_drain_itself()) {
            let why = format!("fleet {}: {LOST_TO_ENVOY}", fleet.name());
            successor.refuse(&why).await?;
            bail!(why);
        }
        if let Err(why) = self.give(&mut successor).await {
            for fleet in &self.fleets {
                fleet.take_back().await;
            }
            return Err(why);
        }
        Ok(successor)
    }

    fn offer(&self) -> Offer<'_> {
        let mut offer = Offer::default();
        if let Some((state, doorway)) = &self.state {
            offer.add(SocketKind::Lock, "", None, state.lock().as_fd());
            offer.add(SocketKind::TakeOver, "", None, doorway.as_fd());
        }
        let (admin, listener) = (self.admin.address, self.admin.listener.as_fd());
        offer.add(SocketKind::Admin, "", Some(admin), listener);
        self.keda.offer(&mut offer);
        for fleet in &self.fleets {
            fleet.offer(&mut offer);
        }
        offer
    }

    async fn give(&self, successor: &mut Successor) -> anyhow::Result<()> {
        let mut fleets = Vec::new();
        for fleet in &self.fleets {
            fleets.push(
                fleet
                    .hand_over()
                    .await
                    .context("a control loop has failed")?,
            );
        }
        let at = self.clock.now();
        successor.tell(&Snapshot { at, fleets }).await
    }
}

impl Admin {
    fn start(config: AdminConfig, bound: AdminListener, listener: OwnedFd, api: Api) -> Self {
        Self {
            config,
            address: bound.address(),
            listener,
            part: Part::start("the admin API", |stop| {
                // A dropped sender ends the API just as well.
                bound.serve(api, async { stop.await.unwrap_or_default() })
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

/// Finds the process that we are to take over from, with what it passes on.
async fn find_predecessor(
    config: &Config,
    take_over: bool,
) -> anyhow::Result<(Option<Predecessor>, Sockets)> {
    let alone = (None, Sockets::default());
    let dir = match (take_over, &config.state_dir) {
        (false, _) => return Ok(alone),
        (true, None) => bail!("--take-over needs `state: {{ dir: … }}` in the configuration"),
        (true, Some(dir)) => dir,
    };
    let Some((predecessor, sockets)) = Predecessor::find(dir).await? else {
        info!("nobody to take over from");
        return Ok(alone);
    };
    Ok((Some(predecessor), sockets))
}

/// Opens the state folder, or goes on with what the process had that we take over from.
fn open_state(dir: &Path, sockets: &mut Sockets) -> anyhow::Result<(StateDir, Doorway)> {
    let state = match sockets.take(SocketKind::Lock) {
        Some(lock) => StateDir::inherit(dir, lock),
        None => StateDir::open(dir)?,
    };
    let doorway = Doorway::open(dir, sockets.take(SocketKind::TakeOver))
        .with_context(|| format!("state.dir {}", dir.display()))?;
    Ok((state, doorway))
}

/// Returns what is known from before: told by the process that we take over from, or found. What
/// cannot be used is left out.
async fn find_snapshot(
    state: &StateDir,
    predecessor: Option<&mut Predecessor>,
) -> anyhow::Result<Option<Snapshot>> {
    let max = u64::try_from(SNAPSHOT_MAX).unwrap_or(u64::MAX);
    let text = match predecessor {
        Some(predecessor) => Ok(Some(predecessor.take_over().await?)),
        None => state.take(SNAPSHOT, max),
    };
    let read = match text {
        Ok(Some(text)) => Snapshot::from_text(&text).map_err(|why| why.to_string()),
        Ok(None) => return Ok(None),
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = &read {
        warn!(
            why,
            "what the last inflight knew is of no use; starting without it"
        );
    }
    Ok(read.ok())
}

/// A snapshot that cannot be written costs the next process its windows, nothing else.
fn write_snapshot(state: &StateDir, snapshot: &Snapshot) {
    let written = snapshot
        .to_text()
        .map_err(io::Error::from)
        .and_then(|text| state.write(SNAPSHOT, &text));
    match written {
        Ok(()) => info!("what is known was written for the next inflight"),
        Err(error) => warn!(%error, "what is known could not be written for the next inflight"),
    }
}

/// Sends on to our successor what waits here for a first replica, since we start none any more.
async fn send_on(fleet: Arc<Fleet>, gateway: SocketAddr) {
    let ip = match gateway.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V4(_) | IpAddr::V6(_) => gateway.ip(),
    };
    let successor = SocketAddr::new(ip, gateway.port());
    loop {
        // Before, we might accept what we send.
        if fleet.board().open_doors == 0 {
            fleet.send_on(successor);
        }
        sleep(SENT_ON_EVERY).await;
    }
}

async fn knock(doorway: Option<&Doorway>) -> UnixStream {
    match doorway {
        Some(doorway) => doorway.knock().await,
        None => std::future::pending().await,
    }
}
