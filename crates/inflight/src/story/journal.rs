//! The journal: what happened, as JSON lines in a file of bounded size.
//!
//! One thread writes it. Whoever has something to say hands it over without waiting: when the
//! thread is behind, or the file cannot be written, lines are lost and counted, and the fleets are
//! served as before. A last line that a crash cut is followed by a whole one.

mod file;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::wire::{Line, What};
use file::JournalFile;

/// Lines that may wait for the thread: minutes of a large fleet of fleets.
const WAITING: usize = 1024;

/// How long the end of the process may wait for the last lines.
const CLOSING: Duration = Duration::from_secs(2);

/// Where the journal is and how large it may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// The file; its predecessor has `.1` behind its name.
    pub file: PathBuf,
    /// The most bytes of both together.
    pub max_size: u64,
}

/// A hand on the journal.
#[derive(Clone, Debug)]
pub struct Journal {
    lines: SyncSender<Said>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Lines for which the thread had no room.
    dropped: AtomicU64,
    /// Lines that could not be written.
    failed: AtomicU64,
    /// Places in the journal before which a reader may lack lines: files' beginnings, lost lines.
    beginnings: AtomicU64,
}

/// What the thread is told.
#[derive(Debug)]
enum Said {
    Line {
        line: Box<Line>,
        /// How many were dropped before it, so that the file tells it before this line.
        dropped: u64,
    },
    End(oneshot::Sender<()>),
}

impl Journal {
    /// Starts the thread. A file that cannot be written is no error: it is tried again.
    ///
    /// # Errors
    /// The system gives us no thread.
    pub fn start(config: JournalConfig) -> io::Result<Self> {
        let (lines, said) = sync_channel(WAITING);
        let counts = Arc::new(Counts::default());
        let mut writer = Writer::new(config, Arc::clone(&counts));
        thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run(&said))?;
        Ok(Self { lines, counts })
    }

    /// Hands a line over; a line for which there is no room is lost.
    pub fn write(&self, line: Line) {
        let line = Box::new(line);
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        match self.lines.try_send(Said::Line { line, dropped }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns a number that changes where the journal cannot be read from its start.
    #[must_use]
    pub fn beginnings(&self) -> u64 {
        self.counts.beginnings.load(Ordering::Relaxed)
    }

    /// Returns how many lines were lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let Counts {
            dropped, failed, ..
        } = &*self.counts;
        dropped.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed)
    }

    /// Waits until what was said is written, but not for long.
    pub async fn close(&self) {
        let (done, is_done) = oneshot::channel();
        let mut end = Said::End(done);
        let told = async {
            while let Err(TrySendError::Full(back)) = self.lines.try_send(end) {
                end = back;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            is_done.await.ok();
        };
        if tokio::time::timeout(CLOSING, told).await.is_err() {
            warn!("the journal's last lines were not written in time");
        }
    }
}

/// The thread's own.
struct Writer {
    file: JournalFile,
    counts: Arc<Counts>,
    /// How many of the lost the file tells of.
    lost_told: u64,
    /// Each fleet's last configuration, which a new file begins with.
    configs: BTreeMap<String, Line>,
    fails: bool,
}

impl Writer {
    fn new(config: JournalConfig, counts: Arc<Counts>) -> Self {
        Self {
            file: JournalFile::new(config),
            counts,
            lost_told: 0,
            configs: BTreeMap::new(),
            fails: false,
        }
    }

    fn run(&mut self, said: &Receiver<Said>) {
        while let Ok(said) = said.recv() {
            match said {
                Said::Line { line, dropped } => self.take(&line, dropped),
                Said::End(done) => {
                    // Whoever waited may have left.
                    done.send(()).ok();
                }
            }
        }
    }

    fn take(&mut self, line: &Line, dropped: u64) {
        match self.write(line, dropped) {
            Ok(()) if self.fails => {
                self.fails = false;
                info!(file = %self.file.path().display(), "the journal is written again");
            }
            Ok(()) => {}
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                if !self.fails {
                    self.fails = true;
                    warn!(
                        file = %self.file.path().display(),
                        %error,
                        "the journal cannot be written; its lines are lost until it can"
                    );
                }
            }
        }
        if let What::Start { config, .. } | What::Config { config } = &line.what {
            let config = config.clone();
            let what = What::Config { config };
            let line = Line {
                what,
                ..line.clone()
            };
            self.configs.insert(line.fleet.clone(), line);
        }
    }

    fn write(&mut self, line: &Line, dropped: u64) -> io::Result<()> {
        if self.file.is_new()? {
            self.begin()?;
        }
        let lost = dropped + self.counts.failed.load(Ordering::Relaxed);
        if lost > self.lost_told {
            let count = lost - self.lost_told;
            let lost_line = Line {
                fleet: String::new(),
                what: What::Lost { count },
                ..line.clone()
            };
            self.file.append(&text(&lost_line)?)?;
            self.lost_told = lost;
            self.counts.beginnings.fetch_add(1, Ordering::Relaxed);
        }
        let text = text(line)?;
        if !self.file.has_room(text.len()) {
            self.file.rotate()?;
            self.begin()?;
        }
        self.file.append(&text)
    }

    /// Says first in a file how each fleet is sized, and lets the fleets say what they know.
    fn begin(&mut self) -> io::Result<()> {
        self.counts.beginnings.fetch_add(1, Ordering::Relaxed);
        for config in self.configs.values() {
            self.file.append(&text(config)?)?;
        }
        Ok(())
    }
}

fn text(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests;
