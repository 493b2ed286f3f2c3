//! Our own answers: refusals and failures, as the caller's protocol says them.
//!
//! An HTTP caller gets a status and one line of text; a gRPC caller gets a response of headers
//! alone with `grpc-status` (gRPC over HTTP/2, "Trailers-Only"), so that its library reports it
//! as what it is. Both get `x-inflight-reason`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use inflight_core::admission::{Refusal, RefusalReason};

use super::body::ResponseBody;
use super::fault::Fault;

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
    let wait = refusal.retry_after.map(|wait| stretched(wait, draw));
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
        if let Some(details) = wait.and_then(|wait| retry_details(status, reason, wait)) {
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
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.max(1).into());
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

fn stretched(wait: Duration, draw: u64) -> Duration {
    let part = u32::try_from(draw % 256).unwrap_or(0);
    wait.saturating_add(wait / 1024 * part)
}

/// Encodes `google.rpc.Status { code, message, details: [RetryInfo { retry_delay }] }` as gRPC
/// wants it in a header: base64 without padding.
fn retry_details(status: GrpcStatus, message: &str, wait: Duration) -> Option<HeaderValue> {
    let mut delay = Vec::new();
    put_number(&mut delay, 1, wait.as_secs());
    put_number(&mut delay, 2, u64::from(wait.subsec_nanos()));
    let mut retry_info = Vec::new();
    put_bytes(&mut retry_info, 1, &delay);
    let mut any = Vec::new();
    put_bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    put_bytes(&mut any, 2, &retry_info);
    let mut encoded = Vec::new();
    put_number(&mut encoded, 1, status as u64);
    put_bytes(&mut encoded, 2, message.as_bytes());
    put_bytes(&mut encoded, 3, &any);
    HeaderValue::from_str(&base64(&encoded)).ok()
}

/// A protobuf field of wire type 0. Zero is the default and is left out.
fn put_number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value != 0 {
        out.push(field << 3);
        put_varint(out, value);
    }
}

/// A protobuf field of wire type 2.
fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .fold(0_u32, |word, &byte| word << 8 | u32::from(byte))
            << (8 * (3 - group.len()));
        for digit in 0..=group.len() {
            let sextet = word >> (18 - 6 * digit) & 0x3f;
            text.push(char::from(ALPHABET[usize::try_from(sextet).unwrap_or(0)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_no_padding() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn retry_details_are_a_status_with_a_retry_delay() {
        let details = retry_details(
            GrpcStatus::ResourceExhausted,
            "overloaded",
            Duration::from_millis(1500),
        );
        let mut expected = vec![8, 8, 0x12, 10];
        expected.extend_from_slice(b"overloaded");
        expected.extend_from_slice(&[0x1a, 53, 0x0a, 40]);
        expected.extend_from_slice(b"type.googleapis.com/google.rpc.RetryInfo");
        // RetryInfo { 1: Duration { 1: 1 s, 2: 500,000,000 ns } }
        expected.extend_from_slice(&[0x12, 10, 0x0a, 8, 8, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 1]);
        expected[15] = u8::try_from(expected.len() - 16).unwrap();
        assert_eq!(details.unwrap().to_str().unwrap(), base64(&expected));
    }

    #[test]
    fn a_retry_time_is_stretched_by_less_than_a_quarter() {
        let wait = Duration::from_secs(4);
        assert_eq!(stretched(wait, 0), wait);
        assert!(stretched(wait, 255) < Duration::from_secs(5));
        assert!(stretched(wait, 255) > Duration::from_millis(4900));
    }
}
