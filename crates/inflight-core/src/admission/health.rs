//! Which endpoints are fit for requests: from checks of them, and from requests that failed there.
//!
//! It asks nobody: it says when which endpoint is to be checked, takes what came out, and tells who
//! became unfit or fit again. What the gate does with that is the gate's business.
//!
//! Checks that fail take an endpoint out whatever is left, since requests that find none wait in
//! the hold queue. Requests that fail take one out at once, but never the last: they may fail for
//! reasons of our own, so the last one is only checked at once. There is no share below which unfit
//! endpoints get requests again: endpoints have slots, so the rest is not overrun by what the unfit
//! leave.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::ids::ReplicaId;
use crate::time::Timestamp;

/// Requests that fail in a row before an endpoint is taken out. One may be a connection that was
/// closed while it was idle, and those that fail go elsewhere.
const REQUESTS_FAILED: u32 = 3;

/// How long an endpoint that was taken out is not asked; doubled each time. So is the pause before
/// one is asked again that was never fit, up to the usual one.
const OUT_FIRST: Duration = Duration::from_secs(1);

/// The longest such time: what was repaired is back within a minute.
const OUT_LONGEST: Duration = Duration::from_secs(60);

/// An endpoint that was fit for this long begins at [`OUT_FIRST`] again.
const STEADY: Duration = OUT_LONGEST;

/// How often an endpoint is asked whose answer is waited for: one that passed but not often enough,
/// the last one when requests fail there. Or as often as any, where that is more often. One that was
/// never fit is asked like that at first, and ever less often.
const SOON: Duration = Duration::from_secs(1);

/// The rules of one fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// From the end of a check to the next.
    pub every: Duration,
    /// Checks failed in a row until an endpoint is unfit.
    pub unhealthy_after: NonZeroU32,
    /// Checks passed in a row until an unfit one is fit again. A first one needs one.
    pub healthy_after: NonZeroU32,
    /// How long one may be unfit before it is given up; `None`: for ever.
    pub give_up_after: Option<Duration>,
}

/// What came out of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// It answered as it should.
    Passed,
    /// It did not.
    Failed,
    /// It could not be asked, through no fault of its own.
    Unknown,
}

/// What became of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// It is fit.
    Healthy,
    /// It is unfit: no further request, until it is fit.
    Unhealthy(UnhealthyCause),
    /// It has been unfit for too long. At most one is given up in each such span, so that what
    /// fails everywhere at once does not end all of them.
    GivenUp,
}

/// Why an endpoint is unfit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnhealthyCause {
    /// So many checks failed in a row.
    Checks(u32),
    /// So many requests failed in a row, before they were answered.
    Requests(u32),
}

/// The endpoints of a fleet that are watched.
///
/// After every call drain [`poll_change`](Self::poll_change); at
/// [`poll_timeout`](Self::poll_timeout) call [`on_timeout`](Self::on_timeout) and ask
/// [`next_check`](Self::next_check) until it says `None`.
#[derive(Clone, Debug)]
pub struct Health {
    config: HealthConfig,
    rows: BTreeMap<ReplicaId, Row>,
    /// When which is to be checked.
    due: BTreeSet<(Timestamp, ReplicaId)>,
    changed: VecDeque<ReplicaId>,
    /// How many have a request that failed last.
    suspects: usize,
    given_up: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Row {
    fitness: Fitness,
    told: Told,
    is_paused: bool,
    check: Check,
    /// Checks in a row with the same result, against the present fitness.
    contrary: u32,
    /// Requests in a row that failed.
    requests_failed: u32,
    /// How often it was taken out without being steady in between.
    streak: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fitness {
    Unproven,
    Healthy {
        since: Timestamp,
    },
    Unhealthy {
        since: Timestamp,
        cause: UnhealthyCause,
    },
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Healthy,
    Unhealthy,
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    At(Timestamp),
    Running,
    /// One runs whose result counts no more; the next is at that time.
    Outdated(Timestamp),
}

impl Health {
    /// Watches nothing yet.
    #[must_use]
    pub const fn new(config: HealthConfig) -> Self {
        Self {
            config,
            rows: BTreeMap::new(),
            due: BTreeSet::new(),
            changed: VecDeque::new(),
            suspects: 0,
            given_up: None,
        }
    }

    /// Changes the rules. What is known of each endpoint stays, and nobody waits longer for a check
    /// than under the new rules.
    pub fn set_config(&mut self, now: Timestamp, config: HealthConfig) {
        self.config = config;
        let later = self.rows.iter().filter_map(|(&id, row)| {
            let latest = match row.fitness {
                Fitness::Unproven | Fitness::Healthy { .. } => now + self.spread(id),
                // One that is out stays out.
                Fitness::Unhealthy { .. } | Fitness::GivenUp => now + config.every.max(OUT_LONGEST),
            };
            matches!(row.check, Check::At(at) if at > latest).then_some((id, latest))
        });
        for (id, latest) in later.collect::<Vec<_>>() {
            self.set_check(id, Check::At(latest));
        }
    }

    /// Watches an endpoint of which nothing is known: it is checked at once, and told as fit
    /// when it passes.
    pub fn add_unproven(&mut self, now: Timestamp, id: ReplicaId) {
        self.add(id, Fitness::Unproven, Told::Nothing, now);
    }

    /// Watches an endpoint that is fit.
    pub fn add_healthy(&mut self, now: Timestamp, id: ReplicaId) {
        let at = now + self.spread(id);
        self.add(id, Fitness::Healthy { since: now }, Told::Healthy, at);
    }

    /// Leaves an endpoint alone until it is resumed.
    pub fn pause(&mut self, id: ReplicaId) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.is_paused = true;
            if let Check::At(at) = row.check {
                self.due.remove(&(at, id));
            }
        }
    }

    /// Watches an endpoint again that was left alone, with what was known of it. Tells whether it
    /// was unfit; `None`: it is not known.
    pub fn resume(&mut self, now: Timestamp, id: ReplicaId) -> Option<bool> {
        let row = self.rows.get_mut(&id)?;
        row.is_paused = false;
        if let Check::At(_) = row.check {
            self.set_check(id, Check::At(now));
        }
        let row = self.rows.get(&id)?;
        Some(matches!(
            row.fitness,
            Fitness::Unhealthy { .. } | Fitness::GivenUp
        ))
    }

    /// Forgets an endpoint.
    pub fn remove(&mut self, id: ReplicaId) {
        self.set_failed(id, 0);
        if let Some(row) = self.rows.remove(&id)
            && let Check::At(at) = row.check
        {
            self.due.remove(&(at, id));
        }
    }

    /// Returns an endpoint that is to be checked and takes it as being checked.
    pub fn next_check(&mut self, now: Timestamp) -> Option<ReplicaId> {
        let &(at, id) = self.due.first()?;
        if at > now {
            return None;
        }
        self.set_check(id, Check::Running);
        Some(id)
    }

    /// Takes what came out of a check that [`next_check`](Self::next_check) asked for.
    pub fn on_check(&mut self, now: Timestamp, id: ReplicaId, result: CheckResult) {
        let every = self.config.every;
        let first = self.spread(id);
        let config = self.config;
        let Some(row) = self.rows.get_mut(&id) else {
            return;
        };
        match row.check {
            Check::Running if !row.is_paused => {}
            Check::Running => return self.set_check(id, Check::At(now)),
            Check::Outdated(at) => return self.set_check(id, Check::At(at)),
            Check::At(_) => return,
        }
        let soon = every.min(SOON);
        let next = match (row.fitness, result) {
            (_, CheckResult::Unknown) => every,
            (Fitness::Unproven, CheckResult::Passed) => {
                self.put_in(now, id);
                first
            }
            (Fitness::Unproven, CheckResult::Failed) => {
                row.contrary = row.contrary.saturating_add(1);
                out_for(row.contrary).min(every)
            }
            (Fitness::Healthy { .. }, CheckResult::Passed) => {
                row.contrary = 0;
                self.set_failed(id, 0);
                every
            }
            (Fitness::Healthy { .. }, CheckResult::Failed) => {
                row.contrary = row.contrary.saturating_add(1);
                if row.contrary >= config.unhealthy_after.get() {
                    let cause = UnhealthyCause::Checks(row.contrary);
                    return self.put_out(now, id, cause);
                }
                let is_suspect = row.requests_failed >= REQUESTS_FAILED;
                if is_suspect { soon } else { every }
            }
            (Fitness::Unhealthy { .. } | Fitness::GivenUp, CheckResult::Passed) => {
                row.contrary += 1;
                if row.contrary >= config.healthy_after.get() {
                    self.put_in(now, id);
                    every
                } else {
                    soon
                }
            }
            (Fitness::Unhealthy { .. } | Fitness::GivenUp, CheckResult::Failed) => {
                row.contrary = 0;
                every
            }
        };
        self.set_check(id, Check::At(now + next));
    }

    /// Takes that a request failed at an endpoint before it was answered: it was not reached, or
    /// it broke the connection off.
    pub fn on_request_failed(&mut self, now: Timestamp, id: ReplicaId) {
        let is_last = self.healthy_but(id) == 0;
        let Some(row) = self.rows.get_mut(&id) else {
            return;
        };
        if row.is_paused || !matches!(row.fitness, Fitness::Healthy { .. }) {
            return;
        }
        let failed = row.requests_failed.saturating_add(1);
        let is_waiting = matches!(row.check, Check::At(_));
        self.set_failed(id, failed);
        if failed >= REQUESTS_FAILED && !is_last {
            self.put_out(now, id, UnhealthyCause::Requests(failed));
        } else if failed == REQUESTS_FAILED && is_waiting {
            self.set_check(id, Check::At(now));
        }
    }

    /// Takes that an endpoint answered a request.
    pub fn on_request_answered(&mut self, id: ReplicaId) {
        self.set_failed(id, 0);
    }

    /// Tells whether there is an endpoint at which the last request failed.
    #[must_use]
    pub const fn has_suspects(&self) -> bool {
        self.suspects > 0
    }

    /// Gives up what has been unfit for too long.
    pub fn on_timeout(&mut self, now: Timestamp) {
        if self.give_up_at().is_none_or(|(at, _)| at > now) {
            return;
        }
        if let Some((_, id)) = self.give_up_at()
            && let Some(row) = self.rows.get_mut(&id)
        {
            row.fitness = Fitness::GivenUp;
            self.given_up = Some(now);
            self.changed.push_back(id);
        }
    }

    /// Returns when there is something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let check = self.due.first().map(|&(at, _)| at);
        let give_up = self.give_up_at().map(|(at, _)| at);
        [check, give_up].into_iter().flatten().min()
    }

    /// Returns what became of an endpoint; nothing where it is again what it was.
    pub fn poll_change(&mut self) -> Option<(ReplicaId, HealthChange)> {
        while let Some(id) = self.changed.pop_front() {
            let Some(row) = self.rows.get_mut(&id) else {
                continue;
            };
            let (told, change) = match row.fitness {
                Fitness::Unproven => continue,
                Fitness::Healthy { .. } => (Told::Healthy, HealthChange::Healthy),
                Fitness::Unhealthy { cause, .. } => {
                    (Told::Unhealthy, HealthChange::Unhealthy(cause))
                }
                Fitness::GivenUp => (Told::GivenUp, HealthChange::GivenUp),
            };
            if std::mem::replace(&mut row.told, told) != told {
                return Some((id, change));
            }
        }
        None
    }

    fn add(&mut self, id: ReplicaId, fitness: Fitness, told: Told, check_at: Timestamp) {
        self.remove(id);
        let row = Row {
            fitness,
            told,
            is_paused: false,
            check: Check::Running,
            contrary: 0,
            requests_failed: 0,
            streak: 0,
        };
        self.rows.insert(id, row);
        self.set_check(id, Check::At(check_at));
    }

    fn put_in(&mut self, now: Timestamp, id: ReplicaId) {
        if let Some(row) = self.rows.get_mut(&id) {
            row.fitness = Fitness::Healthy { since: now };
            row.contrary = 0;
            self.changed.push_back(id);
        }
    }

    fn put_out(&mut self, now: Timestamp, id: ReplicaId, cause: UnhealthyCause) {
        let Some(row) = self.rows.get_mut(&id) else {
            return;
        };
        row.streak = match row.fitness {
            Fitness::Healthy { since } if now.since(since) < STEADY => row.streak.saturating_add(1),
            Fitness::Healthy { .. }
            | Fitness::Unproven
            | Fitness::Unhealthy { .. }
            | Fitness::GivenUp => 1,
        };
        row.fitness = Fitness::Unhealthy { since: now, cause };
        row.contrary = 0;
        let next = now + out_for(row.streak);
        let check = match (row.check, cause) {
            // The check that takes it out has ended; any other began before it was out.
            (Check::Running, UnhealthyCause::Requests(_)) | (Check::Outdated(_), _) => {
                Check::Outdated(next)
            }
            (Check::Running | Check::At(_), _) => Check::At(next),
        };
        self.changed.push_back(id);
        self.set_check(id, check);
        self.set_failed(id, 0);
    }

    fn set_failed(&mut self, id: ReplicaId, requests: u32) {
        if let Some(row) = self.rows.get_mut(&id) {
            let was_suspect = std::mem::replace(&mut row.requests_failed, requests) > 0;
            self.suspects += usize::from(requests > 0);
            self.suspects -= usize::from(was_suspect);
        }
    }

    fn set_check(&mut self, id: ReplicaId, check: Check) {
        let Some(row) = self.rows.get_mut(&id) else {
            return;
        };
        if let Check::At(at) = std::mem::replace(&mut row.check, check) {
            self.due.remove(&(at, id));
        }
        if let Check::At(at) = check
            && !row.is_paused
        {
            self.due.insert((at, id));
        }
    }

    fn healthy_but(&self, id: ReplicaId) -> usize {
        let is_other = |(other, row): &(&ReplicaId, &Row)| {
            **other != id && !row.is_paused && matches!(row.fitness, Fitness::Healthy { .. })
        };
        self.rows.iter().filter(is_other).count()
    }

    /// Returns who is given up next, and when.
    fn give_up_at(&self) -> Option<(Timestamp, ReplicaId)> {
        let after = self.config.give_up_after?;
        let not_before = self.given_up.map_or(Timestamp::ORIGIN, |at| at + after);
        let since = |(&id, row): (&ReplicaId, &Row)| match row.fitness {
            Fitness::Unhealthy { since, .. } if !row.is_paused => Some((since, id)),
            Fitness::Unproven
            | Fitness::Healthy { .. }
            | Fitness::Unhealthy { .. }
            | Fitness::GivenUp => None,
        };
        let (since, id) = self.rows.iter().filter_map(since).min()?;
        Some(((since + after).max(not_before), id))
    }

    /// Returns when an endpoint is checked first after it became fit: different for each, so that
    /// a fleet that became fit at once is not asked at once for ever.
    fn spread(&self, id: ReplicaId) -> Duration {
        const PARTS: u32 = 1 << 16;
        // The golden ratio's multiples spread evenly, however many there are.
        let mixed = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let part = u32::try_from(mixed).unwrap_or(0);
        let half = self.config.every / 2;
        half + (half / PARTS).saturating_mul(part)
    }
}

/// Returns how long an endpoint is not asked after it was taken out so often; at least once.
fn out_for(streak: u32) -> Duration {
    let doublings = streak.saturating_sub(1).min(16);
    OUT_FIRST.saturating_mul(1 << doublings).min(OUT_LONGEST)
}

#[cfg(test)]
mod tests;
