//! What is changed in heads on their way through: as little as the protocols ask for.
//!
//! Hop-by-hop fields are removed both ways (RFC 9110, section 7.6.1), what the caller says about
//! the way before us is replaced by what we know, and a request that was here before is noticed.

use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};

use super::connection::Client;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOP: HeaderName = HeaderName::from_static("x-inflight-hop");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const UPGRADE: HeaderValue = HeaderValue::from_static("upgrade");
const HTTP: HeaderValue = HeaderValue::from_static("http");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// Gateways of ours that a request may pass one after the other.
const HOPS_MAX: usize = 8;

/// A request that is not forwarded because of what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
}

/// Who asks, as far as it decides how to forward and how to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) is_http2: bool,
    pub(super) is_grpc: bool,
    /// It asks to go on in another protocol on its connection.
    pub(super) is_upgrade: bool,
}

/// Tells requests that passed this gateway from others.
#[derive(Clone, Debug)]
pub(super) struct Hop(HeaderValue);

impl Hop {
    /// Builds the mark of a gateway from a random number.
    pub(super) fn new(mark: u64) -> Self {
        Self(HeaderValue::from_str(&format!("{mark:016x}")).unwrap_or(HTTP))
    }

    /// # Errors
    /// The request was here before, or passed too many of us.
    fn check(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        let mut hops = 0;
        for value in headers.get_all(HOP) {
            for hop in value
                .as_bytes()
                .split(|&byte| byte == b',')
                .map(<[u8]>::trim_ascii)
            {
                hops += 1;
                if hop == self.0.as_bytes() || hops >= HOPS_MAX {
                    return Err(Rejection {
                        status: StatusCode::LOOP_DETECTED,
                        reason: "loop_detected",
                    });
                }
            }
        }
        Ok(())
    }
}

impl Caller {
    pub(super) fn of(head: &Parts) -> Self {
        Self {
            is_http2: head.version == Version::HTTP_2,
            is_grpc: is_grpc(&head.headers),
            is_upgrade: head.version == Version::HTTP_11 && is_upgrade(&head.headers),
        }
    }
}

/// Refuses what must not be forwarded.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn check(head: &Parts, hop: &Hop) -> Result<(), Rejection> {
    if head.method == Method::CONNECT {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        return Err(Rejection {
            status,
            reason: "connect_not_supported",
        });
    }
    let status = StatusCode::BAD_REQUEST;
    if has_two_lengths(&head.headers) {
        return Err(Rejection {
            status,
            reason: "two_lengths",
        });
    }
    // RFC 9112, section 3.2: whoever takes another of two for the host would be deceived.
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let has_host = hosts.next().is_some() || head.version != Version::HTTP_11;
    if !has_host || hosts.next().is_some() {
        return Err(Rejection {
            status,
            reason: "not_one_host",
        });
    }
    hop.check(&head.headers)
}

/// Tells whether a body's length is said twice, so that not everybody may see it end at the same
/// place.
pub(super) fn has_two_lengths(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH)
}

/// Makes a client's request head one for a replica, but for what [`address_http1`] and
/// [`address_http2`] do.
pub(super) fn prepare_request(head: &mut Parts, caller: Caller, client: &Client, hop: &Hop) {
    let wants_trailers = head
        .headers
        .get(header::TE)
        .is_some_and(|value| names(value).any(|name| name.eq_ignore_ascii_case(b"trailers")));
    let headers = &mut head.headers;
    remove_hop_by_hop(headers, caller.is_upgrade);
    headers.remove(header::EXPECT);
    headers.remove(header::PROXY_AUTHORIZATION);
    headers.remove(header::FORWARDED);
    if wants_trailers {
        headers.insert(header::TE, TRAILERS);
    }
    // The target's own authority counts more than the header (RFC 9112, section 3.2.2).
    if let Some(authority) = head.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(header::HOST, host);
    }
    match headers.get(header::HOST).cloned() {
        Some(host) => headers.insert(FORWARDED_HOST, host),
        None => headers.remove(FORWARDED_HOST),
    };
    headers.insert(FORWARDED_FOR, client.forwarded_for.clone());
    headers.insert(FORWARDED_PROTO, HTTP);
    headers.append(HOP, hop.0.clone());
}

/// Turns a prepared head into one of HTTP/1.1; `fallback` stands in for a missing `host`. It may
/// have been turned into another protocol's before.
pub(super) fn address_http1(head: &mut Parts, fallback: &Authority) {
    head.version = Version::HTTP_11;
    if !head.headers.contains_key(header::HOST) {
        let authority = head.uri.authority().unwrap_or(fallback);
        if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
            head.headers.insert(header::HOST, host);
        }
    }
    if head.uri.scheme().is_some() || head.uri.authority().is_some() {
        let target = head.uri.path_and_query().cloned();
        head.uri = target.map_or_else(Uri::default, Uri::from);
    }
    let headers = &mut head.headers;
    join_cookies(headers);
    // What is of this hop only has to be named as such.
    let named = match (
        headers.contains_key(header::UPGRADE),
        headers.contains_key(header::TE),
    ) {
        (false, false) => return,
        (true, false) => UPGRADE,
        (false, true) => HeaderValue::from_static("te"),
        (true, true) => HeaderValue::from_static("upgrade, te"),
    };
    headers.insert(header::CONNECTION, named);
}

/// HTTP/2 may split a cookie over several fields, which HTTP/1.1 must not see (RFC 9113, section
/// 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers
        .get_all(header::COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(header::COOKIE, whole);
    }
}

/// Turns a prepared head into one of HTTP/2; `fallback` stands in for a missing `host`. It may
/// have been turned into another protocol's before.
pub(super) fn address_http2(head: &mut Parts, fallback: &Authority) {
    head.version = Version::HTTP_2;
    head.headers.remove(header::CONNECTION);
    let host = head.headers.remove(header::HOST);
    let authority = host
        .and_then(|host| Authority::try_from(host.as_bytes()).ok())
        .or_else(|| head.uri.authority().cloned())
        .unwrap_or_else(|| fallback.clone());
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(authority);
    uri.path_and_query = Some(
        head.uri
            .path_and_query()
            .cloned()
            .unwrap_or_else(|| PathAndQuery::from_static("/")),
    );
    // With all three parts a URI is always whole.
    head.uri = Uri::from_parts(uri).unwrap_or_default();
}

/// Makes a replica's response head one for the client.
pub(super) fn prepare_response(head: &mut http::response::Parts) {
    head.version = Version::HTTP_11;
    // Of two lengths the chunks' own counts (RFC 9112, section 6.3), and was read.
    if has_two_lengths(&head.headers) {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    let has_switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
    remove_hop_by_hop(&mut head.headers, has_switched);
    if has_switched {
        head.headers.insert(header::CONNECTION, UPGRADE);
    }
}

/// Tells whether a request asks for another protocol that we let pass. HTTP/2 is none: inside a
/// tunnel its requests would be neither counted nor held.
fn is_upgrade(headers: &HeaderMap) -> bool {
    let is_asked = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(names)
        .any(|name| name.eq_ignore_ascii_case(b"upgrade"));
    let mut protocols = headers
        .get_all(header::UPGRADE)
        .iter()
        .flat_map(names)
        .peekable();
    let is_http = |protocol: &[u8]| {
        let name = protocol.split(|&byte| byte == b'/').next().unwrap_or(b"");
        [&b"h2c"[..], b"h2", b"http", b"tls"]
            .iter()
            .any(|http| name.eq_ignore_ascii_case(http))
    };
    is_asked && protocols.peek().is_some() && !protocols.any(is_http)
}

/// Tells whether a request is gRPC's; gRPC-Web, which works over HTTP/1.1, is not meant.
fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.as_bytes().strip_prefix(b"application/grpc"))
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

fn remove_hop_by_hop(headers: &mut HeaderMap, keeps_upgrade: bool) {
    let upgrades: Vec<HeaderValue> = if keeps_upgrade {
        headers.get_all(header::UPGRADE).iter().cloned().collect()
    } else {
        Vec::new()
    };
    if headers.contains_key(header::CONNECTION) {
        remove_named_in_connection(headers);
    }
    headers.remove(KEEP_ALIVE);
    headers.remove(PROXY_CONNECTION);
    headers.remove(header::TE);
    headers.remove(header::TRANSFER_ENCODING);
    headers.remove(header::UPGRADE);
    for upgrade in upgrades {
        headers.append(header::UPGRADE, upgrade);
    }
}

fn remove_named_in_connection(headers: &mut HeaderMap) {
    let mut named: Vec<HeaderName> = Vec::new();
    for value in headers.get_all(header::CONNECTION) {
        named.extend(names(value).filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    headers.remove(header::CONNECTION);
    for name in named {
        // A client must not be able to take these away by naming them.
        let is_kept = name == header::HOST || name == header::CONTENT_LENGTH || name == HOP;
        if !is_kept {
            headers.remove(name);
        }
    }
}

fn names(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value
        .as_bytes()
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crumbs_of_a_cookie_are_one_field_over_http1() {
        let mut headers = HeaderMap::new();
        for crumb in ["a=1", "b=2"] {
            headers.append(header::COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut headers);
        let fields: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(fields, ["a=1; b=2"]);
    }
}
