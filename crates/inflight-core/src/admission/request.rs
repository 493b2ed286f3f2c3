//! What the shell and the [`Gate`](super::Gate) tell each other about a request.

use super::refusal::Refusal;
use crate::ids::{ModelIndex, ReplicaId, SessionKey, Ticket};
use crate::time::Timestamp;

/// A request that arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Which model it asks for.
    pub model: ModelIndex,
    /// Whose it is; `None` is not judged by the admission gate.
    pub session: Option<SessionKey>,
    /// Whether it is a configured first call: its session counts as new.
    pub first_call: bool,
    /// The client's own deadline, after which nobody waits for an answer.
    pub deadline: Option<Timestamp>,
    /// A random number, which breaks ties between endpoints.
    pub draw: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its response ended.
    Completed,
    /// Its client gave up.
    ClientGone,
    /// Its replica failed.
    UpstreamFailed,
    /// It took longer than it may.
    TimedOut,
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send the request to the replica, one slot of which it has.
    Granted {
        /// Which request.
        ticket: Ticket,
        /// Which replica.
        replica: ReplicaId,
    },
    /// Answer with a refusal. The request has ended: a further call for it does nothing.
    Refused {
        /// Which request.
        ticket: Ticket,
        /// What to answer.
        refusal: Refusal,
    },
    /// The replica is draining and has no request left. Told once each time it starts to drain.
    Drained {
        /// Which replica.
        replica: ReplicaId,
    },
}
