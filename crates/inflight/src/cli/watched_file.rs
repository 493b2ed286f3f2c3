//! The configuration file while we run: read again on SIGHUP, and when it changes.
//!
//! It is read once a second and compared as a whole. That costs some microseconds, and sees what
//! a watch of the file system misses or tells too early: editors and ConfigMaps that put another
//! file in its place, network mounts, two writes within one tick of the clock. A change counts once
//! two readings in a row agree, so that a file that is being written is let be.

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::task::spawn_blocking;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::info;

use crate::config::{Config, ConfigError, Surroundings};

/// How often the file is read: a change is in force after one to two of these.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The file, and what of it was judged last.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    judged: Seen,
    /// What the last reading gave, if it was another than what was judged.
    unsettled: Option<Seen>,
}

/// What a reading gave: the text, or why there was none.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Never,
    Text(String),
    Unreadable(std::io::ErrorKind),
}

impl Seen {
    fn of(read: &Result<String, ConfigError>) -> Self {
        match read {
            Ok(text) => Self::Text(text.clone()),
            Err(ConfigError::Unreadable { error, .. }) => Self::Unreadable(error.kind()),
            Err(ConfigError::Invalid { text, .. }) => Self::Text(text.clone()),
        }
    }
}

impl WatchedFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            judged: Seen::Never,
            unsettled: None,
        }
    }

    /// Reads and judges the file, on this machine.
    ///
    /// *Errors*: the file cannot be read, or anything in it is wrong.
    pub(super) fn load(&mut self) -> Result<Config, ConfigError> {
        let read = Config::read(&self.path);
        self.judge(read)
    }

    /// Waits until the file is to be put in force again, and judges it.
    pub(super) async fn changed(&mut self, hang_up: &mut Signal) -> Result<Config, ConfigError> {
        let mut ticks: Interval = interval(READ_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_told = tokio::select! {
                // No more signals can be received only when everything ends.
                Some(()) = hang_up.recv() => true,
                _ = ticks.tick() => false,
            };
            let path = self.path.clone();
            // Not here, where a slow disk would hold up every request.
            let Ok(read) = spawn_blocking(move || Config::read(&path)).await else {
                continue;
            };
            if is_told || self.has_settled(&read) {
                info!(file = %self.path.display(), is_told, "configuration is read again");
                return self.judge(read);
            }
        }
    }

    /// Tells whether a reading is another than what was judged, and the same as the last one.
    fn has_settled(&mut self, read: &Result<String, ConfigError>) -> bool {
        let seen = Seen::of(read);
        if seen == self.judged {
            self.unsettled = None;
            return false;
        }
        let has_settled = self.unsettled.as_ref() == Some(&seen);
        self.unsettled = Some(seen);
        has_settled
    }

    fn judge(&mut self, read: Result<String, ConfigError>) -> Result<Config, ConfigError> {
        self.judged = Seen::of(&read);
        self.unsettled = None;
        Config::from_text(&self.path, &read?, &Surroundings::of_this_process())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Result<String, ConfigError> {
        Ok(text.to_owned())
    }

    fn absent() -> Result<String, ConfigError> {
        Err(ConfigError::Unreadable {
            path: "x".into(),
            error: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn watched() -> WatchedFile {
        let mut file = WatchedFile::new("x".into());
        file.judge(text("whole")).unwrap_err();
        file
    }

    #[test]
    fn a_file_that_is_being_written_is_let_be_until_it_settled() {
        let mut file = watched();
        for half in ["", "oth", "other wh"] {
            assert!(!file.has_settled(&text(half)));
        }
        assert!(!file.has_settled(&text("other whole")));
        assert!(file.has_settled(&text("other whole")));
    }

    #[test]
    fn a_file_that_is_away_for_a_moment_or_written_back_is_no_change() {
        let mut file = watched();
        assert!(!file.has_settled(&absent()));
        assert!(!file.has_settled(&text("whole")));
        assert!(!file.has_settled(&absent()));
        assert!(!file.has_settled(&text("other")));
        assert!(!file.has_settled(&text("whole")));
        assert!(!file.has_settled(&text("other")));
    }

    #[test]
    fn a_file_that_stays_away_is_judged_once() {
        let mut file = watched();
        assert!(!file.has_settled(&absent()));
        assert!(file.has_settled(&absent()));
        file.judge(absent()).unwrap_err();
        assert!(!file.has_settled(&absent()));
    }
}
