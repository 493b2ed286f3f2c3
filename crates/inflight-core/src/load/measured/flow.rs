//! What one peer's quantities grow by: by what is read, and as they did before while nothing is.
//!
//! Only growth is handed on, never a total, so that a counter that starts again or a peer that goes
//! takes nothing back.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Timestamp;

/// How far back the rate reaches at which a peer that is not read goes on. A counter that moves when
/// requests complete stands still between two long ones: over the default window of the `occupancy`
/// policy its rate is what was said of the peer before.
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// Points of the past are no closer than this.
const APART: Duration = Duration::from_secs(5);
/// No quantity grows by more than this at once, so that sums of them stay finite.
const GROWTH_MAX: f64 = 1e18;

/// The growth of `N` quantities of one peer.
#[derive(Clone, Debug)]
pub(super) struct Flow<const N: usize> {
    /// The latest reading.
    read_at: Option<Timestamp>,
    /// Until when the growth is known or was held.
    until: Timestamp,
    is_held: bool,
    /// All growth since the first reading.
    grown: [f64; N],
    /// The part of it that was handed on.
    taken: [f64; N],
    /// The rates at the latest reading.
    rates: [f64; N],
    /// What had grown at points of the last [`RATE_WINDOW`].
    past: VecDeque<(Timestamp, [f64; N])>,
}

impl<const N: usize> Flow<N> {
    pub(super) const fn new() -> Self {
        Self {
            read_at: None,
            until: Timestamp::ORIGIN,
            is_held: false,
            grown: [0.0; N],
            taken: [0.0; N],
            rates: [0.0; N],
            past: VecDeque::new(),
        }
    }

    pub(super) const fn read_at(&self) -> Option<Timestamp> {
        self.read_at
    }

    /// Takes a new reading with what its quantities grew by since the one before. While the peer
    /// was held its growth is taken to be what was held: counting it again would be a spike, and
    /// the window has no other place for it.
    pub(super) fn read(&mut self, at: Timestamp, growth: [f64; N]) {
        if !self.is_held {
            for (grown, more) in self.grown.iter_mut().zip(growth) {
                // What is no number adds nothing.
                if more > 0.0 {
                    *grown += more.min(GROWTH_MAX);
                }
            }
        }
        self.is_held = false;
        self.read_at = Some(at);
        self.until = at;
        self.remember(at);
    }

    /// Lets the quantities go on at `rates` until `at`.
    pub(super) fn hold(&mut self, at: Timestamp, rates: [f64; N]) {
        let seconds = at.since(self.until).as_secs_f64();
        if self.read_at.is_none() || seconds <= 0.0 {
            return;
        }
        for (grown, rate) in self.grown.iter_mut().zip(rates) {
            *grown += (rate * seconds).min(GROWTH_MAX);
        }
        self.is_held = true;
        self.until = at;
    }

    /// Returns the rates per second of the minute before the latest reading; zero before the second
    /// reading.
    pub(super) const fn rates(&self) -> [f64; N] {
        self.rates
    }

    /// Hands on what grew since the last time.
    pub(super) fn take(&mut self) -> [f64; N] {
        let mut growth = self.grown;
        for (growth, taken) in growth.iter_mut().zip(self.taken) {
            *growth -= taken;
        }
        self.taken = self.grown;
        growth
    }

    /// Works out the rates, and keeps what they are made of.
    fn remember(&mut self, at: Timestamp) {
        if let Some((from, before)) = self.past.front() {
            let seconds = at.since(*from).as_secs_f64();
            for (rate, (now, before)) in self.rates.iter_mut().zip(self.grown.iter().zip(before)) {
                *rate = (now - before) / seconds;
            }
        }
        let is_apart = |&(newest, _): &(Timestamp, _)| at.since(newest) >= APART;
        if self.past.back().is_none_or(is_apart) {
            self.past.push_back((at, self.grown));
        }
        let is_old = |&(second, _): &(Timestamp, _)| at.since(second) >= RATE_WINDOW;
        while self.past.get(1).is_some_and(is_old) {
            self.past.pop_front();
        }
    }
}
