//! Quantities that must not be mixed up, and the only casts between integers and floats.

use std::fmt;
use std::num::NonZeroU32;

/// A number of replicas. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replicas(u32);

impl Replicas {
    /// No replica.
    pub const ZERO: Self = Self(0);
    /// One replica.
    pub const ONE: Self = Self(1);
    /// More than any fleet has; what an unrepresentably large need saturates to.
    pub const MAX: Self = Self(u32::MAX);

    /// Builds a number of replicas.
    #[must_use]
    pub const fn new(count: u32) -> Self {
        Self(count)
    }

    /// Builds a number of replicas from a collection's length, saturating.
    #[must_use]
    pub fn from_len(len: usize) -> Self {
        Self(u32::try_from(len).unwrap_or(u32::MAX))
    }

    /// Rounds a fractional need up to whole replicas.
    ///
    /// The need is first lowered by one part in 10^12, so that a need that is whole but for the
    /// rounding of f64 (0.1 × 3 / 0.1 = 3.0000000000000004) does not cost a replica. NaN and
    /// negative needs give zero, needs past `u32::MAX` saturate.
    #[must_use]
    pub fn ceil(need: f64) -> Self {
        Self(saturating_u32((need * (1.0 - 1e-12)).ceil()))
    }

    /// Returns the plain count.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns the count as a float, for formulas.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0)
    }

    /// Adds, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Subtracts, stopping at zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Requests one replica executes at the same time; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slots(NonZeroU32);

impl Slots {
    /// One request at a time.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// Builds a number of slots; `None` for zero, with which no request could ever be served.
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        NonZeroU32::new(count).map(Self)
    }

    /// Returns the plain count.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the count as a float, for formulas.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0.get())
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A mean or present number of requests in a system (Little's L); finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Occupancy(f64);

impl Occupancy {
    /// Nothing in the system.
    pub const ZERO: Self = Self(0.0);

    /// Builds an occupancy; `None` when the value is NaN, infinite or negative, which is
    /// unknown, never zero.
    #[must_use]
    pub fn new(requests: f64) -> Option<Self> {
        (requests.is_finite() && requests >= 0.0).then_some(Self(requests))
    }

    /// Builds the occupancy that a plain count of requests is.
    #[must_use]
    pub fn from_count(requests: u64) -> Self {
        Self(count_as_f64(requests))
    }

    /// Returns the number of requests.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Converts a count to a float; exact up to 2^53, and rounded by at most 1 part in 10^15 above.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts above 2^53 do not occur and would only round"
)]
pub(crate) fn count_as_f64(count: u64) -> f64 {
    count as f64
}

/// Converts an integral of count over time to request-seconds.
///
/// *Units*: request-nanoseconds in, request-seconds out.
#[expect(
    clippy::cast_precision_loss,
    reason = "a relative error of 10^-16 in a cumulative counter"
)]
pub(crate) fn request_seconds(request_nanos: u128) -> f64 {
    request_nanos as f64 / 1e9
}

/// Converts a float to the nearest `u32` towards zero, saturating; NaN gives zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer casts saturate and map NaN to zero, which is what is wanted"
)]
pub(crate) fn saturating_u32(value: f64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_that_is_whole_but_for_rounding_costs_no_replica() {
        assert_eq!(Replicas::ceil(0.1 * 3.0 / 0.1), Replicas::new(3));
        assert_eq!(Replicas::ceil(3.000_001), Replicas::new(4));
        assert_eq!(Replicas::ceil(1e-9), Replicas::ONE);
    }

    #[test]
    fn needs_saturate_and_nan_is_no_need() {
        assert_eq!(Replicas::ceil(1e300), Replicas::MAX);
        assert_eq!(Replicas::ceil(f64::INFINITY), Replicas::MAX);
        assert_eq!(Replicas::ceil(f64::NAN), Replicas::ZERO);
        assert_eq!(Replicas::ceil(-3.0), Replicas::ZERO);
    }

    #[test]
    fn an_occupancy_is_finite_and_not_negative() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9] {
            assert_eq!(Occupancy::new(bad), None);
        }
        assert_eq!(Occupancy::new(0.0), Some(Occupancy::ZERO));
    }

    #[test]
    fn zero_slots_cannot_be_built() {
        assert_eq!(Slots::new(0), None);
        assert_eq!(Slots::new(2).map(Slots::get), Some(2));
    }
}
