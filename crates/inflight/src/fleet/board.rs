//! What is published of a fleet for people: its settings, its last decisions, its replicas.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use inflight_core::load::Estimate;
use inflight_core::scaling::{Finding, Held};
use inflight_core::{Decision, Replicas, Timestamp};
use tokio::sync::broadcast;

use super::external::{Asked, External};

/// How many decisions are kept for `decisions?limit=N`: over six minutes of a decision every 2 s, in
/// about 200 KB a fleet. What is older is in the journal.
pub const DECISIONS_KEPT: usize = 200;

/// How many decisions a listener may lag behind.
const DECISIONS_HEARD: usize = 64;

/// What is published of a fleet.
#[derive(Debug)]
pub struct Board {
    /// The policy's name, as the configuration says it.
    pub policy: &'static str,
    /// Whether the fleet's gateway accepts connections; a fleet without a gateway sets it too.
    pub is_listening: bool,
    /// Gateways of the fleet that accept: another while one with an earlier address closes.
    pub open_doors: u32,
    /// The names of the models, in the order of the configuration.
    pub models: Vec<String>,
    /// Slots of one replica, of the first model.
    pub slots: u32,
    /// The fewest replicas the fleet may have.
    pub min: Replicas,
    /// The most replicas the fleet may have.
    pub max: Replicas,
    /// What the autoscaler that changes the fleet is told; `None` where there is none.
    pub external: Option<External>,
    /// How often it asked.
    pub asked: Asked,
    /// The load as the scaler saw it at its last decision.
    pub estimate: Option<Estimate>,
    /// The learned start delay; unknown before the first start.
    pub start_delay: Option<Duration>,
    /// Replicas that ended although nobody asked them to, since our start.
    pub crashes: u64,
    /// The last of them.
    pub last_crash: Option<Crash>,
    /// When the name of its endpoints was last resolved, where they have one.
    pub resolved: Option<Timestamp>,
    /// What holds the size by hand.
    pub held: Option<Held>,
    decisions: VecDeque<Decision>,
    /// The last one on known numbers, where later ones are not.
    known: Option<Decision>,
    listeners: broadcast::Sender<Decision>,
    made: DecisionCounts,
}

/// A replica that ended although nobody asked it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// When.
    pub at: Timestamp,
    /// Its number.
    pub index: u32,
    /// What ended it and what it wrote last, as one sentence.
    pub why: String,
}

/// Decisions made since our start, by what they did to the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// They asked for more.
    pub up: u64,
    /// They asked for fewer.
    pub down: u64,
    /// They left the size as it was.
    pub hold: u64,
}

impl Board {
    /// Builds the board of a fleet that was not decided about.
    #[must_use]
    pub fn new(policy: &'static str, slots: u32, min: Replicas, max: Replicas) -> Self {
        Self {
            policy,
            is_listening: false,
            open_doors: 0,
            models: Vec::new(),
            slots,
            min,
            max,
            external: None,
            asked: Asked::default(),
            estimate: None,
            start_delay: None,
            listeners: broadcast::Sender::new(DECISIONS_HEARD),
            crashes: 0,
            last_crash: None,
            resolved: None,
            held: None,
            decisions: VecDeque::new(),
            known: None,
            made: DecisionCounts::default(),
        }
    }

    /// Publishes a decision with the load it saw, and drops the oldest beyond [`DECISIONS_KEPT`].
    pub fn publish(&mut self, decision: Decision, estimate: Estimate) {
        self.estimate = Some(estimate);
        let made = &mut self.made;
        match decision.desired.cmp(&decision.current) {
            Ordering::Greater => made.up += 1,
            Ordering::Less => made.down += 1,
            Ordering::Equal => made.hold += 1,
        }
        if is_known(&decision) {
            self.known = None;
        } else if let Some(before) = self.decisions.back().filter(|before| is_known(before)) {
            self.known = Some(before.clone());
        }
        if self.decisions.len() == DECISIONS_KEPT {
            self.decisions.pop_front();
        }
        // Nobody listening is no failure.
        self.listeners.send(decision.clone()).ok();
        self.decisions.push_back(decision);
    }

    /// Counts a replica that ended although nobody asked it to.
    pub fn crashed(&mut self, crash: Crash) {
        self.crashes += 1;
        self.last_crash = Some(crash);
    }

    /// Returns the last decisions, the newest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().rev()
    }

    /// Returns the last decision that was made on known numbers, however long ago.
    #[must_use]
    pub fn last_known(&self) -> Option<&Decision> {
        let newest = self.decisions.back().filter(|newest| is_known(newest));
        newest.or(self.known.as_ref())
    }

    /// Returns the size asked for, zero before the first decision.
    #[must_use]
    pub fn desired(&self) -> Replicas {
        self.decisions
            .back()
            .map_or(Replicas::ZERO, |decision| decision.desired)
    }

    /// Listens to the decisions to come; a slow listener misses the oldest.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Decision> {
        self.listeners.subscribe()
    }

    /// Returns how many decisions were made since our start.
    #[must_use]
    pub fn made(&self) -> DecisionCounts {
        self.made
    }
}

fn is_known(decision: &Decision) -> bool {
    !matches!(decision.reason.finding, Finding::Unknown(_))
}
