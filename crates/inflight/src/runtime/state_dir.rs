//! The folder of what outlives us: one running inflight has it for itself.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Why the folder cannot be ours.
#[derive(Debug, thiserror::Error)]
pub(super) enum StateDirError {
    /// Another inflight runs with it.
    #[error(
        "state.dir {}: another inflight runs with it; `run --take-over` takes over from it",
        .0.display()
    )]
    InUse(PathBuf),
    /// Others could read or change it, or it is another's.
    #[error(
        "state.dir {}: mode {mode:o} of user {user}; it must be ours alone, mode 700",
        .path.display()
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Whose it is.
        user: u32,
    },
    /// The system refuses.
    #[error("state.dir {}: {error}", .path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// The folder, ours until this and every copy of its lock are dropped.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    lock: File,
}

impl StateDir {
    /// Makes the folder if it is not there, and locks it.
    ///
    /// # Errors
    /// It is in use, not ours alone, or the system refuses.
    pub(super) fn open(path: &Path) -> Result<Self, StateDirError> {
        let failed = |error| StateDirError::Io {
            path: path.to_owned(),
            error,
        };
        make(path).map_err(failed)?;
        check_owner(path)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(path.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self::with_lock(path, lock)),
            Err(TryLockError::WouldBlock) => Err(StateDirError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Takes the folder with the lock of whoever had it before.
    #[must_use]
    pub(super) fn inherit(path: &Path, lock: OwnedFd) -> Self {
        Self::with_lock(path, lock.into())
    }

    fn with_lock(path: &Path, lock: File) -> Self {
        Self {
            path: path.to_owned(),
            lock,
        }
    }

    /// Returns the folder.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lock, a copy of which makes another process the folder's owner too.
    #[must_use]
    pub(super) fn lock(&self) -> &File {
        &self.lock
    }

    /// Writes a file whole: it is there with all of its text or not at all.
    ///
    /// # Errors
    /// The system refuses; what was there before stays.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let (draft, path) = (self.path.join(format!("{name}.new")), self.path.join(name));
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut file = options.open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(&self.path)?.sync_all()
    }

    /// Reads a file and removes it; `None` when there is none.
    ///
    /// # Errors
    /// The system refuses, or the file is larger than `bytes_max`.
    pub(super) fn take(&self, name: &str, bytes_max: u64) -> io::Result<Option<String>> {
        let path = self.path.join(name);
        let text = match fs::metadata(&path) {
            Ok(found) if found.len() > bytes_max => Err(io::Error::other(format!(
                "{} bytes are too many",
                found.len()
            ))),
            Ok(_) => fs::read_to_string(&path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
        };
        fs::remove_file(&path)?;
        text
    }
}

fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn check_owner(path: &Path) -> Result<(), StateDirError> {
    let found = fs::metadata(path).map_err(|error| StateDirError::Io {
        path: path.to_owned(),
        error,
    })?;
    let (mode, user) = (found.mode() & 0o777, found.uid());
    let is_ours = found.is_dir() && user == rustix::process::geteuid().as_raw();
    if is_ours && mode & 0o077 == 0 {
        Ok(())
    } else {
        let path = path.to_owned();
        Err(StateDirError::NotOurs { path, mode, user })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("inflight-{name}-{}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        path
    }

    #[test]
    fn one_has_it_and_the_next_when_that_one_is_gone() {
        let path = folder("lock");
        let first = StateDir::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let second = StateDir::open(&path).unwrap_err();
        assert!(matches!(second, StateDirError::InUse(_)), "{second}");
        let heir = StateDir::inherit(&path, first.lock().try_clone().unwrap().into());
        drop(first);
        assert!(StateDir::open(&path).is_err(), "the heir has it");
        drop(heir);
        StateDir::open(&path).unwrap();
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_read_is_refused() {
        let path = folder("mode");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = StateDir::open(&path).unwrap_err();
        assert!(
            matches!(refused, StateDirError::NotOurs { .. }),
            "{refused}"
        );
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn what_is_written_is_taken_once() {
        let path = folder("take");
        let state = StateDir::open(&path).unwrap();
        assert_eq!(state.take("text", 10).unwrap(), None);
        state.write("text", "one").unwrap();
        state.write("text", "two").unwrap();
        assert_eq!(state.take("text", 10).unwrap().as_deref(), Some("two"));
        assert_eq!(state.take("text", 10).unwrap(), None);
        state.write("text", "far too long").unwrap();
        assert!(state.take("text", 10).is_err());
        assert_eq!(state.take("text", 10).unwrap(), None);
        fs::remove_dir_all(&path).unwrap();
    }
}
