//! What a replica is told of the way before us: `x-forwarded-*` and `forwarded`.
//!
//! A client may write there what it likes. So what it says is replaced by what we know, but for
//! proxies that are trusted: their list is kept, as one line, with their own address appended.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::config::Network;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HTTP: HeaderValue = HeaderValue::from_static("http");

/// The client of a connection, as replicas are told of it.
pub(super) struct Peer {
    /// Its address, as `x-forwarded-for` says it.
    address: HeaderValue,
    /// The same as an element of `forwarded` (RFC 7239), if what it says there is kept.
    trusted: Option<HeaderValue>,
}

impl Peer {
    pub(super) fn new(address: IpAddr, trusted: &[Network]) -> Self {
        let is_trusted = trusted.iter().any(|network| network.contains(address));
        let address = address.to_canonical();
        let element = match address {
            IpAddr::V4(address) => format!("for={address}"),
            IpAddr::V6(address) => format!("for=\"[{address}]\""),
        };
        Self {
            address: value(&address.to_string()),
            trusted: is_trusted.then(|| value(&element)),
        }
    }

    /// Says in a request's head where it came from; the head's `host` is right by then.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        let Some(element) = &self.trusted else {
            headers.remove(header::FORWARDED);
            headers.insert(FORWARDED_FOR, self.address.clone());
            headers.insert(FORWARDED_PROTO, HTTP);
            match headers.get(header::HOST).cloned() {
                Some(host) => headers.insert(FORWARDED_HOST, host),
                None => headers.remove(FORWARDED_HOST),
            };
            return;
        };
        append_to_line(headers, FORWARDED_FOR, &self.address);
        if headers.contains_key(header::FORWARDED) {
            append_to_line(headers, header::FORWARDED, element);
        }
        headers.entry(FORWARDED_PROTO).or_insert(HTTP);
        if !headers.contains_key(FORWARDED_HOST)
            && let Some(host) = headers.get(header::HOST).cloned()
        {
            headers.insert(FORWARDED_HOST, host);
        }
    }
}

/// Text of our own making, which always fits.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("unknown"))
}

/// Makes one line of a list that may stand in several, with `last` at its end.
fn append_to_line(headers: &mut HeaderMap, name: HeaderName, last: &HeaderValue) {
    let mut parts: Vec<&[u8]> = headers
        .get_all(&name)
        .iter()
        .map(HeaderValue::as_bytes)
        .filter(|part| !part.is_empty())
        .collect();
    parts.push(last.as_bytes());
    let line = HeaderValue::from_bytes(&parts.join(&b", "[..]));
    headers.insert(name, line.unwrap_or_else(|_| last.clone()));
}
