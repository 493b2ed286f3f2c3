//! The one guard of a request: it owns the count and the slot, and gives both back on every way
//! out.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use inflight_core::admission::{Outcome, Refusal};
use inflight_core::{Bytes, ReplicaId, Ticket, Timestamp};

use super::{Fleet, Seat, Wait};

/// The replica that a request is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Which.
    pub replica: ReplicaId,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A request in flight. Dropping it ends the request, as one whose client left unless
/// [`Permit::finish`] said otherwise.
pub struct Permit {
    fleet: Arc<Fleet>,
    ticket: Ticket,
    seat: Seat,
    /// The wait in the fleet's list, if there ever was one.
    wait: Option<usize>,
    arrived: Timestamp,
    first_bound: Option<Timestamp>,
    is_finished: bool,
}

impl Permit {
    pub(super) fn new(fleet: Arc<Fleet>, ticket: Ticket, seat: Seat, arrived: Timestamp) -> Self {
        let (wait, first_bound) = match seat {
            Seat::Bound(_) => (None, Some(arrived)),
            Seat::Waits(index) => (Some(index), None),
        };
        Self {
            fleet,
            ticket,
            seat,
            wait,
            arrived,
            first_bound,
            is_finished: false,
        }
    }

    /// Returns when the request arrived.
    #[must_use]
    pub fn arrived(&self) -> Timestamp {
        self.arrived
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// The refusal, when the wait took too long.
    pub async fn bound(&mut self) -> Result<Bound, Refusal> {
        poll_fn(|cx| self.poll_bound(cx)).await
    }

    /// Polls for a slot, for those who do more than wait.
    pub fn poll_bound(&mut self, cx: &Context<'_>) -> Poll<Result<Bound, Refusal>> {
        let index = match self.seat {
            Seat::Bound(bound) => return Poll::Ready(Ok(bound)),
            Seat::Waits(index) => index,
        };
        let mut state = self.fleet.lock();
        let bound = match &mut state.waits[index] {
            Wait::Granted(bound) => *bound,
            Wait::Refused(refusal) => return Poll::Ready(Err(*refusal)),
            Wait::Queued(waker) => {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
        };
        drop(state);
        self.seat = Seat::Bound(bound);
        self.first_bound
            .get_or_insert_with(|| self.fleet.clock.now());
        Poll::Ready(Ok(bound))
    }

    /// Counts body bytes that are held while the request waits; `false` says to hold no more.
    #[must_use]
    pub fn hold(&self, more: Bytes) -> bool {
        let now = self.fleet.clock.now();
        let ticket = self.ticket;
        self.fleet
            .with_gate(|state, _| state.gate.on_held_bytes(now, ticket, more))
    }

    /// Gives the slot of a replica back that took nothing of the request, and waits again, first
    /// in the queue.
    pub fn retry(&mut self) {
        let now = self.fleet.clock.now();
        let (ticket, wait) = (self.ticket, self.wait.take());
        self.seat = self.fleet.with_gate(|state, wakers| {
            if let Some(index) = wait {
                state.waits.remove(index);
            }
            state.gate.on_retry(now, ticket);
            let seat = state.seat(ticket);
            state.settle(wakers);
            seat
        });
        if let Seat::Waits(index) = self.seat {
            self.wait = Some(index);
            self.fleet.changed.notify_one();
        }
    }

    /// Ends the request; a second call does nothing.
    pub fn finish(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        let now = self.fleet.clock.now();
        let (ticket, wait) = (self.ticket, self.wait.take());
        self.fleet.with_gate(|state, _| {
            state.gate.on_end(now, ticket, outcome);
            if let Some(index) = wait {
                state.waits.remove(index);
            }
        });
        let waited = self.first_bound.map(|at| at.since(self.arrived));
        self.fleet.timings.on_end(now.since(self.arrived), waited);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.finish(Outcome::ClientGone);
    }
}
