//! A virtual clock and what is to happen when.
//!
//! Events at the same moment happen by rank, then in the order in which they were asked for, so
//! that a run is the same every time. Knows nothing of fleets.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Events that have not happened yet, and the time of the latest that has.
#[derive(Clone, Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    serial: u64,
    now: u64,
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: u64,
    /// Rank in the top bits, then the serial number.
    order: u64,
    event: E,
}

/// Which of several events at the same moment comes first; departures before arrivals make every
/// interval half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Something ends.
    End,
    /// Something begins.
    Begin,
    /// Somebody looks.
    Look,
}

impl<E> Events<E> {
    /// Starts at time zero with nothing to happen.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            serial: 0,
            now: 0,
        }
    }

    /// Returns the time. *Units*: nanoseconds.
    #[must_use]
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Asks for an event at a time; one that has passed counts as this moment.
    pub(crate) fn push(&mut self, at: u64, rank: Rank, event: E) {
        self.serial += 1;
        self.heap.push(Entry {
            at: at.max(self.now),
            order: ((rank as u64) << 56) | self.serial,
            event,
        });
    }

    /// Takes the next event that happens up to `end`, and moves the clock to it; to `end` when
    /// there is none.
    pub(crate) fn pop(&mut self, end: u64) -> Option<E> {
        if self.heap.peek().is_none_or(|next| next.at > end) {
            self.now = self.now.max(end);
            return None;
        }
        let next = self.heap.pop()?;
        self.now = next.at;
        Some(next.event)
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Ord for Entry<E> {
    /// The heap gives the greatest first, which is the earliest here.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_happen_by_time_then_rank_then_order_of_asking() {
        let mut events = Events::new();
        events.push(7, Rank::Look, "look");
        events.push(7, Rank::Begin, "begin");
        events.push(7, Rank::End, "end");
        events.push(7, Rank::End, "end again");
        events.push(3, Rank::Look, "early");
        let mut happened = Vec::new();
        while let Some(event) = events.pop(10) {
            happened.push((events.now(), event));
        }
        let expected = [
            (3, "early"),
            (7, "end"),
            (7, "end again"),
            (7, "begin"),
            (7, "look"),
        ];
        assert_eq!(happened, expected);
        assert_eq!(events.now(), 10);
    }

    #[test]
    fn the_clock_never_goes_back_and_stops_at_the_end() {
        let mut events = Events::new();
        events.push(5, Rank::Begin, 'a');
        events.push(50, Rank::Begin, 'c');
        assert_eq!(events.pop(10), Some('a'));
        events.push(1, Rank::Begin, 'b');
        assert_eq!(events.pop(10), Some('b'));
        assert_eq!(events.now(), 5);
        assert_eq!(events.pop(10), None);
        assert_eq!(events.now(), 10);
        assert_eq!(events.pop(60), Some('c'));
    }
}
