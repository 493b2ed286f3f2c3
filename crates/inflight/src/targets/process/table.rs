//! Which replicas there are and what happens to each next.
//!
//! A pure machine: it reads no clock, knows no process and no port. Inputs take `now`; what has to
//! be done comes out of [`Table::poll_action`], and [`Table::poll_timeout`] says when to call
//! [`Table::on_timeout`]. It does not choose the fleet's size, and which replica goes only where
//! the size's sender named too few.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use inflight_core::{ReplicaId, Replicas, Timestamp};

use super::backoff::Backoff;
use super::wire::Stage;
use crate::ports::ReplicaChange;

/// The spans and the bound that the machine works with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Indices stay below this, so there are never more processes, draining ones included.
    pub(super) replicas_max: Replicas,
    /// How long a replica may take from its process's start to ready.
    pub(super) start_timeout: Duration,
    /// How long a draining replica may keep its last requests.
    pub(super) drain_timeout: Duration,
    /// How long a replica may take to end after it was asked to.
    pub(super) stop_grace: Duration,
}

/// What has to be done, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Tell the control loop.
    Tell {
        id: ReplicaId,
        index: u32,
        change: ReplicaChange,
    },
    /// Start the process.
    Launch { id: ReplicaId, index: u32 },
    /// Ask the process group to end.
    Terminate { id: ReplicaId },
    /// End the process group.
    Kill { id: ReplicaId },
}

/// The replicas of one fleet.
#[derive(Debug)]
pub(super) struct Table {
    limits: Limits,
    desired: Replicas,
    ending: bool,
    /// Somebody else decides: nothing is started and nothing ended.
    handed_over: bool,
    replicas: BTreeMap<ReplicaId, Replica>,
    next_id: u64,
    backoff: Backoff,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
struct Replica {
    index: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Its process starts after a back-off.
    Waiting { start_at: Timestamp },
    /// Its process runs and is not ready.
    Starting { launched_at: Timestamp },
    /// It was ready under an earlier process of ours, and is asked whether it still is.
    Adopted {
        adopted_at: Timestamp,
        ready_since: Timestamp,
    },
    /// It takes requests.
    Ready { since: Timestamp },
    /// It finishes its requests; it has not been told to end and can be taken back.
    Draining {
        ready_since: Timestamp,
        stop_at: Timestamp,
        cause: Cause,
    },
    /// It was told to end.
    Stopping {
        kill_at: Option<Timestamp>,
        cause: Cause,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Nobody wants it.
    Unwanted,
    /// Nobody wants it, and it has not answered us yet: it is not taken back.
    Unasked,
    /// It was not ready in time. It stands in the way of its successor until it is gone, so that
    /// the successor gets the same index and the back-off that belongs to it.
    NeverReady,
    /// It was ready and did not answer for too long. It stands in its successor's way as well, and
    /// is not taken back.
    Unhealthy { ready_since: Timestamp },
}

impl State {
    /// Whether the replica counts towards the desired size.
    const fn is_live(&self) -> bool {
        matches!(
            self,
            Self::Waiting { .. }
                | Self::Starting { .. }
                | Self::Adopted { .. }
                | Self::Ready { .. }
        )
    }

    /// Which live replica goes first when nobody named one: the smaller the sooner.
    const fn worth(&self) -> u8 {
        match self {
            Self::Waiting { .. } => 0,
            Self::Starting { .. } => 1,
            Self::Adopted { .. }
            | Self::Ready { .. }
            | Self::Draining { .. }
            | Self::Stopping { .. } => 2,
        }
    }

    const fn is_failing(&self) -> bool {
        matches!(
            self,
            Self::Stopping {
                cause: Cause::NeverReady | Cause::Unhealthy { .. },
                ..
            } | Self::Draining {
                cause: Cause::NeverReady | Cause::Unhealthy { .. },
                ..
            }
        )
    }
}

impl Table {
    /// Builds the table of a fleet without replicas.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            desired: Replicas::ZERO,
            ending: false,
            handed_over: false,
            replicas: BTreeMap::new(),
            next_id: 0,
            backoff: Backoff::default(),
            actions: VecDeque::new(),
        }
    }

    /// Takes in a replica that runs already, with its index and, unless that is another's, its id; `age`
    /// is since its process was started. Returns its id.
    pub(super) fn adopt(
        &mut self,
        now: Timestamp,
        id: ReplicaId,
        index: u32,
        stage: Stage,
        age: Duration,
    ) -> ReplicaId {
        let is_free = !self.replicas.contains_key(&id);
        let id = if is_free { id } else { ReplicaId(self.next_id) };
        self.next_id = self.next_id.max(id.0.saturating_add(1));
        let started_at = now - age;
        let state = match stage {
            Stage::Starting => State::Starting {
                launched_at: started_at,
            },
            Stage::Ready => State::Adopted {
                adopted_at: now,
                ready_since: started_at,
            },
            Stage::Stopping => State::Stopping {
                kill_at: Some(now + self.limits.stop_grace),
                cause: Cause::Unwanted,
            },
        };
        self.replicas.insert(id, Replica { index, state });
        self.tell(id, ReplicaChange::Starting);
        if stage == Stage::Stopping {
            self.tell(id, ReplicaChange::Draining);
        }
        id
    }

    /// Takes whether somebody else decides from here on: then nothing is started and nothing
    /// ended.
    pub(super) fn set_handed_over(&mut self, now: Timestamp, handed_over: bool) {
        self.handed_over = handed_over;
        self.grow(now, &[]);
    }

    /// Takes the size the fleet shall have; `drain` names who goes first if it is smaller.
    pub(super) fn on_size(&mut self, now: Timestamp, desired: Replicas, drain: &[ReplicaId]) {
        if self.ending || self.handed_over {
            return;
        }
        self.desired = desired;
        let live = self.live();
        if live > desired {
            self.shrink(now, live.minus(desired), drain);
        }
        self.grow(now, drain);
    }

    /// Takes other spans and another bound. What drains or stops already keeps its span.
    pub(super) fn on_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes that a draining replica holds no request any more.
    pub(super) fn on_drained(&mut self, now: Timestamp, id: ReplicaId) {
        if let Some(replica) = self.replicas.get(&id)
            && let State::Draining { cause, .. } = replica.state
        {
            self.terminate(now, id, cause);
        }
    }

    /// Takes that everything ends.
    pub(super) fn on_stop(&mut self, now: Timestamp) {
        self.ending = true;
        // Whatever was handed over, the end is ours to see through.
        self.handed_over = false;
        self.desired = Replicas::ZERO;
        for id in self.ids_where(|state| !matches!(state, State::Stopping { .. })) {
            self.stop(now, id);
        }
    }

    /// Takes that a replica answered its readiness probe.
    pub(super) fn on_ready(&mut self, now: Timestamp, id: ReplicaId) {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let (since, took) = match replica.state {
            State::Starting { launched_at } => (now, Some(now.since(launched_at))),
            State::Adopted { ready_since, .. } => (ready_since, None),
            State::Draining { ref mut cause, .. } if *cause == Cause::Unasked => {
                *cause = Cause::Unwanted;
                return;
            }
            State::Waiting { .. }
            | State::Ready { .. }
            | State::Draining { .. }
            | State::Stopping { .. } => return,
        };
        replica.state = State::Ready { since };
        self.tell(id, ReplicaChange::Ready { took });
    }

    /// Drains and stops a replica that was unhealthy for too long; its successor follows.
    pub(super) fn on_replace(&mut self, now: Timestamp, id: ReplicaId) {
        if let Some(replica) = self.replicas.get(&id)
            && let State::Ready { since } = replica.state
        {
            self.drain(now, id, since, Cause::Unhealthy { ready_since: since });
        }
    }

    /// Takes that a replica's process ended, or could not be started; `how` says how. Tells whether
    /// nobody asked it to.
    pub(super) fn on_exited(&mut self, now: Timestamp, id: ReplicaId, how: &str) -> bool {
        let Some(replica) = self.replicas.remove(&id) else {
            return false;
        };
        let index = replica.index;
        let (why, unexpected, ready_for) = match replica.state {
            State::Stopping {
                cause: Cause::Unwanted | Cause::Unasked,
                ..
            } => (format!("stopped as asked: {how}"), false, None),
            State::Stopping {
                cause: Cause::NeverReady,
                ..
            } => {
                let within = self.limits.start_timeout;
                (
                    format!("not ready within {within:?} and stopped: {how}"),
                    true,
                    None,
                )
            }
            State::Stopping {
                cause: Cause::Unhealthy { ready_since },
                ..
            } => {
                let why = format!("unhealthy for too long and stopped: {how}");
                (why, true, Some(now.since(ready_since)))
            }
            State::Waiting { .. } | State::Starting { .. } => {
                (format!("ended before it was ready: {how}"), true, None)
            }
            State::Adopted { ready_since, .. } => {
                (how.to_owned(), true, Some(now.since(ready_since)))
            }
            State::Ready { since } => (how.to_owned(), true, Some(now.since(since))),
            State::Draining { ready_since, .. } => (
                format!("ended while draining: {how}"),
                true,
                Some(now.since(ready_since)),
            ),
        };
        if unexpected {
            self.backoff.on_crash(now, index, ready_for);
        }
        let change = ReplicaChange::Gone { why, unexpected };
        self.actions.push_back(Action::Tell { id, index, change });
        self.grow(now, &[]);
        unexpected
    }

    /// Does what is due.
    pub(super) fn on_timeout(&mut self, now: Timestamp) {
        let due = self
            .replicas
            .iter()
            .filter(|(_, it)| self.due(it).is_some_and(|at| at <= now));
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(replica) = self.replicas.get_mut(&id) else {
                continue;
            };
            match &mut replica.state {
                State::Waiting { .. } => self.launch(now, id),
                State::Starting { .. } => self.terminate(now, id, Cause::NeverReady),
                // Others may have sent it requests since before our time.
                &mut State::Adopted { ready_since, .. } => {
                    self.drain(now, id, ready_since, Cause::NeverReady);
                }
                State::Draining { cause, .. } => {
                    let cause = *cause;
                    self.terminate(now, id, cause);
                }
                State::Stopping { kill_at, .. } => {
                    *kill_at = None;
                    self.actions.push_back(Action::Kill { id });
                }
                State::Ready { .. } => {}
            }
        }
    }

    /// Returns when [`Table::on_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        if self.handed_over {
            return None;
        }
        self.replicas.values().filter_map(|it| self.due(it)).min()
    }

    /// Returns the next thing to do.
    pub(super) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether everything was told to end and has ended.
    pub(super) fn is_done(&self) -> bool {
        self.ending && self.replicas.is_empty() && self.actions.is_empty()
    }

    fn due(&self, replica: &Replica) -> Option<Timestamp> {
        match &replica.state {
            State::Waiting { start_at } => Some(*start_at),
            State::Starting { launched_at: since }
            | State::Adopted {
                adopted_at: since, ..
            } => Some(*since + self.limits.start_timeout),
            State::Ready { .. } => None,
            State::Draining { stop_at, .. } => Some(*stop_at),
            State::Stopping { kill_at, .. } => *kill_at,
        }
    }

    fn live(&self) -> Replicas {
        Replicas::from_len(
            self.replicas
                .values()
                .filter(|it| it.state.is_live())
                .count(),
        )
    }

    fn ids_where(&self, wanted: impl Fn(&State) -> bool) -> Vec<ReplicaId> {
        self.replicas
            .iter()
            .filter(|(_, it)| wanted(&it.state))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Lets `excess` live replicas go: those named in their order, then the least worth, highest
    /// index first.
    fn shrink(&mut self, now: Timestamp, excess: Replicas, named: &[ReplicaId]) {
        let live = |id: &ReplicaId| self.replicas.get(id).is_some_and(|it| it.state.is_live());
        let mut seen = BTreeSet::new();
        let mut victims: Vec<ReplicaId> = named
            .iter()
            .copied()
            .filter(|id| live(id) && seen.insert(*id))
            .collect();
        let mut others: Vec<(u8, Reverse<u32>, ReplicaId)> = self
            .replicas
            .iter()
            .filter(|(id, it)| it.state.is_live() && !seen.contains(id))
            .map(|(id, it)| (it.state.worth(), Reverse(it.index), *id))
            .collect();
        others.sort_unstable();
        victims.extend(others.into_iter().map(|(_, _, id)| id));
        for id in victims
            .into_iter()
            .take(usize::try_from(excess.get()).unwrap_or(usize::MAX))
        {
            self.dismiss(now, id);
        }
    }

    /// Takes draining replicas back, then starts new ones, until the size is reached or no index
    /// is free; `named` are taken back last.
    fn grow(&mut self, now: Timestamp, named: &[ReplicaId]) {
        if self.ending || self.handed_over {
            return;
        }
        let failing = self
            .replicas
            .values()
            .filter(|it| it.state.is_failing())
            .count();
        let present = self.live().plus(Replicas::from_len(failing));
        let may_stay = |state: &State| {
            matches!(
                state,
                State::Draining {
                    cause: Cause::Unwanted,
                    ..
                }
            )
        };
        let mut draining = self.ids_where(may_stay);
        draining.sort_by_key(|id| {
            (
                named.contains(id),
                self.replicas.get(id).map_or(u32::MAX, |it| it.index),
            )
        });
        let mut draining = draining.into_iter();
        for _ in 0..self.desired.minus(present).get() {
            let grown = match draining.next() {
                Some(id) => self.take_back(id),
                None => self.create(now),
            };
            if !grown {
                break;
            }
        }
    }

    fn take_back(&mut self, id: ReplicaId) -> bool {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return false;
        };
        let State::Draining { ready_since, .. } = replica.state else {
            return false;
        };
        replica.state = State::Ready { since: ready_since };
        self.tell(id, ReplicaChange::Ready { took: None });
        true
    }

    fn create(&mut self, now: Timestamp) -> bool {
        let used: BTreeSet<u32> = self.replicas.values().map(|it| it.index).collect();
        let free = (0..self.limits.replicas_max.get()).find(|index| !used.contains(index));
        let Some(index) = free else { return false };
        let id = ReplicaId(self.next_id);
        self.next_id += 1;
        let start_at = self.backoff.start_at(now, index);
        self.replicas.insert(
            id,
            Replica {
                index,
                state: State::Waiting { start_at },
            },
        );
        self.tell(id, ReplicaChange::Starting);
        if start_at <= now {
            self.launch(now, id);
        }
        true
    }

    fn launch(&mut self, now: Timestamp, id: ReplicaId) {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        replica.state = State::Starting { launched_at: now };
        self.actions.push_back(Action::Launch {
            id,
            index: replica.index,
        });
    }

    /// Lets a live replica go: one that may have requests drains, any other is stopped.
    fn dismiss(&mut self, now: Timestamp, id: ReplicaId) {
        let Some(replica) = self.replicas.get(&id) else {
            return;
        };
        match replica.state {
            State::Ready { since } => self.drain(now, id, since, Cause::Unwanted),
            State::Adopted { ready_since, .. } => self.drain(now, id, ready_since, Cause::Unasked),
            State::Waiting { .. }
            | State::Starting { .. }
            | State::Draining { .. }
            | State::Stopping { .. } => self.stop(now, id),
        }
    }

    fn drain(&mut self, now: Timestamp, id: ReplicaId, ready_since: Timestamp, cause: Cause) {
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.state = State::Draining {
                ready_since,
                stop_at: now + self.limits.drain_timeout,
                cause,
            };
            self.tell(id, ReplicaChange::Draining);
        }
    }

    /// Ends a replica without waiting for its requests.
    fn stop(&mut self, now: Timestamp, id: ReplicaId) {
        let Some(replica) = self.replicas.get(&id) else {
            return;
        };
        match replica.state {
            State::Waiting { .. } => {
                let index = replica.index;
                self.replicas.remove(&id);
                let why = "not wanted any more before its process started".to_owned();
                let change = ReplicaChange::Gone {
                    why,
                    unexpected: false,
                };
                self.actions.push_back(Action::Tell { id, index, change });
            }
            State::Starting { .. } | State::Adopted { .. } | State::Ready { .. } => {
                self.tell(id, ReplicaChange::Draining);
                self.terminate(now, id, Cause::Unwanted);
            }
            State::Draining { cause, .. } => self.terminate(now, id, cause),
            State::Stopping { .. } => {}
        }
    }

    fn terminate(&mut self, now: Timestamp, id: ReplicaId, cause: Cause) {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let kill_at = Some(now + self.limits.stop_grace);
        replica.state = State::Stopping { kill_at, cause };
        self.actions.push_back(Action::Terminate { id });
    }

    fn tell(&mut self, id: ReplicaId, change: ReplicaChange) {
        let Some(replica) = self.replicas.get(&id) else {
            return;
        };
        self.actions.push_back(Action::Tell {
            id,
            index: replica.index,
            change,
        });
    }
}

#[cfg(test)]
mod tests;
