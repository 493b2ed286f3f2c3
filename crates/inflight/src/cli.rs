//! The command line: parses, calls, prints. Nothing imports it.

pub mod status;

use std::process::ExitCode;

/// Runs the command that the arguments name and returns its exit code: 0 done, 1 failed, 2 bad
/// usage or configuration.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
