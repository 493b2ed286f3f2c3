//! The gate before a fleet whose requests pass elsewhere: the proxies ask here, in memory.
//!
//! The lock is held for the answer alone. A call that waits has a place, which is given back
//! whatever becomes of whoever waits.

use std::fmt;
use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};

use inflight_core::admission::{
    Call, CheckConfig, CheckGate, CheckLoad, Held, PastChecks, Refusal, Verdict,
};
use inflight_core::load::Observation;
use inflight_core::{Decision, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Fleet;
use crate::clock::Clock;

/// The gate and those who wait at it.
pub struct Checks {
    clock: Clock,
    gate: Mutex<CheckGate>,
    /// Fires when those who wait are to ask again.
    news: watch::Sender<()>,
}

/// A place at the gate, given back when it is dropped.
struct Place<'a> {
    checks: &'a Checks,
    held: Option<Held>,
}

impl Checks {
    /// Builds the way to a gate.
    #[must_use]
    pub fn new(clock: Clock, gate: CheckGate) -> Self {
        Self {
            clock,
            gate: Mutex::new(gate),
            news: watch::Sender::new(()),
        }
    }

    /// Takes other settings.
    pub fn configure(&self, config: CheckConfig, forgets_sessions: bool) {
        let now = self.clock.now();
        let mut gate = self.lock();
        gate.configure(now, config);
        if forgets_sessions {
            gate.on_restart(now);
        }
        drop(gate);
        self.news.send_replace(());
    }

    /// Reads what there is to see.
    #[must_use]
    pub fn load(&self) -> CheckLoad {
        self.lock().load(self.clock.now())
    }

    /// Returns what is known of clients, for a later process of ours.
    #[must_use]
    pub fn export(&self) -> PastChecks {
        self.lock().export(self.clock.now())
    }

    /// Tells whether a first call waits and no replica is ready.
    pub(super) fn waits_at_zero(&self) -> bool {
        self.lock().waits_at_zero(self.clock.now())
    }

    /// Tells whether a first call asks for a replica.
    pub(super) fn is_called(&self) -> bool {
        self.lock().is_called(self.clock.now())
    }

    /// Tells whether calls wait.
    pub(super) fn has_held(&self) -> bool {
        self.load().held > 0
    }

    /// Takes a reading, with whether every proxy routes to a replica. It is told whether somebody
    /// asks for one. Wakes those who wait if it may concern them.
    pub(super) fn on_reading(
        &self,
        now: Timestamp,
        observation: &mut Observation,
        is_routed: bool,
    ) {
        let mut gate = self.lock();
        observation.is_called = gate.is_called(now);
        let is_news = gate.on_reading(now, observation, is_routed);
        drop(gate);
        if is_news {
            self.news.send_replace(());
        }
    }

    pub(super) fn on_decision(&self, now: Timestamp, decision: &Decision) {
        self.lock().on_decision(now, decision);
    }

    /// A panic while the lock was held is a fault of ours that one call met; the gate goes on.
    fn lock(&self) -> MutexGuard<'_, CheckGate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fleet {
    /// Answers whether a call may pass, after it waited where it has to. Dropped while it waits, it
    /// gives its place back. When `ending` turns true, whoever waits is refused.
    ///
    /// # Errors
    /// The refusal, with its reason and when to come again.
    pub async fn check(
        &self,
        call: Call,
        mut ending: watch::Receiver<bool>,
    ) -> Result<(), Refusal> {
        let Some(checks) = &self.checks else {
            return Ok(());
        };
        let (mut place, mut news) = {
            let mut gate = checks.lock();
            match gate.on_call(checks.clock.now(), call) {
                Verdict::LetIn => return Ok(()),
                Verdict::Refused(refusal) => return Err(refusal),
                // Under the lock, so that no reading in between is missed.
                Verdict::Held(held) => (checks.place(held), checks.news.subscribe()),
            }
        };
        self.changed.notify_one();
        loop {
            let until = Instant::from_std(checks.clock.instant(place.until()));
            let ended = async {
                if ending.wait_for(|is_ending| *is_ending).await.is_err() {
                    pending::<()>().await;
                }
            };
            let answer = tokio::select! {
                () = ended => place.refuse(),
                _ = news.changed() => place.ask_again(),
                () = sleep_until(until) => place.ask_again(),
            };
            if let Some(answer) = answer {
                return answer;
            }
        }
    }
}

impl Checks {
    const fn place(&self, held: Held) -> Place<'_> {
        Place {
            checks: self,
            held: Some(held),
        }
    }
}

impl Place<'_> {
    fn until(&self) -> Timestamp {
        let held = self.held.as_ref();
        held.map_or(Timestamp::ORIGIN, |held| {
            self.checks.lock().wait_until(held)
        })
    }

    /// Returns the answer, if it waits no longer.
    fn ask_again(&mut self) -> Option<Result<(), Refusal>> {
        let held = self.held.take()?;
        let now = self.checks.clock.now();
        match self.checks.lock().on_wake(now, held) {
            Verdict::LetIn => Some(Ok(())),
            Verdict::Refused(refusal) => Some(Err(refusal)),
            Verdict::Held(held) => {
                self.held = Some(held);
                None
            }
        }
    }

    /// Refuses it since we end.
    fn refuse(&mut self) -> Option<Result<(), Refusal>> {
        let held = self.held.take()?;
        let now = self.checks.clock.now();
        Some(Err(self.checks.lock().on_stop(now, held)))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let now = self.checks.clock.now();
            self.checks.lock().on_left(now, held);
        }
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").finish_non_exhaustive()
    }
}
