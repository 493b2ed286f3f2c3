//! Replicas that an earlier process of ours started and left running: found by their shims'
//! sockets, and adopted, or ended if nobody wants them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::wire::{Hello, LINE_MAX, Order, Stage, Told};
use crate::lines::{self, LineReader, LineWriter};

/// What the sockets' names begin and end with.
const NAME: (&str, &str) = ("r-", ".sock");

/// How long a shim may take to say which replica it has.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// A replica that runs, and whose shim obeys us.
#[derive(Debug)]
pub struct Orphan {
    pub(super) hello: Hello,
    pub(super) reader: LineReader,
    pub(super) writer: LineWriter,
}

impl Orphan {
    /// Returns the name of the fleet that it is of.
    #[must_use]
    pub fn fleet(&self) -> &str {
        &self.hello.about.fleet
    }

    /// Returns its number within its fleet.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.hello.about.index
    }

    /// Tells whether it was ready.
    #[must_use]
    pub fn was_ready(&self) -> bool {
        self.hello.stage == Stage::Ready
    }

    /// Tells whether it was not told to end.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.hello.stage != Stage::Stopping
    }

    /// Ends it, since no fleet of ours wants it.
    pub async fn end(self, stop_grace: Duration) {
        let Self {
            hello,
            mut reader,
            writer,
        } = self;
        let about = &hello.about;
        tracing::warn!(
            fleet = about.fleet,
            replica = about.index,
            pid = hello.pid,
            "a replica of a fleet that is not configured is stopped"
        );
        // What cannot be told is gone, or will be.
        writer.send(Order::Terminate.line(), &[]).await.ok();
        let mut ended = async || while let Ok(Some(_)) = reader.next_line().await {};
        if timeout(stop_grace, ended()).await.is_err() {
            writer.send(Order::Kill.line(), &[]).await.ok();
            timeout(HELLO_WITHIN, ended()).await.ok();
        }
    }
}

/// Returns where the socket of a shim that is to be started goes.
pub(super) fn new_socket(folder: &Path) -> PathBuf {
    let (begin, end) = NAME;
    folder.join(format!("{begin}{:016x}{end}", fastrand::u64(..)))
}

/// Finds the replicas that run under shims of this folder. From here on the shims obey us. Sockets
/// with nobody behind them are removed.
///
/// # Errors
/// The folder cannot be read.
pub async fn find_orphans(folder: &Path) -> io::Result<Vec<Orphan>> {
    let mut asking = JoinSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(NAME.0) && name.ends_with(NAME.1)) {
            asking.spawn(ask(path));
        }
    }
    let mut orphans: Vec<Orphan> = asking.join_all().await.into_iter().flatten().collect();
    orphans.sort_by_key(|orphan| (orphan.fleet().to_owned(), orphan.hello.about.index));
    Ok(orphans)
}

async fn ask(path: PathBuf) -> Option<Orphan> {
    let asked = timeout(HELLO_WITHIN, hear(&path)).await;
    match asked {
        Ok(Ok(found)) => found,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(&path).ok();
            None
        }
        Ok(Err(error)) => {
            tracing::warn!(socket = %path.display(), %error, "a replica's shim cannot be asked");
            None
        }
        Err(_) => {
            tracing::warn!(socket = %path.display(), "a replica's shim does not answer");
            None
        }
    }
}

async fn hear(path: &Path) -> io::Result<Option<Orphan>> {
    let (mut reader, writer) = lines::over(UnixStream::connect(path).await?, LINE_MAX);
    while let Some(line) = reader.next_line().await? {
        if let Some(Told::Hello(hello)) = Told::parse(&line) {
            return Ok(Some(Orphan {
                hello,
                reader,
                writer,
            }));
        }
    }
    // It ended in this very moment.
    Ok(None)
}
