//! A request's body on its way to a replica: read ahead a little while the request waits, and
//! kept a little until the replica answered, so that it can be sent again if no replica took it.
//!
//! Never more than [`KEPT_BYTES`] are held; a longer body is streamed and cannot be repeated.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::fault::Fault;

/// Bytes of a body held at most, before and after it was sent.
const KEPT_BYTES: usize = 64 * 1024;

/// How long, and how many bytes, an upload is read on that nobody wants.
const DRAINED: (Duration, usize) = (Duration::from_secs(1), 1 << 20);

/// A request's body, shared by the one who waits and the connection that sends.
pub(super) struct Upload {
    state: Mutex<State>,
    /// Frames that came from the client so far.
    moved: AtomicU64,
}

struct State {
    incoming: Incoming,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    trailers: Option<HeaderMap>,
    keeping: Keeping,
    reading: Reading,
    /// The attempt that the client's frames go to.
    attempt: u64,
    /// The client's stream ends by a frame that says so, not just by ending.
    is_http2: bool,
}

/// Whether frames are kept after they were handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// All so far are.
    All,
    /// Those that were not handed on yet; no replica can be given the body from its start.
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// Nobody waits for the client.
    Open,
    /// More was asked for, and the client has not sent it.
    Starved,
    /// All came.
    Ended,
    /// The client broke off.
    Failed,
    /// The client sent what is no body.
    Malformed,
}

/// Why a body ends before its end. hyper looks for a code of HTTP/2 in what it comes from, to
/// reset the stream with it.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct CutShort {
    why: &'static str,
    source: h2::Error,
}

/// What a replica's connection is given as a request's body.
pub(super) enum RequestBody {
    /// No body.
    Empty,
    /// An upload, from its start.
    Upload {
        /// The body.
        upload: Arc<Upload>,
        /// Which attempt this is; an earlier one gets nothing more.
        attempt: u64,
        /// The next kept frame to hand on.
        next: usize,
        /// Whether all was handed on.
        is_done: bool,
    },
}

impl Upload {
    /// Takes a request's body; `None` when it is empty.
    pub(super) fn new(incoming: Incoming, is_http2: bool) -> Option<Arc<Self>> {
        if incoming.is_end_stream() {
            return None;
        }
        Some(Arc::new(Self {
            state: Mutex::new(State {
                incoming,
                kept: Vec::new(),
                kept_bytes: 0,
                trailers: None,
                keeping: Keeping::All,
                reading: Reading::Open,
                attempt: 0,
                is_http2,
            }),
            moved: AtomicU64::new(0),
        }))
    }

    /// Reads ahead while the request waits, until the bound; `hold` counts the bytes and says
    /// whether more may be held.
    pub(super) fn read_ahead(&self, cx: &mut Context<'_>, mut hold: impl FnMut(usize) -> bool) {
        let mut state = self.lock();
        while state.kept_bytes < KEPT_BYTES && state.reading != Reading::Ended {
            let Poll::Ready(Some(Ok(frame))) = state.poll_client(cx) else {
                return;
            };
            self.moved.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = state.keep_trailers(frame) else {
                return;
            };
            let length = chunk.len();
            state.keep(chunk);
            if !hold(length) {
                return;
            }
        }
    }

    /// Says that a replica took the request: nothing is kept for a repetition any more.
    pub(super) fn seal(&self) {
        self.lock().keeping = Keeping::Rest;
    }

    /// Tells whether the body can be given to another replica from its start.
    pub(super) fn is_repeatable(&self) -> bool {
        let state = self.lock();
        state.keeping == Keeping::All && state.fault().is_none()
    }

    /// Tells whether all of the body came from the client.
    pub(super) fn is_complete(&self) -> bool {
        self.lock().reading == Reading::Ended
    }

    /// Returns what the client did wrong, if it did.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.lock().fault()
    }

    /// Reads on for a moment what nobody wants, so that the client, which may look for the answer
    /// only when it has sent its body, gets to see it. Tells whether that was all.
    pub(super) async fn drain(self: Arc<Self>) -> bool {
        let (time, mut left) = DRAINED;
        let mut body = RequestBody::new(Some(&self));
        let read_on = async {
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                if length > left {
                    return;
                }
                left -= length;
            }
        };
        let has_ended = tokio::time::timeout(time, read_on).await.is_ok();
        has_ended && self.is_complete()
    }

    /// Tells whether the replica would take more and the client sends nothing.
    pub(super) fn is_starved(&self) -> bool {
        self.lock().reading == Reading::Starved
    }

    /// Returns a number that grows with everything that comes from the client.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CutShort {
    fn new(why: &'static str) -> Self {
        let source = h2::Reason::CANCEL.into();
        Self { why, source }
    }
}

impl State {
    const fn fault(&self) -> Option<Fault> {
        match self.reading {
            Reading::Failed => Some(Fault::ClientGone),
            Reading::Malformed => Some(Fault::ClientMalformed),
            Reading::Open | Reading::Starved | Reading::Ended => None,
        }
    }

    fn poll_client(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        if self.reading == Reading::Ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.incoming).poll_frame(cx);
        // hyper takes a stream that the client reset without an error for one that ended.
        let is_withdrawn = self.is_http2 && !self.incoming.is_end_stream();
        self.reading = match &polled {
            Poll::Pending => Reading::Starved,
            Poll::Ready(Some(Err(error))) if is_malformed(error) => Reading::Malformed,
            Poll::Ready(Some(Err(_))) => Reading::Failed,
            Poll::Ready(None) if is_withdrawn => Reading::Failed,
            Poll::Ready(None) => Reading::Ended,
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => Reading::Ended,
            Poll::Ready(Some(Ok(_))) if self.incoming.is_end_stream() => Reading::Ended,
            Poll::Ready(Some(Ok(_))) => Reading::Open,
        };
        if is_withdrawn && matches!(polled, Poll::Ready(None)) {
            return Poll::Ready(Some(Err(CutShort::new("the client took the rest back"))));
        }
        polled.map_err(|_| CutShort::new("the client broke off"))
    }

    fn keep_trailers(&mut self, frame: Frame<Bytes>) -> Option<Bytes> {
        match frame.into_data() {
            Ok(chunk) => Some(chunk),
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                None
            }
        }
    }

    fn keep(&mut self, chunk: Bytes) {
        self.kept_bytes += chunk.len();
        self.kept.push(chunk);
    }

    /// Returns the frame to hand on at `next`, and moves `next` on.
    fn poll_from(
        &mut self,
        cx: &mut Context<'_>,
        next: &mut usize,
        moved: &AtomicU64,
    ) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        if let Some(chunk) = self.kept.get(*next).cloned() {
            *next += 1;
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if self.reading == Reading::Ended {
            return Poll::Ready(self.trailers.take().map(|trailers| {
                if self.keeping == Keeping::All {
                    self.trailers = Some(trailers.clone());
                }
                Ok(Frame::trailers(trailers))
            }));
        }
        let Some(frame) = ready!(self.poll_client(cx)) else {
            return Poll::Ready(None);
        };
        let frame = frame?;
        moved.fetch_add(1, Ordering::Relaxed);
        let chunk = match frame.into_data() {
            Ok(chunk) => chunk,
            Err(frame) => {
                self.trailers = frame.trailers_ref().cloned();
                return Poll::Ready(Some(Ok(frame)));
            }
        };
        if self.keeping == Keeping::All && self.kept_bytes + chunk.len() <= KEPT_BYTES {
            self.keep(chunk.clone());
            *next += 1;
        } else {
            self.keeping = Keeping::Rest;
            self.kept = Vec::new();
            self.kept_bytes = 0;
            *next = 0;
        }
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn has_all_from(&self, next: usize) -> bool {
        next >= self.kept.len() && self.reading == Reading::Ended && self.trailers.is_none()
    }

    fn rest_from(&self, next: usize) -> SizeHint {
        let kept: usize = self.kept.iter().skip(next).map(Bytes::len).sum();
        let kept = u64::try_from(kept).unwrap_or(u64::MAX);
        let coming = match self.reading {
            Reading::Ended => SizeHint::with_exact(0),
            Reading::Open | Reading::Starved | Reading::Failed | Reading::Malformed => {
                self.incoming.size_hint()
            }
        };
        let mut hint = SizeHint::new();
        hint.set_lower(kept.saturating_add(coming.lower()));
        // A length that is known would take the place of the trailers in HTTP/1.
        if let Some(upper) = coming.upper().filter(|_| self.trailers.is_none()) {
            hint.set_upper(kept.saturating_add(upper));
        }
        hint
    }
}

impl RequestBody {
    /// Builds the body of one attempt, from its start. The attempts before it get nothing more,
    /// so that a connection which has not noticed that its stream is over takes nothing away.
    pub(super) fn new(upload: Option<&Arc<Upload>>) -> Self {
        let Some(upload) = upload else {
            return Self::Empty;
        };
        let mut state = upload.lock();
        state.attempt += 1;
        Self::Upload {
            upload: Arc::clone(upload),
            attempt: state.attempt,
            next: 0,
            is_done: false,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = CutShort;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutShort>>> {
        match self.get_mut() {
            Self::Empty | Self::Upload { is_done: true, .. } => Poll::Ready(None),
            Self::Upload {
                upload,
                attempt,
                next,
                is_done,
            } => {
                let mut state = upload.lock();
                if state.attempt != *attempt {
                    *is_done = true;
                    let elsewhere = CutShort::new("the body goes elsewhere");
                    return Poll::Ready(Some(Err(elsewhere)));
                }
                let frame = ready!(state.poll_from(cx, next, &upload.moved));
                *is_done = match &frame {
                    Some(Ok(frame)) => frame.is_trailers() || state.has_all_from(*next),
                    Some(Err(_)) | None => true,
                };
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Upload { is_done: true, .. } => true,
            Self::Upload { upload, next, .. } => upload.lock().has_all_from(*next),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Upload { is_done: true, .. } => SizeHint::with_exact(0),
            Self::Upload { upload, next, .. } => upload.lock().rest_from(*next),
        }
    }
}

/// Tells whether the client sent something that is no body, such as a chunk without a length.
fn is_malformed(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput};
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .is_some_and(|error| matches!(error.kind(), InvalidData | InvalidInput))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncWriteExt;
    use tokio::sync::mpsc;

    use super::*;

    /// Returns what hyper makes of the body of a request with these words.
    async fn incoming(words: &str) -> Incoming {
        let (mut client, server) = tokio::io::duplex(4096);
        client.write_all(words.as_bytes()).await.unwrap();
        let (tell, mut told) = mpsc::channel(1);
        let service = service_fn(move |request: http::Request<Incoming>| {
            let tell = tell.clone();
            async move {
                tell.send(request.into_body()).await.unwrap();
                std::future::pending::<()>().await;
                Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::new())))
            }
        });
        let server = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service);
        tokio::spawn(async move {
            drop(server.await);
            drop(client);
        });
        told.recv().await.unwrap()
    }

    #[tokio::test]
    async fn an_earlier_attempt_takes_nothing_from_a_later_one() {
        let words = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
                     1\r\na\r\n1\r\nb\r\n0\r\nx-t: c\r\n\r\n";
        let upload = Upload::new(incoming(words).await, false).unwrap();
        let mut stale = RequestBody::new(Some(&upload));
        let first = stale.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "a");
        let fresh = RequestBody::new(Some(&upload));
        let refused = stale.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.to_string(), "the body goes elsewhere");
        assert!(stale.frame().await.is_none());
        let all = fresh.collect().await.unwrap();
        assert_eq!(all.trailers().unwrap()["x-t"], "c");
        assert_eq!(all.to_bytes(), "ab");
    }
}
