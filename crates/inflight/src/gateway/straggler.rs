//! Requests whose client left, or was told that it took too long, while a replica that cannot be
//! cancelled works on: they keep their slot until the replica really ended.
//!
//! Each holds a slot, so there are never more of them than slots. And uploads that outlive their
//! answer for a moment, which hold none.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use inflight_core::admission::Outcome;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Shared;
use super::connection::Client;
use super::upload::Upload;
use super::upstream::{Lease, SendError};
use crate::fleet::Permit;

/// Uploads that are read on at the same time although nobody wants them.
const DRAINED_MAX: usize = 256;

/// What came of sending a request.
pub(super) type Sent = Result<(Response<Incoming>, Lease), SendError>;

/// A request on its way to a replica's answer.
pub(super) type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;

/// The tasks of those that nobody waits for any more.
pub(super) struct Stragglers {
    tasks: Mutex<JoinSet<()>>,
    drained: Arc<Semaphore>,
}

/// A request that becomes a straggler if this is dropped before it is settled.
pub(super) struct Unsettled {
    shared: Arc<Shared>,
    sending: Option<Sending>,
    permit: Option<Permit>,
}

impl Unsettled {
    pub(super) fn new(shared: Arc<Shared>, sending: Sending, permit: Option<Permit>) -> Self {
        Self {
            shared,
            sending: Some(sending),
            permit,
        }
    }

    /// Returns what to poll; nothing once it is settled.
    pub(super) fn sending(
        &mut self,
    ) -> Option<Pin<&mut (dyn Future<Output = Sent> + Send + 'static)>> {
        self.sending.as_mut().map(Pin::as_mut)
    }

    /// Says that the replica answered or failed, and returns the permit.
    pub(super) fn settle(mut self) -> Option<Permit> {
        self.sending = None;
        self.permit.take()
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(sending) = self.sending.take() {
            let permit = self.permit.take();
            self.shared.stragglers.spawn(async move {
                if let Ok((response, lease)) = sending.await {
                    read_to_end(response.into_body()).await;
                    drop(lease);
                }
                end(permit);
            });
        }
    }
}

impl Default for Stragglers {
    fn default() -> Self {
        Self {
            tasks: Mutex::default(),
            drained: Arc::new(Semaphore::new(DRAINED_MAX)),
        }
    }
}

impl Stragglers {
    /// Reads a response that nobody wants to its end before its slot is free.
    pub(super) fn read_on(&self, body: Incoming, lease: Option<Lease>, permit: Option<Permit>) {
        self.spawn(async move {
            read_to_end(body).await;
            drop(lease);
            end(permit);
        });
    }

    /// Reads on for a moment what a client still sends of a body that nobody wants, if there are
    /// not too many of those.
    pub(super) fn drain(&self, upload: Arc<Upload>, client: Arc<Client>) {
        let Ok(place) = Arc::clone(&self.drained).try_acquire_owned() else {
            return;
        };
        self.spawn(async move {
            if !upload.drain().await {
                client.linger();
            }
            drop(place);
        });
    }

    /// Ends them all.
    pub(super) fn cut(&self) {
        self.lock().abort_all();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read_to_end(mut body: Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

fn end(permit: Option<Permit>) {
    if let Some(mut permit) = permit {
        permit.finish(Outcome::ClientGone);
    }
}
