//! Single values of a scenario's file, each checked as it is read, so that an error has its line.

use serde::Deserialize;

/// A span of time, such as `20ms`. *Units*: seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Span(pub(super) f64);

/// Requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Rate(pub(super) f64);

/// A part of a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Share(pub(super) f64);

/// A number above zero.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Positive(pub(super) f64);

/// A number of things.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "i64")]
pub(super) struct Count(pub(super) u32);

/// The units of a span, in seconds; longer names first where one ends like another.
const UNITS: [(&str, f64); 5] = [
    ("ms", 1e-3),
    ("us", 1e-6),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// No run is longer: a hundred days, of which each second may have a rate of its own.
const SPAN_MAX: f64 = 100.0 * 86400.0;
/// No fleet gets more.
const RATE_MAX: f64 = 1e6;
const COUNT_MAX: i64 = 10_000_000;

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = UNITS.iter().find_map(|(unit, seconds)| {
            let number = text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()?;
            Some(number * seconds)
        });
        match parsed {
            Some(span) if (0.0..=SPAN_MAX).contains(&span) => Ok(Self(span)),
            Some(_) => Err(format!("`{text}` is out of range, allowed is 0s to 2400h")),
            None => Err(format!(
                "`{text}` is no span, allowed is a number with us, ms, s, m or h"
            )),
        }
    }
}

impl TryFrom<f64> for Rate {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if (0.0..=RATE_MAX).contains(&value) {
            Ok(Self(value))
        } else {
            Err(format!("a rate is {value}, allowed is 0 to {RATE_MAX}"))
        }
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(format!("a share is {value}, allowed is 0 to 1"))
        }
    }
}

impl TryFrom<f64> for Positive {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        if value.is_finite() && value > 0.0 {
            Ok(Self(value))
        } else {
            Err(format!("a number is {value}, allowed is more than 0"))
        }
    }
}

impl TryFrom<i64> for Count {
    type Error = String;

    fn try_from(value: i64) -> Result<Self, String> {
        let count = u32::try_from(value).ok();
        count
            .filter(|_| value <= COUNT_MAX)
            .map(Self)
            .ok_or_else(|| format!("a count is {value}, allowed is 0 to {COUNT_MAX}"))
    }
}
