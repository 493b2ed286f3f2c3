//! The conversation of two of our processes of which one takes over from the other.
//!
//! The successor connects to the other's socket in the state folder. It gets copies of the
//! listening sockets, so that nobody who connects is ever refused; when it could start, it gets what
//! the other knows, finds the replicas, serves, and says so. That last word is the point of no
//! return: until then the other goes on as before if anything fails. Lines of JSON; fields that are
//! not known are ignored, so that the two may be of different versions.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tracing::info;

use super::snapshot::Snapshot;
use crate::lines::{self, DESCRIPTORS_MAX, LineReader, LineWriter};

/// What this version speaks.
const PROTOCOL: u32 = 1;

/// The socket in the state folder.
const SOCKET: &str = "take-over.sock";

/// The longest line: a snapshot with all its sessions.
pub(super) const SNAPSHOT_MAX: usize = 64 << 20;

/// How long the other may take for an answer that needs no work.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long a successor may take until it could start, and then until it serves.
const STEP_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// The successor's first word.
    Ask {
        protocol: u32,
        version: String,
        pid: u32,
    },
    /// The other's answer, in as many parts as descriptors need.
    Sockets {
        version: String,
        pid: u32,
        sockets: Vec<SocketName>,
        is_last: bool,
    },
    /// The successor could start. From here on the other decides nothing.
    Ready {},
    /// What the other knows is the next line.
    Known {},
    /// The other cannot be taken over from as it is: its answer to a successor that could start.
    NotNow { why: String },
    /// The successor serves.
    Serving {},
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SocketName {
    kind: SocketKind,
    /// The fleet's, for a gateway.
    #[serde(default)]
    fleet: String,
    /// Where a listener for clients listens.
    #[serde(default)]
    address: Option<SocketAddr>,
}

/// What a socket that is passed on is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SocketKind {
    Lock,
    TakeOver,
    Admin,
    Gateway,
    /// Where Envoys ask.
    Gate,
    /// Where KEDA asks.
    Keda,
    /// One of a later version.
    #[serde(other)]
    Other,
}

/// What is passed on, by borrowed descriptors.
#[derive(Debug, Default)]
pub(super) struct Offer<'a>(Vec<(SocketName, BorrowedFd<'a>)>);

/// What was passed on.
#[derive(Debug, Default)]
pub(super) struct Sockets(Vec<(SocketName, OwnedFd)>);

/// The place where a successor knocks.
#[derive(Debug)]
pub(super) struct Doorway {
    listener: UnixListener,
}

/// A conversation.
#[derive(Debug)]
struct Conversation {
    reader: LineReader,
    writer: LineWriter,
}

/// The successor's side, as the other sees it.
#[derive(Debug)]
pub(super) struct Successor {
    link: Conversation,
    pid: u32,
    version: String,
}

/// The other, as its successor sees it.
#[derive(Debug)]
pub(super) struct Predecessor {
    link: Conversation,
    pid: u32,
}

impl<'a> Offer<'a> {
    pub(super) fn add(
        &mut self,
        kind: SocketKind,
        fleet: &str,
        address: Option<SocketAddr>,
        descriptor: BorrowedFd<'a>,
    ) {
        let fleet = fleet.to_owned();
        let name = SocketName {
            kind,
            fleet,
            address,
        };
        self.0.push((name, descriptor));
    }
}

impl Sockets {
    /// Takes a socket of which there is one.
    pub(super) fn take(&mut self, kind: SocketKind) -> Option<OwnedFd> {
        self.take_where(|name| name.kind == kind)
    }

    /// Takes the listener of this address, whosever it was; for port 0, that of this name.
    pub(super) fn take_listener(
        &mut self,
        kind: SocketKind,
        fleet: &str,
        configured: SocketAddr,
    ) -> Option<std::net::TcpListener> {
        let is_any = configured.port() == 0;
        let has_name = |name: &SocketName| name.kind == kind && name.fleet == fleet;
        let found = self.take_where(|name| match name.address {
            Some(address) if is_any => has_name(name) && address.ip() == configured.ip(),
            Some(address) => address == configured,
            None => false,
        });
        found.map(Into::into)
    }

    fn take_where(&mut self, wanted: impl Fn(&SocketName) -> bool) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(name, _)| wanted(name))?;
        Some(self.0.swap_remove(at).1)
    }
}

impl Doorway {
    /// Opens the socket in a folder that is ours, or goes on with the one that was passed on.
    pub(super) fn open(folder: &Path, passed: Option<OwnedFd>) -> io::Result<Self> {
        let listener = match passed {
            Some(passed) => {
                let listener = std::os::unix::net::UnixListener::from(passed);
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener)?
            }
            None => {
                let path = socket(folder);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
                UnixListener::bind(path)?
            }
        };
        Ok(Self { listener })
    }

    /// Waits for a successor. A call that is dropped loses nobody.
    pub(super) async fn knock(&self) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Successor {
    /// Hears who it is, passes the sockets on, and waits until it could start.
    pub(super) async fn greet(stream: UnixStream, offer: Offer<'_>) -> anyhow::Result<Self> {
        let mut link = Conversation::over(stream);
        let Message::Ask { version, pid, .. } = link.hear(ANSWER_WITHIN).await? else {
            bail!("it did not say what it wants");
        };
        info!(pid, version, "another inflight wants to take over");
        link.offer(offer).await?;
        let heard = link.hear(STEP_WITHIN).await?;
        let Message::Ready {} = heard else {
            bail!("it answered {heard:?} to the sockets");
        };
        Ok(Self { link, pid, version })
    }

    /// Tells it why it cannot take over.
    pub(super) async fn refuse(&self, why: &str) -> anyhow::Result<()> {
        let why = why.to_owned();
        self.link.say(&Message::NotNow { why }).await
    }

    /// Tells it what we know, and waits until it serves.
    pub(super) async fn tell(&mut self, snapshot: &Snapshot) -> anyhow::Result<()> {
        let text = snapshot.to_text()?;
        self.link.say(&Message::Known {}).await?;
        self.link.write(&text, &[]).await?;
        let heard = self.link.hear(STEP_WITHIN).await?;
        let Message::Serving {} = heard else {
            bail!("it answered {heard:?} to what we know");
        };
        let (pid, version) = (self.pid, &self.version);
        info!(pid, version, "our successor serves");
        Ok(())
    }
}

impl Predecessor {
    /// Finds the one that runs with this folder, and takes its sockets; `None` when none runs.
    pub(super) async fn find(folder: &Path) -> anyhow::Result<Option<(Self, Sockets)>> {
        let stream = match UnixStream::connect(socket(folder)).await {
            Ok(stream) => stream,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(error).context("the running inflight cannot be asked"),
        };
        let mut link = Conversation::over(stream);
        link.say(&Message::Ask {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        })
        .await?;
        let mut sockets = Sockets::default();
        loop {
            let heard = link.hear(ANSWER_WITHIN).await;
            let heard = heard.context("the running inflight does not let us take over")?;
            let Message::Sockets {
                version,
                pid,
                sockets: names,
                is_last,
            } = heard
            else {
                bail!("the running inflight answered {heard:?} instead of its sockets");
            };
            let passed = link.reader.take_descriptors();
            if passed.len() != names.len() {
                bail!(
                    "the running inflight passed {} sockets and named {}",
                    passed.len(),
                    names.len()
                );
            }
            sockets.0.extend(names.into_iter().zip(passed));
            if is_last {
                info!(pid, version, sockets = sockets.0.len(), "taking over");
                return Ok(Some((Self { link, pid }, sockets)));
            }
        }
    }

    /// Says that we could start; from here on the other decides nothing. Returns what it knew.
    pub(super) async fn take_over(&mut self) -> anyhow::Result<String> {
        self.link.say(&Message::Ready {}).await?;
        // It may wait for a first replica, and a line of its own follows.
        let heard = self.link.hear(2 * STEP_WITHIN).await?;
        if let Message::NotNow { why } = heard {
            bail!("the running inflight cannot be taken over from: {why}");
        }
        let Message::Known {} = heard else {
            bail!("the running inflight answered {heard:?} instead of what it knows");
        };
        self.link.read(STEP_WITHIN).await
    }

    /// Says that we serve: the point of no return.
    pub(super) async fn serve_instead(self) -> anyhow::Result<Self> {
        self.link.say(&Message::Serving {}).await?;
        info!(pid = self.pid, "took over");
        Ok(self)
    }

    /// Waits until it has ended.
    pub(super) async fn gone(mut self) {
        while let Ok(Some(_)) = self.link.reader.next_line().await {}
        info!(
            pid = self.pid,
            "the inflight that we took over from is gone"
        );
    }
}

impl Conversation {
    fn over(stream: UnixStream) -> Self {
        let (reader, writer) = lines::over(stream, SNAPSHOT_MAX);
        Self { reader, writer }
    }

    async fn say(&self, message: &Message) -> anyhow::Result<()> {
        self.write(&serde_json::to_string(message)?, &[]).await
    }

    async fn write(&self, line: &str, descriptors: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        timeout(STEP_WITHIN, self.writer.send(line, descriptors))
            .await
            .context("it takes nothing")??;
        Ok(())
    }

    async fn hear(&mut self, limit: Duration) -> anyhow::Result<Message> {
        let line = self.read(limit).await?;
        serde_json::from_str(&line).context("it says what is not understood")
    }

    async fn read(&mut self, limit: Duration) -> anyhow::Result<String> {
        let line = timeout(limit, self.reader.next_line()).await;
        let line = line.with_context(|| format!("it said nothing within {limit:?}"))??;
        line.context("it ended the conversation")
    }

    async fn offer(&self, offer: Offer<'_>) -> anyhow::Result<()> {
        let parts: Vec<_> = offer.0.chunks(DESCRIPTORS_MAX).collect();
        for (number, part) in (1..).zip(&parts) {
            let message = Message::Sockets {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pid: std::process::id(),
                sockets: part.iter().map(|(name, _)| name.clone()).collect(),
                is_last: number == parts.len(),
            };
            let descriptors: Vec<_> = part.iter().map(|(_, descriptor)| *descriptor).collect();
            self.write(&serde_json::to_string(&message)?, &descriptors)
                .await?;
        }
        Ok(())
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}
