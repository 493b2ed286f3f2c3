//! The tasks of an HTTP/2 connection's streams, each ended when its client takes nothing of its
//! response for too long.
//!
//! A connection on which pings and other streams move says nothing of one stream; and a response
//! that waits for the client's window is not polled. So a response notes here what it gave, and
//! its task judges whether more is asked for.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::gateway::pulse::Pulse;
use crate::gateway::upload::Upload;

tokio::task_local! {
    /// What the response that is polled gave.
    static GIVEN: Cell<Given>;
}

/// What a stream's response gave, and whether more was asked for.
#[derive(Default)]
struct Given {
    frames: u64,
    is_asked_for_more: bool,
    /// The request's body, which may still move while its response does not.
    upload: Option<Arc<Upload>>,
}

/// Notes that a response's next frame is asked for: the client took what was given before.
pub(in crate::gateway) fn note_asked() {
    change(|given| given.is_asked_for_more = true);
}

/// Notes that a response gave a frame, and that more will follow.
pub(in crate::gateway) fn note_given(upload: Option<&Arc<Upload>>) {
    change(|given| {
        given.frames += 1;
        given.is_asked_for_more = false;
        if given.upload.is_none() {
            given.upload = upload.cloned();
        }
    });
}

fn change(change: impl FnOnce(&mut Given)) {
    // Over HTTP/1 there is none: there, the connection's own coarse timer judges.
    let _no_stream = GIVEN.try_with(|cell| {
        let mut given = cell.take();
        change(&mut given);
        cell.set(given);
    });
}

/// Starts the streams of one connection.
#[derive(Clone)]
pub(super) struct Streams {
    /// How long a client may take nothing of a response.
    pub(super) idle: Duration,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        // The connection, which ends with its streams, stands for the handle.
        drop(tokio::spawn(Stream {
            stream,
            given: Given::default(),
            stalls: None,
            pulse: Pulse::default(),
            idle: self.idle,
        }));
    }
}

pin_project! {
    struct Stream<F> {
        #[pin]
        stream: F,
        given: Given,
        stalls: Option<Stall>,
        pulse: Pulse,
        idle: Duration,
    }
}

/// Since when nothing moved on a stream.
struct Stall {
    since: Instant,
    moved: u64,
}

impl<F: Future<Output = ()>> Future for Stream<F> {
    type Output = ();

    /// Ends with the stream, or by dropping it, which resets it.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let given = Cell::new(std::mem::take(this.given));
        let (polled, given) =
            GIVEN.sync_scope(given, || (this.stream.poll(cx), GIVEN.with(Cell::take)));
        *this.given = given;
        if polled.is_ready() {
            return Poll::Ready(());
        }
        if this.given.frames == 0 || this.given.is_asked_for_more {
            *this.stalls = None;
            return Poll::Pending;
        }
        let stall = this.stalls.get_or_insert_with(|| {
            this.pulse.restart();
            Stall {
                since: Instant::now(),
                moved: this.given.moved(),
            }
        });
        loop {
            let now = ready!(this.pulse.poll_beat(cx));
            let moved = this.given.moved();
            if moved != stall.moved {
                *stall = Stall { since: now, moved };
            }
            if now.duration_since(stall.since) >= *this.idle {
                tracing::debug!("a client takes nothing of a response");
                return Poll::Ready(());
            }
        }
    }
}

impl Given {
    /// Returns a number that grows with all that moves on the stream.
    fn moved(&self) -> u64 {
        let uploaded = self.upload.as_ref().map_or(0, |upload| upload.moved());
        self.frames.wrapping_add(uploaded)
    }
}
