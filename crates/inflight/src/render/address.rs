//! Where things are, as a proxy reaches them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::config::PageUrl;

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Why a text names no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is no host with a port.
    #[error("is not HOST:PORT, such as triton:8001, 10.0.0.2:8001 or [::1]:8001")]
    NotHostPort,
    /// It is no address of a server that speaks HTTP.
    #[error("is not http://HOST:PORT, with a path where it has one; without TLS")]
    NotServer,
}

impl Address {
    /// Tells whether the host is an address already, and no name to be resolved.
    pub(super) fn is_ip(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok()
    }

    /// Reads `HOST:PORT`, or a host alone, which has this port.
    fn read(text: &str, or_port: Option<u16>) -> Option<Self> {
        let authority: http::uri::Authority = text.parse().ok()?;
        let port = match authority.port() {
            Some(port) => port.as_str().parse().ok(),
            None => or_port,
        };
        let host = authority.host();
        let host = (host.strip_prefix('['))
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let is_whole = !host.is_empty() && !text.contains('@');
        (port.filter(|port| *port > 0 && is_whole)).map(|port| Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Reads the host and port of a page.
    pub(super) fn of_page(page: &PageUrl) -> Option<Self> {
        Self::read(&page.authority, Some(80))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text, None).ok_or(AddressError::NotHostPort)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A server that is asked over HTTP, below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub(super) address: Address,
    /// What its paths begin with, without a slash at the end.
    pub(super) below: String,
}

impl Server {
    /// Reads the place of a page.
    pub(super) fn of_page(page: &PageUrl) -> Option<Self> {
        Some(Self {
            address: Address::of_page(page)?,
            below: page.path.trim_end_matches('/').to_owned(),
        })
    }
}

impl FromStr for Server {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: http::Uri = text.parse().map_err(|_| AddressError::NotServer)?;
        let address = (uri.authority())
            .filter(|_| uri.scheme_str() == Some("http") && uri.query().is_none())
            .and_then(|authority| Address::read(authority.as_str(), Some(80)))
            .ok_or(AddressError::NotServer)?;
        Ok(Self {
            address,
            below: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_names_or_numbers_with_a_port() {
        for (text, is_ip) in [
            ("a.b:1", false),
            ("10.0.0.1:65535", true),
            ("[::1]:80", true),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(
                (address.to_string().as_str(), address.is_ip()),
                (text, is_ip)
            );
        }
        for text in [
            "",
            "a",
            ":1",
            "a:0",
            "a:65536",
            "a b:1",
            "u@a:1",
            "a:1/x",
            "http://a:1",
        ] {
            assert_eq!(
                text.parse::<Address>(),
                Err(AddressError::NotHostPort),
                "{text}"
            );
        }
    }

    #[test]
    fn servers_are_without_tls_and_may_be_below_a_path() {
        let server: Server = "http://p/a/b/".parse().unwrap();
        assert_eq!((server.address.port, server.below.as_str()), (80, "/a/b"));
        for text in [
            "",
            "p:9090",
            "https://p",
            "http://",
            "http://p?a",
            "http://u@p",
        ] {
            assert_eq!(
                text.parse::<Server>(),
                Err(AddressError::NotServer),
                "{text}"
            );
        }
    }
}
