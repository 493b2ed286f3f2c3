//! What a key can hold: durations, counts, sizes, words, lists. Each kind knows how to read a node,
//! what range a key may narrow it to, and how to say both.
//!
//! Whether two keys fit together is not judged here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use inflight_core::Bytes;

use super::document::{Node, Value};
use super::error::Problems;
use super::section::SectionDoc;
use super::suggest::nearest;

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
        format!("a whole number, {} to {}", range.start(), range.end())
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
        let value = match quantity(text) {
            Ok((value, unit)) => SPANS
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, seconds)| value * seconds)
                .ok_or("has an unknown unit"),
            Err(why) => Err(why),
        };
        let span = value.and_then(|seconds| {
            Self::try_from_secs_f64(seconds).map_err(|_| {
                if seconds < 0.0 {
                    "is negative"
                } else {
                    "is too long"
                }
            })
        });
        let span = span.and_then(|span| match span {
            span if span < *range.start() => Err("is too short"),
            span if span > *range.end() => Err("is too long"),
            span => Ok(span),
        });
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
pub(super) fn span_text(span: Duration) -> String {
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

/// What a text must look like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// What it is, for messages.
    pub(super) called: &'static str,
    /// Whether a text has the form.
    pub(super) fits: fn(&str) -> bool,
}

/// A name that can be a metric label, a file name and a part of a URL.
pub(super) const NAME: Form = Form {
    called: "1 to 63 letters, digits, `-`, `_` or `.`, beginning with a letter or digit",
    fits: |text| {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        text.len() <= 63
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(word)
    },
};

/// A path of a URL.
pub(super) const URL_PATH: Form = Form {
    called: "a path that begins with `/`, without spaces, `?` or `#`",
    fits: |text| {
        text.starts_with('/')
            && text
                .bytes()
                .all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#')
    },
};

/// A header's name.
pub(super) const HEADER: Form = Form {
    called: "a header name",
    fits: |text| http::HeaderName::from_bytes(text.as_bytes()).is_ok(),
};

/// A path of a file.
pub(super) const FILE: Form = Form {
    called: "the path of a file",
    fits: |text| !text.is_empty() && !text.contains('\0'),
};

/// A gRPC service's name; empty asks for the server as a whole.
pub(super) const SERVICE: Form = Form {
    called: "the name of a gRPC service, or \"\" for the server as a whole",
    fits: |text| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/'))
    },
};

/// An argument of a command.
pub(super) const ARGUMENT: Form = Form {
    called: "text without a NUL character",
    fits: |text| !text.contains('\0'),
};

impl Setting for String {
    type Range = Form;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let text = match &node.value {
            Value::Text(text) => text,
            // A number or a yes is a text as well, in the file's own spelling: `- 8080`.
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) if !node.spelled.is_empty() => {
                &node.spelled
            }
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
                refuse::<Self>(node, "is not text", range, problems);
                return None;
            }
            Value::List(_) | Value::Mapping(_) => {
                refuse::<Self>(node, "is not text", range, problems);
                return None;
            }
        };
        if (range.fits)(text) {
            return Some(text.clone());
        }
        refuse::<Self>(node, "does not fit", range, problems);
        None
    }

    fn allowed(range: &Self::Range) -> String {
        range.called.to_owned()
    }
}

/// The ports an address may have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ports {
    /// Port 0 takes any free one.
    Listen,
    /// Somebody else's address.
    Connect,
}

impl Setting for SocketAddr {
    type Range = Ports;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let Value::Text(text) = &node.value else {
            refuse::<Self>(node, "is not an address", range, problems);
            return None;
        };
        let address = text.parse::<Self>();
        let why = match (address, range) {
            (Ok(address), Ports::Connect) if address.port() == 0 => "has port 0",
            (Ok(address), Ports::Connect | Ports::Listen) => return Some(address),
            (Err(_), _) => "is not an address",
        };
        refuse::<Self>(node, why, range, problems);
        None
    }

    fn allowed(range: &Self::Range) -> String {
        match range {
            Ports::Listen => {
                "IP:PORT, such as 127.0.0.1:8080, or [::1]:8080; port 0 takes a free one"
            }
            Ports::Connect => "IP:PORT, such as 10.0.0.1:8000",
        }
        .to_owned()
    }
}

/// How many items a list may have, and what each may be.
#[derive(Clone, Debug)]
pub(super) struct Items<R> {
    pub(super) count: RangeInclusive<usize>,
    pub(super) each: R,
}

impl<T: Setting> Setting for Vec<T> {
    type Range = Items<T::Range>;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let Value::List(items) = &node.value else {
            refuse::<Self>(node, "is not a list", range, problems);
            return None;
        };
        if !range.count.contains(&items.len()) {
            let what = format!("{} items", items.len());
            problems.refuse(&node.place, what, Self::allowed(range));
            return None;
        }
        let read: Vec<Option<T>> = items
            .iter()
            .map(|item| T::read(item, &range.each, problems))
            .collect();
        read.into_iter().collect()
    }

    fn allowed(range: &Self::Range) -> String {
        let (least, most) = (range.count.start(), range.count.end());
        match T::allowed(&range.each).as_str() {
            "" => format!("a list of {least} to {most}"),
            each => format!("a list of {least} to {most}, each {each}"),
        }
    }

    fn describe(path: &str, sections: &mut Vec<SectionDoc>) {
        T::describe(&format!("{path}[]"), sections);
    }
}

impl Setting for BTreeMap<String, String> {
    type Range = ();

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let entries = match &node.value {
            Value::Mapping(entries) => entries.as_slice(),
            Value::Null => &[],
            Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_) => {
                refuse::<Self>(node, "is not a mapping", range, problems);
                return None;
            }
        };
        let errors_before = problems.errors.len();
        let mut variables = Self::new();
        for entry in entries {
            let name = &entry.key;
            if name.is_empty() || name.contains(['=', '\0']) {
                problems.error(
                    &entry.key_place,
                    "is not the name of an environment variable",
                );
            }
            let Some(text) = String::read(&entry.node, &ARGUMENT, problems) else {
                continue;
            };
            if variables.insert(name.clone(), text).is_some() {
                problems.error(&entry.key_place, "is there twice");
            }
        }
        (problems.errors.len() == errors_before).then_some(variables)
    }

    fn allowed((): &Self::Range) -> String {
        "a mapping of names to texts".to_owned()
    }
}

/// A closed list of words.
pub(super) trait Choice: Copy + 'static {
    /// The words and what they stand for, the usual one first.
    const WORDS: &'static [(&'static str, Self)];
    /// Words of the contract that this version does not know yet.
    const LATER: &'static [&'static str] = &[];
}

/// One of a closed list of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OneOf<C>(pub(super) C);

impl<C: Choice> Setting for OneOf<C> {
    type Range = ();

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let written = match &node.value {
            Value::Text(text) => text.as_str(),
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Mapping(_) => node.spelled.as_str(),
        };
        if let Some((_, choice)) = C::WORDS.iter().find(|(word, _)| *word == written) {
            return Some(Self(*choice));
        }
        let why = match nearest(written, C::WORDS.iter().map(|(word, _)| *word)) {
            _ if C::LATER.contains(&written) => "is not built in this version".to_owned(),
            Some(word) => format!("is not known; did you mean `{word}`?"),
            None => "is not known".to_owned(),
        };
        refuse::<Self>(node, &why, range, problems);
        None
    }

    fn allowed((): &Self::Range) -> String {
        let words: Vec<String> = C::WORDS
            .iter()
            .map(|(word, _)| format!("`{word}`"))
            .collect();
        words.join(" or ")
    }
}

/// A word that stands beside other values.
pub(super) trait Word {
    /// The word.
    const WORD: &'static str;
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct $name;
        impl Word for $name {
            const WORD: &'static str = $word;
        }
    )*};
}

words! {
    /// Computed by us.
    Auto = "auto";
    /// Switched off.
    Off = "off";
    /// Without a value.
    Nothing = "none";
    /// Without a bound.
    Unlimited = "unlimited";
    /// By the peer's address.
    Address = "address";
    /// What the target starts.
    OfTarget = "target";
    /// Decides and tells, changes nothing.
    Advise = "advise";
}

/// One word, or a value of another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Or<W, T> {
    /// The word.
    Word(W),
    /// The other kind.
    Value(T),
}

impl<W: Word + Default, T: Setting> Setting for Or<W, T> {
    type Range = T::Range;

    fn read(node: &Node, range: &Self::Range, problems: &mut Problems) -> Option<Self> {
        let is_word = match &node.value {
            Value::Text(text) => text == W::WORD,
            // YAML reads an unquoted `off` as a no.
            Value::Bool(_) => node.spelled == W::WORD,
            Value::Null
            | Value::Integer(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Mapping(_) => false,
        };
        if is_word {
            return Some(Self::Word(W::default()));
        }
        let errors_before = problems.errors.len();
        let value = T::read(node, range, problems);
        problems.allow_word(errors_before, &node.place, W::WORD);
        value.map(Self::Value)
    }

    fn allowed(range: &Self::Range) -> String {
        match T::allowed(range).as_str() {
            "" => format!("`{}`, or a mapping", W::WORD),
            rest => format!("`{}`, or {rest}", W::WORD),
        }
    }

    fn describe(path: &str, sections: &mut Vec<SectionDoc>) {
        T::describe(path, sections);
    }
}
