//! Numbers with a unit: durations and sizes.

use std::ops::RangeInclusive;
use std::time::Duration;

use inflight_core::Bytes;

use super::{Setting, refuse};
use crate::config::document::{Node, Value};
use crate::config::error::Problems;

/// The units of a duration, in seconds.
const SPANS: [(&str, f64); 5] = [
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];

impl Setting for Duration {
    type Range = RangeInclusive<Self>;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let text = match &node.value {
            Value::Text(text) => text.as_str(),
            Value::Integer(0) => "0s",
            Value::Integer(_) | Value::Float(_) => {
                refuse::<Self>(node, "has no unit", range, problems);
                return None;
            }
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Mapping(_) => {
                refuse::<Self>(node, "is not a duration", range, problems);
                return None;
            }
        };
        let span = span_of(text, range);
        span.map_err(|why| refuse::<Self>(node, why, range, problems))
            .ok()
    }

    fn allowed(range: &Self::Range) -> String {
        format!(
            "a duration, {} to {}",
            span_text(*range.start()),
            span_text(*range.end())
        )
    }
}

/// Reads a duration with its unit, within a range, as the file spells it: `90s`, `1.5h`.
///
/// # Errors
/// What is wrong with it, to follow the text in a message.
pub(in crate::config) fn span_of(
    text: &str,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, &'static str> {
    let (value, unit) = quantity(text)?;
    let unit = SPANS.iter().find(|(name, _)| *name == unit);
    let seconds = unit.map(|(_, seconds)| value * seconds);
    let seconds = seconds.ok_or("has an unknown unit")?;
    match Duration::try_from_secs_f64(seconds) {
        Err(_) if seconds < 0.0 => Err("is negative"),
        Err(_) => Err("is too long"),
        Ok(span) if span < *range.start() => Err("is too short"),
        Ok(span) if span > *range.end() => Err("is too long"),
        Ok(span) => Ok(span),
    }
}

/// Splits `1.5s` into its number and its unit.
fn quantity(text: &str) -> Result<(f64, &str), &'static str> {
    let digits = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '-'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| "is not a number with a unit")?;
    match unit.trim_start() {
        "" => Err("has no unit"),
        unit => Ok((number, unit)),
    }
}

/// Writes a duration as the file would.
fn span_text(span: Duration) -> String {
    let millis = span.as_millis();
    let fits = |unit: u128| millis.is_multiple_of(unit);
    match millis {
        0 => "0s".to_owned(),
        _ if fits(86_400_000) => format!("{}d", millis / 86_400_000),
        _ if fits(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if fits(60_000) => format!("{}m", millis / 60_000),
        _ if fits(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

/// The units of a size, largest first of each kind.
const SIZES: [(&str, u32); 7] = [
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl Setting for Bytes {
    type Range = RangeInclusive<u64>;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let text = match &node.value {
            Value::Text(text) => text.as_str(),
            Value::Integer(_) | Value::Float(_) => {
                refuse::<Self>(node, "has no unit", range, problems);
                return None;
            }
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Mapping(_) => {
                refuse::<Self>(node, "is not a size", range, problems);
                return None;
            }
        };
        let size = quantity(text).and_then(|(number, unit)| {
            let unit = SIZES
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or("has an unknown unit")?;
            // Sizes are far below 2^53, so the product is exact for whole numbers.
            let size = Duration::try_from_secs_f64(number * f64::from(unit.1));
            size.map(|size| size.as_secs()).map_err(|_| {
                if number < 0.0 {
                    "is negative"
                } else {
                    "is too large"
                }
            })
        });
        let size = size.and_then(|size| match size {
            size if size < *range.start() => Err("is too small"),
            size if size > *range.end() => Err("is too large"),
            size => Ok(Self(size)),
        });
        size.map_err(|why| refuse::<Self>(node, why, range, problems))
            .ok()
    }

    fn allowed(range: &Self::Range) -> String {
        format!(
            "a size, {} to {}",
            size_text(*range.start()),
            size_text(*range.end())
        )
    }
}

/// Writes a size as the file would.
fn size_text(bytes: u64) -> String {
    let mut units = SIZES.iter().map(|(name, unit)| (name, u64::from(*unit)));
    let unit = units.find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    unit.map_or_else(
        || format!("{bytes}B"),
        |(name, unit)| format!("{}{name}", bytes / unit),
    )
}
