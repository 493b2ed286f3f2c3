//! What happens, as it happens: server-sent events.
//!
//! An event's id is that of our run and its number, so that a listener who was cut off says after
//! which one to go on, also to a later run of ours. A listener that falls behind what is remembered
//! is cut off.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::failure::Failure;
use super::query::parameters;
use super::{Shared, mapping};
use crate::clock::Clock;
use crate::story::{Events, Heard};

/// Listeners at the same time: a quarter of the connections, so that the rest stays for probes.
pub(super) const LISTENERS_MAX: usize = 64;

/// How often something is sent although nothing happened, so that a dead connection is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Where an earlier stream ended.
const LAST_EVENT_ID: &str = "last-event-id";

/// One who listens.
struct Listener {
    events: Arc<Events>,
    watch: watch::Receiver<Option<u64>>,
    clock: Clock,
    after: u64,
    /// What is sent before the first event.
    greeting: Option<String>,
    _place: OwnedSemaphorePermit,
}

/// Sends what happens from here on, or after the event that the header `last-event-id` names.
pub(super) async fn listen(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Failure> {
    parameters(&uri, &[])?;
    let place = Arc::clone(&shared.listeners)
        .try_acquire_owned()
        .map_err(|_| {
            Failure::unavailable(format!("{LISTENERS_MAX} listen already; no more can"))
        })?;
    let events = Arc::clone(shared.api.story.events());
    let watch = events.watch();
    let last = events.last();
    let asked = match headers.get(LAST_EVENT_ID) {
        Some(id) => Some(id.to_str().ok().and_then(parse).ok_or_else(|| {
            Failure::bad_request(format!("{LAST_EVENT_ID}: {id:?} is the id of no event"))
        })?),
        None => None,
    };
    let mut greeting = "retry: 2000\n\n".to_owned();
    let after = match asked {
        None => last,
        Some((run, number)) => {
            let number = if run == events.run() {
                number.min(last)
            } else {
                0
            };
            let known = match events.after(number) {
                Heard::Missed(oldest) => oldest.saturating_sub(1),
                Heard::Event(_) | Heard::Nothing => number,
            };
            if known != number || run != events.run() {
                greeting.push_str("event: missed\ndata: {}\n\n");
            }
            known
        }
    };
    let listener = Listener {
        events,
        watch,
        clock: shared.api.clock,
        after,
        greeting: Some(greeting),
        _place: place,
    };
    let body = Body::from_stream(stream::unfold(listener, Listener::next));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, body).into_response())
}

impl Listener {
    /// Waits for what is to be sent next; `None` ends the stream.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(greeting) = self.greeting.take() {
            return Some((Ok(greeting.into()), self));
        }
        loop {
            self.watch.mark_unchanged();
            let text = match self.events.after(self.after) {
                Heard::Event(event) => {
                    self.after = event.number;
                    let event = mapping::event(&event, self.events.run(), self.clock);
                    let data = serde_json::to_string(&event).ok()?;
                    let mut text = String::new();
                    let (id, kind) = (&event.id, event.what.name());
                    write!(text, "id: {id}\nevent: {kind}\ndata: {data}\n\n").ok()?;
                    text
                }
                // Too slow: it learns what it missed when it comes back.
                Heard::Missed(_) => return None,
                Heard::Nothing if self.watch.borrow().is_none() => return None,
                Heard::Nothing => match timeout(HEARTBEAT, self.watch.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) => return None,
                    Err(_) => ":\n\n".to_owned(),
                },
            };
            return Some((Ok(text.into()), self));
        }
    }
}

/// Reads an id: the run's and the event's number.
fn parse(id: &str) -> Option<(u64, u64)> {
    let (run, number) = id.split_once('-')?;
    Some((run.parse().ok()?, number.parse().ok()?))
}
