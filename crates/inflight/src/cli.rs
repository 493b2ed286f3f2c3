//! The command line: parses, calls, prints. Nothing imports it.

pub mod check;
mod client;
mod config_file;
mod demo;
pub mod explain;
mod load;
mod output;
mod render;
mod replay;
pub mod run;
mod simulate;
pub mod status;
mod watched_file;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use client::{AdminAddress, AskError, BadAddress};
pub use config_file::ConfigFile;

/// Bad usage or configuration.
const USAGE: u8 = 2;

/// Sizes a request-serving fleet by what is in flight.
#[derive(Debug, Parser)]
#[command(name = "inflight", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows on this machine, in about a minute, how a fleet is sized by what is in flight.
    Demo(demo::DemoArgs),
    /// Runs the fleets of a configuration until stopped.
    Run(run::RunArgs),
    /// Says what is wrong with a configuration, or what it would run.
    Check(check::CheckArgs),
    /// Prints configuration for other systems: queries, KEDA's objects, rules, a dashboard.
    Render(render::RenderArgs),
    /// Shows the fleets of a running instance.
    Status(status::StatusArgs),
    /// Runs scenarios under policies in virtual time and compares them.
    Simulate(simulate::SimulateArgs),
    /// Decides again what a journal has recorded, and prints the differences.
    Replay(replay::ReplayArgs),
    /// Says why a fleet of a running instance has its size, and what would change it.
    Explain(explain::ExplainArgs),
    /// Sends a closed-loop load, for the scripts in `bench/seen`.
    #[command(name = "__load", hide = true)]
    Load(load::LoadArgs),
}

/// Runs the command that the arguments name and returns its exit code: 0 done, 1 failed, 2 bad
/// usage or configuration.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version come this way as well, and are no failure.
        Err(error) => {
            let bad = error.use_stderr();
            return match error.print() {
                Ok(()) if bad => ExitCode::from(USAGE),
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Render(args) => render::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Load(args) => load::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
