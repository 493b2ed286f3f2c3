//! The control loop of one fleet: reads the load, lets the scaler decide, tells the target, and
//! carries the target's news to the gate.
//!
//! It holds no rule of its own: what it does between an event and a command is bookkeeping.

use std::sync::Arc;
use std::time::Duration;

use inflight_core::load::ReplicaState;
use inflight_core::scaling::Scaler;
use inflight_core::{Decision, ReplicaId, Replicas, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use crate::fleet::Fleet;
use crate::ports::{ReplicaChange, TargetCommand, TargetEvent};

/// How often the load is read between decisions: fine enough for the shortest window (6 s).
const READ_EVERY: Duration = Duration::from_secs(2);

/// Everything that can happen to a fleet.
#[derive(Debug)]
enum Event {
    /// It is time to read the load, and perhaps to decide.
    Tick,
    /// A wait's time is over.
    Timeout,
    /// A request began to wait, or a draining replica became empty.
    Changed,
    /// A replica changed.
    Target(TargetEvent),
    /// The target ended; nothing changes the fleet any more.
    TargetGone,
    /// We stop.
    Stop,
}

/// The channels to and from a target.
#[derive(Debug)]
pub struct TargetLink {
    /// Commands to the target.
    pub commands: mpsc::Sender<TargetCommand>,
    /// News from the target.
    pub events: mpsc::Receiver<TargetEvent>,
}

/// The control loop of one fleet.
pub struct Control {
    fleet: Arc<Fleet>,
    scaler: Scaler,
    decide_every: Duration,
    /// `None`: decides and tells, changes nothing.
    target: Option<TargetLink>,
    /// How long the replicas took that became ready since the last reading.
    started: Vec<Duration>,
    /// What the target was not told yet of single replicas.
    untold: Vec<(ReplicaId, TargetCommand)>,
    next_tick: Timestamp,
    next_decision: Timestamp,
}

impl Control {
    /// Builds the loop; [`Control::run`] runs it.
    #[must_use]
    pub fn new(
        fleet: Arc<Fleet>,
        scaler: Scaler,
        decide_every: Duration,
        target: Option<TargetLink>,
    ) -> Self {
        let now = fleet.clock().now();
        Self {
            fleet,
            scaler,
            decide_every,
            target,
            started: Vec::new(),
            untold: Vec::new(),
            next_tick: now,
            next_decision: now,
        }
    }

    /// Runs until `stop` fires; then tells the target to stop and returns once it has ended.
    pub async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        loop {
            match self.next_event(&mut stop).await {
                Event::Tick => self.on_tick(),
                Event::Timeout => self.fleet.on_timeout(),
                Event::Changed => self.on_changed(),
                Event::Target(event) => {
                    self.on_target(event);
                    self.tell_untold();
                }
                Event::TargetGone => {
                    warn!(
                        fleet = self.fleet.name(),
                        "the target ended; the size stays as it is"
                    );
                    self.target = None;
                }
                Event::Stop => break,
            }
        }
        self.stop_target().await;
    }

    async fn next_event(&mut self, stop: &mut oneshot::Receiver<()>) -> Event {
        let clock = self.fleet.clock();
        let tick = Instant::from_std(clock.instant(self.next_tick));
        let timeout = self
            .fleet
            .next_timeout()
            .map(|at| Instant::from_std(clock.instant(at)));
        let target = async {
            match &mut self.target {
                Some(link) => link.events.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = stop => Event::Stop,
            event = target => event.map_or(Event::TargetGone, Event::Target),
            () = self.fleet.changed() => Event::Changed,
            () = sleep_until(timeout.unwrap_or(tick)), if timeout.is_some() => Event::Timeout,
            () = sleep_until(tick) => Event::Tick,
        }
    }

    fn on_tick(&mut self) {
        let now = self.observe();
        self.next_tick = now + READ_EVERY.min(self.decide_every);
        if now >= self.next_decision {
            self.decide(now);
        }
    }

    /// A first request at zero is decided on at once; everything else waits for its tick.
    fn on_changed(&mut self) {
        let drained = self.fleet.take_drained().into_iter();
        let commands = drained.map(|replica| (replica, TargetCommand::Drained(replica)));
        self.untold.extend(commands);
        self.tell_untold();
        // A fleet that is to have replicas and has none yet gains nothing from another decision.
        let is_at_zero = self.fleet.board().desired() == Replicas::ZERO;
        if is_at_zero && self.fleet.waits_at_zero() {
            let now = self.observe();
            self.decide(now);
        }
    }

    /// Returns the moment of the reading, which is that of the decision too.
    fn observe(&mut self) -> Timestamp {
        let (read_at, mut observation) = self.fleet.observe();
        observation.started.append(&mut self.started);
        self.scaler.observe(read_at, &observation);
        read_at
    }

    fn decide(&mut self, now: Timestamp) {
        self.next_decision = now + self.decide_every;
        let decision = self.scaler.decide(now);
        self.fleet.on_decision(&decision);
        self.tell_target(&decision);
        if decision.changes_size() {
            info!(
                fleet = self.fleet.name(),
                replicas_from = decision.current.get(),
                replicas_to = decision.desired.get(),
                reason = %decision.reason,
                "decided"
            );
        }
        let estimate = self.scaler.estimate(now);
        let start_delay = self.scaler.start_delay();
        self.fleet.board().publish(decision, estimate, start_delay);
        self.tell_untold();
    }

    /// A full channel is no loss: the next decision says the size again.
    fn tell_target(&self, decision: &Decision) {
        let Some(link) = &self.target else { return };
        let command = TargetCommand::Size {
            desired: decision.desired,
            drain: decision.drain.clone(),
        };
        if link.commands.try_send(command).is_err() {
            warn!(
                fleet = self.fleet.name(),
                "the target is busy and did not take the size"
            );
        }
    }

    /// Keeps what the target had no room for until the next event.
    fn tell_untold(&mut self) {
        let Some(link) = &self.target else {
            self.untold.clear();
            return;
        };
        while let Some((_, command)) = self.untold.last() {
            if link.commands.try_send(command.clone()).is_err() {
                break;
            }
            self.untold.pop();
        }
    }

    fn on_target(&mut self, event: TargetEvent) {
        let TargetEvent {
            replica,
            index,
            address,
            change,
        } = event;
        let fleet = self.fleet.name();
        match change {
            ReplicaChange::Starting => {
                info!(fleet, replica = index, %address, "replica starts");
                self.fleet
                    .set_endpoint(replica, address, ReplicaState::Starting);
            }
            ReplicaChange::Ready { took } => {
                let start_seconds = took.map(|took| took.as_secs_f64());
                info!(fleet, replica = index, start_seconds, "replica is ready");
                self.started.extend(took);
                self.fleet
                    .set_endpoint(replica, address, ReplicaState::Ready);
            }
            ReplicaChange::Unhealthy { why } => {
                warn!(fleet, replica = index, %address, why, "replica is unhealthy");
                self.fleet
                    .set_endpoint(replica, address, ReplicaState::Unhealthy);
            }
            ReplicaChange::GivenUp => {
                warn!(
                    fleet,
                    replica = index,
                    "replica stays unhealthy and is replaced"
                );
                self.untold.push((replica, TargetCommand::Replace(replica)));
            }
            ReplicaChange::Draining => {
                info!(fleet, replica = index, "replica drains");
                self.fleet
                    .set_endpoint(replica, address, ReplicaState::Draining);
            }
            ReplicaChange::Gone { why, unexpected } => {
                info!(fleet, replica = index, unexpected, why, "replica ended");
                self.fleet.board().crashes += u64::from(unexpected);
                self.untold.retain(|&(of, _)| of != replica);
                self.fleet.remove_endpoint(replica);
            }
        }
    }

    async fn stop_target(&mut self) {
        let Some(mut link) = self.target.take() else {
            return;
        };
        // A target whose commands end stops everything; it may be waiting for us to hear it.
        drop(link.commands);
        while let Some(event) = link.events.recv().await {
            if let ReplicaChange::Gone { .. } = event.change {
                self.fleet.remove_endpoint(event.replica);
            }
        }
    }
}
