//! The only casts between integers and floats, and between seconds and nanoseconds.
//!
//! Inside the simulator time is nanoseconds in a `u64`; laws and formulas are in seconds.

use std::time::Duration;

use inflight_core::Timestamp;

/// Converts seconds to nanoseconds, saturating; NaN and negative spans give zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from float saturate, and a nanosecond is finer than any law is known"
)]
pub(crate) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Converts nanoseconds to seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days; longer spans round by a nanosecond"
)]
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Converts an area in nanoseconds to seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "an area rounds by one part in 10^15"
)]
pub(crate) fn area_seconds(nanos: u128) -> f64 {
    nanos as f64 / 1e9
}

/// Converts a count.
#[expect(
    clippy::cast_precision_loss,
    reason = "no run counts to 2^53, and would only round"
)]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// Rounds down to a count, saturating; NaN and negative numbers give zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from float saturate, which is what is wanted"
)]
pub(crate) fn count(number: f64) -> u64 {
    number as u64
}

/// Rounds up to a number of replicas, saturating; NaN and negative numbers give zero.
pub(crate) fn replicas_ceil(number: f64) -> u32 {
    u32::try_from(count(number.ceil())).unwrap_or(u32::MAX)
}

/// Narrows an index of a table that a run fills one by one.
pub(crate) fn index(place: usize) -> u32 {
    u32::try_from(place).expect("no run has 2^32 requests, replicas or streams at once")
}

/// Says a moment as the core does.
pub(crate) fn timestamp(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// Says a span as the core does.
pub(crate) fn duration(seconds: f64) -> Duration {
    Duration::from_nanos(nanos(seconds))
}
