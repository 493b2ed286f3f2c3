//! Answers of the admin API that tell their connection when they move.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::connections::Activity;

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
