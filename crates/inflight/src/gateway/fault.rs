//! What goes wrong with a request after it was admitted: whose fault it is, and how it is told.

use std::net::SocketAddr;

use http::StatusCode;
use inflight_core::admission::Outcome;

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
    /// The replica took the connection and closed it before either side said anything that counts.
    #[error("replica at {address} closed the connection before it said anything")]
    ClosedUnspoken {
        /// Where.
        address: SocketAddr,
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
    /// What the replica answered is not HTTP.
    #[error("replica at {address} answered what is not HTTP")]
    Malformed {
        /// Where.
        address: SocketAddr,
        /// What is wrong with it.
        source: hyper::Error,
    },
    /// The replica's answer is more than is taken.
    #[error("replica at {address} answered with a head that is too large")]
    HeadTooLarge {
        /// Where.
        address: SocketAddr,
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
    /// The client's body is not framed as it should be.
    #[error("the request's body is malformed")]
    ClientMalformed,
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
    /// Says what became of a request that was sent and got no response's head.
    pub(super) fn of_exchange(address: SocketAddr, source: hyper::Error) -> Self {
        if source.is_parse_too_large() {
            Self::HeadTooLarge { address }
        } else if source.is_parse() || is_broken_rule(&source) {
            Self::Malformed { address, source }
        } else {
            Self::Reset { address, source }
        }
    }

    /// Tells whether the replica answered, so that another try would meet the same.
    pub(super) const fn is_answer(&self) -> bool {
        matches!(self, Self::Malformed { .. } | Self::HeadTooLarge { .. })
    }

    /// Returns the word of `x-inflight-reason`; its first part says whose fault it is.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Connect { .. } | Self::ClosedUnspoken { .. } => "upstream_connect",
            Self::ConnectTimeout { .. } => "upstream_connect_timeout",
            Self::NoHttp2 { .. } | Self::UnaskedUpgrade | Self::Malformed { .. } => {
                "upstream_protocol"
            }
            Self::HeadTooLarge { .. } => "upstream_head_too_large",
            Self::Reset { .. } | Self::BrokenOff => "upstream_reset",
            Self::FirstByte => "upstream_timeout",
            Self::Idle => "upstream_idle",
            Self::ClientMalformed => "client_malformed",
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
            | Self::ClosedUnspoken { .. }
            | Self::NoHttp2 { .. }
            | Self::UnaskedUpgrade
            | Self::Malformed { .. }
            | Self::HeadTooLarge { .. }
            | Self::Reset { .. }
            | Self::BrokenOff => StatusCode::BAD_GATEWAY,
            Self::FirstByte | Self::Idle => StatusCode::GATEWAY_TIMEOUT,
            Self::ClientMalformed => StatusCode::BAD_REQUEST,
            Self::ClientStalled | Self::ClientGone => StatusCode::REQUEST_TIMEOUT,
            Self::NoReplica => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns how the request counts.
    pub(super) const fn outcome(&self) -> Outcome {
        match self {
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::ClosedUnspoken { .. }
            | Self::NoHttp2 { .. }
            | Self::UnaskedUpgrade
            | Self::Malformed { .. }
            | Self::HeadTooLarge { .. }
            | Self::Reset { .. }
            | Self::BrokenOff
            | Self::NoReplica => Outcome::UpstreamFailed,
            Self::FirstByte | Self::Idle => Outcome::TimedOut,
            Self::ClientMalformed | Self::ClientStalled | Self::ClientGone => Outcome::ClientGone,
        }
    }

    /// Tells whether we, not the replica, ended the attempt: the replica may still work on it.
    pub(super) const fn is_impatience(&self) -> bool {
        matches!(
            self,
            Self::FirstByte
                | Self::Idle
                | Self::ClientMalformed
                | Self::ClientStalled
                | Self::ClientGone
        )
    }
}

/// Tells whether HTTP/2 on our side ended a stream because of what the replica sent on it.
fn is_broken_rule(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(|error| {
            error.is_library() && error.reason() == Some(h2::Reason::PROTOCOL_ERROR)
        })
}
