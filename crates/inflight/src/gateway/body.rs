//! A response's body on its way to the client, with the request's guard inside.
//!
//! The guard is released as the last byte is handed on, not one poll later: a client that sends
//! one request after the other never counts as two.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use inflight_core::admission::Outcome;
use tokio::time::{Instant, Sleep, sleep};

use super::Shared;
use super::connection::{Client, OpenRequest};
use super::fault::Fault;
use super::pulse::Pulse;
use super::refusal;
use super::upload::Upload;
use super::upstream::Lease;
use crate::fleet::Permit;

/// How long what was relayed has to leave before its response is broken off.
const PARTING: Duration = Duration::from_millis(10);

/// What a client is sent as a response's body.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are relayed; boxing them would cost an allocation a request"
)]
pub(super) enum ResponseBody {
    /// Our own words, or nothing.
    Own(Option<Bytes>),
    /// A replica's.
    Relayed(Relayed),
}

/// A replica's response body.
pub(super) struct Relayed {
    /// Gone only when it was left to the stragglers.
    incoming: Option<Incoming>,
    hold: Hold,
    pulse: Pulse,
    waits_since: Option<Instant>,
    idle: Duration,
    is_grpc: bool,
    /// How the response broke off, while what came before that leaves.
    parting: Option<(BrokenOff, Pin<Box<Sleep>>)>,
}

/// What a request holds until its response has ended.
pub(super) struct Hold {
    /// The count and the slot; none for a request that is not counted.
    pub(super) permit: Option<Permit>,
    /// The connection to the replica.
    pub(super) lease: Option<Lease>,
    /// The request's own body, which may still be on its way.
    pub(super) upload: Option<Arc<Upload>>,
    /// The client's connection.
    pub(super) client: Arc<Client>,
    /// The request's place on it.
    pub(super) _open: OpenRequest,
    /// Where what outlives the request goes.
    pub(super) shared: Arc<Shared>,
}

impl ResponseBody {
    /// Builds a relayed body; one that is empty has ended already.
    pub(super) fn relay(incoming: Incoming, hold: Hold, idle: Duration, is_grpc: bool) -> Self {
        let is_empty = incoming.is_end_stream();
        let mut relayed = Relayed {
            incoming: Some(incoming),
            hold,
            pulse: Pulse::default(),
            waits_since: None,
            idle,
            is_grpc,
            parting: None,
        };
        if is_empty {
            relayed.hold.complete();
        }
        Self::Relayed(relayed)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self.get_mut() {
            Self::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Relayed(relayed) => relayed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(text) => text.is_none(),
            Self::Relayed(relayed) => relayed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(text) => {
                let length = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Self::Relayed(relayed) => relayed
                .incoming
                .as_ref()
                .map_or_else(SizeHint::default, Body::size_hint),
        }
    }
}

/// Why a response broke off after its head was sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum BrokenOff {
    /// The replica did.
    #[error("the replica broke off")]
    Upstream(#[source] hyper::Error),
    /// The replica took the rest of its stream back.
    #[error("the replica stopped before the end")]
    Withdrawn,
    /// Nothing came from the replica for too long.
    #[error("the replica sent nothing for the idle time-out")]
    Idle,
    /// The client left.
    #[error("the client left")]
    ClientGone,
}

impl Relayed {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.parting.is_some() {
            return self.poll_parting(cx);
        }
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        let end = match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.waits_since = None;
                if frame.is_trailers() || incoming.is_end_stream() {
                    self.hold.complete();
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            // hyper takes a stream that the replica reset without an error for one that ended.
            Poll::Ready(None) if self.hold.is_on_http2() && !incoming.is_end_stream() => {
                BrokenOff::Withdrawn
            }
            Poll::Ready(None) => {
                self.hold.complete();
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(error))) => BrokenOff::Upstream(error),
            Poll::Pending => match self.poll_patience(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(end) => end,
            },
        };
        self.break_off(end, cx)
    }

    /// Waits for the replica: not for ever, and not for a client that left.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<BrokenOff> {
        if self.waits_since.is_none() {
            self.waits_since = Some(Instant::now());
            self.pulse.restart();
        }
        while let Poll::Ready(now) = self.pulse.poll_beat(cx) {
            if self.hold.client.is_gone() {
                return Poll::Ready(BrokenOff::ClientGone);
            }
            if self
                .waits_since
                .is_some_and(|since| now.duration_since(since) >= self.idle)
            {
                return Poll::Ready(BrokenOff::Idle);
            }
        }
        Poll::Pending
    }

    /// Ends the request. A gRPC caller is told in trailers, as its protocol wants.
    fn break_off(
        &mut self,
        end: BrokenOff,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.hold.has_ended() {
            return Poll::Ready(None);
        }
        let (outcome, fault) = match &end {
            BrokenOff::ClientGone => (Outcome::ClientGone, None),
            BrokenOff::Upstream(_) | BrokenOff::Withdrawn if self.hold.has_lost_client() => {
                (Outcome::ClientGone, None)
            }
            BrokenOff::Upstream(_) | BrokenOff::Withdrawn => {
                (Outcome::UpstreamFailed, Some(Fault::BrokenOff))
            }
            BrokenOff::Idle => (Outcome::TimedOut, Some(Fault::Idle)),
        };
        self.let_go(outcome);
        tracing::debug!(error = %end, "a response broke off");
        if let Some(fault) = fault.filter(|_| self.is_grpc) {
            let trailers = refusal::grpc_trailers(&fault);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        self.parting = Some((end, Box::pin(sleep(PARTING))));
        self.poll_parting(cx)
    }

    /// Waits a moment with the error, which makes hyper drop what it has not written yet: the head
    /// and what came of the body shall reach the client.
    fn poll_parting(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some((_, until)) = &mut self.parting {
            ready!(until.as_mut().poll(cx));
        }
        Poll::Ready(self.parting.take().map(|(end, _)| Err(end)))
    }

    fn is_end_stream(&self) -> bool {
        self.parting.is_none() && self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }
}

impl Relayed {
    /// Ends the request before its response ended, or leaves it to the stragglers.
    fn let_go(&mut self, outcome: Outcome) {
        let is_left_running =
            outcome != Outcome::UpstreamFailed && !self.hold.shared.config.cancellable;
        match self.incoming.take() {
            Some(incoming) if is_left_running => {
                let Hold { lease, permit, .. } = &mut self.hold;
                let (lease, permit) = (lease.take(), permit.take());
                let stragglers = &self.hold.shared.stragglers;
                stragglers.read_on(incoming, lease, permit);
            }
            Some(_) | None => self.hold.end(outcome),
        }
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        if !self.hold.has_ended() {
            self.let_go(Outcome::ClientGone);
        }
    }
}

impl Hold {
    /// Ends the request as done, and gives the replica's connection back for the next one.
    ///
    /// The connection first: whoever gets the slot next finds it, and opens none beside it.
    fn complete(&mut self) {
        let is_sent = self
            .upload
            .as_ref()
            .is_none_or(|upload| upload.is_complete());
        match self.lease.take() {
            Some(lease) if is_sent => lease.give_back(),
            Some(lease) => {
                drop(lease);
                if let Some(upload) = self.upload.take() {
                    let client = Arc::clone(&self.client);
                    self.shared.stragglers.drain(upload, client);
                }
            }
            None => {}
        }
        if let Some(permit) = &mut self.permit {
            permit.finish(Outcome::Completed);
        }
    }

    /// Ends the request otherwise; the replica's connection, or its stream, is dropped.
    fn end(&mut self, outcome: Outcome) {
        if let Some(permit) = &mut self.permit {
            permit.finish(outcome);
        }
        self.lease = None;
    }

    fn has_ended(&self) -> bool {
        self.lease.is_none()
    }

    fn is_on_http2(&self) -> bool {
        matches!(self.lease, Some(Lease::Http2 { .. }))
    }

    /// Tells whether a replica that broke off had a reason: its client was gone.
    fn has_lost_client(&self) -> bool {
        let upload = self.upload.as_ref();
        upload.is_some_and(|upload| upload.fault().is_some()) || self.client.is_gone()
    }
}
