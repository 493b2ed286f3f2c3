//! Networks of addresses.

use std::fmt;
use std::net::IpAddr;

use super::{Setting, refuse};
use crate::config::document::{Node, Value};
use crate::config::error::Problems;

/// A network: the addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Reads `ADDRESS/BITS`, or an address, which is a network of its own.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            None => (text.parse().ok()?, None),
            Some((address, bits)) => {
                let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
                (
                    address.parse().ok()?,
                    Some(bits.parse().ok().filter(|_| is_number)?),
                )
            }
        };
        let most = width(address);
        let bits = bits.unwrap_or(most);
        (bits <= most).then_some(Self { address, bits })
    }

    /// Tells whether an address is of the network. An IPv4 address is the same in IPv6's clothes.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                share(own.to_bits().into(), other.to_bits().into(), 32 - self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                share(own.to_bits(), other.to_bits(), 128 - self.bits)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn share(one: u128, other: u128, ignored: u8) -> bool {
    let differing = one ^ other;
    differing.checked_shr(ignored.into()).unwrap_or(0) == 0
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Setting for Network {
    type Range = ();

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        if let Value::Text(text) = &node.value
            && let Some(network) = Self::parse(text)
        {
            return Some(network);
        }
        refuse::<Self>(node, "is not a network", range, problems);
        None
    }

    fn allowed((): &Self::Range) -> String {
        "a network such as 10.0.0.0/8 or fd00::/8, or an address".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(network: &str, address: &str) -> bool {
        Network::parse(network)
            .unwrap()
            .contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_is_its_first_bits() {
        assert!(has("10.0.0.0/8", "10.255.0.1"));
        assert!(has("10.1.2.3/8", "10.9.9.9"));
        assert!(!has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("0.0.0.0/0", "255.0.0.1"));
        assert!(!has("0.0.0.0/0", "::1"));
        assert!(has("127.0.0.1", "127.0.0.1") && !has("127.0.0.1", "127.0.0.2"));
        assert!(has("::/0", "fe80::1"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1"));
        assert!(has("10.0.0.0/8", "::ffff:10.0.0.1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "::/129",
            "10/8",
            "a/8",
            "/8",
        ] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
