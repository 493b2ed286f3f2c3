//! What is wrong with a configuration: where, what, and what would be allowed instead.
//!
//! Problems are collected, never thrown one by one: whoever wrote the file sees all of them at
//! once. Nothing here decides what is wrong.

use std::fmt;
use std::path::{Path, PathBuf};

/// A key of a configuration file and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The key's path, such as `fleets[0].replicas.min`; empty for the file as a whole.
    pub key: String,
    /// The line, counted from 1; 0 when the file does not say it.
    pub line: usize,
    /// The column, counted from 1 in characters; 0 when the file does not say it.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.key.as_str()) {
            (0, key) => f.write_str(key),
            (line, "") => write!(f, "line {line}"),
            (line, key) => write!(f, "line {line}: {key}"),
        }
    }
}

/// A value with the place that set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The key, and the line that sets it.
    pub place: Place,
    /// Whether the file sets it; otherwise it is a default, and the place is that of the section.
    pub given: bool,
}

/// One thing that is wrong, or worth a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What is wrong, beginning with the value.
    pub what: String,
    /// What would be right, where that can be said as a range or a list.
    pub allowed: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.key.is_empty() || self.place.line > 0 {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.what)?;
        match &self.allowed {
            Some(allowed) => write!(f, "; allowed: {allowed}"),
            None => Ok(()),
        }
    }
}

/// The problems found so far: errors, which refuse the file, and warnings, which do not.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

impl Problems {
    /// Adds an error without a range to name.
    pub(super) fn error(&mut self, place: &Place, what: impl Into<String>) {
        self.errors.push(Problem {
            place: place.clone(),
            what: what.into(),
            allowed: None,
        });
    }

    /// Adds an error that names what would be allowed.
    pub(super) fn refuse(
        &mut self,
        place: &Place,
        what: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        let allowed = Some(allowed.into());
        self.errors.push(Problem {
            place: place.clone(),
            what: what.into(),
            allowed,
        });
    }

    /// Tells whether something at `key` or inside it was refused.
    pub(super) fn is_reported(&self, key: &str) -> bool {
        let mut keys = self.errors.iter().map(|problem| &problem.place.key);
        keys.any(|reported| reported.starts_with(key))
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, place: &Place, what: impl Into<String>) {
        self.warnings.push(Problem {
            place: place.clone(),
            what: what.into(),
            allowed: None,
        });
    }

    /// Adds `word` to what is allowed at `place`, in every error since `errors_before`.
    pub(super) fn allow_word(&mut self, errors_before: usize, place: &Place, word: &str) {
        for problem in self.errors.iter_mut().skip(errors_before) {
            if problem.place == *place {
                problem.allowed = problem
                    .allowed
                    .take()
                    .map(|rest| format!("`{word}`, or {rest}"));
            }
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {}: cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file is read, and wrong; everything found is listed, with the lines.
    #[error("{}", render(path, text, problems))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Its text, to show the lines.
        text: String,
        /// All that is wrong, in the order of the file; never empty.
        problems: Vec<Problem>,
    },
}

/// The most problems that are drawn: whoever has more looks for one cause.
const SHOWN_MAX: usize = 100;

/// Draws problems with the lines they stand on.
fn render(path: &Path, text: &str, problems: &[Problem]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let count = match problems.len() {
        1 => "1 error".to_owned(),
        many => format!("{many} errors"),
    };
    let mut out = format!("configuration {}: {count}", path.display());
    for problem in problems.iter().take(SHOWN_MAX) {
        out.push_str(&format!("\n{problem}"));
        let Some(line) = problem
            .place
            .line
            .checked_sub(1)
            .and_then(|index| lines.get(index))
        else {
            continue;
        };
        out.push_str(&format!("\n  {:>4} | {}", problem.place.line, shown(line)));
    }
    if problems.len() > SHOWN_MAX {
        out.push_str(&format!("\nand {} more", problems.len() - SHOWN_MAX));
    }
    out
}

/// Returns a line cut to what fits a terminal, without control characters.
fn shown(line: &str) -> String {
    const WIDTH_MAX: usize = 100;
    let mut clean = line
        .trim_end()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
    let mut cut: String = clean.by_ref().take(WIDTH_MAX).collect();
    if clean.next().is_some() {
        cut.push('…');
    }
    cut
}
