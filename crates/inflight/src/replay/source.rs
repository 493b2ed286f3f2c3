//! The lines of a journal, from its files.
//!
//! A journal that is being written is read up to where it ended when it was opened. At most one
//! line is in memory.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Take};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::story::wire::{Line, VERSION};

/// The longest line that is read: thousands of models and replicas.
const LINE_MAX: u64 = 64 << 20;

/// Where a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// The line in it, from 1.
    pub line: u64,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// A line, with a field that it has and that is not known, if there is one.
    Line(Box<Line>, Option<String>),
    /// A line that a crash or a full disk cut; the journal goes on after it.
    Cut,
    /// Another file.
    File,
}

/// Why a journal cannot be read.
#[derive(Debug, Error)]
pub enum SourceError {
    /// A file cannot be opened.
    #[error("{file}: {source}")]
    Open {
        /// Which.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// It has no line.
    #[error("the journal is empty")]
    Empty,
    /// A line cannot be read.
    #[error("{source}")]
    Read {
        /// Why.
        #[from]
        source: io::Error,
    },
    /// A line is too long.
    #[error("the line is longer than {} MB", LINE_MAX >> 20)]
    TooLong,
    /// The journal ends within a line.
    #[error("the line is cut in the middle: the journal ends there")]
    Cut,
    /// The line is not one of a journal.
    #[error("{what}")]
    NotALine {
        /// What is wrong, with its column where it is no JSON.
        what: String,
    },
    /// The line is of a version that is newer than we are.
    #[error("the line is of version {version} of the journal, allowed is 1 to {VERSION}")]
    Newer {
        /// Which.
        version: u64,
    },
}

/// A journal: the file that was moved aside, if there is one, and the file.
#[derive(Debug)]
pub struct Source {
    files: VecDeque<(Arc<str>, Take<BufReader<File>>)>,
    place: Place,
    text: Vec<u8>,
    has_lines: bool,
}

impl Source {
    /// Opens a journal with its predecessor (`.1` behind its name).
    ///
    /// # Errors
    /// A file is there and cannot be opened.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let (name, file) = open(path)?;
        let mut files = VecDeque::new();
        let is_aside = path.extension().is_some_and(|end| end == "1");
        if !is_aside {
            let mut aside = OsString::from(path);
            aside.push(".1");
            let aside = PathBuf::from(aside);
            if aside.exists() {
                let (name, former) = open(&aside)?;
                // It was moved aside while we opened it.
                if !is_same(&former, &file).map_err(told(&name))? {
                    files.push_back((name, former));
                }
            }
        }
        let place = Place {
            file: Arc::clone(&name),
            line: 0,
        };
        files.push_back((name, file));
        Ok(Self {
            files,
            place,
            text: Vec::new(),
            has_lines: false,
        })
    }

    /// Returns where the last line was.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Reads on; `None` at the end.
    ///
    /// # Errors
    /// The line at [`Source::place`] cannot be read.
    pub fn read_on(&mut self) -> Result<Option<Next>, SourceError> {
        loop {
            let Some((name, file)) = self.files.front_mut() else {
                return Ok(None);
            };
            if self.place.file != *name {
                self.place.file = Arc::clone(name);
                self.place.line = 0;
            }
            self.text.clear();
            self.place.line += 1;
            let read = file.take(LINE_MAX).read_until(b'\n', &mut self.text)?;
            if read == 0 {
                return self.end_of_file();
            }
            let is_whole = self.text.pop_if(|last| *last == b'\n').is_some();
            if !is_whole && u64::try_from(read).is_ok_and(|read| read == LINE_MAX) {
                return Err(SourceError::TooLong);
            }
            let text = self.text.trim_ascii();
            if !text.is_empty() {
                self.has_lines = true;
                let next = parse(text, is_whole)?;
                return Ok(Some(next));
            }
        }
    }

    fn end_of_file(&mut self) -> Result<Option<Next>, SourceError> {
        self.files.pop_front();
        if let Some((name, _)) = self.files.front() {
            self.place.file = Arc::clone(name);
            self.place.line = 0;
            return Ok(Some(Next::File));
        }
        if self.has_lines {
            return Ok(None);
        }
        self.place.line = 1;
        Err(SourceError::Empty)
    }
}

fn open(path: &Path) -> Result<(Arc<str>, Take<BufReader<File>>), SourceError> {
    let name: Arc<str> = path.display().to_string().into();
    let file = File::open(path).map_err(told(&name))?;
    let metadata = file.metadata().map_err(told(&name))?;
    if !metadata.is_file() {
        return Err(told(&name)(io::Error::other("it is not a regular file")));
    }
    Ok((name, BufReader::new(file).take(metadata.len())))
}

fn told(name: &Arc<str>) -> impl FnOnce(io::Error) -> SourceError {
    let file = name.to_string();
    move |source| SourceError::Open { file, source }
}

fn is_same(one: &Take<BufReader<File>>, other: &Take<BufReader<File>>) -> io::Result<bool> {
    let of = |file: &Take<BufReader<File>>| file.get_ref().get_ref().metadata();
    let (one, other) = (of(one)?, of(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u64,
}

fn parse(text: &[u8], is_whole: bool) -> Result<Next, SourceError> {
    let error = match serde_json::from_slice::<Line>(text) {
        Ok(line) if line.v <= VERSION => {
            let unknown = unknown_field(text, &line);
            return Ok(Next::Line(Box::new(line), unknown));
        }
        Ok(line) => {
            let version = u64::from(line.v);
            return Err(SourceError::Newer { version });
        }
        Err(error) => error,
    };
    if let Ok(VersionOnly { v: version }) = serde_json::from_slice(text)
        && version > u64::from(VERSION)
    {
        return Err(SourceError::Newer { version });
    }
    if error.is_eof() {
        return if is_whole {
            Ok(Next::Cut)
        } else {
            Err(SourceError::Cut)
        };
    }
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    let what = if error.is_syntax() {
        format!("column {}: {what}", error.column())
    } else {
        what.to_owned()
    };
    Err(SourceError::NotALine { what })
}

/// Returns a field that a line has and that is not known. Lines that we wrote are as we would write
/// them, so that it costs little to see that they have none.
fn unknown_field(text: &[u8], line: &Line) -> Option<String> {
    if serde_json::to_vec(line).is_ok_and(|ours| ours == text) {
        return None;
    }
    let found: Value = serde_json::from_slice(text).ok()?;
    let known = serde_json::to_value(line).ok()?;
    surplus(&found, &known)
}

fn surplus(found: &Value, known: &Value) -> Option<String> {
    match (found, known) {
        (Value::Object(found), Value::Object(known)) => {
            let mut fields = found.iter().filter(|(_, value)| !value.is_null());
            fields.find_map(|(name, value)| match known.get(name) {
                Some(known) => surplus(value, known).map(|inner| format!("{name}.{inner}")),
                None => Some(name.clone()),
            })
        }
        (Value::Array(found), Value::Array(known)) => {
            let mut pairs = found.iter().zip(known);
            pairs.find_map(|(found, known)| surplus(found, known))
        }
        _ => None,
    }
}
