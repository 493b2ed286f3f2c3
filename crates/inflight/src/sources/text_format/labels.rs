//! A set of labels, `{name="value",…}`: checked once for every sample, taken apart only for those
//! that somebody asks.

use std::borrow::Cow;

use memchr::memchr2;

use super::line::blanks;

/// The bytes of names: 1 in names of metrics and labels, 2 in names of metrics only.
const BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            table[byte as usize] = 1;
        } else if byte == b':' {
            table[byte as usize] = 2;
        }
        byte += 1;
    }
    table
};

/// The kind of [`is_name`] for metrics' names.
pub(super) const NAME: u8 = 3;
/// The kind of [`is_name`] for labels' names.
const LABEL: u8 = 1;

/// Tells whether a byte may be part of a name of the kind.
pub(super) const fn is_name(byte: u8, kind: u8) -> bool {
    BYTES[byte as usize] & kind != 0
}

/// A checked set of labels.
#[derive(Debug)]
pub(super) struct Set<'a> {
    /// The metric's name, where it stands quoted within the braces.
    pub(super) name: Option<&'a str>,
    /// What stands between the braces.
    pub(super) labels: &'a str,
    /// The length of all of it, braces included.
    pub(super) len: usize,
}

/// One label.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// Its name, as it is written; an escape in a quoted one stays an escape.
    pub name: &'a str,
    /// Its value.
    pub value: Escaped<'a>,
}

/// A text in which `\\`, `\"` and `\n` stand for a backslash, a quote and a line feed.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(&'a str);

/// The labels of one sample, in the order of the page.
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    rest: &'a str,
}

impl<'a> Labels<'a> {
    pub(super) const fn of(rest: &'a str) -> Self {
        Self { rest }
    }

    /// Returns the value of the label with the given name.
    #[must_use]
    pub fn value(mut self, name: &str) -> Option<Escaped<'a>> {
        self.find(|label| label.name == name)
            .map(|label| label.value)
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = Label<'a>;

    fn next(&mut self) -> Option<Label<'a>> {
        loop {
            let (part, rest) = part(self.rest)?;
            self.rest = rest;
            // A metric's name among the labels is none of them.
            if let Part::Label(label) = part {
                return Some(label);
            }
        }
    }
}

impl<'a> Escaped<'a> {
    /// Returns the text without escapes.
    #[must_use]
    pub fn text(self) -> Cow<'a, str> {
        if !self.0.contains('\\') {
            return Cow::Borrowed(self.0);
        }
        let mut text = String::with_capacity(self.0.len());
        let mut chars = self.0.chars();
        while let Some(c) = chars.next() {
            if c != '\\' {
                text.push(c);
                continue;
            }
            match chars.next() {
                Some('n') => text.push('\n'),
                Some(escaped @ ('\\' | '"')) => text.push(escaped),
                // An unknown escape stays as it is, as with every other reader.
                other => text.extend(Some('\\').into_iter().chain(other)),
            }
        }
        Cow::Owned(text)
    }
}

impl PartialEq<str> for Escaped<'_> {
    fn eq(&self, other: &str) -> bool {
        self.text() == other
    }
}

enum Part<'a> {
    Metric(&'a str),
    Label(Label<'a>),
}

/// Checks the set of labels that a text begins with; a metric's name may be in it only where none
/// stands before it.
pub(super) fn check(text: &str, may_name: bool) -> Option<Set<'_>> {
    let inside = text.strip_prefix('{')?;
    let (mut rest, mut name) = (inside, None);
    while let Some((part, after)) = part(rest) {
        if let Part::Metric(metric) = part {
            let is_first = rest.len() == inside.len();
            if !may_name || !is_first || metric.is_empty() {
                return None;
            }
            name = Some(metric);
        }
        rest = after;
    }
    let rest = &rest[blanks(rest.as_bytes())..];
    let after = rest.strip_prefix('}')?;
    Some(Set {
        name,
        labels: &inside[..inside.len() - after.len()],
        len: text.len() - after.len(),
    })
}

/// Takes off the first label of what is left of a set, with the comma after it.
fn part(text: &str) -> Option<(Part<'_>, &str)> {
    let text = &text[blanks(text.as_bytes())..];
    let (name, after, quoted) = match text.as_bytes().first()? {
        b'"' => {
            let (name, after) = quoted(text)?;
            (name, after, true)
        }
        b'0'..=b'9' => return None,
        _ => {
            let bytes = text.as_bytes();
            let end = bytes.iter().position(|&byte| !is_name(byte, LABEL))?;
            let (name, after) = text.split_at(end);
            (name, after, false)
        }
    };
    let after = &after[blanks(after.as_bytes())..];
    let (part, after) = match after.strip_prefix('=') {
        None if quoted => (Part::Metric(name), after),
        Some(_) if name.is_empty() => return None,
        None => return None,
        Some(value) => {
            let value = &value[blanks(value.as_bytes())..];
            let (value, after) = self::quoted(value)?;
            let value = Escaped(value);
            (Part::Label(Label { name, value }), after)
        }
    };
    let after = &after[blanks(after.as_bytes())..];
    match after.as_bytes().first()? {
        b',' => Some((part, &after[1..])),
        b'}' => Some((part, after)),
        _ => None,
    }
}

/// Splits off the quoted text that a text begins with, without its quotes.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let inside = text.strip_prefix('"')?;
    let bytes = inside.as_bytes();
    let mut at = memchr2(b'"', b'\\', bytes)?;
    while bytes[at] == b'\\' {
        // The byte after a backslash is never the end.
        at += 2;
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
    }
    Some((&inside[..at], &inside[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_taken_whole_or_not_at_all() {
        assert_eq!(check(r#"{a="1",b="}\""} 5"#, false).unwrap().len, 15);
        assert!(check(r#"{a="1" b="2"}"#, false).is_none());
        assert!(check(r#"{a="1"#, false).is_none());
        assert!(check(r#"{"m",a="1"}"#, false).is_none());
        assert_eq!(check(r#"{"m",a="1"}"#, true).unwrap().name, Some("m"));
    }
}
