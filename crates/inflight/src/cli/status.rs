//! `inflight status`: asks a running instance how its fleets are.

mod table;
pub mod watch;

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;

use super::client::{self, AdminAddress, AskError};
use crate::api::wire;

pub(super) use table::{crashed, shown};

const FLEETS_PATH: &str = "/api/v1/fleets";

/// Shows the fleets of a running instance.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Where the instance's admin API listens (`admin.listen` of its configuration).
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9900")]
    pub admin: AdminAddress,
    /// Prints what the API answers, as it is.
    #[arg(long)]
    pub json: bool,
    /// Shows it anew each second, until Ctrl-C: in place on a terminal, else as further lines.
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
}

/// Why there is no status.
#[derive(Debug, Error)]
pub enum StatusError {
    /// The instance could not be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It answered something else than fleets.
    #[error("{address} answered what is not a list of fleets: {cause}")]
    NotFleets {
        /// Whom we asked.
        address: AdminAddress,
        /// Where the answer differs.
        cause: serde_json::Error,
    },
    /// The system gave us no runtime.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

/// Prints the status and returns the exit code: 0 done, 1 failed. Bad usage is found by clap.
#[must_use]
pub fn run(args: &StatusArgs) -> ExitCode {
    if args.watch {
        return watch_blocking(args);
    }
    let written = match status_blocking(args) {
        Ok(text) => io::stdout()
            .write_all(text.as_bytes())
            .map(|()| ExitCode::SUCCESS),
        Err(error) => writeln!(io::stderr(), "error: {error}").map(|()| ExitCode::FAILURE),
    };
    written.unwrap_or(ExitCode::FAILURE)
}

fn status_blocking(args: &StatusArgs) -> Result<String, StatusError> {
    client::runtime()
        .map_err(StatusError::Runtime)?
        .block_on(status(args))
}

fn watch_blocking(args: &StatusArgs) -> ExitCode {
    let watched = client::runtime().and_then(|runtime| {
        let mut out = io::stdout();
        let screen = watch::Screen {
            in_place: out.is_terminal(),
            every: watch::EVERY,
        };
        let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
        runtime.block_on(watch::watch(&args.admin, screen, &mut out, stop))
    });
    match watched {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read it, `head` for one, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "error: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

/// Asks the instance and returns what is to be printed.
///
/// # Errors
/// Nobody listens, or who listens does not answer fleets.
pub async fn status(args: &StatusArgs) -> Result<String, StatusError> {
    if args.json {
        return Ok(client::get(&args.admin, FLEETS_PATH).await? + "\n");
    }
    Ok(table::render(&fleets(&args.admin).await?))
}

async fn fleets(address: &AdminAddress) -> Result<Vec<wire::Fleet>, StatusError> {
    let answer = client::get(address, FLEETS_PATH).await?;
    let fleets: wire::Fleets =
        serde_json::from_str(&answer).map_err(|cause| StatusError::NotFleets {
            address: address.clone(),
            cause,
        })?;
    Ok(fleets.fleets)
}
