//! `inflight status`: asks a running instance how its fleets are.

mod client;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use thiserror::Error;

use crate::api::wire;
pub use client::{AdminAddress, AskError, BadAddress};

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
    let written = match status_blocking(args) {
        Ok(text) => io::stdout()
            .write_all(text.as_bytes())
            .map(|()| ExitCode::SUCCESS),
        Err(error) => writeln!(io::stderr(), "error: {error}").map(|()| ExitCode::FAILURE),
    };
    written.unwrap_or(ExitCode::FAILURE)
}

fn status_blocking(args: &StatusArgs) -> Result<String, StatusError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StatusError::Runtime)?;
    runtime.block_on(status(args))
}

/// Asks the instance and returns what is to be printed.
///
/// # Errors
/// Nobody listens, or who listens does not answer fleets.
pub async fn status(args: &StatusArgs) -> Result<String, StatusError> {
    let answer = client::get(&args.admin, FLEETS_PATH).await?;
    if args.json {
        return Ok(answer + "\n");
    }
    let fleets: wire::Fleets =
        serde_json::from_str(&answer).map_err(|cause| StatusError::NotFleets {
            address: args.admin.clone(),
            cause,
        })?;
    Ok(table::render(&fleets.fleets))
}
