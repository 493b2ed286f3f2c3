//! A replica: its state, its speed, what it executes and what waits in it.
//!
//! Knows the requests by their numbers only, and moves nothing by itself.

use std::collections::VecDeque;

/// The states of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Starting,
    Ready,
    Unhealthy,
    Draining,
    Gone,
}

/// One replica.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) state: State,
    /// When it was asked for.
    pub(crate) asked: u64,
    /// When it became ready.
    pub(crate) ready: u64,
    /// Its speed once it is warm, against what the laws say.
    pub(crate) speed: f64,
    /// Its share of that while something slows it down.
    pub(crate) slowed: f64,
    pub(crate) lanes: Vec<Lane>,
    /// Requests in it.
    pub(crate) held: u32,
}

/// What a replica has of one model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// Requests that wait.
    pub(crate) queue: VecDeque<u32>,
    /// Requests being executed; of a batching model, the batch.
    pub(crate) executing: Vec<u32>,
}

impl Replica {
    pub(crate) fn new(asked: u64, speed: f64, models: usize) -> Self {
        Self {
            state: State::Starting,
            asked,
            ready: u64::MAX,
            speed,
            slowed: 1.0,
            lanes: vec![Lane::default(); models],
            held: 0,
        }
    }

    /// Requests that wait in it.
    pub(crate) fn queued(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queue.len()).sum()
    }
}

impl Lane {
    /// Takes a request out of what is executed.
    pub(crate) fn finish(&mut self, request: u32) {
        if let Some(place) = self.executing.iter().position(|&other| other == request) {
            self.executing.swap_remove(place);
        }
    }
}
