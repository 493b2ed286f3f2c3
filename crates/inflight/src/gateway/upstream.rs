//! Connections to replicas: a small pool for each, so that an unsent request can be had back.
//!
//! It sends a request once and says exactly what became of it; whether to send it again, and
//! where, is the caller's business.

mod connect;
mod http1;
mod http2;
mod patient;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use http::request::Parts;
use http::uri::Authority;
use http::{Request, Response};
use hyper::body::Incoming;
use inflight_core::ReplicaId;

use super::config::{Timeouts, UpstreamProtocol};
use super::fault::Fault;
use super::headers::Caller;
use super::upload::RequestBody;
use crate::fleet::Bound;

/// The pools of all replicas.
pub(super) struct Upstream {
    protocol: UpstreamProtocol,
    timeouts: Timeouts,
    endpoints: Mutex<HashMap<ReplicaId, Arc<Endpoint>>>,
}

/// The connections to one replica.
pub(super) struct Endpoint {
    bound: Bound,
    authority: Authority,
    timeouts: Timeouts,
    http1: http1::Pool,
    http2: http2::Shared,
    /// The replica answered HTTP/2's preface in another protocol, or closed at it and then
    /// answered in HTTP/1.
    speaks_no_http2: AtomicBool,
}

/// The way to a replica that one request takes, until its response has ended.
pub(super) enum Lease {
    Http1(http1::Lease),
    /// A stream of the shared connection, which lives as long as this.
    Http2 {
        _connection: Arc<http2::Connection>,
    },
}

/// A request that got no response's head.
pub(super) struct SendError {
    pub(super) fault: Fault,
    pub(super) processed: Processed,
}

/// What a replica may have done with a request that failed.
pub(super) enum Processed {
    /// Nothing was sent: here it is, whole.
    Unsent(Box<Request<RequestBody>>),
    /// The replica said that it did nothing with it.
    Refused,
    /// Perhaps all of it.
    Unknown,
}

/// Which protocol a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Http1,
    Http2,
    /// HTTP/2 where the replica speaks it.
    Either,
}

impl Upstream {
    pub(super) fn new(protocol: UpstreamProtocol, timeouts: Timeouts) -> Self {
        Self {
            protocol,
            timeouts,
            endpoints: Mutex::default(),
        }
    }

    /// Returns the connections to a replica.
    pub(super) fn endpoint(&self, bound: Bound) -> Arc<Endpoint> {
        let fresh = || Arc::new(Endpoint::new(bound, self.timeouts));
        let mut endpoints = self.lock();
        let endpoint = endpoints.entry(bound.replica).or_insert_with(fresh);
        if endpoint.bound != bound {
            *endpoint = fresh();
        }
        Arc::clone(endpoint)
    }

    /// Sends a request to a replica and waits for the response's head.
    ///
    /// # Errors
    /// What went wrong, and what the replica may have done.
    pub(super) async fn send(
        &self,
        endpoint: &Arc<Endpoint>,
        caller: Caller,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease), SendError> {
        let need = self.need(caller);
        if need == Need::Http1 || (need == Need::Either && endpoint.is_http1_only()) {
            return http1::send(endpoint, request).await;
        }
        let fault = match http2::ready(endpoint).await {
            Ok(connection) => return http2::send(endpoint, connection, request).await,
            Err(fault) => fault,
        };
        match (need, fault) {
            (Need::Either, Fault::NoHttp2 { .. } | Fault::ClosedUnspoken { .. }) => {
                let sent = http1::send(endpoint, request).await;
                if sent.is_ok() {
                    // It lives, and hung up on HTTP/2's preface as servers of HTTP/1 do.
                    endpoint.speaks_no_http2.store(true, Ordering::Relaxed);
                }
                sent
            }
            (_, Fault::ClosedUnspoken { address }) if endpoint.is_http1_only() => {
                Err(SendError::unsent(Fault::NoHttp2 { address }, request))
            }
            (_, fault) => Err(SendError::unsent(fault, request)),
        }
    }

    /// Tells whether a request may travel as a stream, which a replica can refuse by itself.
    pub(super) fn may_be_refused(&self, caller: Caller) -> bool {
        self.need(caller) != Need::Http1
    }

    /// Drops connections that were idle for too long, and those to replicas that are no more.
    pub(super) fn sweep(&self, now: Instant, is_known: impl Fn(ReplicaId) -> bool) {
        let mut endpoints = self.lock();
        endpoints.retain(|&replica, _| is_known(replica));
        let kept: Vec<Arc<Endpoint>> = endpoints.values().map(Arc::clone).collect();
        drop(endpoints);
        for endpoint in kept {
            endpoint.http1.sweep(now);
        }
    }

    fn need(&self, caller: Caller) -> Need {
        match self.protocol {
            _ if caller.is_upgrade => Need::Http1,
            UpstreamProtocol::Http1 => Need::Http1,
            UpstreamProtocol::Http2 => Need::Http2,
            UpstreamProtocol::Auto if caller.is_grpc => Need::Http2,
            UpstreamProtocol::Auto if caller.is_http2 => Need::Either,
            UpstreamProtocol::Auto => Need::Http1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ReplicaId, Arc<Endpoint>>> {
        self.endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    fn new(bound: Bound, timeouts: Timeouts) -> Self {
        let authority = bound.address.to_string();
        Self {
            bound,
            authority: Authority::try_from(authority.as_str())
                .unwrap_or_else(|_| Authority::from_static("replica")),
            timeouts,
            http1: http1::Pool::default(),
            http2: http2::Shared::default(),
            speaks_no_http2: AtomicBool::new(false),
        }
    }

    fn is_http1_only(&self) -> bool {
        self.speaks_no_http2.load(Ordering::Relaxed)
    }
}

impl Lease {
    /// Gives the connection back after a response that ended well.
    pub(super) fn give_back(self) {
        match self {
            Self::Http1(lease) => lease.give_back(),
            Self::Http2 { .. } => {}
        }
    }
}

impl SendError {
    fn unsent(fault: Fault, request: Request<RequestBody>) -> Self {
        Self {
            fault,
            processed: Processed::Unsent(Box::new(request)),
        }
    }
}

/// Changes a request's head.
fn with_head(
    request: Request<RequestBody>,
    change: impl FnOnce(&mut Parts),
) -> Request<RequestBody> {
    let (mut head, body) = request.into_parts();
    change(&mut head);
    Request::from_parts(head, body)
}
