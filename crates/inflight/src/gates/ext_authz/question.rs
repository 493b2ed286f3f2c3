//! What Envoy says of a call: its session, whether it begins one, and what its client speaks.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use inflight_core::SessionKey;
use inflight_core::admission::Call;
use inflight_proto::ext_authz::{AttributeContext, CheckRequest, HttpRequest};

use super::{ExtAuthzConfig, SessionBy};

/// A question, as far as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) call: Call,
    /// Whether the client speaks gRPC.
    pub(super) is_grpc: bool,
}

impl Question {
    /// Reads a question. What is missing in it is read as empty: Envoy decides what it tells.
    pub(super) fn read(request: &CheckRequest, config: &ExtAuthzConfig) -> Self {
        let attributes = request.attributes.as_ref();
        let http = attributes
            .and_then(|attributes| attributes.request.as_ref())
            .and_then(|request| request.http.as_ref());
        let header = |name: &str| http.and_then(|http| http.headers.get(name));
        let content_type = header("content-type");
        Self {
            call: Call {
                session: session(attributes, http, &config.session),
                is_first: http.is_some_and(|http| begins_a_session(&http.path, config)),
            },
            is_grpc: content_type.is_some_and(|kind| kind.starts_with("application/grpc")),
        }
    }
}

/// Envoy tells the path with its query.
fn begins_a_session(path: &str, config: &ExtAuthzConfig) -> bool {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    config.first_calls.iter().any(|first| first == path)
}

fn session(
    attributes: Option<&AttributeContext>,
    http: Option<&HttpRequest>,
    by: &SessionBy,
) -> SessionKey {
    let source = attributes.and_then(|attributes| attributes.source.as_ref());
    let known = match by {
        SessionBy::Address => None,
        SessionBy::Header(name) => http.and_then(|http| http.headers.get(name.as_str())),
        SessionBy::Certificate => source.map(|source| &source.principal),
    };
    let mut hasher = DefaultHasher::new();
    match known.filter(|known| !known.is_empty()) {
        Some(known) => known.hash(&mut hasher),
        None => {
            let address = source
                .and_then(|source| source.address.as_ref())
                .and_then(|address| address.socket_address.as_ref());
            let address = address.map(|socket| (&socket.address, socket.port_value));
            address.hash(&mut hasher);
        }
    }
    SessionKey(hasher.finish())
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use inflight_proto::ext_authz::{Address, Peer, Request, SocketAddress};

    use super::*;

    const INDEX: &str = "/inference.GRPCInferenceService/RepositoryIndex";

    fn config(session: SessionBy) -> ExtAuthzConfig {
        ExtAuthzConfig {
            listen: "127.0.0.1:1".parse().unwrap(),
            first_calls: vec![INDEX.to_owned()],
            session,
        }
    }

    fn request(port: u32, principal: &str, path: &str, headers: &[(&str, &str)]) -> CheckRequest {
        let socket_address = SocketAddress {
            address: "10.0.0.1".to_owned(),
            port_value: port,
        };
        let headers = headers
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let http = HttpRequest {
            headers: headers.collect(),
            path: path.to_owned(),
        };
        CheckRequest {
            attributes: Some(AttributeContext {
                source: Some(Peer {
                    address: Some(Address {
                        socket_address: Some(socket_address),
                    }),
                    principal: principal.to_owned(),
                }),
                request: Some(Request { http: Some(http) }),
            }),
        }
    }

    fn key(request: &CheckRequest, by: &SessionBy) -> SessionKey {
        Question::read(request, &config(by.clone())).call.session
    }

    #[test]
    fn a_first_call_is_one_with_a_query_too_and_nothing_else_is() {
        let config = config(SessionBy::Address);
        for (path, is_first) in [
            (INDEX.to_owned(), true),
            (format!("{INDEX}?a=b?c"), true),
            (format!("{INDEX}/"), false),
            (format!("/x{INDEX}"), false),
            (
                "/inference.GRPCInferenceService/ModelInfer".to_owned(),
                false,
            ),
            (String::new(), false),
        ] {
            let question = Question::read(&request(1, "", &path, &[]), &config);
            assert_eq!(question.call.is_first, is_first, "{path}");
        }
    }

    #[test]
    fn a_session_is_known_by_connection_header_or_certificate() {
        let header = SessionBy::Header(HeaderName::from_static("x-job"));
        let job = |port, job| request(port, "", "/", &[("x-job", job)]);
        assert_eq!(key(&job(1, "a"), &header), key(&job(2, "a"), &header));
        assert_ne!(key(&job(1, "a"), &header), key(&job(1, "b"), &header));
        assert_ne!(
            key(&job(1, "a"), &SessionBy::Address),
            key(&job(2, "a"), &SessionBy::Address)
        );

        let of = |port, principal| request(port, principal, "/", &[]);
        let by = SessionBy::Certificate;
        assert_eq!(
            key(&of(1, "spiffe://x/7"), &by),
            key(&of(2, "spiffe://x/7"), &by)
        );
        assert_ne!(
            key(&of(1, "spiffe://x/7"), &by),
            key(&of(1, "spiffe://x/8"), &by)
        );
    }

    #[test]
    fn a_call_that_says_nothing_of_its_session_is_known_by_its_address() {
        let header = SessionBy::Header(HeaderName::from_static("x-job"));
        for by in [header, SessionBy::Certificate] {
            let of = |port| request(port, "", "/", &[("x-job", "")]);
            assert_eq!(key(&of(1), &by), key(&of(1), &SessionBy::Address));
            assert_ne!(key(&of(1), &by), key(&of(2), &by));
        }
        let nothing = CheckRequest { attributes: None };
        assert!(
            !Question::read(&nothing, &config(SessionBy::Address))
                .call
                .is_first
        );
    }

    #[test]
    fn a_client_speaks_grpc_whatever_it_carries() {
        for (kind, is_grpc) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/json", false),
            ("", false),
        ] {
            let request = request(1, "", "/", &[("content-type", kind)]);
            let question = Question::read(&request, &config(SessionBy::Address));
            assert_eq!(question.is_grpc, is_grpc, "{kind}");
        }
    }
}
