//! Names for things, so that one kind cannot be passed where another is meant.

use std::fmt;

/// One replica and, since it has exactly one, its endpoint. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica {}", self.0)
    }
}

/// A model of a fleet: the position of its row in the configuration and in every observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelIndex(pub usize);

/// A client's run of requests, as a hash of what the shell knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// One request inside a [`Gate`](crate::admission::Gate), from its arrival to its end.
///
/// Its slot is reused after the end; `serial` tells the reuse from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) key: usize,
    pub(crate) serial: u64,
}

impl Ticket {
    /// Returns the index of the ticket's place: small, and free for reuse once the request ended.
    #[must_use]
    pub const fn key(self) -> usize {
        self.key
    }
}
