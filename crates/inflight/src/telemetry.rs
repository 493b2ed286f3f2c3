//! What we log and where: standard error, since standard output is for results.

mod printer;

use std::backtrace::Backtrace;
use std::io::{IsTerminal as _, stderr};
use std::panic;

use clap::ValueEnum;
use tracing::error;
use tracing_subscriber::EnvFilter;

pub use printer::{Printer, printer};

/// The variable that says what is logged, as `tracing` filters are written.
const FILTER_VARIABLE: &str = "INFLIGHT_LOG";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging; `level` holds where `INFLIGHT_LOG` says nothing. Ends with [`Printer::flush`] of
/// [`printer`].
pub fn start(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new(level));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        // A log that nobody takes is no reason to end: reporting the failure would panic.
        .log_internal_errors(false)
        .with_writer(printer().clone());
    let started = match format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    // A second start, in tests, keeps the first one's settings.
    started.ok();
    // The usual hook writes to standard error itself and would wait for whoever does not read it.
    panic::set_hook(Box::new(|panicked| {
        let backtrace = Backtrace::capture();
        error!(%panicked, %backtrace, "a part of ours panicked");
    }));
}
