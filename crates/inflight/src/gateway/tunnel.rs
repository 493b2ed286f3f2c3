//! What follows a 101: bytes both ways, with the request's guard held until the tunnel has ended.
//!
//! It knows nothing of what is spoken inside. A side that ends its sending is told to the other,
//! which may go on; silence after that is the end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use inflight_core::admission::Outcome;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, sleep};

use super::connection::OpenRequest;
use super::upstream::Lease;
use crate::fleet::Permit;

/// How long a tunnel lives on without a byte when one side has ended its sending: a socket that
/// was closed looks the same as one that only sends no more.
const HALF_OPEN: Duration = Duration::from_secs(10);

/// A tunnel between a client and a replica. Dropping it cuts both sides and ends the request.
pub(super) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) replica: OnUpgrade,
    /// The count and the slot; none for a request that is not counted.
    pub(super) permit: Option<Permit>,
    /// What drives the replica's connection until it is handed over.
    pub(super) lease: Lease,
    /// The request's place on the client's connection.
    pub(super) open: OpenRequest,
    /// How long no byte may move in either direction.
    pub(super) idle: Duration,
    /// Whether a replica stops working when its client closes.
    pub(super) is_cancellable: bool,
}

/// What moved in a tunnel.
#[derive(Default)]
struct Progress {
    moved: AtomicU64,
    has_half_ended: AtomicBool,
    has_client_failed: AtomicBool,
}

/// One side of a tunnel, which notes what moves.
struct Side<'a> {
    io: TokioIo<Upgraded>,
    progress: &'a Progress,
    is_client: bool,
}

impl Tunnel {
    /// Carries bytes until both sides have ended, one fails, or nothing moves for too long.
    pub(super) async fn run(self) {
        let Self {
            client,
            replica,
            permit,
            lease,
            open,
            idle,
            is_cancellable,
        } = self;
        let half_open = if is_cancellable {
            idle.min(HALF_OPEN)
        } else {
            idle
        };
        let outcome = match client.await {
            Err(_) => Outcome::ClientGone,
            Ok(client) => match replica.await {
                Err(_) => Outcome::UpstreamFailed,
                Ok(replica) => carry(client, replica, idle, half_open).await,
            },
        };
        if let Some(mut permit) = permit {
            permit.finish(outcome);
        }
        drop((lease, open));
    }
}

async fn carry(
    client: Upgraded,
    replica: Upgraded,
    idle: Duration,
    half_open: Duration,
) -> Outcome {
    let progress = Progress::default();
    let mut client = Side::new(client, &progress, true);
    let mut replica = Side::new(replica, &progress, false);
    tokio::select! {
        biased;
        copied = copy_bidirectional(&mut client, &mut replica) => match copied {
            Ok(_) => Outcome::Completed,
            Err(error) => {
                tracing::debug!(%error, "a tunnel broke off");
                if progress.has_client_failed.load(Ordering::Relaxed) {
                    Outcome::ClientGone
                } else {
                    Outcome::UpstreamFailed
                }
            }
        },
        outcome = progress.stalls(idle, half_open) => outcome,
    }
}

impl Progress {
    /// Waits until nothing has moved for too long.
    async fn stalls(&self, idle: Duration, half_open: Duration) -> Outcome {
        let period = (half_open / 4).clamp(Duration::from_millis(20), Duration::from_secs(5));
        let mut last = (0, Instant::now());
        loop {
            sleep(period).await;
            let now = Instant::now();
            let moved = self.moved.load(Ordering::Relaxed);
            if moved != last.0 {
                last = (moved, now);
            }
            let quiet = now.duration_since(last.1);
            if self.has_half_ended.load(Ordering::Relaxed) && quiet >= half_open {
                return Outcome::Completed;
            }
            if quiet >= idle {
                return Outcome::TimedOut;
            }
        }
    }
}

impl<'a> Side<'a> {
    fn new(upgraded: Upgraded, progress: &'a Progress, is_client: bool) -> Self {
        Self {
            io: TokioIo::new(upgraded),
            progress,
            is_client,
        }
    }

    fn note<T>(&self, done: &io::Result<T>) {
        if done.is_ok() {
            self.progress.moved.fetch_add(1, Ordering::Relaxed);
        } else if self.is_client {
            self.progress
                .has_client_failed
                .store(true, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Side<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.io).poll_read(cx, buf));
        this.note(&read);
        if read.is_ok() && buf.filled().len() == before {
            this.progress.has_half_ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Side<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, buf));
        this.note(&written);
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, bufs));
        this.note(&written);
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
