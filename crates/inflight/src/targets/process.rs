//! The process target: starts and stops replicas as processes of this machine.
//!
//! Split in a pure machine that knows which replicas there are (`table`) and the IO around it:
//! this module's task owns the table and passes on what it says, one task per replica owns a
//! process (`replica`), and a shim stands between us and the process (`shim`). It decides no
//! size.

mod backoff;
mod config;
mod output;
mod port_pool;
mod probe;
mod replica;
mod shim;
mod table;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inflight_core::{ReplicaId, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::ports::{ReplicaChange, TargetCommand, TargetEvent};
use crate::telemetry::Printer;

pub use config::{
    CommandError, ProcessConfig, ProcessConfigError, ProcessSettings, ReadyProbe, resolve_command,
};
pub use port_pool::PortPool;
pub use shim::run_shim_if_asked;

use port_pool::ReservedPort;
use replica::{Exit, Launch};
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
            clock,
        }
    }
}

/// Counts for the metrics.
#[derive(Debug, Default)]
pub struct ProcessStats {
    crashes: AtomicU64,
}

impl ProcessStats {
    /// Returns how many replicas ended without being asked to, or were never ready in time.
    #[must_use]
    pub fn crashes(&self) -> u64 {
        self.crashes.load(Ordering::Relaxed)
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
    stats: Arc<ProcessStats>,
}

impl ProcessTarget {
    /// Starts a target of no replicas; it acts on the first [`TargetCommand::Size`].
    #[must_use]
    pub fn start(
        config: ProcessConfig,
        host: ProcessHost,
        commands: mpsc::Receiver<TargetCommand>,
        events: mpsc::Sender<TargetEvent>,
    ) -> Self {
        let stats = Arc::new(ProcessStats::default());
        let (settings, changes) = watch::channel(config);
        let keeper = Keeper::new(changes, host, Arc::clone(&stats));
        Self {
            settings,
            task: tokio::spawn(keeper.run(commands, events)),
            stats,
        }
    }

    /// Returns where to put other settings at any time. Command, environment and probe are for
    /// replicas that are started from then on, nothing is restarted; spans and the bound count at
    /// once. A command given after that is carried out by the new settings.
    #[must_use]
    pub fn settings(&self) -> watch::Sender<ProcessConfig> {
        self.settings.clone()
    }

    /// Returns the counts, which stay readable after the end.
    #[must_use]
    pub fn stats(&self) -> Arc<ProcessStats> {
        Arc::clone(&self.stats)
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
    stats: Arc<ProcessStats>,
    table: Table,
    members: BTreeMap<ReplicaId, Member>,
    tasks: JoinSet<Exit>,
    ready: (mpsc::Sender<ReplicaId>, mpsc::Receiver<ReplicaId>),
    outbox: VecDeque<TargetEvent>,
    warnings: Warnings,
}

/// What belongs to a replica beside its place in the table.
#[derive(Debug)]
struct Member {
    /// `None` when no port was free.
    port: Option<ReservedPort>,
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    task: tokio::task::Id,
    orders: mpsc::Sender<Order>,
}

/// When the last warning was, and how many were held back since.
#[derive(Debug, Default)]
struct Warnings {
    next_at: Timestamp,
    held_back: u64,
}

impl Keeper {
    fn new(
        mut settings: watch::Receiver<ProcessConfig>,
        host: ProcessHost,
        stats: Arc<ProcessStats>,
    ) -> Self {
        let config = settings.borrow_and_update().clone();
        Self {
            settings,
            table: Table::new(limits(&config)),
            config: Arc::new(config),
            host,
            stats,
            members: BTreeMap::new(),
            tasks: JoinSet::new(),
            ready: mpsc::channel(64),
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
            if self.table.is_done() && self.outbox.is_empty() {
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
                Ok(()) = self.settings.changed() => {
                    let config = self.settings.borrow_and_update().clone();
                    self.apply_settings(config);
                }
                Some(id) = self.ready.1.recv(), if open => {
                    self.table.on_ready(self.host.clock.now(), id);
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
            TargetCommand::Stop => self.table.on_stop(now),
        }
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
        let crashes = self.table.crashes();
        self.table
            .on_exited(self.host.clock.now(), exit.id, &exit.how);
        if self.table.crashes() > crashes {
            self.stats
                .crashes
                .store(self.table.crashes(), Ordering::Relaxed);
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
            crashes = self.table.crashes(),
            crashes_not_told = held_back,
            "a replica crashed"
        );
    }

    fn act(&mut self) {
        while let Some(action) = self.table.poll_action() {
            match action {
                Action::Tell { id, index, change } => self.tell(id, index, change),
                Action::Launch { id, index } => self.launch(id, index),
                Action::Terminate { id } => self.order(id, Order::Terminate),
                Action::Kill { id } => self.order(id, Order::Kill),
            }
        }
    }

    fn tell(&mut self, replica: ReplicaId, index: u32, change: ReplicaChange) {
        let host = self.config.settings().host;
        let gone = matches!(change, ReplicaChange::Gone { .. });
        let member = self.members.entry(replica).or_insert_with(|| Member {
            port: self.host.ports.reserve(host),
            process: None,
        });
        let address = member.address(host);
        self.outbox.push_back(TargetEvent {
            replica,
            index,
            address,
            change,
        });
        if gone {
            self.members.remove(&replica);
        }
    }

    fn launch(&mut self, id: ReplicaId, index: u32) {
        let host = self.config.settings().host;
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let (orders, received) = mpsc::channel(ORDERS_PER_REPLICA);
        let launch = Launch {
            id,
            index,
            address: member.address(host),
            config: Arc::clone(&self.config),
            program: self.host.program.clone(),
            printer: self.host.printer.clone(),
            orders: received,
            ready: self.ready.0.clone(),
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
    fn address(&self, host: std::net::IpAddr) -> SocketAddr {
        SocketAddr::new(host, self.port.as_ref().map_or(0, ReservedPort::get))
    }
}
