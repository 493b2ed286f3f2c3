//! The `inflight` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First, since a shim has to be there within milliseconds.
    inflight::targets::process::run_shim_if_asked()
        .or_else(inflight::serve::run_server_if_asked)
        .unwrap_or_else(inflight::cli::main)
}
