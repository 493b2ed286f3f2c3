//! Envoy's ext_authz over gRPC, v3: one question for each guarded call, answered at once unless the
//! call waits for a first replica.

mod answer;
mod listener;
mod question;

use std::net::SocketAddr;

use http::HeaderName;

pub use listener::ExtAuthz;

/// How questions are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtAuthzConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Paths, without a query, of calls that begin a session and wait for a first replica.
    pub first_calls: Vec<String>,
    /// How sessions are known.
    pub session: SessionBy,
}

/// How a session is known. A call that does not say is known by its address and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionBy {
    /// By the address and port that Envoy sees, which are of one connection.
    Address,
    /// By the value of a header.
    Header(HeaderName),
    /// By the client's certificate.
    Certificate,
}
