//! One request, from its head to its response's head.
//!
//! Sent again only where that cannot do work twice: nothing of it was sent, the replica said it
//! did nothing, or the method is safe and there was no body.

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use inflight_core::admission::{Arrival, Refusal};
use inflight_core::{Bytes, ReplicaId, SessionKey};
use tokio::time::{Instant, sleep};

use super::Shared;
use super::body::{Hold, ResponseBody};
use super::config::{SessionBy, UpstreamProtocol};
use super::connection::{Client, OpenRequest};
use super::deadline::grpc_timeout;
use super::fault::Fault;
use super::headers::{self, Caller, Rejection};
use super::pulse::Pulse;
use super::refusal;
use super::route::Route;
use super::straggler::{Sending, Sent, Unsettled};
use super::tunnel::Tunnel;
use super::upload::{RequestBody, Upload};
use super::upstream::{Lease, Processed, SendError};
use crate::fleet::{Bound, Permit};

/// How often a request that a replica may have seen is sent.
const SENT_MAX: u32 = 3;

/// How often a request is offered to replicas that cannot be connected to.
const UNREACHABLE_MAX: u32 = 8;

/// The pause before the same replica is tried again, doubled each time: 8 tries take 1.3 s.
const PAUSE: Duration = Duration::from_millis(10);

/// The client left while its request waited. hyper closes what is left of the connection.
#[derive(Debug, thiserror::Error)]
#[error("the client left")]
pub(super) struct ClientGone;

/// Why a request gets an answer of ours.
enum Stop {
    Rejected(Rejection),
    Refused(Refusal),
    Failed(Fault),
}

/// A request that was admitted, or is not counted.
struct Exchange {
    shared: Arc<Shared>,
    client: Arc<Client>,
    open: OpenRequest,
    permit: Option<Permit>,
    upload: Option<Arc<Upload>>,
    /// A client that waits to be told to send its body is told when a replica wants it.
    reads_ahead: bool,
    caller: Caller,
    /// The client's connection, where it asked for another protocol.
    upgrade: Option<OnUpgrade>,
    pulse: Pulse,
}

/// How often a request was tried, and where it failed last.
#[derive(Default)]
struct Attempts {
    sent: u32,
    unreachable: u32,
    /// Of the unreachable, those that took the connection and closed it.
    closed_unspoken: u32,
    failed_at: Option<ReplicaId>,
}

/// Takes a request through to its response's head; its body carries the rest.
pub(super) async fn handle(
    shared: Arc<Shared>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, ClientGone> {
    let open = client.begin();
    let (mut head, incoming) = request.into_parts();
    let mut caller = Caller::of(&head);
    // Without a body, so that nothing of it is left on the connection; and over HTTP/1.1 only.
    caller.is_upgrade &=
        incoming.is_end_stream() && shared.config.upstream != UpstreamProtocol::Http2;
    let upgrade = head.extensions.remove::<OnUpgrade>();
    let permit = match admit(&shared, &client, &head, caller) {
        Ok(permit) => permit,
        Err(stop) => {
            let upload = Upload::new(incoming, caller.is_http2);
            return Ok(answer(&shared, &stop, caller, upload, &client));
        }
    };
    let reads_ahead = !head.headers.contains_key(header::EXPECT);
    headers::prepare_request(&mut head, caller, &client, &shared.hop);
    let exchange = Exchange {
        shared: Arc::clone(&shared),
        client: Arc::clone(&client),
        open,
        permit,
        upload: Upload::new(incoming, caller.is_http2),
        reads_ahead,
        caller,
        upgrade: upgrade.filter(|_| caller.is_upgrade),
        pulse: Pulse::default(),
    };
    match exchange.run(head).await {
        Ok(response) => Ok(response),
        Err((Stop::Failed(Fault::ClientGone), _)) => Err(ClientGone),
        Err((stop, upload)) => Ok(answer(&shared, &stop, caller, upload, &client)),
    }
}

/// Lets a request in; `None` is for one that is not counted.
fn admit(
    shared: &Shared,
    client: &Client,
    head: &Parts,
    caller: Caller,
) -> Result<Option<Permit>, Stop> {
    headers::check(head, &shared.hop).map_err(Stop::Rejected)?;
    let Route::Counted { model, first_call } = shared.routes.of(head.uri.path()) else {
        return Ok(None);
    };
    let timeout = caller.is_grpc.then(|| grpc_timeout(&head.headers));
    let arrival = Arrival {
        model,
        session: Some(session(shared, client, head)),
        first_call,
        deadline: timeout
            .flatten()
            .map(|timeout| shared.fleet.clock().now() + timeout),
        draw: fastrand::u64(..),
    };
    shared
        .fleet
        .arrive(arrival)
        .map(Some)
        .map_err(Stop::Refused)
}

fn session(shared: &Shared, client: &Client, head: &Parts) -> SessionKey {
    let value = match &shared.config.session {
        SessionBy::Address => None,
        SessionBy::Header(name) => head.headers.get(name),
    };
    value.map_or(client.session, |value| {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        SessionKey(hasher.finish())
    })
}

/// Says why, and reads the rest of a body that nobody wants for a moment only.
fn answer(
    shared: &Shared,
    stop: &Stop,
    caller: Caller,
    upload: Option<Arc<Upload>>,
    client: &Arc<Client>,
) -> Response<ResponseBody> {
    let is_grpc = caller.is_grpc;
    let mut response = match stop {
        Stop::Rejected(rejection) => refusal::rejected(rejection.status, rejection.reason, is_grpc),
        Stop::Refused(refused) => refusal::refused(refused, is_grpc, fastrand::u64(..)),
        Stop::Failed(fault) => {
            tracing::debug!(%fault, reason = fault.name(), "a request failed");
            refusal::failed(fault, is_grpc)
        }
    };
    match upload.filter(|upload| !upload.is_complete()) {
        Some(upload) if caller.is_http2 => shared.stragglers.drain(upload, Arc::clone(client)),
        Some(_) => {
            client.linger();
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        None => {}
    }
    response
}

impl Exchange {
    /// A failure comes with the client's body, which may not have been read to its end.
    async fn run(
        mut self,
        head: Parts,
    ) -> Result<Response<ResponseBody>, (Stop, Option<Arc<Upload>>)> {
        match self.send(head).await {
            Ok((response, lease)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.switch(response, lease)
            }
            Ok((response, lease)) => Ok(self.relay(response, lease)),
            Err(stop) => {
                if let (Some(permit), Stop::Failed(fault)) = (&mut self.permit, &stop) {
                    permit.finish(fault.outcome());
                }
                Err((stop, self.upload))
            }
        }
    }

    /// Sends the request until a replica answers it or nothing more may be tried.
    async fn send(&mut self, mut head: Parts) -> Result<(Response<Incoming>, Lease), Stop> {
        let mut attempts = Attempts::default();
        let is_safe =
            head.method.is_safe() && head.method != Method::CONNECT && self.upload.is_none();
        let may_repeat = is_safe || self.shared.upstream.may_be_refused(self.caller);
        loop {
            let bound = self.bound(attempts.failed_at).await?;
            attempts.rest_before(bound).await;
            let spare = may_repeat.then(|| head.clone());
            let body = RequestBody::new(self.upload.as_ref());
            let error = match self.attempt(bound, Request::from_parts(head, body)).await {
                Ok(answered) => return Ok(answered),
                Err(error) => error,
            };
            attempts.failed_at = Some(bound.replica);
            let is_repeatable = is_safe
                || self
                    .upload
                    .as_ref()
                    .is_none_or(|upload| upload.is_repeatable());
            let fleet = &self.shared.fleet;
            let judged = attempts.judge(error, is_safe, is_repeatable, || fleet.take_retry());
            head = match (judged?, spare) {
                (Some(unsent), _) => unsent,
                (None, Some(spare)) => spare,
                (None, None) => return Err(Stop::Failed(Fault::BrokenOff)),
            };
            if let Some(permit) = &mut self.permit {
                permit.retry();
            }
        }
    }

    /// Waits for a slot: reads a little of the body ahead, and notices a client that leaves.
    /// One that is not counted has no slot, and goes to any replica but the one that failed.
    async fn bound(&mut self, failed_at: Option<ReplicaId>) -> Result<Bound, Stop> {
        if self.permit.is_none() {
            return self
                .shared
                .fleet
                .any_ready(fastrand::u64(..), failed_at)
                .ok_or(Stop::Failed(Fault::NoReplica));
        }
        poll_fn(|cx| self.poll_bound(cx)).await
    }

    fn poll_bound(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bound, Stop>> {
        let Some(permit) = &mut self.permit else {
            return Poll::Pending;
        };
        if let Poll::Ready(bound) = permit.poll_bound(cx) {
            return Poll::Ready(bound.map_err(Stop::Refused));
        }
        if let Some(upload) = &self.upload {
            if self.reads_ahead {
                let may_hold = &mut self.reads_ahead;
                upload.read_ahead(cx, |length| {
                    *may_hold = permit.hold(Bytes(u64::try_from(length).unwrap_or(u64::MAX)));
                    *may_hold
                });
            }
            if let Some(fault) = upload.fault() {
                return Poll::Ready(Err(Stop::Failed(fault)));
            }
        }
        while self.pulse.poll_beat(cx).is_ready() {
            if self.client.is_gone() {
                return Poll::Ready(Err(Stop::Failed(Fault::ClientGone)));
            }
        }
        Poll::Pending
    }

    /// Sends the request once, with patience for both sides.
    async fn attempt(&mut self, bound: Bound, request: Request<RequestBody>) -> Sent {
        let shared = Arc::clone(&self.shared);
        let is_cancellable = shared.config.cancellable;
        let caller = self.caller;
        let sending = async move {
            let endpoint = shared.upstream.endpoint(bound);
            shared.upstream.send(&endpoint, caller, request).await
        };
        let sent = if is_cancellable {
            self.wait_for(pin!(sending)).await
        } else {
            self.wait_unsettled(Box::pin(sending)).await
        };
        sent.map_err(|error| {
            let of_upload = self.upload.as_ref().and_then(|upload| upload.fault());
            let of_client = of_upload.or(self.client.is_gone().then_some(Fault::ClientGone));
            SendError {
                fault: of_client.unwrap_or(error.fault),
                processed: error.processed,
            }
        })
    }

    /// Waits for what keeps its slot when nobody waits for it any more.
    async fn wait_unsettled(&mut self, sending: Sending) -> Sent {
        let shared = Arc::clone(&self.shared);
        let mut unsettled = Unsettled::new(shared, sending, self.permit.take());
        let Some(sending) = unsettled.sending() else {
            return Err(SendError {
                fault: Fault::BrokenOff,
                processed: Processed::Unknown,
            });
        };
        let sent = self.wait_for(sending).await;
        let gave_up = matches!(&sent, Err(error) if error.fault.is_impatience());
        if !gave_up {
            self.permit = unsettled.settle();
        }
        sent
    }

    async fn wait_for<F>(&mut self, mut sending: Pin<&mut F>) -> Sent
    where
        F: Future<Output = Sent> + ?Sized,
    {
        let mut patience = Patience {
            since: Instant::now(),
            moved: 0,
        };
        self.pulse.restart();
        poll_fn(|cx| match sending.as_mut().poll(cx) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => self.poll_patience(&mut patience, cx).map(|fault| {
                Err(SendError {
                    fault,
                    processed: Processed::Unknown,
                })
            }),
        })
        .await
    }

    fn poll_patience(&mut self, patience: &mut Patience, cx: &mut Context<'_>) -> Poll<Fault> {
        let timeouts = &self.shared.config.timeouts;
        while let Poll::Ready(now) = self.pulse.poll_beat(cx) {
            if self.client.is_gone() {
                return Poll::Ready(Fault::ClientGone);
            }
            let moved = self.upload.as_ref().map_or(0, |upload| upload.moved());
            if moved != patience.moved {
                *patience = Patience { since: now, moved };
            }
            let waited = now.duration_since(patience.since);
            let is_starved = self
                .upload
                .as_ref()
                .is_some_and(|upload| upload.is_starved());
            if is_starved && waited >= timeouts.idle {
                return Poll::Ready(Fault::ClientStalled);
            }
            if waited >= timeouts.first_byte {
                return Poll::Ready(Fault::FirstByte);
            }
        }
        Poll::Pending
    }

    /// Passes the replica's 101 on; what follows it is a tunnel's business.
    fn switch(
        self,
        response: Response<Incoming>,
        lease: Lease,
    ) -> Result<Response<ResponseBody>, (Stop, Option<Arc<Upload>>)> {
        let (mut head, _) = response.into_parts();
        let (Some(client), Some(replica)) = (self.upgrade, head.extensions.remove::<OnUpgrade>())
        else {
            if let Some(mut permit) = self.permit {
                permit.finish(Fault::UnaskedUpgrade.outcome());
            }
            return Err((Stop::Failed(Fault::UnaskedUpgrade), self.upload));
        };
        headers::prepare_response(&mut head);
        self.client.switch_to(Tunnel {
            client,
            replica,
            permit: self.permit,
            lease,
            open: self.open,
            idle: self.shared.config.timeouts.idle,
            is_cancellable: self.shared.config.cancellable,
        });
        Ok(Response::from_parts(head, ResponseBody::Own(None)))
    }

    fn relay(self, response: Response<Incoming>, lease: Lease) -> Response<ResponseBody> {
        let (mut head, incoming) = response.into_parts();
        headers::prepare_response(&mut head);
        if let Some(upload) = &self.upload {
            upload.seal();
        }
        let idle = self.shared.config.timeouts.idle;
        let hold = Hold {
            permit: self.permit,
            lease: Some(lease),
            upload: self.upload,
            client: self.client,
            _open: self.open,
            shared: self.shared,
        };
        Response::from_parts(
            head,
            ResponseBody::relay(incoming, hold, idle, self.caller.is_grpc),
        )
    }
}

/// Since when nothing moved.
struct Patience {
    since: Instant,
    moved: u64,
}

impl Attempts {
    /// Pauses before a replica is tried again that failed just before.
    async fn rest_before(&self, bound: Bound) {
        if self.failed_at == Some(bound.replica) {
            let times = self.sent.max(self.unreachable).saturating_sub(1).min(7);
            sleep(PAUSE * 2_u32.pow(times)).await;
        }
    }

    /// One replica that hangs up may be dying; if all did so each time, they do not want HTTP/2.
    fn verdict(&self, last: Fault) -> Fault {
        if let Fault::ClosedUnspoken { address } = last
            && self.closed_unspoken == self.unreachable
        {
            return Fault::NoHttp2 { address };
        }
        last
    }

    /// Decides whether the request is sent again: `Ok`, with its head if nothing of it was sent.
    fn judge(
        &mut self,
        error: SendError,
        is_safe: bool,
        is_repeatable: bool,
        take_retry: impl FnOnce() -> bool,
    ) -> Result<Option<Parts>, Stop> {
        let SendError { fault, processed } = error;
        if fault.is_impatience() || fault.is_answer() || matches!(fault, Fault::NoHttp2 { .. }) {
            return Err(Stop::Failed(fault));
        }
        match processed {
            Processed::Unsent(request) => {
                self.unreachable += 1;
                self.closed_unspoken += u32::from(matches!(fault, Fault::ClosedUnspoken { .. }));
                if self.unreachable >= UNREACHABLE_MAX {
                    return Err(Stop::Failed(self.verdict(fault)));
                }
                Ok(Some(request.into_parts().0))
            }
            Processed::Refused | Processed::Unknown => {
                self.sent += 1;
                let is_refused = matches!(processed, Processed::Refused);
                let may_repeat = is_safe || (is_refused && is_repeatable);
                if may_repeat && self.sent < SENT_MAX && take_retry() {
                    Ok(None)
                } else {
                    Err(Stop::Failed(fault))
                }
            }
        }
    }
}
