//! A bounded memory of what happened, which listeners read at their own pace.
//!
//! Nobody is waited for: a listener that falls behind what is remembered is told so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inflight_core::scaling::Held;
use inflight_core::{Decision, Timestamp};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::ports::TargetEvent;

/// How many events are remembered: at a few hundred bytes each, below half a megabyte.
const REMEMBERED: usize = 1000;

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// Counts up by one.
    pub number: u64,
    /// The fleet it happened to.
    pub fleet: String,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: Happening,
}

/// What can happen to a fleet.
#[derive(Clone, Debug)]
pub enum Happening {
    /// A decision changed the size.
    Decision(Decision),
    /// A replica changed.
    Replica(TargetEvent),
    /// The admission gate opened or closed.
    Admission {
        /// Whether new sessions are let in.
        open: bool,
    },
    /// A person holds the size.
    Held(Held),
    /// The policy decides again.
    Released(Released),
    /// The fleet is sized by another configuration.
    Configured,
    /// Something is wrong.
    Failed(String),
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// A person ended it.
    ByHand,
    /// Its time was over.
    Over,
}

/// What a listener gets who asks for the events after one of them.
#[derive(Clone, Debug)]
pub enum Heard {
    /// The next event.
    Event(Arc<Event>),
    /// Nothing happened since.
    Nothing,
    /// What came next is forgotten; the oldest remembered has this number.
    Missed(u64),
}

/// The memory.
#[derive(Debug)]
pub struct Events {
    run: u64,
    remembered: Mutex<VecDeque<Arc<Event>>>,
    /// The number of the last event; `None` once there are no more.
    last: watch::Sender<Option<u64>>,
}

impl Events {
    /// Builds an empty memory.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            run: clock.started_millis(),
            remembered: Mutex::new(VecDeque::new()),
            last: watch::Sender::new(Some(0)),
        }
    }

    /// Returns what tells this memory's numbers from those of an earlier process.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Returns the number of the last event, zero before the first.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.lock().back().map_or(0, |event| event.number)
    }

    /// Returns a sight of the last event's number, which is `None` once there are no more.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<u64>> {
        self.last.subscribe()
    }

    /// Says that there are no more events, so that listeners end.
    pub fn close(&self) {
        self.last.send_replace(None);
    }

    /// Returns the event after the one with this number.
    #[must_use]
    pub fn after(&self, number: u64) -> Heard {
        let remembered = self.lock();
        let Some(oldest) = remembered.front().map(|event| event.number) else {
            return Heard::Nothing;
        };
        let Some(place) = number.saturating_add(1).checked_sub(oldest) else {
            return Heard::Missed(oldest);
        };
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        remembered
            .get(place)
            .map_or(Heard::Nothing, |event| Heard::Event(Arc::clone(event)))
    }

    pub(super) fn add(&self, fleet: &str, at: Timestamp, what: Happening) {
        let mut remembered = self.lock();
        let number = remembered.back().map_or(0, |event| event.number) + 1;
        if remembered.len() == REMEMBERED {
            remembered.pop_front();
        }
        remembered.push_back(Arc::new(Event {
            number,
            fleet: fleet.to_owned(),
            at,
            what,
        }));
        // Under the lock, so that the numbers are seen in their order; closed stays closed.
        self.last.send_if_modified(|last| {
            let is_open = last.is_some();
            if is_open {
                *last = Some(number);
            }
            is_open
        });
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Event>>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_order_and_forgotten_ones_are_told() {
        let events = Events::new(Clock::start());
        assert!(matches!(events.after(0), Heard::Nothing));
        let count = u64::try_from(REMEMBERED).unwrap() + 5;
        for _ in 0..count {
            let open = true;
            events.add("hello", Timestamp::ORIGIN, Happening::Admission { open });
        }
        assert!(matches!(events.after(0), Heard::Missed(6)));
        let mut number = 5;
        while let Heard::Event(event) = events.after(number) {
            assert_eq!(event.number, number + 1);
            number = event.number;
        }
        assert_eq!(number, count);
        assert!(matches!(events.after(u64::MAX - 1), Heard::Nothing));
    }

    #[test]
    fn closed_stays_closed() {
        let events = Events::new(Clock::start());
        let watch = events.watch();
        events.close();
        events.add("hello", Timestamp::ORIGIN, Happening::Configured);
        assert_eq!(*watch.borrow(), None);
    }
}
