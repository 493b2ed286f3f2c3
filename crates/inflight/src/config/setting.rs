//! What a key can hold: durations, counts, sizes, words, lists. Each kind knows how to read a node,
//! what range a key may narrow it to, and how to say both.
//!
//! Whether two keys fit together is not judged here.

mod collection;
mod network;
mod quantity;
mod text;
mod word;

use std::ops::RangeInclusive;

use super::document::{Node, Value};
use super::error::Problems;
use super::section::SectionDoc;

pub(super) use collection::Items;
pub use network::Network;
pub(super) use quantity::span_of;
pub(super) use text::{
    ARGUMENT, AUTHORITY, FILE, HEADER, HOST_PORT, JSON_FILE, METRIC, NAME, PAGE, PORT_NAME, Ports,
    QUERY, SERVICE, SOCKET_FOLDER, URL_PATH,
};
pub(super) use word::{
    Address, Advise, Auto, Certificate, Choice, Nothing, OfTarget, Off, OneOf, Or, Unlimited,
};

/// A kind of value that a key can hold.
pub(super) trait Setting: Sized {
    /// What narrows the values of one key; `()` where there is nothing to narrow.
    type Range;

    /// Reads a node; what is wrong with it is added to `problems`.
    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self>;

    /// Names the kind and the range, for messages and the reference page.
    fn allowed(range: &Self::Range) -> String;

    /// Adds the sections that a value of this kind at `path` consists of, for the reference page.
    fn describe(_path: &str, _sections: &mut Vec<SectionDoc>) {}
}

/// Adds the error that a node holds something of another kind or outside its range.
fn refuse<T: Setting>(node: &Node, why: &str, range: &T::Range, problems: &mut Problems) {
    problems.refuse(
        &node.place,
        format!("{} {why}", shown(node)),
        T::allowed(range),
    );
}

/// Returns a node's value as the file spells it, cut to a readable length.
pub(super) fn shown(node: &Node) -> String {
    const SHOWN_MAX: usize = 60;
    let full = match (&node.value, node.spelled.as_str()) {
        (Value::Null, _) => return "an empty value".to_owned(),
        (Value::List(_), _) => return "a list".to_owned(),
        (Value::Mapping(_), _) => return "a mapping".to_owned(),
        (Value::Text(text), _) => format!("{text:?}"),
        (_, spelled) if !spelled.is_empty() => spelled.to_owned(),
        (Value::Bool(value), _) => value.to_string(),
        (Value::Integer(value), _) => value.to_string(),
        (Value::Float(value), _) => value.to_string(),
    };
    if full.chars().count() <= SHOWN_MAX {
        return full;
    }
    full.chars().take(SHOWN_MAX).chain(['…']).collect()
}

impl Setting for bool {
    type Range = ();

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let Value::Bool(value) = node.value else {
            refuse::<Self>(node, "is neither `true` nor `false`", range, problems);
            return None;
        };
        Some(value)
    }

    fn allowed((): &Self::Range) -> String {
        "`true` or `false`".to_owned()
    }
}

impl Setting for u32 {
    type Range = RangeInclusive<Self>;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let Value::Integer(value) = node.value else {
            let why = match node.value {
                Value::Text(_) => "is text, not a whole number",
                Value::Null
                | Value::Bool(_)
                | Value::Float(_)
                | Value::Integer(_)
                | Value::List(_)
                | Value::Mapping(_) => "is not a whole number",
            };
            refuse::<Self>(node, why, range, problems);
            return None;
        };
        let fits = Self::try_from(value)
            .ok()
            .filter(|value| range.contains(value));
        if fits.is_none() {
            let below = value < i128::from(*range.start());
            refuse::<Self>(
                node,
                if below {
                    "is too small"
                } else {
                    "is too large"
                },
                range,
                problems,
            );
        }
        fits
    }

    fn allowed(range: &Self::Range) -> String {
        match (range.start(), range.end()) {
            (only, end) if only == end => format!("{only}"),
            (start, end) => format!("a whole number, {start} to {end}"),
        }
    }
}

impl Setting for f64 {
    type Range = RangeInclusive<Self>;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let value = match &node.value {
            #[expect(
                clippy::cast_precision_loss,
                reason = "what rounds is far out of every range"
            )]
            Value::Integer(value) => *value as Self,
            Value::Float(value) => *value,
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Mapping(_) => {
                refuse::<Self>(node, "is not a number", range, problems);
                return None;
            }
        };
        if range.contains(&value) {
            return Some(value);
        }
        let why = match value {
            value if value.is_nan() => "is not a number",
            value if value < *range.start() => "is too small",
            _ => "is too large",
        };
        refuse::<Self>(node, why, range, problems);
        None
    }

    fn allowed(range: &Self::Range) -> String {
        format!("a number, {} to {}", range.start(), range.end())
    }
}
