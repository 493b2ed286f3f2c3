//! The only place that reads a clock for the core.

use std::time::{Instant, SystemTime};

use inflight_core::Timestamp;

/// The process's monotonic clock, as the core's timestamps, and its relation to calendar time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    /// The timestamp of the origin: that at which an earlier process of ours stopped, so that what
    /// it knew keeps its times.
    base: Timestamp,
    origin_calendar: SystemTime,
}

impl Clock {
    /// Starts a clock that shows the origin at this moment.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at(Timestamp::ORIGIN)
    }

    /// Starts a clock that shows `base` at this moment.
    #[must_use]
    pub fn start_at(base: Timestamp) -> Self {
        Self {
            origin: Instant::now(),
            base,
            origin_calendar: SystemTime::now(),
        }
    }

    /// Returns the present moment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.base + self.origin.elapsed()
    }

    /// Returns the instant of a timestamp, for timers.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin + at.since(self.base)
    }

    /// Returns the calendar time of a timestamp, for people and journals; later changes of the
    /// system's calendar do not move it.
    #[must_use]
    pub fn calendar(&self, at: Timestamp) -> SystemTime {
        self.origin_calendar + at.since(self.base) - self.base.since(at)
    }
}
