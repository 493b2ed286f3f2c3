//! Which configuration a command reads.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, ConfigError, Surroundings};

/// The argument that names the configuration.
#[derive(Clone, Debug, Args)]
pub struct ConfigFile {
    /// The configuration file.
    #[arg(
        short = 'c',
        long = "config",
        value_name = "FILE",
        env = "INFLIGHT_CONFIG",
        default_value = "inflight.yaml"
    )]
    pub path: PathBuf,
}

impl ConfigFile {
    /// Reads and judges the file, on this machine.
    ///
    /// *Errors*: the file cannot be read, or anything in it is wrong; both end with exit code 2.
    pub fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.path, &Surroundings::of_this_process())
    }

    /// Reads and judges the file, which another machine may be for.
    ///
    /// *Errors*: the file cannot be read, or anything in it is wrong; both end with exit code 2.
    pub fn load_elsewhere(&self) -> Result<Config, ConfigError> {
        Config::load(&self.path, &Surroundings::Elsewhere)
    }
}
