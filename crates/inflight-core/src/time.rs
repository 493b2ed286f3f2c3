//! Points in time. Spans are [`Duration`]; reading a clock is the caller's business.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time on the caller's monotonic clock.
///
/// *Units*: nanoseconds since an origin that the caller chooses and keeps; 2^64 ns are 584 years.
/// Arithmetic saturates at both ends: a clock that is read out of order yields a zero span, never
/// a panic or a negative one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The caller's origin.
    pub const ORIGIN: Self = Self(0);

    /// Builds a timestamp from nanoseconds since the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the span from `earlier` to this point, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_from_a_later_point_is_zero() {
        let early = Timestamp::from_nanos(5);
        let late = Timestamp::from_nanos(9);
        assert_eq!(late.since(early), Duration::from_nanos(4));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let end = Timestamp::from_nanos(u64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(Timestamp::ORIGIN - Duration::MAX, Timestamp::ORIGIN);
    }
}
