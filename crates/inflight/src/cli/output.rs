//! Results go to standard output, and a reader that went away is a failure, not a panic.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;

/// Prints one line of a command's result.
pub(super) fn line(text: fmt::Arguments<'_>) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("standard output does not take the result")
}

/// Writes a command's result to a file.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
}
