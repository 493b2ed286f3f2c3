//! The only place that reads a clock for the core.

use std::time::{Duration, Instant, SystemTime};

use inflight_core::Timestamp;

/// The last second that RFC 3339 can write: the end of the year 9999.
const CALENDAR_END: Duration = Duration::from_secs(253_402_300_799);

/// The process's monotonic clock, as the core's timestamps, and its relation to calendar time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    origin_calendar: SystemTime,
}

impl Clock {
    /// Starts a clock whose origin is this moment.
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
            origin_calendar: SystemTime::now(),
        }
    }

    /// Returns the present moment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::ORIGIN + self.origin.elapsed()
    }

    /// Returns the instant of a timestamp, for timers.
    #[must_use]
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.origin + at.since(Timestamp::ORIGIN)
    }

    /// Returns the calendar time of a timestamp, for people and journals; later changes of the
    /// system's calendar do not move it.
    #[must_use]
    pub fn calendar(&self, at: Timestamp) -> SystemTime {
        self.origin_calendar + at.since(Timestamp::ORIGIN)
    }

    /// Writes the calendar time of a timestamp; what a four-digit year since 1970 cannot say becomes
    /// the nearest it can.
    #[must_use]
    pub fn rfc3339(&self, at: Timestamp) -> String {
        rfc3339(self.calendar(at))
    }

    /// Returns the calendar time of the origin, which tells one run of ours from another.
    ///
    /// *Units*: milliseconds since 1970.
    #[must_use]
    pub fn started_millis(&self) -> u64 {
        let since_epoch = self.origin_calendar.duration_since(SystemTime::UNIX_EPOCH);
        u64::try_from(since_epoch.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
    }
}

fn rfc3339(at: SystemTime) -> String {
    let since_epoch = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let at = SystemTime::UNIX_EPOCH + since_epoch.min(CALENDAR_END);
    humantime::format_rfc3339_millis(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_that_cannot_be_written_becomes_the_nearest_that_can() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(
            rfc3339(epoch - Duration::from_secs(5)),
            "1970-01-01T00:00:00.000Z"
        );
        assert_eq!(
            rfc3339(epoch + Duration::from_millis(1500)),
            "1970-01-01T00:00:01.500Z"
        );
        assert_eq!(
            rfc3339(epoch + CALENDAR_END * 2),
            "9999-12-31T23:59:59.000Z"
        );
    }
}
