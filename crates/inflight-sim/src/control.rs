//! What sizes the fleet of a run: the core's scaler with an observer, or a rule of somebody else.

use std::time::Duration;

use inflight_core::Decision;
use inflight_core::load::Observation;
use inflight_core::scaling::Scaler;

use crate::observer::Observer;
use crate::readings::Readings;
use crate::units::timestamp;

/// A rule that is not ours.
pub trait Rule: std::fmt::Debug {
    /// Returns how often it is asked.
    fn every(&self) -> Duration;

    /// Reads the fleet and returns the size it wants; `None` changes nothing. `now` is in seconds.
    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32>;
}

/// What sizes the fleet.
#[derive(Debug)]
pub enum Control {
    /// The core.
    Core(Box<CoreControl>),
    /// A rule of somebody else.
    Rule(Box<dyn Rule>),
}

/// The core's scaler and what it reads.
#[derive(Debug)]
pub struct CoreControl {
    scaler: Scaler,
    observer: Observer,
    tick: Duration,
    next: u64,
}

impl Control {
    /// Returns how often the fleet is read.
    #[must_use]
    pub fn every(&self) -> Duration {
        match self {
            Self::Core(core) => core.observer.every(core.tick),
            Self::Rule(rule) => rule.every(),
        }
    }
}

impl CoreControl {
    /// Puts a scaler that decides every `tick` behind an observer.
    #[must_use]
    pub fn new(scaler: Scaler, observer: Observer, tick: Duration) -> Self {
        Self {
            scaler,
            observer,
            tick,
            next: 0,
        }
    }

    /// Reads the fleet, and decides if it is time.
    pub(crate) fn on_tick(
        &mut self,
        now: u64,
        exact: Observation,
        readings: &Readings,
    ) -> Option<Decision> {
        let at = timestamp(now);
        if let Some(observation) = self.observer.read(now, exact, readings) {
            self.scaler.observe(at, &observation);
        }
        if now < self.next {
            return None;
        }
        let tick = u64::try_from(self.tick.as_nanos()).unwrap_or(u64::MAX);
        self.next = now.saturating_add(tick);
        Some(self.scaler.decide(at))
    }

    /// Decides at once, as the product does for the first request at zero replicas.
    pub(crate) fn on_wake(
        &mut self,
        now: u64,
        exact: Observation,
        readings: &Readings,
    ) -> Option<Decision> {
        let at = timestamp(now);
        let observation = self.observer.read(now, exact, readings)?;
        self.scaler.observe(at, &observation);
        Some(self.scaler.decide(at))
    }
}
