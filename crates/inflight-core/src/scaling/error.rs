//! Settings that no fleet can be sized with.

use std::time::Duration;

use crate::units::Replicas;

/// A setting outside its range, with its key, its value and what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A number is outside its range or not a number.
    #[error("{key} is {value}, allowed is {min} to {max}")]
    Number {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: f64,
        /// The smallest allowed.
        min: f64,
        /// The largest allowed.
        max: f64,
    },
    /// A span is outside its range.
    #[error("{key} is {value:?}, allowed is {min:?} to {max:?}")]
    Span {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: Duration,
        /// The shortest allowed.
        min: Duration,
        /// The longest allowed.
        max: Duration,
    },
    /// The minimum size is above the maximum.
    #[error("replicas.min is {min}, allowed is 0 to replicas.max, which is {max}")]
    MinAboveMax {
        /// The minimum.
        min: Replicas,
        /// The maximum.
        max: Replicas,
    },
    /// The maximum size is zero, with which no request could ever be served.
    #[error("replicas.max is 0, allowed is 1 or more")]
    MaxZero,
}

/// Returns `value` if it is a number from `min` to `max`.
pub(super) fn number(
    key: &'static str,
    value: f64,
    min: f64,
    max: f64,
) -> Result<f64, ConfigError> {
    if value >= min && value <= max {
        Ok(value)
    } else {
        Err(ConfigError::Number {
            key,
            value,
            min,
            max,
        })
    }
}

/// Returns `value` if it is a window: from one second to one hour.
pub(super) fn window(key: &'static str, value: Duration) -> Result<Duration, ConfigError> {
    let (min, max) = (Duration::from_secs(1), Duration::from_secs(3600));
    if value >= min && value <= max {
        Ok(value)
    } else {
        Err(ConfigError::Span {
            key,
            value,
            min,
            max,
        })
    }
}
