//! The one coarse timer of a request: it beats a few times a second, and only while the request
//! waits for something.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How late a time-out or a client's leaving may be noticed.
const BEAT: Duration = Duration::from_millis(250);

/// Beats while it is polled.
#[derive(Default)]
pub(super) struct Pulse {
    next: Option<Pin<Box<Sleep>>>,
}

impl Pulse {
    /// Becomes ready at the next beat; polled again after that, waits for another.
    pub(super) fn poll_beat(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        let next = self
            .next
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(BEAT)));
        match next.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let now = Instant::now();
                next.as_mut().reset(now + BEAT);
                Poll::Ready(now)
            }
        }
    }

    /// Starts a new wait: the next beat is a whole one away.
    pub(super) fn restart(&mut self) {
        if let Some(next) = &mut self.next {
            next.as_mut().reset(Instant::now() + BEAT);
        }
    }
}
