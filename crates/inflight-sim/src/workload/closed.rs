//! Clients that wait for their answers: jobs of streams, each one request at a time.

use super::{Client, Sender, Wake};
use crate::random::Random;
use crate::scenario::{Closed, Job};
use crate::units::{index, nanos};

/// The streams of one closed load.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    load: u32,
    closed: Closed,
    until: u64,
    /// Requests that each stream still has to send.
    left: Vec<u64>,
    /// Streams that have not ended.
    live: u32,
}

impl Streams {
    pub(super) fn new(load: u32, closed: &Closed) -> Self {
        let Job {
            streams,
            requests,
            until,
            ..
        } = closed.job;
        let count = closed.jobs.saturating_mul(streams);
        Self {
            load,
            until: nanos(until),
            left: vec![requests.unwrap_or(u64::MAX); count as usize],
            live: count,
            closed: closed.clone(),
        }
    }

    pub(super) fn start(&self) -> impl Iterator<Item = Wake> + '_ {
        let streams = self.closed.job.streams;
        (0..self.left.len()).map(move |place| {
            let stream = index(place);
            let job = stream / streams;
            let at = self.closed.at + f64::from(job) * self.closed.every;
            let client = Client {
                load: self.load,
                stream,
                job,
            };
            (nanos(at), Sender::Stream(client))
        })
    }

    /// Returns of which model the stream sends a request, if it still sends.
    pub(super) fn on_wake(&mut self, now: u64, client: Client) -> Option<Option<usize>> {
        let left = self.left.get_mut(client.stream as usize)?;
        if *left == 0 || now >= self.until {
            *left = 0;
            self.live = self.live.saturating_sub(1);
            return None;
        }
        *left -= 1;
        Some(self.closed.job.model)
    }

    /// Returns how long the stream thinks before its next request, if there is one.
    pub(super) fn on_answer(&mut self, random: &mut Random, client: Client) -> Option<f64> {
        if self.left.get(client.stream as usize) == Some(&0) {
            self.live = self.live.saturating_sub(1);
            return None;
        }
        let think = self.closed.job.think;
        Some(if think > 0.0 {
            random.exponential(think)
        } else {
            0.0
        })
    }

    pub(super) fn gone(&self) -> u32 {
        index(self.left.len()) - self.live
    }

    pub(super) fn is_over(&self) -> bool {
        self.live == 0
    }
}
