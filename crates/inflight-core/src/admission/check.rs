//! The gate before a fleet whose load is read, not counted: whether a call may pass.
//!
//! A proxy asks about calls and sends them itself; how they end is not seen here. What is known of
//! the load is the latest reading, and what was let in since. First calls wait here for a first
//! replica, and ask for one. Sockets, and who is woken, are the shell's business.

mod config;
mod past;
mod reading;
mod recent;

use super::config::{AdmissionScope, When};
use super::refusal::{Refusal, RefusalReason, Refused};
use super::session::Sessions;
use crate::decision::Decision;
use crate::ids::SessionKey;
use crate::load::{ESTIMATE_WINDOW, History, Observation};
use crate::time::Timestamp;
use crate::units::Replicas;

use reading::Seen;
use recent::Recent;

pub use config::{CheckConfig, CheckMode, OnUnknown};
pub use past::PastChecks;

/// Answers for the calls of one fleet.
///
/// A call is let in, refused, or held. A held call is asked about again whenever
/// [`on_reading`](Self::on_reading) says so, when its time is over, and when the settings change.
///
/// # What is let in
///
/// In the mode [`CheckMode::NewSessions`] a session under way always is. A new session is while
/// the gate is open by the exact mean of the last ten seconds and one more request would not pass
/// the threshold at this moment: (in flight at the latest reading + let in since + 1) /
/// max(executing, replicas). Held calls stand ahead of it. The gate keeps its state while no
/// replica is ready. When the load has been unknown for ten seconds, the settings say who passes.
#[derive(Clone, Debug)]
pub struct CheckGate {
    now: Timestamp,
    config: CheckConfig,
    history: History,
    seen: Seen,
    /// Since when, or from when on, a replica counts for those that wait.
    routed_at: Option<Timestamp>,
    /// Until when the load counts as known.
    known_until: Timestamp,
    is_open: bool,
    ratio: Option<f64>,
    at_max: bool,
    sessions: Sessions,
    let_in: Recent,
    held: usize,
    /// When a first call was last let in or began to wait.
    called_at: Option<Timestamp>,
    counts: CheckCounts,
}

/// A call that a proxy asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it is a part of.
    pub session: SessionKey,
    /// Whether it begins a session, and is to wait for a first replica.
    pub is_first: bool,
}

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    LetIn,
    /// It waits for a replica; ask again with what is in here.
    Held(Held),
    /// It does not pass.
    Refused(Refusal),
}

/// The place of a call that waits. It is to be given back: by [`CheckGate::on_wake`],
/// [`CheckGate::on_left`] or [`CheckGate::on_stop`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Held {
    call: Call,
    since: Timestamp,
}

/// Calls that were answered, by the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Let in as part of a session under way.
    pub running: u64,
    /// Let in as a new session; in the mode that judges every request, as a request.
    pub new: u64,
    /// Let in although the load was unknown.
    pub unknown: u64,
    /// Held, and gone before there was an answer.
    pub left: u64,
    /// Refused.
    pub refused: Refused,
}

/// What there is to see of the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckLoad {
    /// Whether the mean of the last ten seconds lets new sessions in.
    pub is_open: bool,
    /// That mean: in flight / max(executing, replicas); `None` is unknown.
    pub inflation: Option<f64>,
    /// Whether the load is unknown for so long that the settings say who passes.
    pub is_blind: bool,
    /// Calls that wait.
    pub held: usize,
    /// Sessions remembered.
    pub sessions: usize,
    /// Calls that were answered.
    pub counts: CheckCounts,
}

impl CheckGate {
    /// Builds a gate that has read nothing, and is open.
    #[must_use]
    pub fn new(config: CheckConfig, now: Timestamp) -> Self {
        let admission = &config.admission;
        Self {
            now,
            history: History::new(1, ESTIMATE_WINDOW, ESTIMATE_WINDOW),
            seen: Seen::nothing(now),
            routed_at: None,
            known_until: now + ESTIMATE_WINDOW,
            is_open: true,
            ratio: None,
            at_max: false,
            sessions: Sessions::new(admission.sessions_max, admission.session_idle),
            let_in: Recent::default(),
            held: 0,
            called_at: None,
            counts: CheckCounts::default(),
            config,
        }
    }

    /// Takes other settings; those that wait are to be asked about again.
    pub fn configure(&mut self, now: Timestamp, config: CheckConfig) {
        self.advance(now);
        let admission = &config.admission;
        (self.sessions).configure(admission.sessions_max, admission.session_idle);
        self.config = config;
    }

    /// Tells that sessions were forgotten: for as long as one may be idle, those that are not known
    /// count as old.
    pub fn on_restart(&mut self, now: Timestamp) {
        let now = self.advance(now);
        self.sessions.on_restart(now);
    }

    /// Takes a reading, with whether every proxy routes to a replica, and tells whether those that
    /// wait are to be asked about again.
    ///
    /// A call that passes a proxy which knows of no replica fails there. So a replica counts when
    /// all know it, or when one has for ten seconds: another that goes on without has a fault of
    /// its own.
    pub fn on_reading(
        &mut self,
        now: Timestamp,
        observation: &Observation,
        is_routed: bool,
    ) -> bool {
        let now = self.advance(now);
        self.history.observe(now, observation);
        self.seen = Seen::of(now, observation, &self.history);
        self.routed_at = match self.seen.ready {
            Some(Replicas::ZERO) => None,
            Some(_) if is_routed => Some(now),
            Some(_) => self.routed_at.or(Some(now + ESTIMATE_WINDOW)),
            None => self.routed_at,
        };
        if let Some(until) = self.seen.known_until() {
            self.known_until = until;
        }
        self.ratio = self.seen.ratio;
        if let Some(ratio) = self.ratio {
            if ratio > self.config.admission.threshold {
                self.is_open = false;
            } else if ratio <= self.config.admission.reopen {
                self.is_open = true;
            }
        }
        self.let_in.forget_before(self.seen.at);
        self.held > 0 && (self.has_ready() || self.passes_unknown())
    }

    /// Takes from a decision whether the fleet can grow.
    pub fn on_decision(&mut self, now: Timestamp, decision: &Decision) {
        self.advance(now);
        self.at_max = decision.at_max;
    }

    /// Answers for a call.
    pub fn on_call(&mut self, now: Timestamp, call: Call) -> Verdict {
        let now = self.advance(now);
        let is_candidate = match self.config.mode {
            CheckMode::EveryRequest => true,
            CheckMode::NewSessions => call.is_first || self.sessions.is_new(now, call.session),
        };
        if !is_candidate {
            self.counts.running += 1;
            self.sessions.touch(now, call.session);
            return Verdict::LetIn;
        }
        if call.is_first && !self.has_ready() && !self.passes_unknown() {
            return self.hold(call);
        }
        match self.objection(self.held) {
            None => self.let_in(call),
            Some(reason) => Verdict::Refused(self.refuse(reason)),
        }
    }

    /// Answers again for a call that waits.
    pub fn on_wake(&mut self, now: Timestamp, held: Held) -> Verdict {
        let now = self.advance(now);
        self.give_back();
        let objection = if self.has_ready() || self.passes_unknown() {
            self.objection(0)
        } else {
            Some(RefusalReason::ColdWaitExpired)
        };
        match objection {
            None => self.let_in(held.call),
            Some(reason) if now >= self.wait_until(&held) => Verdict::Refused(self.refuse(reason)),
            Some(_) => {
                self.held += 1;
                Verdict::Held(held)
            }
        }
    }

    /// Returns until when a held call waits.
    #[must_use]
    pub fn wait_until(&self, held: &Held) -> Timestamp {
        held.since + self.config.ready_timeout
    }

    /// Frees the place of a held call whose client left.
    pub fn on_left(&mut self, now: Timestamp, _held: Held) {
        self.advance(now);
        self.give_back();
        self.counts.left += 1;
    }

    /// Refuses a held call because this gate ends.
    pub fn on_stop(&mut self, now: Timestamp, _held: Held) -> Refusal {
        self.advance(now);
        self.give_back();
        self.refuse(RefusalReason::Stopping)
    }

    /// Tells whether a first call asks for a replica: one waits, or the last one was let in so
    /// shortly ago that the fleet is not to go to zero yet.
    #[must_use]
    pub fn is_called(&self, now: Timestamp) -> bool {
        let lately = |at| self.now.max(now).since(at) < self.config.hold_min;
        self.held > 0 || self.called_at.is_some_and(lately)
    }

    /// Tells whether a first call waits and no replica is ready.
    #[must_use]
    pub fn waits_at_zero(&self, now: Timestamp) -> bool {
        self.held > 0 && !self.seen.has_ready(self.now.max(now))
    }

    /// Reads what there is to see; changes nothing.
    #[must_use]
    pub fn load(&self, now: Timestamp) -> CheckLoad {
        CheckLoad {
            is_open: self.is_open,
            inflation: self.ratio,
            is_blind: self.now.max(now) > self.known_until,
            held: self.held,
            sessions: self.sessions.len(),
            counts: self.counts,
        }
    }

    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    fn is_blind(&self) -> bool {
        self.now > self.known_until
    }

    fn has_ready(&self) -> bool {
        let is_routed = self.routed_at.is_some_and(|at| at <= self.now);
        is_routed && self.seen.has_ready(self.now)
    }

    fn passes_unknown(&self) -> bool {
        self.is_blind() && self.config.on_unknown == OnUnknown::LetIn
    }

    fn hold(&mut self, call: Call) -> Verdict {
        self.called_at = Some(self.now);
        if self.held >= self.config.held_max {
            return Verdict::Refused(self.refuse(RefusalReason::NoReplica));
        }
        self.held += 1;
        Verdict::Held(Held {
            call,
            since: self.now,
        })
    }

    fn give_back(&mut self) {
        invariant!("a place that is given back was taken", self.held > 0);
        self.held = self.held.saturating_sub(1);
    }

    fn let_in(&mut self, call: Call) -> Verdict {
        if self.is_judged() && self.is_blind() {
            self.counts.unknown += 1;
        } else {
            self.counts.new += 1;
        }
        if call.is_first {
            self.called_at = Some(self.now);
        }
        self.let_in.add(self.now);
        self.sessions.touch(self.now, call.session);
        Verdict::LetIn
    }

    /// Returns why one more that is new does not pass, with so many ahead of it.
    fn objection(&self, ahead: usize) -> Option<RefusalReason> {
        if self.is_blind() {
            let refuses = self.is_judged() && self.config.on_unknown == OnUnknown::Refuse;
            return refuses.then_some(RefusalReason::LoadUnknown);
        }
        let is_judged = self.is_judged()
            && match self.config.admission.when {
                When::Always => true,
                When::AtMax => self.at_max,
            };
        (is_judged && !self.admits(ahead)).then_some(RefusalReason::Overloaded)
    }

    fn is_judged(&self) -> bool {
        self.config.admission.scope != AdmissionScope::Off
    }

    /// Tells whether the gate is open and one more would not pass the threshold at this moment. A
    /// mean alone lets far too many in at ten times the capacity.
    fn admits(&self, ahead: usize) -> bool {
        self.is_open && self.excess(ahead, self.config.admission.threshold) <= 0.0
    }
}
