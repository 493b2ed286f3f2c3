//! Deciding: how many replicas the load needs, and what surrounds every policy.
//!
//! [`Scaler`] takes readings and yields decisions. A policy looks at windows of what was read
//! and says what it wishes for; the steps around it, each in its own file, hold the size where
//! an input is unknown, make scale-down wait, limit steps and bounds, and know when a fleet is
//! idle. Nothing here changes a fleet.

mod bounds;
pub mod concurrency;
mod error;
mod hold;
mod idle;
pub mod metric;
pub mod occupancy;
mod past;
mod sizing;
mod stabilization;
pub mod staffing;
mod start_delay;
mod victims;

use std::time::Duration;

use crate::decision::{Decision, Limit, Reason};
use crate::load::{
    Activity, Estimate, History, Observation, ReplicaRow, ReplicaState, ReplicaView, Term,
};
use crate::time::Timestamp;
use crate::units::{Replicas, Slots};

use self::bounds::Sizes;
use self::concurrency::Burst;
use self::idle::Idle;
use self::sizing::{Assessment, Situation, Sizing};
use self::stabilization::Stabilization;
use self::start_delay::{Growth, StartDelay};

pub use bounds::{Bounds, StepLimit, Tolerance};
pub use concurrency::{ConcurrencyConfig, ConcurrencyFinding, Measure};
pub use error::ConfigError;
pub use hold::{Held, Hold};
pub use metric::{MetricConfig, MetricFinding, MetricKind};
pub use occupancy::{Filled, OccupancyConfig, OccupancyFinding};
pub use past::PastScaler;
pub use sizing::{Finding, Thresholds};
pub use stabilization::DownWindow;
pub use staffing::{StaffingConfig, StaffingFinding};

/// How far back every history reaches at least: the two windows of the `staffing` policy's trend.
const HORIZON_MIN: Duration = Duration::from_secs(120);

/// The down window of policies without a factor of their own, in start delays.
const DOWN_FACTOR: u32 = 4;

/// How a fleet is sized.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingConfig {
    /// What says how many replicas the load needs.
    pub policy: Policy,
    /// The smallest and the largest size.
    pub bounds: Bounds,
    /// How long scale-down waits.
    pub down_window: DownWindow,
    /// How close the load must be to what the size is for, for the size to stay.
    pub tolerance: Tolerance,
    /// How fast the fleet may grow.
    pub step_up: StepLimit,
    /// How fast the fleet may shrink.
    pub step_down: StepLimit,
    /// How long nothing must be in flight before the fleet is idle.
    pub idle_grace: Duration,
    /// How long unknown input holds the size.
    pub unknown_hold: Duration,
    /// The least size once input was unknown for longer than that.
    pub unknown_fallback: Option<Replicas>,
    /// Whether somebody else changes the size, so that nobody knows it at the start: what is seen
    /// ready until a whole window is known counts as found.
    pub is_sized_elsewhere: bool,
    /// How old a reading may be; older ones are unknown.
    pub freshness: Duration,
    /// How many requests one replica executes at once, for each model; a fleet without named
    /// models has one.
    pub slots: Vec<Slots>,
}

/// What says how many replicas the load needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// By offered slots, a margin and the backlog.
    Staffing(StaffingConfig),
    /// By the ratio of what is in flight to what is served.
    Occupancy(OccupancyConfig),
    /// By what is in flight.
    Concurrency(ConcurrencyConfig),
    /// By a number of the user's own.
    Metric(MetricConfig),
}

/// Sizes one fleet.
#[derive(Clone, Debug)]
pub struct Scaler {
    config: ScalingConfig,
    history: History,
    rows: Vec<ReplicaRow>,
    start_delay: StartDelay,
    growth: Growth,
    idle: Idle,
    burst: Option<Burst>,
    stabilization: Stabilization,
    sizes: Sizes,
    unknown_since: Option<Timestamp>,
    held: Option<Held>,
    started: Timestamp,
    found: Replicas,
    /// Whether the size is known that the fleet had when nobody here started its replicas.
    has_found: bool,
    /// The last answer, before the lost were added.
    settled: Replicas,
    desired: Replicas,
}

impl ScalingConfig {
    /// Builds a configuration with the defaults of every step around the policy, for a fleet
    /// without named models.
    #[must_use]
    pub fn new(policy: Policy, bounds: Bounds, slots: Slots) -> Self {
        Self {
            policy,
            bounds,
            down_window: DownWindow::Auto,
            tolerance: Tolerance::default(),
            step_up: StepLimit::Unlimited,
            step_down: StepLimit::Unlimited,
            idle_grace: Duration::from_secs(60),
            unknown_hold: Duration::from_secs(120),
            unknown_fallback: None,
            is_sized_elsewhere: false,
            freshness: Duration::from_secs(30),
            slots: vec![slots],
        }
    }

    /// Tells whether the down window follows how long sizes stay away that are needed again.
    fn learns_returns(&self) -> bool {
        match &self.policy {
            Policy::Staffing(config) => {
                config.parts.returns && self.down_window == DownWindow::Auto
            }
            Policy::Occupancy(_) | Policy::Concurrency(_) | Policy::Metric(_) => false,
        }
    }
}

impl Policy {
    /// Returns the name it has in the configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Staffing(_) => "staffing",
            Self::Occupancy(_) => "occupancy",
            Self::Concurrency(_) => "concurrency",
            Self::Metric(_) => "metric",
        }
    }

    /// Returns how often to decide: staffing and concurrency look at windows of seconds, the other
    /// two at what scrapes and queries give, for which the HPA's period serves.
    #[must_use]
    pub const fn tick(&self) -> Duration {
        match self {
            Self::Staffing(_) | Self::Concurrency(_) => Duration::from_secs(2),
            Self::Occupancy(_) | Self::Metric(_) => Duration::from_secs(15),
        }
    }

    /// Returns the window that must be full before a measurement may shrink a fleet.
    const fn window(&self) -> Duration {
        match self {
            Self::Staffing(_) => StaffingConfig::SLOW,
            Self::Occupancy(config) => config.window(),
            Self::Concurrency(config) => config.stable_window(),
            Self::Metric(_) => Duration::ZERO,
        }
    }

    const fn down_factor(&self) -> u32 {
        match self {
            Self::Staffing(config) => config.down_factor(),
            Self::Occupancy(_) | Self::Concurrency(_) | Self::Metric(_) => DOWN_FACTOR,
        }
    }

    fn assess(&self, situation: &Situation<'_>, burst: &mut Option<Burst>) -> Assessment {
        match self {
            Self::Staffing(config) => config.assess(situation),
            Self::Occupancy(config) => config.assess(situation),
            Self::Concurrency(config) => config.assess(situation, burst),
            Self::Metric(config) => config.assess(situation),
        }
    }
}

impl Scaler {
    /// Starts to size a fleet that has `current` replicas.
    #[must_use]
    pub fn new(config: ScalingConfig, now: Timestamp, current: Replicas) -> Self {
        let config = with_a_model(config);
        let horizon = config.policy.window().max(HORIZON_MIN);
        let mut stabilization = Stabilization::default();
        stabilization.learn_returns(config.learns_returns());
        Self {
            history: History::new(config.slots.len(), horizon, config.freshness),
            rows: Vec::new(),
            start_delay: StartDelay::new(),
            growth: Growth::default(),
            idle: Idle::new(now),
            burst: None,
            stabilization,
            sizes: Sizes::new(now, current),
            unknown_since: None,
            held: None,
            started: now,
            found: current,
            has_found: false,
            settled: current,
            desired: current,
            config,
        }
    }

    /// Changes how the fleet is sized. What was measured stays in force, and so does the size for
    /// one down window, unless more is needed.
    pub fn set_config(&mut self, now: Timestamp, config: ScalingConfig) {
        let config = with_a_model(config);
        let horizon = config.policy.window().max(HORIZON_MIN);
        self.history
            .reshape(config.slots.len(), horizon, config.freshness);
        self.burst = None;
        self.stabilization.learn_returns(config.learns_returns());
        self.config = config;
        self.stabilization
            .push(now, self.settled, self.down_window());
    }

    /// Sets a size by hand until `until`, in place of what was set by hand before.
    pub fn hold(&mut self, hold: Hold, until: Timestamp) {
        self.held = Some(Held { hold, until });
    }

    /// Returns what holds the size by hand.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Option<Held> {
        self.held.filter(|held| !held.is_over(now))
    }

    /// Gives the size back to the policy.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Takes a reading.
    pub fn observe(&mut self, now: Timestamp, observation: &Observation) {
        let activity = self.history.observe(now, observation);
        self.idle
            .observe(now, self.activity(now, activity), observation.is_called);
        match &observation.replicas {
            ReplicaView::Rows(rows) => self.rows.clone_from(rows),
            ReplicaView::Ready(ready) => {
                self.rows.clear();
                if let Term::Known { value, .. } = ready {
                    self.find(now, *value);
                }
            }
        }
        self.start_delay.observe(&observation.started);
        let ready = self.history.ready(now).ok();
        if self.config.is_sized_elsewhere && now.since(self.started) < self.full_window() {
            let ready = ready.unwrap_or(Replicas::ZERO);
            self.found = self.found.max(ready);
            self.settled = self.settled.max(ready);
        }
        self.growth
            .observe(now, ready, self.desired, !observation.started.is_empty());
    }

    /// Takes the first number of replicas that a source knows who counts those that others start:
    /// the size that the fleet has, which nobody could tell before. A size set by hand stays.
    fn find(&mut self, now: Timestamp, ready: Replicas) {
        let size = ready.min(self.config.bounds.max());
        let is_first = !std::mem::replace(&mut self.has_found, true);
        if is_first && self.held.is_none() && size > self.settled {
            self.found = size;
            self.settled = size;
            self.desired = size;
            self.sizes = Sizes::new(now, size);
        }
    }

    /// Decides the size. Each step changes the answer of the one before and says so if it did.
    pub fn decide(&mut self, now: Timestamp) -> Decision {
        let situation = Situation {
            now,
            history: &self.history,
            slots: &self.config.slots,
            current: self.settled,
            start_delay: self.start_delay.median(),
        };
        let Assessment {
            inputs,
            finding,
            sizing,
        } = self.config.policy.assess(&situation, &mut self.burst);
        let is_partial = self.is_partial(now);
        let sizing = sizing.map(|sizing| Sizing {
            complete: sizing.complete && !is_partial,
            ..sizing
        });
        let mut limits = Vec::new();
        let target = match &sizing {
            Some(sizing) => self.known_target(now, sizing, &mut limits),
            None => self.unknown_target(now, &mut limits),
        };
        let lasting = sizing.map_or(target, |sizing| target.min(sizing.lasting));
        let stable = self.stabilize(now, target, lasting, sizing.is_some(), &mut limits);
        let stepped = self.limit_steps(now, stable, &mut limits);
        let wanted = sizing.map(|sizing| sizing.want);
        self.held = self.held.filter(|held| !held.is_over(now));
        let (settled, desired) = match self.held {
            Some(held) => self.keep_held(now, held, &mut limits),
            None => self.keep_granted(now, stepped, wanted, &mut limits),
        };

        let memory = self
            .config
            .step_up
            .every()
            .max(self.config.step_down.every());
        self.sizes.record(now, settled, memory);
        self.settled = settled;
        let current = std::mem::replace(&mut self.desired, desired);
        let ready = self.history.ready(now).ok();
        self.growth.observe(now, ready, settled, false);
        let patience = self.start_delay.median().saturating_mul(2);
        Decision {
            at: now,
            current,
            wanted,
            desired,
            drain: victims::choose(&self.rows, desired),
            at_max: desired >= self.config.bounds.max()
                || self.held.is_some()
                || self.growth.is_stalled(now, patience),
            inputs,
            reason: Reason { finding, limits },
        }
    }

    /// Returns what is going on in the fleet, for people to look at.
    #[must_use]
    pub fn estimate(&self, now: Timestamp) -> Estimate {
        Estimate::of(&self.history, now)
    }

    /// Returns how long a replica takes to start: the median of those seen, 10 s before the
    /// first.
    #[must_use]
    pub fn start_delay(&self) -> Duration {
        self.start_delay.median()
    }

    /// Returns the same once a start was seen.
    #[must_use]
    pub fn start_delay_seen(&self) -> Option<Duration> {
        self.start_delay.seen()
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &ScalingConfig {
        &self.config
    }

    /// Returns how long scale-down waits.
    #[must_use]
    pub fn down_window(&self) -> Duration {
        let factor = self.config.policy.down_factor();
        let span = (self.config.down_window).span(factor, self.start_delay.median());
        // Empty unless returns are learned.
        span.max(self.stabilization.patience())
    }

    /// Returns how long measurements must reach back before they may shrink the fleet.
    fn full_window(&self) -> Duration {
        self.down_window().max(self.config.policy.window())
    }

    /// Judges activity by what the policy goes by: the user's number may be of something that no
    /// source of ours sees.
    fn activity(&self, now: Timestamp, measured: Activity) -> Activity {
        match &self.config.policy {
            Policy::Metric(_) if measured == Activity::Busy => Activity::Busy,
            Policy::Metric(_) => match self.history.metric(now) {
                Ok(metric) if metric > 0.0 => Activity::Busy,
                Ok(_) => Activity::Idle,
                Err(_) => Activity::Unknown,
            },
            Policy::Staffing(_) | Policy::Occupancy(_) | Policy::Concurrency(_) => measured,
        }
    }

    /// Tells whether the policy's answer may be the least there is.
    fn is_partial(&self, now: Timestamp) -> bool {
        (self.history).is_partial(now, self.config.policy.window())
    }

    fn known_target(
        &mut self,
        now: Timestamp,
        sizing: &Sizing,
        limits: &mut Vec<Limit>,
    ) -> Replicas {
        self.unknown_since = None;
        let current = self.settled;
        let target = sizing.target(current);
        if !sizing.complete && sizing.want < current {
            limits.push(if self.is_partial(now) {
                Limit::Partial
            } else {
                Limit::Degraded
            });
        }
        if let Some(ratio) = sizing.ratio
            && self.config.tolerance.contains(ratio)
        {
            if target != current {
                limits.push(Limit::Tolerance { ratio });
            }
            return current;
        }
        let grace = self.config.idle_grace;
        if self.idle.is_over(now, grace) && sizing.complete {
            if target > Replicas::ZERO {
                limits.push(Limit::Idle { grace });
            }
            return Replicas::ZERO;
        }
        target
    }

    fn unknown_target(&mut self, now: Timestamp, limits: &mut Vec<Limit>) -> Replicas {
        let since = now.since(*self.unknown_since.get_or_insert(now));
        match self.config.unknown_fallback {
            Some(fallback) if since >= self.config.unknown_hold => {
                limits.push(Limit::UnknownFallback { fallback });
                self.settled.max(fallback)
            }
            Some(_) | None => {
                limits.push(Limit::UnknownHold { since });
                self.settled
            }
        }
    }

    /// Grows at once, shrinks to the largest lasting target of the down window.
    fn stabilize(
        &mut self,
        now: Timestamp,
        target: Replicas,
        lasting: Replicas,
        known: bool,
        limits: &mut Vec<Limit>,
    ) -> Replicas {
        let window = self.down_window();
        let unattended = window.max(self.config.freshness);
        if !window.is_zero() && self.stabilization.is_stale(now, unattended) {
            // Nobody decided for a whole window, as when this machine slept: what was needed
            // meanwhile is not known, so the size counts as needed until a moment ago.
            self.stabilization.push(now, self.settled, window);
        }
        if known && self.idle.is_over(now, self.config.idle_grace) {
            self.stabilization.clear();
        }
        let largest = self.stabilization.push(now, lasting, window);
        let mut answer = target.max(largest.min(self.settled));
        if answer > target {
            limits.push(Limit::DownWindow { window, largest });
        }
        let least = self.found.min(self.settled);
        if now.since(self.started) < self.full_window() && answer < least {
            answer = least;
            limits.push(Limit::Restart { found: self.found });
        }
        answer
    }

    fn limit_steps(&self, now: Timestamp, wish: Replicas, limits: &mut Vec<Limit>) -> Replicas {
        let most = self.config.step_up.most(now, &self.sizes, self.settled);
        let least = self.config.step_down.least(now, &self.sizes, self.settled);
        if wish > most {
            limits.push(Limit::StepUp);
            most
        } else if wish < least {
            limits.push(Limit::StepDown);
            least
        } else {
            wish
        }
    }

    /// Returns the size without and with those that replace the lost, where the policy decides.
    fn keep_granted(
        &self,
        now: Timestamp,
        stepped: Replicas,
        wanted: Option<Replicas>,
        limits: &mut Vec<Limit>,
    ) -> (Replicas, Replicas) {
        // The minimum is a number of replicas that work.
        let min = self.config.bounds.min();
        let lost = self.lost(wanted.unwrap_or(self.settled).max(min), limits);
        let least = self.idle.least(now, self.config.idle_grace, self.settled);
        let settled = self.config.bounds.clamp(stepped).max(least);
        let wish = if lost > Replicas::ZERO {
            stepped.max(min).plus(lost)
        } else {
            stepped
        };
        let desired = self.keep_within_bounds(wish, least, limits);
        if self.settled == Replicas::ZERO && self.idle.wakes() && settled > Replicas::ZERO {
            limits.push(Limit::Woken);
        }
        (settled, desired)
    }

    /// Returns the same where a person decided: what else bound the policy's answer bound nothing.
    fn keep_held(
        &self,
        now: Timestamp,
        held: Held,
        limits: &mut Vec<Limit>,
    ) -> (Replicas, Replicas) {
        let max = self.config.bounds.max();
        let (size, limit) = held.size(now, self.settled);
        limits.clear();
        limits.push(limit);
        let settled = size.min(max);
        let wish = settled.plus(self.lost(settled, limits));
        if size > max || wish > max {
            limits.push(Limit::Max);
        }
        (settled, wish.min(max))
    }

    /// Returns how many replicas to add for those that are lost: ready once, unhealthy, and
    /// replaced by nobody; at most `most`. Never for a number of the user's own, which may count
    /// them already.
    fn lost(&self, most: Replicas, limits: &mut Vec<Limit>) -> Replicas {
        if matches!(self.config.policy, Policy::Metric(_)) {
            return Replicas::ZERO;
        }
        let unhealthy = self
            .rows
            .iter()
            .filter(|row| row.state == ReplicaState::Unhealthy);
        let count = Replicas::from_len(unhealthy.count()).min(most);
        if count > Replicas::ZERO {
            limits.push(Limit::Lost { count });
        }
        count
    }

    fn keep_within_bounds(
        &self,
        wish: Replicas,
        least: Replicas,
        limits: &mut Vec<Limit>,
    ) -> Replicas {
        let within = self.config.bounds.clamp(wish);
        if wish < within {
            limits.push(Limit::Min);
        } else if wish > within {
            limits.push(Limit::Max);
        }
        if within < least && self.settled > Replicas::ZERO {
            limits.push(self.idle.stays_for());
        }
        within.max(least)
    }
}

/// A fleet without named models has one.
fn with_a_model(mut config: ScalingConfig) -> ScalingConfig {
    if config.slots.is_empty() {
        config.slots.push(Slots::ONE);
    }
    config
}
