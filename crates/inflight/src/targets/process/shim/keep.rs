//! What a shim needs to outlive its owner: a socket where the next one finds it, and the reading
//! ends of the command's outputs, which are passed to each owner.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};

/// How often the outputs are looked at while nobody reads them.
pub(super) const DRAIN_EVERY: Duration = Duration::from_millis(50);

/// Half of what a pipe holds. What is beyond it is dropped, oldest first, so that the command is
/// not held up; the rest stays for the next owner.
const LEFT_IN_PIPE: u64 = 32 * 1024;

/// Where the next owner finds us, for how long.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    path: PathBuf,
    pub(super) grace: Duration,
}

/// The reading ends of the command's outputs.
#[derive(Debug)]
pub(super) struct Outputs([PipeReader; 2]);

impl Door {
    pub(super) fn open(path: &Path, grace: Duration) -> io::Result<Self> {
        Ok(Self {
            listener: UnixListener::bind(path)?,
            path: path.to_owned(),
            grace,
        })
    }

    /// Waits for the next owner.
    pub(super) async fn knock(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Whoever finds it later finds nobody behind it, and removes it.
        fs::remove_file(&self.path).ok();
    }
}

impl Outputs {
    /// Makes two pipes; the writing ends are the command's.
    pub(super) fn open() -> io::Result<(Self, [PipeWriter; 2])> {
        let ((first, out), (second, err)) = (io::pipe()?, io::pipe()?);
        Ok((Self([first, second]), [out, err]))
    }

    pub(super) fn each(&self) -> [&PipeReader; 2] {
        let [out, err] = &self.0;
        [out, err]
    }

    /// Drops what would fill a pipe.
    pub(super) fn drain(&mut self) {
        let mut scratch = [0; 4 * 1024];
        for pipe in &mut self.0 {
            while rustix::io::ioctl_fionread(&*pipe).is_ok_and(|waiting| waiting > LEFT_IN_PIPE)
                && pipe.read(&mut scratch).is_ok_and(|read| read > 0)
            {}
        }
    }
}
