//! What goes wrong with a request after it was admitted: whose fault it is, and how it is told.

use std::net::SocketAddr;

use http::StatusCode;
use inflight_core::admission::Outcome;

use crate::probe;

/// A request's failure.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The replica could not be connected to.
    #[error("replica at {address} does not take connections")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The replica did not take the connection in time.
    #[error("replica at {address} did not take a connection within {} ms", after.as_millis())]
    ConnectTimeout {
        /// Where.
        address: SocketAddr,
        /// The time-out.
        after: std::time::Duration,
    },
    /// The replica does not speak what the request needs.
    #[error("replica at {address} does not speak HTTP/2")]
    NoHttp2 {
        /// Where.
        address: SocketAddr,
    },
    /// The replica switched protocols though nobody asked it to.
    #[error("the replica switched protocols unasked")]
    UnaskedUpgrade,
    /// The connection to the replica ended before the response's head.
    #[error("replica at {address} closed the connection before it answered")]
    Reset {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: hyper::Error,
    },
    /// The replica broke off in the middle of its response.
    #[error("the replica broke off in the middle of its response")]
    BrokenOff,
    /// No response's head in time.
    #[error("the replica did not answer in time")]
    FirstByte,
    /// Nothing moved in a body for too long.
    #[error("the replica sent nothing for the idle time-out")]
    Idle,
    /// The client stopped sending its body.
    #[error("the client stopped sending the request's body")]
    ClientStalled,
    /// No replica is ready for a request that is not held.
    #[error("no replica is ready")]
    NoReplica,
    /// The client left; nobody is there to be told.
    #[error("the client left")]
    ClientGone,
}

impl Fault {
    /// Returns the word of `x-inflight-reason`; its first part says whose fault it is.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "upstream_connect",
            Self::ConnectTimeout { .. } => "upstream_connect_timeout",
            Self::NoHttp2 { .. } | Self::UnaskedUpgrade => "upstream_protocol",
            Self::Reset { .. } | Self::BrokenOff => "upstream_reset",
            Self::FirstByte => "upstream_timeout",
            Self::Idle => "upstream_idle",
            Self::ClientStalled => "client_stalled",
            Self::NoReplica => "no_replica",
            Self::ClientGone => "client_gone",
        }
    }

    /// Returns the status that an HTTP caller gets.
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::NoHttp2 { .. }
            | Self::UnaskedUpgrade
            | Self::Reset { .. }
            | Self::BrokenOff => StatusCode::BAD_GATEWAY,
            Self::FirstByte | Self::Idle => StatusCode::GATEWAY_TIMEOUT,
            Self::ClientStalled | Self::ClientGone => StatusCode::REQUEST_TIMEOUT,
            Self::NoReplica => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns how the request counts.
    pub(super) const fn outcome(&self) -> Outcome {
        match self {
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::NoHttp2 { .. }
            | Self::UnaskedUpgrade
            | Self::Reset { .. }
            | Self::BrokenOff
            | Self::NoReplica => Outcome::UpstreamFailed,
            Self::FirstByte | Self::Idle => Outcome::TimedOut,
            Self::ClientStalled | Self::ClientGone => Outcome::ClientGone,
        }
    }

    /// Tells whether the replica was not reached, or broke the connection off.
    pub(super) fn speaks_against_replica(&self) -> bool {
        match self {
            Self::Connect { source, .. } => !probe::is_ours(source),
            Self::ConnectTimeout { .. } | Self::Reset { .. } => true,
            Self::NoHttp2 { .. }
            | Self::UnaskedUpgrade
            | Self::BrokenOff
            | Self::FirstByte
            | Self::Idle
            | Self::ClientStalled
            | Self::NoReplica
            | Self::ClientGone => false,
        }
    }

    /// Tells whether we, not the replica, ended the attempt: the replica may still work on it.
    pub(super) const fn is_impatience(&self) -> bool {
        matches!(
            self,
            Self::FirstByte | Self::Idle | Self::ClientStalled | Self::ClientGone
        )
    }
}
