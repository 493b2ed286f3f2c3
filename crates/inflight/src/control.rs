//! The control loop of one fleet: reads the load, lets the scaler decide, tells the target, and
//! carries the target's news to the gate.
//!
//! It holds no rule of its own: what it does between an event and a command is bookkeeping.

use std::sync::Arc;
use std::time::Duration;

use inflight_core::load::{Observation, ReplicaState};
use inflight_core::scaling::{Held, Scaler};
use inflight_core::{Decision, ReplicaId, Replicas, Timestamp};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::fleet::{Crash, Fleet};
use crate::ports::{FleetSettings, HoldKind, Order, ReplicaChange, TargetCommand, TargetEvent};
use crate::story::{Released, Story};

/// How often the load is read between decisions: fine enough for the shortest window (6 s).
const READ_EVERY: Duration = Duration::from_secs(2);

/// The same where a gate lets calls in by the latest reading.
const READ_EVERY_FOR_CHECKS: Duration = Duration::from_secs(1);

/// How long after a peer's news the load is read while calls wait at the gate for a replica.
const READ_SOON: Duration = Duration::from_millis(100);

/// How long a target may take until every replica would be found by our successor: a shim is there
/// within milliseconds.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(5);

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
    /// Somebody asks for something.
    Order(Order),
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
    story: Story,
    /// What holds the size by hand, as it was told to the scaler.
    held: Option<Held>,
    /// Whether the admission gate was open at the last reading.
    admission_open: bool,
    /// How long the replicas took that became ready since the last reading.
    started: Vec<Duration>,
    /// Up to which beginning of the journal it was told what the scaler knows.
    known_told: u64,
    /// What the target was not told yet of single replicas.
    untold: Vec<(ReplicaId, TargetCommand)>,
    next_tick: Timestamp,
    next_decision: Timestamp,
    /// Another process of ours decides.
    is_handed_over: bool,
    /// The process that we took over from still has requests on our replicas, which we do not
    /// count: until it is gone none goes.
    keeps_at_least: Option<Replicas>,
}

impl Control {
    /// Builds the loop; [`Control::run`] runs it.
    #[must_use]
    pub fn new(
        fleet: Arc<Fleet>,
        scaler: Scaler,
        target: Option<TargetLink>,
        story: Story,
    ) -> Self {
        let now = fleet.clock().now();
        let held = scaler.held(now);
        fleet.board().held = held;
        Self {
            fleet,
            decide_every: scaler.config().policy.tick(),
            scaler,
            target,
            story,
            held,
            admission_open: true,
            started: Vec::new(),
            known_told: 0,
            untold: Vec::new(),
            next_tick: now,
            next_decision: now,
            is_handed_over: false,
            keeps_at_least: None,
        }
    }

    /// Lets no replica go of those that there are, until [`Order::Alone`].
    #[must_use]
    pub fn beside_another(mut self, replicas: Replicas) -> Self {
        self.keeps_at_least = Some(replicas);
        self
    }

    /// Runs until `stop` fires; then tells the target to stop and returns once it has ended.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>, mut stop: oneshot::Receiver<()>) {
        loop {
            match self.next_event(&mut orders, &mut stop).await {
                Event::Tick => self.on_tick(),
                Event::Timeout => self.fleet.on_timeout(),
                Event::Changed => self.on_changed(),
                Event::Target(event) => {
                    self.on_target(event);
                    self.tell_untold();
                }
                Event::Order(order) => self.on_order(order).await,
                Event::TargetGone => self.on_target_gone(),
                Event::Stop => break,
            }
        }
        self.stop_target().await;
    }

    async fn next_event(
        &mut self,
        orders: &mut mpsc::Receiver<Order>,
        stop: &mut oneshot::Receiver<()>,
    ) -> Event {
        let clock = self.fleet.clock();
        // Another process ends a hold that was handed over.
        let held = self.held.filter(|_| !self.is_handed_over);
        let held_until = held.map_or(self.next_tick, |held| held.until);
        let tick = Instant::from_std(clock.instant(self.next_tick.min(held_until)));
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
            Some(order) = orders.recv() => Event::Order(order),
            () = self.fleet.changed() => Event::Changed,
            () = sleep_until(timeout.unwrap_or(tick)), if timeout.is_some() => Event::Timeout,
            () = sleep_until(tick) => Event::Tick,
        }
    }

    fn on_tick(&mut self) {
        if self.is_handed_over {
            self.next_tick = self.fleet.clock().now() + READ_EVERY;
            return;
        }
        let now = self.fleet.clock().now();
        let hold_is_over = self.end_hold(now);
        let every = match self.fleet.checks() {
            Some(_) => READ_EVERY_FOR_CHECKS,
            None => READ_EVERY,
        };
        self.next_tick = now + every.min(self.decide_every);
        self.read(hold_is_over || now >= self.next_decision);
    }

    /// A first request at zero is decided on at once; everything else waits for its tick.
    fn on_changed(&mut self) {
        let drained = self.fleet.take_drained().into_iter();
        let commands = drained.map(|replica| (replica, TargetCommand::Drained(replica)));
        self.untold.extend(commands);
        if self.is_handed_over {
            return;
        }
        self.tell_untold();
        // A fleet that is to have replicas and has none yet gains nothing from another decision,
        // nor one that a person holds at zero.
        let is_at_zero = self.fleet.board().desired() == Replicas::ZERO && self.held.is_none();
        if is_at_zero && self.fleet.waits_at_zero() {
            self.read(true);
        } else if self.fleet.holds_calls() {
            let soon = self.fleet.clock().now() + READ_SOON;
            self.next_tick = self.next_tick.min(soon);
        }
    }

    async fn on_order(&mut self, order: Order) {
        let now = self.fleet.clock().now();
        match order {
            // Our successor does not hear of it: whoever asked is told that we end.
            Order::Hold { .. } | Order::Release { .. } if self.is_handed_over => {}
            Order::Hold { hold, span, done } => {
                let until = now + span;
                let held = Held { hold, until };
                let kind = HoldKind::of(hold).name();
                info!(
                    fleet = self.fleet.name(),
                    kind,
                    for_seconds = span.as_secs(),
                    "size is held by hand"
                );
                self.scaler.hold(hold, until);
                self.story.held(self.fleet.name(), now, held);
                self.set_held(Some(held));
                self.read(true);
                // Whoever asked may have left.
                done.send(self.held).ok();
            }
            Order::Release { kind, done } => {
                self.end_hold(now);
                if self
                    .held
                    .is_some_and(|held| HoldKind::of(held.hold) == kind)
                {
                    self.release(now, Released::ByHand);
                    self.read(true);
                }
                done.send(self.held).ok();
            }
            Order::Configure {
                settings,
                forgets_sessions,
                done,
            } => {
                self.configure(now, *settings, forgets_sessions);
                done.send(()).ok();
            }
            Order::HandOver { done } => {
                self.is_handed_over = true;
                self.hand_target_over().await;
                done.send(Box::new(self.scaler.export())).ok();
            }
            Order::Alone => self.keeps_at_least = None,
            Order::TakeBack => {
                self.is_handed_over = false;
                if let Some(link) = &self.target {
                    // A target that is gone shows as such.
                    link.commands.send(TargetCommand::TakeBack).await.ok();
                }
            }
        }
    }

    /// The next decision is by the new settings, and at once.
    fn configure(&mut self, now: Timestamp, settings: FleetSettings, forgets_sessions: bool) {
        let FleetSettings {
            gate,
            checks,
            scaling,
        } = settings;
        self.fleet.configure(gate, forgets_sessions);
        if let (Some(running), Some(checks)) = (self.fleet.checks(), checks) {
            running.configure(checks, forgets_sessions);
        }
        if scaling != *self.scaler.config() {
            self.decide_every = scaling.policy.tick();
            self.story.configured(self.fleet.name(), now, &scaling);
            self.scaler.set_config(now, scaling);
        }
        self.read(true);
    }

    /// Ends a hold whose time is over, and tells whether there was one.
    fn end_hold(&mut self, now: Timestamp) -> bool {
        let is_over = self.held.is_some_and(|held| now >= held.until);
        if is_over {
            self.release(now, Released::Over);
        }
        is_over
    }

    fn release(&mut self, now: Timestamp, how: Released) {
        info!(
            fleet = self.fleet.name(),
            by_hand = how == Released::ByHand,
            "the policy decides again"
        );
        self.scaler.release();
        self.story.released(self.fleet.name(), now, how);
        self.set_held(None);
    }

    fn set_held(&mut self, held: Option<Held>) {
        self.held = held;
        self.fleet.board().held = held;
    }

    /// Takes a reading, and decides of that same moment where that is due.
    fn read(&mut self, is_due: bool) {
        if self.is_handed_over {
            return;
        }
        let (now, observation) = self.observe();
        let is_due = is_due || self.becomes_known(&observation);
        let decision = is_due.then(|| self.decide(now));
        self.story
            .read(self.fleet.name(), now, &observation, decision.as_ref());
        self.known_told = (self.story).known(self.fleet.name(), now, &self.scaler, self.known_told);
        let open = self.fleet.admission_open();
        if open != self.admission_open {
            self.admission_open = open;
            self.story.admission(self.fleet.name(), now, open);
        }
    }

    /// Tells whether the latest decision had to do without a term that is known by now: nobody
    /// waits for the next one with a size that was only kept.
    fn becomes_known(&self, observation: &Observation) -> bool {
        let board = self.fleet.board();
        let was_unknown = (board.decisions().next()).is_some_and(|made| made.wanted.is_none());
        let mut models = observation.models.iter();
        was_unknown
            && models.all(|load| load.in_flight.integral.known().is_some())
            && observation.replicas.ready().known().is_some()
    }

    /// Returns the reading with its moment, which is that of the decision too.
    fn observe(&mut self) -> (Timestamp, Observation) {
        let (read_at, mut observation) = self.fleet.observe();
        observation.started.append(&mut self.started);
        self.scaler.observe(read_at, &observation);
        self.fleet.board().start_delay = self.scaler.start_delay_seen();
        (read_at, observation)
    }

    fn decide(&mut self, now: Timestamp) -> Decision {
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
        self.fleet.board().publish(decision.clone(), estimate);
        self.tell_untold();
        decision
    }

    /// A full channel is no loss: the next decision says the size again.
    fn tell_target(&mut self, decision: &Decision) {
        let mut desired = decision.desired;
        if let Some(least) = &mut self.keeps_at_least {
            *least = desired.max(*least);
            desired = *least;
        }
        let Some(link) = &self.target else { return };
        let command = TargetCommand::Size {
            desired,
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
        if self.is_handed_over {
            return;
        }
        while let Some((replica, command)) = self.untold.pop() {
            if let Err(TrySendError::Full(command)) = link.commands.try_send(command) {
                self.untold.push((replica, command));
                break;
            }
        }
    }

    fn on_target_gone(&mut self) {
        const WHAT: &str = "the target ended; the size stays as it is";
        warn!(fleet = self.fleet.name(), "{WHAT}");
        let now = self.fleet.clock().now();
        self.story.failed(self.fleet.name(), now, WHAT);
        self.target = None;
    }

    fn on_target(&mut self, event: TargetEvent) {
        let now = self.fleet.clock().now();
        self.story.replica(self.fleet.name(), now, &event);
        let TargetEvent {
            replica,
            index,
            address,
            change,
            ..
        } = event;
        let fleet = self.fleet.name();
        match change {
            ReplicaChange::Starting => {
                // That its process starts is told by the target: it may wait for a back-off.
                debug!(fleet, replica = index, %address, "replica asked for");
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
                if unexpected {
                    let at = now;
                    self.fleet.board().crashed(Crash { at, index, why });
                }
                self.untold.retain(|&(of, _)| of != replica);
                self.fleet.remove_endpoint(replica);
            }
        }
    }

    async fn hand_target_over(&self) {
        let Some(link) = &self.target else { return };
        let (done, is_done) = oneshot::channel();
        let told = async {
            // A target that is gone changes nothing any more either.
            let command = TargetCommand::HandOver { done };
            link.commands.send(command).await.ok();
            is_done.await
        };
        if timeout(HANDED_OVER_WITHIN, told).await.is_err() {
            warn!(
                fleet = self.fleet.name(),
                "a replica that was being started may not be found by our successor"
            );
        }
    }

    async fn stop_target(&mut self) {
        let Some(mut link) = self.target.take() else {
            return;
        };
        // A target whose commands end stops everything; it may be waiting for us to hear it.
        drop(link.commands);
        while let Some(event) = link.events.recv().await {
            let now = self.fleet.clock().now();
            self.story.replica(self.fleet.name(), now, &event);
            if let ReplicaChange::Gone { .. } = event.change {
                self.fleet.remove_endpoint(event.replica);
            }
        }
    }
}
