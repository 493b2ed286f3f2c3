//! `inflight check --values`: what a SuperSONIC chart's values do, and what to fix in them.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use crate::cli::USAGE;
use crate::config::{ChartAdvice, Config, chart_advice};

/// Prints the advice and returns the exit code: 0 printed, 1 failed to print, 2 unreadable.
pub(super) fn run(path: &Path) -> ExitCode {
    let advice = Config::read(path)
        .map_err(|error| error.to_string())
        .and_then(|text| {
            chart_advice(&text).map_err(|problem| format!("values {}: {problem}", path.display()))
        });
    let (written, code) = match advice {
        Ok(advice) => (
            io::stdout().write_all(drawn(&advice).as_bytes()),
            ExitCode::SUCCESS,
        ),
        Err(error) => (writeln!(io::stderr(), "{error}"), ExitCode::from(USAGE)),
    };
    written.map_or(ExitCode::FAILURE, |()| code)
}

fn drawn(advice: &ChartAdvice) -> String {
    let mut out = String::new();
    let mut part = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        out.push_str(title);
        out.push('\n');
        for line in lines {
            out.push_str(&format!("  {line}\n"));
        }
    };
    part("as it is:", &mut advice.does.iter().cloned());
    part("with inflight:", &mut advice.changes.iter().cloned());
    if advice.fixes.is_empty() {
        part("nothing to fix", &mut std::iter::empty());
    } else {
        part("to fix:", &mut advice.fixes.iter().map(ToString::to_string));
    }
    out
}
