//! Results go to standard output, and a reader that went away is a failure, not a panic.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Prints one line of a command's result.
pub(super) fn line(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("standard output does not take the result")
}

/// Writes a command's result to a file.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
}

/// Puts a command's result in place of a file, whole or not at all: whoever reads it meanwhile has
/// the former one.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What was not even made is not there.
        fs::remove_file(&beside).ok();
    }
    written.with_context(|| format!("{} cannot be written", path.display()))
}
