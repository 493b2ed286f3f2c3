//! What a gateway is told: validated values, already resolved from the configuration file.
//!
//! It checks nothing and has no defaults for the file's keys beyond [`GatewayConfig::new`].

use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderName;
use inflight_core::ModelIndex;

/// Settings of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// What is spoken with the replicas.
    pub upstream: UpstreamProtocol,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How much a client may send or open.
    pub limits: Limits,
    /// Paths, compared as a whole, whose requests are forwarded to any ready replica, neither
    /// counted nor held, and wake nothing.
    pub ignore_paths: Vec<String>,
    /// Which model a path belongs to; the longest matching prefix wins, and a path that matches
    /// none belongs to the first model.
    pub models: Vec<ModelRoute>,
    /// How a session is known.
    pub session: SessionBy,
    /// Paths, compared as a whole, that begin a new session.
    pub first_calls: Vec<String>,
    /// Whether a replica stops working on a request whose client left. If not, its slot stays
    /// taken until it has answered or closed the connection.
    pub cancellable: bool,
}

/// What is spoken with the replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/2 for gRPC, and for other requests of HTTP/2 clients where the replica speaks it;
    /// else HTTP/1.1. gRPC needs HTTP/2: a replica without it fails such a request.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 without TLS only, known beforehand.
    Http2,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A client's request head, once it began.
    pub head: Duration,
    /// Connecting to a replica.
    pub connect: Duration,
    /// From the request, or the last byte of its body that moved, to the response's head.
    pub first_byte: Duration,
    /// No byte moving in a body or, either way, in a tunnel, or nothing at all on a client's connection.
    pub idle: Duration,
    /// From the shutdown signal until what still runs is cut.
    pub drain: Duration,
}

/// How much a client may send or open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// Header lines of a request.
    pub headers: usize,
    /// Client connections open at the same time; further ones wait to be accepted.
    pub connections: usize,
}

/// The model of the paths below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRoute {
    /// Whole path segments: `/v2/models/a` matches `/v2/models/a/infer`, not `/v2/models/ab`.
    pub prefix: String,
    /// The model.
    pub model: ModelIndex,
}

/// How a session is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SessionBy {
    /// By the client's address and connection.
    #[default]
    Address,
    /// By the value of a header; a request without it is known by its connection.
    Header(HeaderName),
}

impl GatewayConfig {
    /// Builds the settings that an empty `gateway` section gives.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            upstream: UpstreamProtocol::default(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            ignore_paths: Vec::new(),
            models: Vec::new(),
            session: SessionBy::default(),
            first_calls: Vec::new(),
            cancellable: true,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            drain: Duration::from_secs(60),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            headers: 100,
            connections: 20_000,
        }
    }
}
