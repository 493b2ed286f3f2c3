//! One line: nothing, a comment, the end mark or a sample.

use super::labels::{self, Labels, NAME, is_name};
use super::number;

/// What a line is.
#[derive(Debug)]
pub(super) enum Line<'a> {
    Nothing,
    Comment,
    End,
    Sample(Sample<'a>),
}

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The metric's name, as it is written; an escape in a quoted one stays an escape.
    pub name: &'a str,
    /// Its value: any number, NaN and the infinities with them.
    pub value: f64,
    labels: &'a str,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Bytes that are no text.
    #[error("not UTF-8")]
    NotText,
    /// A metric without a name.
    #[error("no metric name")]
    NoName,
    /// Labels that are not `{name="value", …}`.
    #[error("labels are not {{name=\"value\"}}")]
    Labels,
    /// A missing value, or one that is no number.
    #[error("the value is not a number")]
    Value,
    /// A time stamp that is no number.
    #[error("the time stamp is not a number")]
    Time,
    /// An exemplar that is not `# {labels} value`.
    #[error("the exemplar is not `# {{labels}} value`")]
    Exemplar,
    /// More than a sample.
    #[error("something follows the time stamp")]
    Rest,
}

impl<'a> Sample<'a> {
    /// Returns the labels, in the order of the page.
    #[must_use]
    pub fn labels(&self) -> Labels<'a> {
        Labels::of(self.labels)
    }
}

/// Parses a line without its line feed.
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, Fault> {
    let line = trim_end(line);
    let line = &line[blanks(line)..];
    match line.first() {
        None => Ok(Line::Nothing),
        Some(b'#') if line == b"# EOF" => Ok(Line::End),
        Some(b'#') => Ok(Line::Comment),
        Some(_) => parse_sample(line).map(Line::Sample),
    }
}

fn parse_sample(line: &[u8]) -> Result<Sample<'_>, Fault> {
    let text = std::str::from_utf8(line).map_err(|_| Fault::NotText)?;
    let mut name = &text[..name_len(line)];
    let mut at = name.len() + blanks(&line[name.len()..]);
    let mut labels = "";
    if line.get(at) == Some(&b'{') {
        let set = labels::check(&text[at..], name.is_empty()).ok_or(Fault::Labels)?;
        labels = set.labels;
        name = set.name.unwrap_or(name);
        at += set.len;
        at += blanks(&line[at..]);
    }
    if name.is_empty() {
        return Err(Fault::NoName);
    }
    let (token, rest) = token(&text[at..]);
    let value = number::parse(token).ok_or(Fault::Value)?;
    if !rest.is_empty() {
        check_rest(rest)?;
    }
    Ok(Sample {
        name,
        value,
        labels,
    })
}

/// Checks what follows a value: a time stamp, an exemplar, both or neither.
#[cold]
fn check_rest(mut rest: &str) -> Result<(), Fault> {
    if !rest.starts_with('#') {
        let (time, after) = token(rest);
        let time = number::parse(time).ok_or(Fault::Time)?;
        if !time.is_finite() {
            return Err(Fault::Time);
        }
        rest = after;
    }
    match rest.strip_prefix('#') {
        None if rest.is_empty() => Ok(()),
        None => Err(Fault::Rest),
        Some(exemplar) => check_exemplar(exemplar).ok_or(Fault::Exemplar),
    }
}

fn check_exemplar(text: &str) -> Option<()> {
    let text = &text[blanks(text.as_bytes())..];
    let set = labels::check(text, false)?;
    let text = &text[set.len..];
    let (value, time) = token(&text[blanks(text.as_bytes())..]);
    number::parse(value)?;
    if !time.is_empty() {
        let (time, rest) = token(time);
        number::parse(time)?;
        return rest.is_empty().then_some(());
    }
    Some(())
}

/// Splits off what stands before the next blank, and the blanks.
fn token(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let end = bytes.iter().position(|&byte| is_blank(byte));
    let end = end.unwrap_or(bytes.len());
    (&text[..end], &text[end + blanks(&bytes[end..])..])
}

fn name_len(line: &[u8]) -> usize {
    if line.first().is_none_or(u8::is_ascii_digit) {
        return 0;
    }
    let end = line.iter().position(|&byte| !is_name(byte, NAME));
    end.unwrap_or(line.len())
}

fn trim_end(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t' | b'\r'] = line {
        line = rest;
    }
    line
}

/// Counts the blanks that a text begins with.
pub(super) fn blanks(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| is_blank(byte)).count()
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}
