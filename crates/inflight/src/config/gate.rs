//! Settings of the gate that proxies ask, and of who is known as a session.

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;

use super::Located;

/// The gate that Envoys ask by ext_authz.
#[derive(Clone, Debug)]
pub struct ExtAuthzSettings {
    /// Where they ask.
    pub listen: Located<SocketAddr>,
    /// Whom it judges.
    pub mode: GateMode,
    /// Paths, compared as a whole and without a query, that begin a session and wait for a first
    /// replica.
    pub first_calls: Vec<String>,
    /// How long one waits.
    pub ready_timeout: Duration,
    /// For how long after the last of them the fleet keeps a replica.
    pub hold_min: Duration,
    /// Whether those it judges pass while the load is unknown.
    pub on_failure: OnFailure,
}

/// Whom the gate judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateMode {
    /// The first call of a session that is new.
    NewSessions,
    /// Each call.
    EveryRequest,
}

/// What becomes of those it judges while the load is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// They are refused.
    Closed,
    /// They pass.
    Open,
}

/// How a session is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionBy {
    /// By the client's address and connection.
    Address,
    /// By the value of a header.
    Header(HeaderName),
    /// By the client's certificate, as a proxy tells it.
    Certificate,
}
