//! The process target: starts and stops replicas as processes of this machine.
//!
//! Split in a pure machine that knows which replicas there are (`table`) and the IO around it:
//! this module's task owns the table and passes on what it says, one task per replica owns a
//! process (`replica`), and a shim stands between us and the process (`shim`). It decides no
//! size.

mod backoff;
mod config;
mod orphan;
mod output;
mod port_pool;
mod replica;
mod shim;
mod table;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use inflight_core::{ReplicaId, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::ports::{NamedPorts, ReplicaChange, TargetCommand, TargetEvent};
use crate::telemetry::Printer;

pub use config::{
    CommandError, ProcessConfig, ProcessConfigError, ProcessSettings, resolve_command,
};
pub use orphan::{Orphan, find_orphans};
pub use port_pool::PortPool;
pub use shim::run_shim_if_asked;

use port_pool::ReservedPort;
use replica::{Exit, Launch, News};
use table::{Action, Limits, Table};
use wire::Order;

/// Events that may wait for the control loop; while so many do, no report and no command is taken.
const EVENTS_WAITING: usize = 1_024;

/// Terminate, then kill: a replica gets no third order.
const ORDERS_PER_REPLICA: usize = 2;

/// Crashes are told at most this often; those in between are counted.
const WARN_EVERY: Duration = Duration::from_secs(5);

/// What the process targets of one machine share.
#[derive(Clone, Debug)]
pub struct ProcessHost {
    /// Gives each replica its port.
    pub ports: PortPool,
    /// Prints what replicas write.
    pub printer: Printer,
    /// The program that holds the shim: ourselves.
    pub program: PathBuf,
    /// Where the sockets of replicas are that may outlive us; `None` when none may.
    pub state: Option<PathBuf>,
    /// Reads the time.
    pub clock: Clock,
}

impl ProcessHost {
    /// Builds what is shared, with the shim in this very program.
    #[must_use]
    pub fn new(clock: Clock, printer: Printer) -> Self {
        let ports = PortPool::beside_ephemeral();
        Self {
            ports,
            printer,
            program: replica::own_program(),
            state: None,
            clock,
        }
    }
}

/// A running process target.
///
/// It ends after [`TargetCommand::Stop`], or when either channel is closed, once every replica has
/// ended.
#[derive(Debug)]
pub struct ProcessTarget {
    settings: watch::Sender<ProcessConfig>,
    task: JoinHandle<()>,
}

impl ProcessTarget {
    /// Starts a target of the replicas that run already; it acts on the first
    /// [`TargetCommand::Size`].
    #[must_use]
    pub fn start(
        config: ProcessConfig,
        host: ProcessHost,
        orphans: Vec<Orphan>,
        commands: mpsc::Receiver<TargetCommand>,
        events: mpsc::Sender<TargetEvent>,
    ) -> Self {
        let (settings, changes) = watch::channel(config);
        let mut keeper = Keeper::new(changes, host);
        for orphan in orphans {
            keeper.adopt(orphan);
        }
        Self {
            settings,
            task: tokio::spawn(keeper.run(commands, events)),
        }
    }

    /// Returns where to put other settings at any time. Command, environment and probe are for
    /// replicas that are started from then on, nothing is restarted; spans and the bound count at
    /// once. A command given after that is carried out by the new settings.
    #[must_use]
    pub fn settings(&self) -> watch::Sender<ProcessConfig> {
        self.settings.clone()
    }

    /// Waits until every replica has ended.
    ///
    /// # Errors
    ///
    /// When the task panicked or its runtime was shut down.
    pub async fn stopped(self) -> Result<(), JoinError> {
        self.task.await
    }
}

/// Keeps the table, and does what it says.
#[derive(Debug)]
struct Keeper {
    settings: watch::Receiver<ProcessConfig>,
    config: Arc<ProcessConfig>,
    host: ProcessHost,
    table: Table,
    members: BTreeMap<ReplicaId, Member>,
    tasks: JoinSet<Exit>,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    /// Who waits for every replica to be there for the next owner.
    handing_over: Vec<oneshot::Sender<()>>,
    handed_over: bool,
    is_released: bool,
    outbox: VecDeque<TargetEvent>,
    warnings: Warnings,
}

/// What belongs to a replica beside its place in the table.
#[derive(Debug)]
struct Member {
    /// `None` when no port was free.
    port: Option<ReservedPort>,
    /// Its further ports, which nobody else gets as long as those are held.
    ports: NamedPorts,
    _held: Vec<ReservedPort>,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    task: tokio::task::Id,
    orders: mpsc::Sender<Order>,
    /// Whether a later owner would find it.
    is_present: bool,
}

/// When the last warning was, and how many were held back since.
#[derive(Debug, Default)]
struct Warnings {
    next_at: Timestamp,
    held_back: u64,
}

impl Keeper {
    fn new(mut settings: watch::Receiver<ProcessConfig>, host: ProcessHost) -> Self {
        let config = settings.borrow_and_update().clone();
        Self {
            settings,
            table: Table::new(limits(&config)),
            config: Arc::new(config),
            host,
            members: BTreeMap::new(),
            tasks: JoinSet::new(),
            news: mpsc::channel(64),
            handing_over: Vec::new(),
            handed_over: false,
            is_released: false,
            outbox: VecDeque::new(),
            warnings: Warnings::default(),
        }
    }

    async fn run(
        mut self,
        mut commands: mpsc::Receiver<TargetCommand>,
        events: mpsc::Sender<TargetEvent>,
    ) {
        let mut commanded = true;
        loop {
            self.act();
            if (self.table.is_done() && self.outbox.is_empty()) || self.is_released {
                return;
            }
            let open = self.outbox.len() < EVENTS_WAITING;
            let wake = self
                .table
                .poll_timeout()
                .map(|at| self.host.clock.instant(at));
            let wake = wake.map(Instant::from_std);
            tokio::select! {
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.outbox.pop_front() {
                            permit.send(event);
                        }
                    }
                    Err(_) => self.on_unheard(),
                },
                () = events.closed(), if commanded => {
                    commanded = false;
                    self.on_unheard();
                }
                command = commands.recv(), if open && commanded => {
                    commanded = command.is_some();
                    self.take_settings();
                    self.on_command(command.unwrap_or(TargetCommand::Stop));
                }
                Some(news) = self.news.1.recv(), if open => self.on_news(news),
                Ok(()) = self.settings.changed() => {
                    let config = self.settings.borrow_and_update().clone();
                    self.apply_settings(config);
                }
                Some(ended) = self.tasks.join_next(), if open => self.on_ended(ended),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.table.on_timeout(self.host.clock.now());
                }
            }
        }
    }

    /// Once its sender is gone there are no other settings to come.
    fn take_settings(&mut self) {
        if self.settings.has_changed().unwrap_or(false) {
            let config = self.settings.borrow_and_update().clone();
            self.apply_settings(config);
        }
    }

    fn apply_settings(&mut self, config: ProcessConfig) {
        self.table.on_limits(limits(&config));
        self.config = Arc::new(config);
    }

    /// Ends everything, since nobody would know what it does.
    fn on_unheard(&mut self) {
        self.outbox.clear();
        self.on_command(TargetCommand::Stop);
    }

    fn on_command(&mut self, command: TargetCommand) {
        let now = self.host.clock.now();
        match command {
            TargetCommand::Size { desired, drain } => self.table.on_size(now, desired, &drain),
            TargetCommand::Drained(id) => self.table.on_drained(now, id),
            TargetCommand::Replace(id) => self.table.on_replace(now, id),
            TargetCommand::HandOver { done } => {
                self.handed_over = true;
                self.table.set_handed_over(now, true);
                self.handing_over.push(done);
                self.tell_handed_over();
            }
            TargetCommand::TakeBack => {
                self.handed_over = false;
                self.table.set_handed_over(now, false);
            }
            // The channels close with the tasks, and the shims wait for their next owner.
            TargetCommand::Stop if self.handed_over && self.keep().is_some() => {
                self.is_released = true;
            }
            TargetCommand::Stop => self.table.on_stop(now),
        }
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Ready(id) => self.table.on_ready(self.host.clock.now(), id),
            News::Present(id) => {
                let process = self.members.get_mut(&id).and_then(|it| it.process.as_mut());
                if let Some(process) = process {
                    process.is_present = true;
                }
                self.tell_handed_over();
            }
        }
    }

    /// Tells those who wait for it, once a later owner would find every replica.
    fn tell_handed_over(&mut self) {
        let processes = self.members.values().filter_map(|it| it.process.as_ref());
        if processes.into_iter().all(|process| process.is_present) {
            for done in self.handing_over.drain(..) {
                // Whoever waited may be gone.
                done.send(()).ok();
            }
        }
    }

    /// Returns where sockets go, if replicas shall outlive us.
    fn keep(&self) -> Option<&PathBuf> {
        let keeps = self.config.settings().keeps;
        self.host.state.as_ref().filter(|_| keeps)
    }

    /// Takes in a replica that an earlier process of ours left running.
    fn adopt(&mut self, orphan: Orphan) {
        let (about, stage) = (orphan.hello.about.clone(), orphan.hello.stage);
        let started_at = SystemTime::UNIX_EPOCH + Duration::from_millis(about.started_at);
        // A calendar that was set back meanwhile makes it young, which costs nothing.
        let age = started_at.elapsed().unwrap_or_default();
        let now = self.host.clock.now();
        let id = self
            .table
            .adopt(now, ReplicaId(about.id), about.index, stage, age);
        tracing::info!(
            fleet = about.fleet,
            replica = about.index,
            port = about.port,
            pid = orphan.hello.pid,
            ?stage,
            same_command = about.fingerprint == self.config.fingerprint(),
            "replica adopted"
        );
        let port = self.host.ports.adopt(about.port);
        let held = about.ports.values();
        let held = held
            .filter_map(|&port| self.host.ports.adopt(port))
            .collect();
        self.members.insert(
            id,
            Member {
                port,
                ports: NamedPorts::new(about.ports),
                _held: held,
                process: None,
            },
        );
        self.run_replica(id, about.index, Some(orphan));
    }

    fn on_ended(&mut self, ended: Result<Exit, JoinError>) {
        let exit = match ended {
            Ok(exit) => exit,
            Err(error) => {
                let of = |member: &Member| member.process.as_ref().map(|process| process.task);
                let id = self
                    .members
                    .iter()
                    .find(|(_, it)| of(it) == Some(error.id()));
                let Some((id, _)) = id else { return };
                tracing::error!(replica = id.0, %error, "the task of a replica failed");
                let how = "the task that watches it failed".to_owned();
                Exit {
                    id: *id,
                    how,
                    last_lines: Vec::new(),
                }
            }
        };
        let now = self.host.clock.now();
        if self.table.on_exited(now, exit.id, &exit.how) {
            self.warn(&exit);
        }
    }

    fn warn(&mut self, exit: &Exit) {
        let now = self.host.clock.now();
        if now < self.warnings.next_at {
            self.warnings.held_back += 1;
            return;
        }
        let held_back = std::mem::take(&mut self.warnings.held_back);
        self.warnings.next_at = now + WARN_EVERY;
        tracing::warn!(
            fleet = %self.config.settings().fleet,
            replica = exit.id.0,
            why = %exit.how,
            last_lines = %exit.last_lines.join("\n"),
            crashes_not_told = held_back,
            "a replica crashed"
        );
    }

    fn act(&mut self) {
        while let Some(action) = self.table.poll_action() {
            match action {
                Action::Tell { id, index, change } => self.tell(id, index, change),
                Action::Launch { id, index } => self.run_replica(id, index, None),
                Action::Terminate { id } => self.order(id, Order::Terminate),
                Action::Kill { id } => self.order(id, Order::Kill),
            }
        }
    }

    fn tell(&mut self, replica: ReplicaId, index: u32, change: ReplicaChange) {
        let host = self.config.settings().host;
        let gone = matches!(change, ReplicaChange::Gone { .. });
        let settings = self.config.settings();
        let member = (self.members.entry(replica))
            .or_insert_with(|| Member::reserve(&self.host.ports, host, &settings.ports));
        let address = member.address(host);
        let ports = Arc::clone(&member.ports);
        self.outbox.push_back(TargetEvent {
            replica,
            index,
            address,
            ports,
            change,
        });
        if gone {
            self.members.remove(&replica);
        }
    }

    fn run_replica(&mut self, id: ReplicaId, index: u32, orphan: Option<Orphan>) {
        let host = self.config.settings().host;
        let is_present = orphan.is_some();
        if !is_present {
            let fleet = &self.config.settings().fleet;
            tracing::info!(fleet, replica = index, "replica starts");
        }
        let keep = self.keep().cloned();
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let (orders, received) = mpsc::channel(ORDERS_PER_REPLICA);
        let launch = Launch {
            id,
            index,
            address: member.address(host),
            ports: Arc::clone(&member.ports),
            config: Arc::clone(&self.config),
            program: self.host.program.clone(),
            printer: self.host.printer.clone(),
            keep,
            orphan,
            orders: received,
            news: self.news.0.clone(),
        };
        let task = if member.port.is_some() {
            self.tasks.spawn(replica::run(launch))
        } else {
            let how = "no port is free".to_owned();
            self.tasks.spawn(async move {
                Exit {
                    id,
                    how,
                    last_lines: Vec::new(),
                }
            })
        };
        member.process = Some(Process {
            task: task.id(),
            orders,
            is_present,
        });
    }

    fn order(&self, id: ReplicaId, order: Order) {
        let process = self
            .members
            .get(&id)
            .and_then(|member| member.process.as_ref());
        if let Some(process) = process {
            // It cannot be full, and a task that has ended needs no order.
            process.orders.try_send(order).ok();
        }
    }
}

fn limits(config: &ProcessConfig) -> Limits {
    let settings = config.settings();
    Limits {
        replicas_max: settings.replicas_max,
        start_timeout: settings.start_timeout,
        drain_timeout: settings.drain_timeout,
        stop_grace: settings.stop_grace,
    }
}

impl Member {
    /// Takes free ports for a replica; it has none where one of them is missing.
    fn reserve(pool: &PortPool, host: IpAddr, names: &[String]) -> Self {
        let mut port = pool.reserve(host);
        let mut ports = BTreeMap::new();
        let mut held = Vec::new();
        for name in names {
            match pool.reserve(host) {
                Some(one) => {
                    ports.insert(name.clone(), one.get());
                    held.push(one);
                }
                None => port = None,
            }
        }
        Self {
            port,
            ports: NamedPorts::new(ports),
            _held: held,
            process: None,
        }
    }

    fn address(&self, host: IpAddr) -> SocketAddr {
        SocketAddr::new(host, self.port.as_ref().map_or(0, ReservedPort::get))
    }
}
