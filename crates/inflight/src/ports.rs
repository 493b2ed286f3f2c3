//! What passes between the parts of the shell: a target's commands and events.
//!
//! Sources and targets never import each other; they meet the control loop through these types.
//! What finds endpoints, and what watches them, speaks the same language.

use std::net::SocketAddr;
use std::time::Duration;

use inflight_core::{ReplicaId, Replicas};

/// What the control loop tells a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetCommand {
    /// The size the fleet shall have, and which replicas go first if it is smaller.
    Size {
        /// How many replicas shall be starting or ready.
        desired: Replicas,
        /// The replicas to drain, first to go first.
        drain: Vec<ReplicaId>,
    },
    /// A draining replica holds no request any more.
    Drained(ReplicaId),
    /// A replica was unhealthy for too long: it is to be drained and ended, and counts as crashed.
    Replace(ReplicaId),
    /// Everything ends: no start any more, each replica is stopped with its grace.
    Stop,
}

/// What a target tells the control loop about one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEvent {
    /// Which replica.
    pub replica: ReplicaId,
    /// Its number, the lowest that was free.
    pub index: u32,
    /// Where it listens, or will listen.
    pub address: SocketAddr,
    /// What happened to it.
    pub change: ReplicaChange,
}

/// What happens to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaChange {
    /// It was asked for; it may wait for a back-off before its process starts.
    Starting,
    /// It takes requests.
    Ready {
        /// From the start of its process to ready; `None` when it came back from draining.
        took: Option<Duration>,
    },
    /// It was ready and does not answer: it gets no further request until it is ready again.
    Unhealthy {
        /// What it did, as one sentence.
        why: String,
    },
    /// It was unhealthy for too long; whoever started it is to replace it.
    GivenUp,
    /// It takes no further request; it is stopped after [`TargetCommand::Drained`] or the drain
    /// time-out. One that was not ready yet, and every one after [`TargetCommand::Stop`], is stopped
    /// at once.
    Draining,
    /// It is no more.
    Gone {
        /// What ended it, as one sentence.
        why: String,
        /// Whether nobody asked it to end.
        unexpected: bool,
    },
}
