//! The keys of the gate that proxies ask.

use std::net::SocketAddr;
use std::time::Duration;

use super::{
    Absent, DAY, HOUR, Items, KeyDoc, Keys, Located, Node, Ports, Problems, SECOND, SectionDoc,
    Setting, absent, doc_text, document, key_name, mapping_of, range, section,
};
use crate::config::setting::{Choice, OneOf, URL_PATH};

section! {
    /// The gate before a fleet whose requests pass a proxy: it is asked before a call is sent on.
    /// Whom it refuses, and when, is said in `admission`.
    GateKeys {
        /// Envoy asks by its filter ext_authz, over gRPC (API version 3). Needs source `envoy`.
        ext_authz: ExtAuthz = unset;
    }
}

section! {
    /// What Envoy's filter ext_authz asks. Answered from memory, by the latest readings of Envoy and
    /// the servers and what was let in since. How Envoy is to be set up is in `docs/gate.md`.
    ExtAuthz {
        /// Where Envoys ask. Not for clients: whoever reaches it is answered.
        listen: SocketAddr = required, Ports::Listen;
        /// Whom it judges: the first call of a session that is new, or each call. Judged call by
        /// call, an overloaded fleet refuses most of them, and clients that try again keep it so.
        mode: OneOf<Mode> = "new_sessions";
        /// Paths, each the whole path without a query, of calls with which clients begin: such a
        /// call counts as new. While no replica is ready it starts the fleet and waits for a replica,
        /// together with others up to `queue.requests`. All other calls are answered at once.
        first_calls: Vec<String> = "[/inference.GRPCInferenceService/RepositoryIndex]", Items { count: 0..=100, each: URL_PATH };
        /// How long such a call waits for a replica; then it is refused.
        ready_timeout: Duration = "300s", SECOND..=HOUR;
        /// For how long after the last such call the fleet keeps at least one replica, whatever
        /// `replicas.min` is.
        hold_min: Duration = "300s", Duration::ZERO..=DAY;
        /// Whether calls that would be judged pass (`open`) or are refused (`closed`) once the load
        /// has been unknown for 10 s. What Envoy does while nobody answers it is set there
        /// (`failure_mode_allow`): set both alike.
        on_failure: OneOf<Failure> = "closed";
    }
}

/// Whom the gate judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Mode {
    NewSessions,
    EveryRequest,
}

impl Choice for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("new_sessions", Self::NewSessions),
        ("every_request", Self::EveryRequest),
    ];
}

/// What becomes of those it judges while the load is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Failure {
    Closed,
    Open,
}

impl Choice for Failure {
    const WORDS: &'static [(&'static str, Self)] =
        &[("closed", Self::Closed), ("open", Self::Open)];
}
