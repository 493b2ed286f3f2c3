//! A task of ours that ends only when it is told to, and how it ended if it did not wait for that.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

/// One task, with the signal that ends it.
#[derive(Debug)]
pub(super) struct Part {
    name: &'static str,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    ended: Option<Result<(), JoinError>>,
}

impl Part {
    /// Starts a task that is given the signal to end at.
    pub(super) fn start<F>(name: &'static str, run: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        Self {
            name,
            stop: Some(stop),
            task: tokio::spawn(run(stopped)),
            ended: None,
        }
    }

    /// Is ready with the part's name once it ended by itself: a fault of ours.
    pub(super) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        if self.ended.is_none()
            && let Poll::Ready(ended) = Pin::new(&mut self.task).poll(cx)
        {
            self.ended = Some(ended);
        }
        match self.ended {
            Some(_) => Poll::Ready(self.name),
            None => Poll::Pending,
        }
    }

    /// Tells it to end; [`Part::ended`] waits for that.
    pub(super) fn tell_to_end(&mut self) {
        if let Some(stop) = self.stop.take() {
            // A part that ended by itself needs no telling; its handle says why.
            stop.send(()).ok();
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It panicked.
    pub(super) async fn ended(self) -> Result<(), JoinError> {
        match self.ended {
            Some(ended) => ended,
            None => self.task.await,
        }
    }

    /// Ends it and waits for that.
    ///
    /// # Errors
    /// It panicked.
    pub(super) async fn end(mut self) -> Result<(), JoinError> {
        self.tell_to_end();
        self.ended().await
    }
}
