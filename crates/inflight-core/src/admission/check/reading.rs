//! What the latest reading says to the gate, how far the load is above a bound, and when that may
//! be over.

use std::time::Duration;

use super::{CheckGate, CheckMode};
use crate::admission::gate::RETRY_UNKNOWN;
use crate::admission::refusal::{Refusal, RefusalReason};
use crate::ids::ModelIndex;
use crate::load::{ESTIMATE_WINDOW, Estimate, History, Observation, Quantity, Term};
use crate::time::Timestamp;
use crate::units::{Replicas, count_as_f64};

/// What a refused caller is told at least and at most, as at the gate that counts.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// What a caller is told whose call waited here when we ended: another process may serve at once.
const WAIT_STOPPING: Duration = Duration::from_secs(1);

/// The latest reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// When its oldest part was true.
    pub(super) at: Timestamp,
    /// Mean in flight / max(executing, replicas) of the last ten seconds.
    pub(super) ratio: Option<f64>,
    in_flight: Option<f64>,
    executing: Option<f64>,
    pub(super) ready: Option<Replicas>,
    completions_per_second: Option<f64>,
}

impl Seen {
    pub(super) const fn nothing(now: Timestamp) -> Self {
        Self {
            at: now,
            ratio: None,
            in_flight: None,
            executing: None,
            ready: None,
            completions_per_second: None,
        }
    }

    /// Reads an observation that is in the history already; fleets that are read have one row. What
    /// has no present value is taken as its mean.
    pub(super) fn of(now: Timestamp, observation: &Observation, history: &History) -> Self {
        let Estimate {
            in_flight,
            executing,
            inflation,
            ..
        } = Estimate::of(history, now);
        let present = |quantity, mean: Option<f64>| {
            let level = history.level(now, ModelIndex(0), quantity);
            mean.map(|mean| level.unwrap_or(mean))
        };
        let completions = history.total_mean(now, Quantity::Completions, ESTIMATE_WINDOW);
        Self {
            at: now - age(observation),
            ratio: inflation,
            in_flight: present(Quantity::InFlight, in_flight),
            executing: present(Quantity::Executing, executing),
            ready: history.ready(now).ok(),
            completions_per_second: completions.ok(),
        }
    }

    /// Returns until when the load is known by this reading, if it is. Without a replica nothing
    /// else matters.
    pub(super) fn known_until(&self) -> Option<Timestamp> {
        let is_known = match self.ready {
            Some(Replicas::ZERO) => true,
            Some(_) => self.in_flight.is_some() && self.executing.is_some(),
            None => false,
        };
        is_known.then(|| self.at + ESTIMATE_WINDOW)
    }

    pub(super) fn has_ready(&self, now: Timestamp) -> bool {
        let is_fresh = now <= self.at + ESTIMATE_WINDOW;
        is_fresh && self.ready.is_some_and(|ready| ready > Replicas::ZERO)
    }
}

impl CheckGate {
    /// Returns by how many requests one more would pass `bound` times what is served, at this
    /// moment and with so many ahead; by none where nothing is served or known.
    pub(super) fn excess(&self, ahead: usize, bound: f64) -> f64 {
        let seen = &self.seen;
        let (Some(in_flight), Some(executing), Some(ready)) =
            (seen.in_flight, seen.executing, seen.ready)
        else {
            return 0.0;
        };
        if ready == Replicas::ZERO {
            return 0.0;
        }
        let let_in = count_as_f64(self.let_in.total());
        let since = match self.config.mode {
            // A session goes on: it is one request at any time from here on.
            CheckMode::NewSessions => let_in,
            // A request ends, as others do.
            CheckMode::EveryRequest => {
                let span = self.now.since(seen.at).as_secs_f64();
                let ended = seen.completions_per_second.map(|rate| rate * span);
                (let_in - ended.unwrap_or(let_in)).max(0.0)
            }
        };
        let ahead = count_as_f64(u64::try_from(ahead).unwrap_or(u64::MAX));
        in_flight + since + ahead + 1.0 - bound * executing.max(ready.as_f64())
    }

    /// Counts a refusal and says when to come back: when what is too much has ended at the rate of
    /// the last ten seconds and, while the gate is closed, their mean can have fallen.
    pub(super) fn refuse(&mut self, reason: RefusalReason) -> Refusal {
        self.counts.refused.count(reason);
        let retry_after = match reason {
            RefusalReason::Overloaded => self.time_to_room().clamp(WAIT.0, WAIT.1),
            RefusalReason::Stopping => WAIT_STOPPING,
            RefusalReason::LoadUnknown
            | RefusalReason::QueueFull
            | RefusalReason::QueueBytes
            | RefusalReason::NoReplica
            | RefusalReason::WaitExpired
            | RefusalReason::DeadlineExpired
            | RefusalReason::ColdWaitExpired => RETRY_UNKNOWN,
        };
        Refusal {
            reason,
            retry_after: Some(retry_after),
        }
    }

    fn time_to_room(&self) -> Duration {
        let admission = &self.config.admission;
        let bound = if self.is_open {
            admission.threshold
        } else {
            admission.reopen
        };
        let drained = match self.seen.completions_per_second {
            Some(rate) if rate > 0.0 => self.excess(self.held, bound).max(0.0) / rate,
            Some(_) | None => RETRY_UNKNOWN.as_secs_f64(),
        };
        let fallen = match self.ratio {
            // With nothing in flight from here on, the mean falls in a line to zero.
            Some(ratio) if !self.is_open && ratio > admission.reopen => {
                ESTIMATE_WINDOW.as_secs_f64() * (1.0 - admission.reopen / ratio)
            }
            Some(_) | None => 0.0,
        };
        Duration::try_from_secs_f64(drained.max(fallen)).unwrap_or(WAIT.1)
    }
}

/// Returns how old the oldest part of a reading is that is not too old to count.
fn age(observation: &Observation) -> Duration {
    let levels = (observation.models.iter()).flat_map(|row| [&row.in_flight, &row.executing]);
    levels
        .map(|level| known_age(&level.now).or_else(|| known_age(&level.integral)))
        .chain([known_age(&observation.replicas.ready())])
        .flatten()
        .filter(|&age| age <= ESTIMATE_WINDOW)
        .max()
        .unwrap_or_default()
}

fn known_age<T>(term: &Term<T>) -> Option<Duration> {
    match term {
        Term::Known { age, .. } => Some(*age),
        Term::Unknown(_) => None,
    }
}
