//! The open connections of the admin API: bounded, and never all taken by those that say nothing.
//!
//! When there is no place for another, the one on which nothing has moved for longest is closed,
//! so that a probe always gets in. One that does not send its first head soon is closed, and one on
//! which nothing moves for longer than a scraper pauses.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep_until};

/// How long the first head of a connection may take.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// How long nothing may move: longer than a scrape interval of one minute, so that a scraper
/// keeps its connection.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// When something last moved on a connection.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    /// Nanoseconds since `opened`; zero before the first request.
    moved: AtomicU64,
}

/// Who is connected.
#[derive(Debug)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    open: BTreeMap<Id, Open>,
    max: usize,
}

#[derive(Debug)]
struct Open {
    activity: Arc<Activity>,
    task: AbortHandle,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            moved: AtomicU64::new(0),
        })
    }

    /// Says that something moves.
    pub(super) fn touch(&self) {
        let nanos = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.moved.store(nanos.max(1), Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.opened + Duration::from_nanos(self.moved.load(Ordering::Relaxed))
    }

    /// Waits until nothing has moved for too long.
    pub(super) async fn is_over(&self) {
        loop {
            let is_first = self.moved.load(Ordering::Relaxed) == 0;
            let patience = if is_first { HEAD_MAX } else { IDLE_MAX };
            let end = self.last() + patience;
            if end <= Instant::now() {
                return;
            }
            sleep_until(end).await;
        }
    }
}

impl Connections {
    pub(super) fn new(max: usize) -> Self {
        Self {
            tasks: JoinSet::new(),
            open: BTreeMap::new(),
            max,
        }
    }

    /// Serves one more, in place of the one that was silent for longest if there are too many.
    pub(super) fn add(
        &mut self,
        activity: Arc<Activity>,
        serve: impl Future<Output = ()> + Send + 'static,
    ) {
        if self.open.len() >= self.max {
            let silent = self
                .open
                .iter()
                .min_by_key(|(_, open)| open.activity.last());
            if let Some(id) = silent.map(|(&id, _)| id)
                && let Some(open) = self.open.remove(&id)
            {
                tracing::debug!("an admin connection gives its place to another");
                open.task.abort();
            }
        }
        let task = self.tasks.spawn(serve);
        self.open.insert(task.id(), Open { activity, task });
    }

    /// Takes away the next that ended; `None` while there is none at all.
    pub(super) async fn ended(&mut self) -> Option<()> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        self.open.remove(&id);
        Some(())
    }

    /// Cuts all.
    pub(super) async fn cut(mut self) {
        self.tasks.shutdown().await;
    }
}

/// An answer that tells when it moves.
pub(super) struct Moving {
    body: Body,
    activity: Arc<Activity>,
}

impl Moving {
    pub(super) fn new(body: Body, activity: Arc<Activity>) -> Self {
        Self { body, activity }
    }
}

impl HttpBody for Moving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            self.activity.touch();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
