//! What a scaler has learned, as it leaves one process for another, and how it goes on there.
//!
//! The configuration stays: whoever takes over has one of its own.

use std::time::Duration;

use super::concurrency::Burst;
use super::start_delay::Growth;
use super::{Held, Scaler};
use crate::load::PastLoad;
use crate::time::Timestamp;
use crate::units::Replicas;

/// What a scaler has observed, learned and decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastScaler {
    /// What the windows are made of.
    pub load: PastLoad,
    /// How long the latest replicas took to start, oldest first.
    pub start_delays: Vec<Duration>,
    /// When something was last going on, or may have been.
    pub busy_at: Timestamp,
    /// The targets that scale-down waits for, oldest and largest first.
    pub targets: Vec<(Timestamp, Replicas)>,
    /// How long sizes stayed away that were needed again, oldest and longest first.
    pub returns: Vec<(Timestamp, Duration)>,
    /// The sizes that step limits count from, oldest first.
    pub sizes: Vec<(Timestamp, Replicas)>,
    /// Since when the load is unknown.
    pub unknown_since: Option<Timestamp>,
    /// When the fleet was found, and how large.
    pub started: Timestamp,
    /// How large the fleet was found.
    pub found: Replicas,
    /// Whether nobody knew yet how large it was.
    pub is_to_be_found: bool,
    /// The last answer, before the lost were added.
    pub settled: Replicas,
    /// The last answer.
    pub desired: Replicas,
    /// What a person held the size to.
    pub held: Option<Held>,
    /// A burst of `concurrency`: when its threshold was last passed, and its largest size.
    pub burst: Option<(Timestamp, Replicas)>,
    /// Since when a fleet that shall be larger has not grown.
    pub stalled_since: Option<Timestamp>,
    /// The ready replicas at that last look.
    pub ready: Option<Replicas>,
}

impl Scaler {
    /// Returns all but the configuration.
    #[must_use]
    pub fn export(&self) -> PastScaler {
        PastScaler {
            load: self.history.export(),
            start_delays: self.start_delay.recent().collect(),
            busy_at: self.idle.busy_at(),
            targets: self.stabilization.targets().collect(),
            returns: self.stabilization.returns().collect(),
            sizes: self.sizes.changes().collect(),
            unknown_since: self.unknown_since,
            started: self.started,
            found: self.found,
            is_to_be_found: !self.has_found,
            settled: self.settled,
            desired: self.desired,
            held: self.held,
            burst: self.burst.map(Burst::parts),
            stalled_since: self.growth.stalled_since,
            ready: self.growth.ready,
        }
    }

    /// Goes on from what another scaler knew of the same fleet; to be called on one that decided
    /// nothing. Points of time ahead of `now` count as now.
    pub fn restore(&mut self, now: Timestamp, past: &PastScaler) {
        self.history.restore(now, &past.load);
        self.start_delay.observe(&past.start_delays);
        self.idle.restore(past.busy_at.min(now));
        self.stabilization.restore_returns(now, &past.returns);
        let window = self.down_window();
        for &(at, target) in &past.targets {
            self.stabilization.push(at.min(now), target, window);
        }
        let memory = (self.config.step_up.every()).max(self.config.step_down.every());
        self.sizes.restore(now, &past.sizes, memory);
        self.unknown_since = past.unknown_since.map(|at| at.min(now));
        self.started = past.started.min(now);
        self.found = past.found;
        self.has_found = !past.is_to_be_found;
        self.settled = past.settled;
        self.desired = past.desired;
        self.held = past.held;
        self.burst = past
            .burst
            .map(|(at, largest)| Burst::of(at.min(now), largest));
        self.growth = Growth {
            ready: past.ready,
            stalled_since: past.stalled_since.map(|at| at.min(now)),
        };
    }
}
