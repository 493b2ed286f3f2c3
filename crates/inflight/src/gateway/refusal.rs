//! Our own answers: refusals and failures, as the caller's protocol says them.
//!
//! An HTTP caller gets a status and one line of text; a gRPC caller gets a response of headers
//! alone with `grpc-status` (gRPC over HTTP/2, "Trailers-Only"), so that its library reports it
//! as what it is. Both get `x-inflight-reason`.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use inflight_core::admission::{Refusal, RefusalReason};

use super::body::ResponseBody;
use super::fault::Fault;
use crate::retry;

/// Says why we answered ourselves.
const REASON: HeaderName = HeaderName::from_static("x-inflight-reason");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The limits are those of `upstream/http1.rs` and `upstream/http2.rs`.
const HEAD_TOO_LARGE: &str = "upstream_head_too_large: the replica's response head has more than \
    100 lines, is longer than 256 KiB, or gives a length beyond 64 bits";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// gRPC's status codes that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrpcStatus {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    ResourceExhausted = 8,
    Unavailable = 14,
}

/// Builds the answer to a request that was not admitted. Its retry time is stretched by up to a
/// quarter, as `draw` says, so that those refused together do not come back together.
pub(super) fn refused(refusal: &Refusal, is_grpc: bool, draw: u64) -> Response<ResponseBody> {
    let reason = refusal.reason.name();
    let wait = refusal.retry_after;
    let wait = wait.map(|wait| retry::stretched(wait, draw));
    let is_late = refusal.reason == RefusalReason::DeadlineExpired;
    let is_no_capacity = refusal.reason.is_no_capacity();
    let mut response = if is_grpc {
        let status = if is_late {
            GrpcStatus::DeadlineExceeded
        } else if is_no_capacity {
            GrpcStatus::Unavailable
        } else {
            GrpcStatus::ResourceExhausted
        };
        let mut response = grpc(status, reason);
        let details = wait.map(|wait| retry::status_details(status as u16, reason, wait));
        if let Some(details) = details.and_then(|text| HeaderValue::from_str(&text).ok()) {
            response.headers_mut().insert(GRPC_DETAILS, details);
        }
        response
    } else if is_late {
        plain(StatusCode::GATEWAY_TIMEOUT, reason)
    } else if is_no_capacity {
        plain(StatusCode::SERVICE_UNAVAILABLE, reason)
    } else {
        plain(StatusCode::TOO_MANY_REQUESTS, reason)
    };
    if let Some(wait) = wait {
        let seconds = retry::whole_seconds(wait).into();
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

/// Builds the answer to a request that failed.
pub(super) fn failed(fault: &Fault, is_grpc: bool) -> Response<ResponseBody> {
    if is_grpc {
        grpc(grpc_status(fault), fault.name())
    } else {
        let mut response = plain(fault.status(), fault.name());
        if let Fault::HeadTooLarge { .. } = fault {
            let text = Bytes::from_static(HEAD_TOO_LARGE.as_bytes());
            *response.body_mut() = ResponseBody::Own(Some(text));
        }
        response
    }
}

/// Builds the answer to a request that is not forwarded because of what it is.
pub(super) fn rejected(
    status: StatusCode,
    reason: &'static str,
    is_grpc: bool,
) -> Response<ResponseBody> {
    if is_grpc {
        grpc(GrpcStatus::InvalidArgument, reason)
    } else {
        plain(status, reason)
    }
}

/// Builds the trailers that end a gRPC response which broke off.
pub(super) fn grpc_trailers(fault: &Fault) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(3);
    put_grpc(&mut trailers, grpc_status(fault), fault.name());
    trailers
}

fn grpc_status(fault: &Fault) -> GrpcStatus {
    match fault {
        Fault::ClientMalformed => GrpcStatus::InvalidArgument,
        Fault::FirstByte | Fault::Idle => GrpcStatus::DeadlineExceeded,
        Fault::Connect { .. }
        | Fault::ConnectTimeout { .. }
        | Fault::ClosedUnspoken { .. }
        | Fault::NoHttp2 { .. }
        | Fault::UnaskedUpgrade
        | Fault::Malformed { .. }
        | Fault::HeadTooLarge { .. }
        | Fault::Reset { .. }
        | Fault::BrokenOff
        | Fault::ClientStalled
        | Fault::NoReplica
        | Fault::ClientGone => GrpcStatus::Unavailable,
    }
}

fn plain(status: StatusCode, reason: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Own(Some(Bytes::from_static(
        reason.as_bytes(),
    ))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, TEXT);
    response
        .headers_mut()
        .insert(REASON, HeaderValue::from_static(reason));
    response
}

fn grpc(status: GrpcStatus, reason: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Own(None));
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    put_grpc(response.headers_mut(), status, reason);
    response
}

/// Our reasons are lower-case words, which `grpc-message` carries without percent-encoding.
fn put_grpc(headers: &mut HeaderMap, status: GrpcStatus, reason: &'static str) {
    headers.insert(GRPC_STATUS, HeaderValue::from(status as u16));
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(reason));
    headers.insert(REASON, HeaderValue::from_static(reason));
}
