//! What a process target is told to run, checked.
//!
//! It does not know the configuration file; that is read elsewhere and ends in
//! [`ProcessSettings`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inflight_core::Replicas;

use crate::ports::NamedPorts;
use crate::probe::Probe;

/// Everything that can be set, with nothing checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// The fleet's name, for log lines.
    pub fleet: String,
    /// The program and its arguments; `{port}`, `{port.NAME}` and `{replica}` are replaced in each.
    pub command: Vec<String>,
    /// Names of further ports, one of each for every replica.
    pub ports: Vec<String>,
    /// What is added to our own environment; the same is replaced in the values. `PORT` and `INFLIGHT_REPLICA` are set beside it, unless it sets them itself.
    pub env: BTreeMap<String, String>,
    /// How a replica is asked whether it is ready.
    pub ready: Probe,
    /// How long after one such question's answer the next one follows.
    pub ready_every: Duration,
    /// How long a replica may take from its process's start to ready.
    pub start_timeout: Duration,
    /// How long a draining replica may keep its last requests.
    pub drain_timeout: Duration,
    /// From SIGTERM to SIGKILL.
    pub stop_grace: Duration,
    /// Where the replicas listen.
    pub host: IpAddr,
    /// Whether replicas stay when we end; needs a folder for their sockets.
    pub keeps: bool,
    /// How long a replica waits for its next owner.
    pub orphan_grace: Duration,
    /// How many processes there may be, draining and stopping ones included. Indices stay below
    /// it, so `{replica}` can name a device.
    pub replicas_max: Replicas,
}

impl ProcessSettings {
    /// Returns the defaults around what has none.
    #[must_use]
    pub const fn new(fleet: String, command: Vec<String>, replicas_max: Replicas) -> Self {
        Self {
            fleet,
            command,
            ports: Vec::new(),
            env: BTreeMap::new(),
            ready: Probe::Tcp,
            ready_every: Duration::from_millis(20),
            start_timeout: Duration::from_secs(600),
            drain_timeout: Duration::from_secs(60),
            stop_grace: Duration::from_secs(30),
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            keeps: false,
            orphan_grace: Duration::from_secs(600),
            replicas_max,
        }
    }
}

/// Settings that were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessConfig(ProcessSettings);

/// What is wrong with a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessConfigError {
    /// There is no program to run.
    #[error("command is empty; it needs a program and may have arguments")]
    CommandEmpty,
    /// The kernel takes no NUL in arguments and environment.
    #[error("{key} holds a NUL character")]
    Nul {
        /// Which setting.
        key: String,
    },
    /// The kernel takes no such variable.
    #[error("env variable name '{name}' is empty or holds '='")]
    EnvName {
        /// The name.
        name: String,
    },
    /// The path cannot be asked for.
    #[error("ready.path '{path}' is not a path of a URL; it begins with '/' and has no spaces")]
    ReadyPath {
        /// The path.
        path: String,
    },
    /// The span is too short or too long to be meant.
    #[error("{key} {value:?} is out of range; it is from {min:?} to {max:?}")]
    Span {
        /// Which setting.
        key: &'static str,
        /// Its value.
        value: Duration,
        /// The shortest allowed.
        min: Duration,
        /// The longest allowed.
        max: Duration,
    },
}

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no such file.
    #[error("command '{command}' is not found")]
    NotFound {
        /// The program as it was given.
        command: String,
    },
    /// There is one, but it cannot be executed.
    #[error("command '{command}' is not an executable file: {}", .path.display())]
    NotExecutable {
        /// The program as it was given.
        command: String,
        /// The file that was found.
        path: PathBuf,
    },
}

const DAY: Duration = Duration::from_secs(86_400);

impl ProcessConfig {
    /// Checks settings.
    ///
    /// # Errors
    ///
    /// Returns everything that is wrong. Whether the program exists is not asked here, see
    /// [`ProcessConfig::resolve_command`]: it may come later.
    pub fn check(settings: ProcessSettings) -> Result<Self, Vec<ProcessConfigError>> {
        let mut errors = Vec::new();
        if settings.command.first().is_none_or(String::is_empty) {
            errors.push(ProcessConfigError::CommandEmpty);
        }
        if settings.command.iter().any(|part| part.contains('\0')) {
            errors.push(ProcessConfigError::Nul {
                key: "command".to_owned(),
            });
        }
        for (name, value) in &settings.env {
            if name.is_empty() || name.contains('=') {
                errors.push(ProcessConfigError::EnvName { name: name.clone() });
            }
            if name.contains('\0') || value.contains('\0') {
                errors.push(ProcessConfigError::Nul {
                    key: format!("env.{name}"),
                });
            }
        }
        if let Probe::Http { path } = &settings.ready
            && (!path.starts_with('/') || path.parse::<http::Uri>().is_err())
        {
            errors.push(ProcessConfigError::ReadyPath { path: path.clone() });
        }
        let span = |key, value, min| {
            let wrong = !(min..=DAY).contains(&value);
            wrong.then_some(ProcessConfigError::Span {
                key,
                value,
                min,
                max: DAY,
            })
        };
        errors.extend(span(
            "ready.every",
            settings.ready_every,
            Duration::from_millis(1),
        ));
        errors.extend(span(
            "start_timeout",
            settings.start_timeout,
            Duration::from_millis(100),
        ));
        errors.extend(span(
            "drain_timeout",
            settings.drain_timeout,
            Duration::ZERO,
        ));
        errors.extend(span("orphan_grace", settings.orphan_grace, Duration::ZERO));
        errors.extend(span("stop_grace", settings.stop_grace, Duration::ZERO));
        if errors.is_empty() {
            Ok(Self(settings))
        } else {
            Err(errors)
        }
    }

    /// Returns the settings.
    #[must_use]
    pub const fn settings(&self) -> &ProcessSettings {
        &self.0
    }

    /// Returns the file that the command's program is, looked for as it will be when it is run.
    ///
    /// # Errors
    ///
    /// When there is no such file, or it cannot be executed.
    pub fn resolve_command(&self) -> Result<PathBuf, CommandError> {
        let program = self.0.command.first().map_or("", String::as_str);
        let own = std::env::var_os("PATH").unwrap_or_default();
        let path = self.0.env.get("PATH").map_or(own.as_os_str(), OsStr::new);
        resolve_in(program, path)
    }

    /// Returns what tells this command and environment from others.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.0.command, &self.0.env).hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the program and its arguments for one replica.
    pub(super) fn command_for(&self, index: u32, port: u16, ports: &NamedPorts) -> Vec<String> {
        self.0
            .command
            .iter()
            .map(|part| substitute(part, index, port, ports))
            .collect()
    }

    /// Returns what is added to the environment of one replica.
    pub(super) fn env_for(
        &self,
        index: u32,
        port: u16,
        ports: &NamedPorts,
    ) -> BTreeMap<String, String> {
        let mut env = BTreeMap::from([
            ("PORT".to_owned(), port.to_string()),
            ("INFLIGHT_REPLICA".to_owned(), index.to_string()),
        ]);
        let own = self.0.env.iter();
        env.extend(own.map(|(name, value)| (name.clone(), substitute(value, index, port, ports))));
        env
    }
}

/// Returns the file that a program's name means, looked for in our own `PATH`.
///
/// # Errors
///
/// When there is no such file, or it cannot be executed.
pub fn resolve_command(command: &str) -> Result<PathBuf, CommandError> {
    resolve_in(command, &std::env::var_os("PATH").unwrap_or_default())
}

fn resolve_in(command: &str, path: &OsStr) -> Result<PathBuf, CommandError> {
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![PathBuf::from(command)]
    } else {
        std::env::split_paths(path)
            .map(|folder| folder.join(command))
            .collect()
    };
    if let Some(found) = candidates.iter().find(|file| is_executable(file)) {
        return Ok(found.clone());
    }
    let command = command.to_owned();
    match candidates
        .into_iter()
        .find(|file| file.exists() && !command.is_empty())
    {
        Some(path) => Err(CommandError::NotExecutable { command, path }),
        None => Err(CommandError::NotFound { command }),
    }
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Replaces `{port}`, `{port.NAME}` and `{replica}`; every other brace stays, so that JSON can be
/// passed.
fn substitute(text: &str, index: u32, port: u16, ports: &NamedPorts) -> String {
    let text = text
        .replace("{port}", &port.to_string())
        .replace("{replica}", &index.to_string());
    ports.iter().fold(text, |text, (name, port)| {
        text.replace(&format!("{{port.{name}}}"), &port.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(command: &[&str]) -> ProcessSettings {
        let command = command.iter().map(|part| (*part).to_owned()).collect();
        ProcessSettings::new("hello".to_owned(), command, Replicas::new(4))
    }

    #[test]
    fn port_and_index_are_replaced_and_other_braces_stay() {
        let mut settings = settings(&[
            "serve",
            "--port={port}",
            "--metrics={port.metrics}",
            r#"{"gpu": {replica}, "x": {port.other}}"#,
        ]);
        settings
            .env
            .insert("CUDA_VISIBLE_DEVICES".to_owned(), "{replica}".to_owned());
        let config = ProcessConfig::check(settings).unwrap();
        let ports = NamedPorts::new(BTreeMap::from([("metrics".to_owned(), 20_002)]));
        assert_eq!(
            config.command_for(3, 20_001, &ports),
            [
                "serve",
                "--port=20001",
                "--metrics=20002",
                r#"{"gpu": 3, "x": {port.other}}"#,
            ]
        );
        let env = config.env_for(3, 20_001, &ports);
        assert_eq!(env["CUDA_VISIBLE_DEVICES"], "3");
        assert_eq!(env["PORT"], "20001");
        assert_eq!(env["INFLIGHT_REPLICA"], "3");
    }

    #[test]
    fn a_variable_that_is_set_wins_over_ours() {
        let mut settings = settings(&["serve"]);
        settings.env.insert("PORT".to_owned(), "x{port}".to_owned());
        let config = ProcessConfig::check(settings).unwrap();
        assert_eq!(config.env_for(0, 7, &NamedPorts::default())["PORT"], "x7");
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let mut settings = settings(&[]);
        settings.env.insert("A=B".to_owned(), "a\0b".to_owned());
        settings.ready = Probe::Http {
            path: "health z".to_owned(),
        };
        settings.ready_every = Duration::ZERO;
        settings.start_timeout = Duration::MAX;
        let errors = ProcessConfig::check(settings).unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "command is empty; it needs a program and may have arguments",
                "env variable name 'A=B' is empty or holds '='",
                "env.A=B holds a NUL character",
                "ready.path 'health z' is not a path of a URL; it begins with '/' and has no spaces",
                "ready.every 0ns is out of range; it is from 1ms to 86400s",
                "start_timeout 18446744073709551615.999999999s is out of range; \
                 it is from 100ms to 86400s",
            ]
        );
    }

    #[test]
    fn a_program_is_found_in_the_path_or_where_it_is_said_to_be() {
        assert!(resolve_command("sh").unwrap().ends_with("sh"));
        assert_eq!(resolve_command("/bin/sh"), Ok(PathBuf::from("/bin/sh")));
    }

    #[test]
    fn a_program_that_is_missing_or_not_executable_is_told_apart() {
        let missing = resolve_command("no-such-program-here").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "command 'no-such-program-here' is not found"
        );
        assert!(matches!(
            resolve_command(""),
            Err(CommandError::NotFound { .. })
        ));
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(matches!(
            resolve_command(manifest),
            Err(CommandError::NotExecutable { .. })
        ));
        assert!(matches!(
            resolve_command("/"),
            Err(CommandError::NotExecutable { .. })
        ));
    }

    #[test]
    fn the_path_given_to_the_replica_is_the_one_searched() {
        let mut settings = settings(&["sh"]);
        settings
            .env
            .insert("PATH".to_owned(), "/nowhere".to_owned());
        let config = ProcessConfig::check(settings).unwrap();
        assert!(matches!(
            config.resolve_command(),
            Err(CommandError::NotFound { .. })
        ));
    }
}
