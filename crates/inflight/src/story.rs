//! What happens to the fleets: told to those who listen at this moment, and written down.
//!
//! The control loops tell it once; the story gives it to the bounded memory of events and to the
//! journal. Neither ever makes the teller wait.

mod events;
pub mod journal;
mod mapping;
mod past;
pub mod wire;

use std::sync::Arc;

use inflight_core::load::Observation;
use inflight_core::scaling::{Held, PastScaler, Scaler, ScalingConfig};
use inflight_core::{Decision, Replicas, Timestamp};

pub use events::{Event, Events, Happening, Heard, Released};
pub use mapping::{Unreadable, config_of, decision as decision_line, hold_of, observation_of};
pub use past::{Known, KnownModel, KnownScaler};

use crate::clock::Clock;
use crate::ports::TargetEvent;
use journal::Journal;
use wire::{Line, What};

/// Where everything is told to that happens.
#[derive(Clone, Debug)]
pub struct Story {
    clock: Clock,
    events: Arc<Events>,
    journal: Option<Journal>,
}

impl Story {
    /// Begins a story; without a journal it is told to listeners only.
    #[must_use]
    pub fn new(clock: Clock, journal: Option<Journal>) -> Self {
        let events = Arc::new(Events::new(clock));
        Self {
            clock,
            events,
            journal,
        }
    }

    /// Returns the events, to listen to.
    #[must_use]
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Returns the journal, where one is kept.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// A scaler was built, with all that it was given.
    ///
    /// `past`: what it goes on from, which an earlier process knew.
    pub fn started(
        &self,
        fleet: &str,
        now: Timestamp,
        config: &ScalingConfig,
        current: Replicas,
        past: Option<&PastScaler>,
    ) {
        self.write(fleet, now, || What::Start {
            config: Box::new(mapping::config(config)),
            current: current.get(),
            goes_on: past.is_some(),
            past: past.map(|past| Box::new(Known::from(past))),
        });
    }

    /// Says what a scaler knows where the journal cannot be read from its start: in each file, and
    /// after lost lines. `told` is what this returned before, 0 at first.
    pub fn known(&self, fleet: &str, now: Timestamp, scaler: &Scaler, told: u64) -> u64 {
        let beginnings = self.journal.as_ref().map_or(told, Journal::beginnings);
        if beginnings != told {
            self.write(fleet, now, || What::State {
                config: Box::new(mapping::config(scaler.config())),
                past: Box::new(Known::from(&scaler.export())),
            });
        }
        beginnings
    }

    /// A scaler was given another configuration.
    pub fn configured(&self, fleet: &str, now: Timestamp, config: &ScalingConfig) {
        self.write(fleet, now, || What::Config {
            config: Box::new(mapping::config(config)),
        });
        self.tell(fleet, now, Happening::Configured);
    }

    /// A scaler was given a reading, and perhaps asked for a decision at the same moment.
    pub fn read(
        &self,
        fleet: &str,
        now: Timestamp,
        observation: &Observation,
        decision: Option<&Decision>,
    ) {
        self.write(fleet, now, || What::Tick {
            observation: mapping::observation(observation),
            decision: decision.map(mapping::decision),
        });
        if let Some(decision) = decision.filter(|decision| decision.changes_size()) {
            self.tell(fleet, now, Happening::Decision(decision.clone()));
        }
    }

    /// A replica changed.
    pub fn replica(&self, fleet: &str, now: Timestamp, event: &TargetEvent) {
        self.write(fleet, now, || mapping::replica(event));
        self.tell(fleet, now, Happening::Replica(event.clone()));
    }

    /// The scaler was told to hold a size.
    pub fn held(&self, fleet: &str, now: Timestamp, held: Held) {
        self.write(fleet, now, || mapping::held(held));
        self.tell(fleet, now, Happening::Held(held));
    }

    /// The scaler was told to release the size, or the hold ended by itself.
    pub fn released(&self, fleet: &str, now: Timestamp, how: Released) {
        self.write(fleet, now, || What::Release {
            by_hand: how == Released::ByHand,
        });
        self.tell(fleet, now, Happening::Released(how));
    }

    /// The admission gate opened or closed.
    pub fn admission(&self, fleet: &str, now: Timestamp, open: bool) {
        self.write(fleet, now, || What::Admission { open });
        self.tell(fleet, now, Happening::Admission { open });
    }

    /// Something is wrong that an operator should know.
    pub fn failed(&self, fleet: &str, now: Timestamp, error: &str) {
        let error = error.to_owned();
        self.write(fleet, now, || What::Error {
            error: error.clone(),
        });
        self.tell(fleet, now, Happening::Failed(error));
    }

    fn tell(&self, fleet: &str, at: Timestamp, what: Happening) {
        self.events.add(fleet, at, what);
    }

    fn write(&self, fleet: &str, now: Timestamp, what: impl FnOnce() -> What) {
        if let Some(journal) = &self.journal {
            journal.write(Line {
                v: wire::VERSION,
                run: self.clock.started_millis(),
                time: self.clock.rfc3339(now),
                at: now.as_nanos(),
                fleet: fleet.to_owned(),
                what: what(),
            });
        }
    }
}
