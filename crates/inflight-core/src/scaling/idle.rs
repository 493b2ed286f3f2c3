//! From one replica to none and back: when a fleet counts as idle.

use std::time::Duration;

use crate::decision::Limit;
use crate::load::Activity;
use crate::time::Timestamp;
use crate::units::Replicas;

/// When a fleet was last busy.
#[derive(Clone, Debug)]
pub(super) struct Idle {
    /// The last time something was going on, or may have been.
    busy_at: Timestamp,
    latest: Activity,
    /// Whether somebody asks for a replica before anything is in flight.
    is_called: bool,
}

impl Idle {
    /// Counts the grace period from `now`.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            busy_at: now,
            latest: Activity::Unknown,
            is_called: false,
        }
    }

    /// Returns when something was last going on, or may have been.
    pub(super) const fn busy_at(&self) -> Timestamp {
        self.busy_at
    }

    /// Counts the grace period from when something was last going on elsewhere.
    pub(super) fn restore(&mut self, busy_at: Timestamp) {
        self.busy_at = busy_at;
    }

    /// Takes what a reading said. Unknown counts as busy: a fleet is not ended on missing data.
    pub(super) fn observe(&mut self, now: Timestamp, activity: Activity, is_called: bool) {
        self.latest = activity;
        self.is_called = is_called;
        match activity {
            Activity::Busy | Activity::Unknown => self.busy_at = self.busy_at.max(now),
            Activity::Idle => {}
        }
    }

    /// Tells whether nothing was going on for the grace period.
    pub(super) fn is_over(&self, now: Timestamp, grace: Duration) -> bool {
        self.latest == Activity::Idle && now.since(self.busy_at) >= grace
    }

    /// Tells whether something is going on, or called for, which a fleet at zero wakes for.
    pub(super) fn wakes(&self) -> bool {
        self.latest == Activity::Busy || self.is_called
    }

    /// Returns why the last replica stays.
    pub(super) const fn stays_for(&self) -> Limit {
        if self.is_called {
            Limit::Called
        } else {
            Limit::LastOne
        }
    }

    /// Returns the smallest size: one for a fleet at zero that has something to do, and for one
    /// above zero until the grace period is over.
    pub(super) fn least(&self, now: Timestamp, grace: Duration, current: Replicas) -> Replicas {
        let stays = current > Replicas::ZERO && !self.is_over(now, grace);
        if self.wakes() || stays {
            Replicas::ONE
        } else {
            Replicas::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn the_last_replica_goes_after_the_grace_period() {
        let mut idle = Idle::new(at(0));
        idle.observe(at(10), Activity::Busy, false);
        idle.observe(at(69), Activity::Idle, false);
        assert_eq!(idle.least(at(69), GRACE, Replicas::ONE), Replicas::ONE);
        assert_eq!(idle.least(at(70), GRACE, Replicas::ONE), Replicas::ZERO);
    }

    #[test]
    fn a_fleet_at_zero_wakes_for_load_only() {
        let mut idle = Idle::new(at(0));
        idle.observe(at(1), Activity::Idle, false);
        assert_eq!(idle.least(at(1), GRACE, Replicas::ZERO), Replicas::ZERO);
        idle.observe(at(2), Activity::Unknown, false);
        assert_eq!(idle.least(at(2), GRACE, Replicas::ZERO), Replicas::ZERO);
        idle.observe(at(3), Activity::Busy, false);
        assert_eq!(idle.least(at(3), GRACE, Replicas::ZERO), Replicas::ONE);
    }

    #[test]
    fn a_call_wakes_a_fleet_and_keeps_its_last_replica() {
        let mut idle = Idle::new(at(0));
        for activity in [Activity::Idle, Activity::Unknown] {
            idle.observe(at(500), activity, true);
            assert_eq!(idle.least(at(500), GRACE, Replicas::ZERO), Replicas::ONE);
            assert_eq!(idle.least(at(500), GRACE, Replicas::ONE), Replicas::ONE);
        }
        idle.observe(at(501), Activity::Idle, false);
        assert_eq!(idle.least(at(561), GRACE, Replicas::ONE), Replicas::ZERO);
    }

    #[test]
    fn unknown_load_never_ends_the_last_replica() {
        let mut idle = Idle::new(at(0));
        idle.observe(at(500), Activity::Unknown, false);
        assert_eq!(idle.least(at(500), GRACE, Replicas::ONE), Replicas::ONE);
        assert!(!idle.is_over(at(500), GRACE));
    }
}
