//! What a refused request is told, and how often that happened.

use std::time::Duration;

/// A request that is not served, and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// How long the caller should wait before it tries again: what stands ahead of it, divided
    /// by the rate of completions of the last 10 s, from 1 s to 60 s. The shell spreads it out.
    /// 5 s when nothing completed in that time, 1 s when this gate is shutting down; `None` when
    /// trying again is pointless, since the caller's own deadline has passed.
    pub retry_after: Option<Duration>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalReason {
    /// The admission gate lets no new session in.
    Overloaded,
    /// As many requests wait as may, and replicas are ready.
    QueueFull,
    /// As many bytes are held as may be, and replicas are ready.
    QueueBytes,
    /// The queue is full by requests or bytes, and no replica is ready.
    NoReplica,
    /// It waited as long as it may for a slot.
    WaitExpired,
    /// The client's own deadline passed before a slot was free, or certainly would have.
    DeadlineExpired,
    /// It waited as long as it may, and no replica became ready.
    ColdWaitExpired,
    /// The load is unknown, and the gate is to be closed then.
    LoadUnknown,
    /// It waited for a replica, and this gate ends.
    Stopping,
}

/// Refused requests, counted by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused([u64; RefusalReason::ALL.len()]);

impl RefusalReason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 9] = [
        Self::Overloaded,
        Self::QueueFull,
        Self::QueueBytes,
        Self::NoReplica,
        Self::WaitExpired,
        Self::DeadlineExpired,
        Self::ColdWaitExpired,
        Self::LoadUnknown,
        Self::Stopping,
    ];

    /// Returns the name that metrics and response headers carry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::QueueFull => "queue_full",
            Self::QueueBytes => "queue_bytes",
            Self::NoReplica => "no_replica",
            Self::WaitExpired => "wait_expired",
            Self::DeadlineExpired => "deadline_expired",
            Self::ColdWaitExpired => "cold_wait_expired",
            Self::LoadUnknown => "load_unknown",
            Self::Stopping => "stopping",
        }
    }

    /// Tells whether there is no capacity at all (503, `UNAVAILABLE`) rather than too little for
    /// this request (429, `RESOURCE_EXHAUSTED`).
    #[must_use]
    pub const fn is_no_capacity(self) -> bool {
        match self {
            Self::NoReplica | Self::ColdWaitExpired | Self::LoadUnknown | Self::Stopping => true,
            Self::Overloaded
            | Self::QueueFull
            | Self::QueueBytes
            | Self::WaitExpired
            | Self::DeadlineExpired => false,
        }
    }
}

impl Refused {
    /// Returns how many were refused for `reason`.
    #[must_use]
    pub const fn get(&self, reason: RefusalReason) -> u64 {
        self.0[reason as usize]
    }

    /// Returns each reason with how many were refused for it.
    pub fn iter(&self) -> impl Iterator<Item = (RefusalReason, u64)> + '_ {
        RefusalReason::ALL
            .into_iter()
            .map(|reason| (reason, self.get(reason)))
    }

    /// Returns how many were refused.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Goes on from counts in the order of [`RefusalReason::ALL`].
    pub(super) fn restore(&mut self, counts: &[u64], most: u64) {
        for (count, &past) in self.0.iter_mut().zip(counts) {
            *count = past.min(most);
        }
    }

    pub(super) const fn count(&mut self, reason: RefusalReason) {
        self.0[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_name() {
        let mut refused = Refused::default();
        for (place, reason) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            refused.count(reason);
        }
        assert!(refused.iter().all(|(_, count)| count == 1));
        assert_eq!(refused.total(), 9);
        let mut names: Vec<_> = RefusalReason::ALL.map(RefusalReason::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RefusalReason::ALL.len());
    }
}
