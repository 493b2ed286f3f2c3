//! What Envoy is told to do with a call.
//!
//! A refusal is one only if the outer status is not zero, whatever else is said. For gRPC clients
//! Envoy would make UNAVAILABLE of a 429, and takes the status from a header instead; it makes the
//! message of the body, which must therefore be the one in the details. HTTP clients would see
//! those headers too, and are told none.

use std::time::Duration;

use inflight_core::admission::Refusal;
use inflight_proto::ext_authz::{
    CheckResponse, DeniedHttpResponse, HeaderValue, HeaderValueOption, HttpStatus, Status,
};

use crate::retry;

/// Codes of gRPC and of HTTP for the two kinds of refusal.
const TOO_MUCH: (u16, i32) = (8, 429);
const NO_CAPACITY: (u16, i32) = (14, 503);

/// Lets a call pass.
pub(super) fn let_in() -> CheckResponse {
    CheckResponse {
        status: Some(Status::default()),
        denied_response: None,
    }
}

/// Refuses a call. Its time to come again is spread out, as `draw` says.
pub(super) fn refused(refusal: &Refusal, is_grpc: bool, draw: u64) -> CheckResponse {
    let reason = refusal.reason.name();
    let (grpc, http) = if refusal.reason.is_no_capacity() {
        NO_CAPACITY
    } else {
        TOO_MUCH
    };
    let mut headers = vec![header("x-inflight-reason", reason)];
    if is_grpc {
        headers.push(header("grpc-status", grpc.to_string()));
    }
    if let Some(wait) = refusal.retry_after.map(|wait| retry::stretched(wait, draw)) {
        headers.extend(come_again(wait, is_grpc.then_some((grpc, reason))));
    }
    CheckResponse {
        status: Some(Status {
            code: grpc.into(),
            ..Status::default()
        }),
        denied_response: Some(DeniedHttpResponse {
            status: Some(HttpStatus { code: http }),
            headers,
            body: reason.to_owned(),
        }),
    }
}

/// Says when to come again: as HTTP does, and to a gRPC client with this status also as gRPC does.
fn come_again(wait: Duration, grpc: Option<(u16, &str)>) -> Vec<HeaderValueOption> {
    let mut headers = vec![header(
        "retry-after",
        retry::whole_seconds(wait).to_string(),
    )];
    if let Some((code, message)) = grpc {
        headers.extend([
            header(
                "grpc-status-details-bin",
                retry::status_details(code, message, wait),
            ),
            header("grpc-retry-pushback-ms", wait.as_millis().to_string()),
        ]);
    }
    headers
}

fn header(key: &str, value: impl Into<String>) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: value.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use inflight_core::admission::RefusalReason;

    use super::*;

    fn answer(reason: RefusalReason, is_grpc: bool) -> (i32, i32, String, Vec<(String, String)>) {
        let refusal = Refusal {
            reason,
            retry_after: Some(Duration::from_millis(6_500)),
        };
        let response = refused(&refusal, is_grpc, 0);
        let denied = response.denied_response.unwrap();
        let headers = (denied.headers.into_iter()).map(|option| option.header.unwrap());
        (
            response.status.unwrap().code,
            denied.status.unwrap().code,
            denied.body,
            headers.map(|header| (header.key, header.value)).collect(),
        )
    }

    #[test]
    fn a_grpc_client_is_refused_in_its_own_words() {
        let (code, http, body, headers) = answer(RefusalReason::Overloaded, true);
        assert_eq!((code, http, body.as_str()), (8, 429, "overloaded"));
        let details = retry::status_details(8, "overloaded", Duration::from_millis(6_500));
        let expected = [
            ("x-inflight-reason", "overloaded"),
            ("grpc-status", "8"),
            ("retry-after", "7"),
            ("grpc-status-details-bin", &details),
            ("grpc-retry-pushback-ms", "6500"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(headers, expected);
    }

    #[test]
    fn an_http_client_is_told_nothing_of_grpc() {
        let (code, http, body, headers) = answer(RefusalReason::Overloaded, false);
        assert_eq!((code, http, body.as_str()), (8, 429, "overloaded"));
        let keys: Vec<_> = headers.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["x-inflight-reason", "retry-after"]);
    }

    #[test]
    fn no_refusal_can_be_taken_for_an_admission() {
        for reason in RefusalReason::ALL {
            let (code, http, ..) = answer(reason, true);
            let expected = if reason.is_no_capacity() {
                (14, 503)
            } else {
                (8, 429)
            };
            assert_eq!((code, http), expected, "{reason:?}");
        }
        let passes = let_in();
        assert_eq!(passes.status.unwrap().code, 0);
        assert_eq!(passes.denied_response, None);
    }
}
