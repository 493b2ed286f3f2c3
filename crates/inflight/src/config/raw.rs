//! The configuration file as it is written: every key with its documentation, default and range.
//!
//! This is the one place that says them; the reader and the reference page are made from it. What
//! keys mean together is judged in `resolve`. Everything is optional here, because what is wrong
//! with one key must not hide what is wrong with the next.

mod fleet;
mod gate;
mod measured;
mod scaling;

use std::net::SocketAddr;
use std::time::Duration;

use inflight_core::Bytes;

use super::document::{self, Node};
use super::error::{Located, Problems};
use super::section::{
    Absent, KeyDoc, Keys, SectionDoc, absent, doc_text, key_name, mapping_of, range, section,
};
use super::setting::{FILE, Items, Ports, SOCKET_FOLDER, Setting};

pub(super) use fleet::{
    Bounds, EndpointsKeys, Fleet, IpFamily, Limits, Model, OnExit, Peers, Process, Protocol,
    Publish, PublishEnvoy, Source, TargetKeys, Timeouts,
};
pub(super) use gate::{Failure, Mode};
pub(super) use measured::{Backend, Custom, Envoy, Estimator, Preset, Prometheus, Unit, Vllm};
pub(super) use scaling::{
    Admission, Measured, MetricKind, Profile, Queue, Rule, Scaling, StepLimit, WhenClosed,
};

/// The shortest span that can be written.
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

section! {
    /// The file. Keys that are not listed here are errors, so that a slip of the pen is never
    /// taken for a setting.
    File {
        /// The version of the file's format.
        version: u32 = required, 1..=1;
        /// The API, the metrics and the health checks.
        admin: Admin = "{}";
        /// What of us outlives us. Needed by `on_exit: keep` and by `run --take-over`.
        state: StateKeys = unset;
        /// Writes down each reading, decision and event, so that decisions can be looked into and
        /// replayed later. Without it nothing is written.
        journal: Journal = unset;
        /// The fleets, each independent of the others.
        fleets: Vec<Fleet> = required, Items { count: 1..=10_000, each: () };
    }
}

section! {
    /// The journal: one JSON object a line, readable by its owner alone. It holds numbers, states
    /// and reasons, no bodies, tokens or addresses of clients. A journal that cannot be written harms
    /// no fleet: its lines are lost and counted.
    Journal {
        /// The file. When it is half of `max_size` it gets `.1` behind its name, in place of the one
        /// before.
        file: String = required, FILE;
        /// The most that the file and its predecessor take together.
        max_size: Bytes = "100MB", 1_000_000..=1_000_000_000_000;
    }
}

section! {
    /// What of us outlives us, for a restart or an upgrade.
    StateKeys {
        /// A folder that one running inflight has for itself: its lock, the sockets by which
        /// replicas and the next inflight are found, and what it knew when it stopped. It is made
        /// if it is not there, and nobody else may read it.
        dir: String = required, SOCKET_FOLDER;
    }
}

section! {
    /// What people and monitoring talk to.
    Admin {
        /// Where to listen.
        listen: SocketAddr = "127.0.0.1:9900", Ports::Listen;
        /// A file, readable by its owner alone, that holds the token which callers must send to
        /// pause or resize a fleet; it may change at any time. Without one, these calls are refused
        /// unless `listen` is a loopback address.
        token_file: String = unset, FILE;
    }
}
