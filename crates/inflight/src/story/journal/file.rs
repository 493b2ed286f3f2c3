//! The journal's file: opened again when it fails or was moved away, and moved aside when it is
//! full.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::JournalConfig;

/// Nobody else reads it: it says how busy its owner is.
const MODE: u32 = 0o600;

/// How often is looked whether the file is still where it was, and a failed one tried again.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct JournalFile {
    config: JournalConfig,
    open: Option<Open>,
    /// When it was last opened, looked at, or failed.
    looked: Option<Instant>,
    /// Whether nothing was written to it yet.
    is_new: bool,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
}

impl JournalFile {
    pub(super) fn new(config: JournalConfig) -> Self {
        Self {
            config,
            open: None,
            looked: None,
            is_new: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.config.file
    }

    /// Opens the file if it is not, and tells whether it lacks what a file begins with.
    ///
    /// # Errors
    /// It cannot be opened, or failed a moment ago.
    pub(super) fn is_new(&mut self) -> io::Result<bool> {
        self.look()?;
        Ok(std::mem::take(&mut self.is_new))
    }

    /// Tells whether so many bytes more leave room for a predecessor as large.
    pub(super) fn has_room(&self, more: usize) -> bool {
        let bytes = self.open.as_ref().map_or(0, |open| open.bytes);
        bytes == 0 || bytes.saturating_add(widened(more)) <= self.half()
    }

    /// Moves the file aside and begins another.
    ///
    /// # Errors
    /// It cannot be moved or the other not be made.
    pub(super) fn rotate(&mut self) -> io::Result<()> {
        let mut aside = self.config.file.clone().into_os_string();
        aside.push(".1");
        self.open = None;
        let moved = fs::rename(&self.config.file, PathBuf::from(aside));
        let opened = moved.and_then(|()| self.open());
        self.is_new = false;
        opened
    }

    /// Writes a line.
    ///
    /// # Errors
    /// It cannot be written; it may be there in part, and the next one begins a line of its own.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if widened(line.len()) > self.half() {
            return Err(io::Error::other("a line is longer than the journal may be"));
        }
        let Some(open) = &mut self.open else {
            return Err(io::Error::other("it is not open"));
        };
        let written = open.file.write_all(line);
        match written {
            Ok(()) => open.bytes = open.bytes.saturating_add(widened(line.len())),
            Err(_) => self.open = None,
        }
        written
    }

    /// The file and its predecessor share what is allowed.
    fn half(&self) -> u64 {
        self.config.max_size / 2
    }

    fn look(&mut self) -> io::Result<()> {
        let is_due = self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        match &self.open {
            Some(_) if !is_due => Ok(()),
            Some(open) if is_same(&open.file, &self.config.file) => {
                self.looked = Some(Instant::now());
                Ok(())
            }
            None if !is_due => Err(io::Error::other("it failed a moment ago")),
            Some(_) | None => self.open(),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        self.looked = Some(Instant::now());
        self.open = None;
        let path = &self.config.file;
        // Opening a pipe would wait for its reader, and a device has no size to bound.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(MODE);
        let mut file = options.open(path)?;
        file.set_permissions(Permissions::from_mode(MODE))?;
        let mut bytes = file.metadata()?.len();
        if bytes > 0 && last_byte(&mut file)? != b'\n' {
            file.write_all(b"\n")?;
            bytes = bytes.saturating_add(1);
        }
        self.is_new = true;
        self.open = Some(Open { file, bytes });
        Ok(())
    }
}

fn last_byte(file: &mut File) -> io::Result<u8> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last[0])
}

fn is_same(open: &File, path: &Path) -> bool {
    let known = open.metadata().map(|file| (file.dev(), file.ino()));
    let found = fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((known, found), (Ok(known), Ok(found)) if known == found)
}

fn widened(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
