//! One client connection, as its requests know it, and what moved on it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use inflight_core::SessionKey;
use tokio::net::TcpStream;

use super::io::is_read_closed;
use crate::gateway::config::{Network, Timeouts};
use crate::gateway::forwarded::Peer;
use crate::gateway::tunnel::Tunnel;

/// A client connection.
pub(in crate::gateway) struct Client {
    /// The session that its requests are of unless a header says otherwise.
    pub(in crate::gateway) session: SessionKey,
    /// As replicas are told of it.
    pub(in crate::gateway) peer: Peer,
    pub(super) activity: Arc<Activity>,
    pub(super) stream: Arc<TcpStream>,
    pub(super) must_linger: AtomicBool,
    /// What the connection becomes when HTTP on it has ended.
    tunnel: Mutex<Option<Box<Tunnel>>>,
}

/// What moved on a connection; written by its own tasks, read by its coarse timer.
#[derive(Default)]
pub(in crate::gateway) struct Activity {
    begun: AtomicU64,
    open: AtomicUsize,
    moved: AtomicU64,
    has_unread_head: AtomicBool,
    is_write_blocked: AtomicBool,
}

/// One request that is open on a connection; dropping it says that it is not any more.
pub(in crate::gateway) struct OpenRequest(Arc<Activity>);

impl Client {
    pub(super) fn new(
        stream: Arc<TcpStream>,
        peer: SocketAddr,
        serial: u64,
        trusted: &[Network],
    ) -> Self {
        let mut hasher = DefaultHasher::new();
        (peer, serial).hash(&mut hasher);
        Self {
            session: SessionKey(hasher.finish()),
            peer: Peer::new(peer.ip(), trusted),
            activity: Arc::default(),
            stream,
            must_linger: AtomicBool::new(false),
            tunnel: Mutex::default(),
        }
    }

    /// Notes that a request began.
    pub(in crate::gateway) fn begin(&self) -> OpenRequest {
        let activity = &self.activity;
        activity.begun.fetch_add(1, Ordering::Relaxed);
        activity.open.fetch_add(1, Ordering::Relaxed);
        activity.has_unread_head.store(false, Ordering::Relaxed);
        OpenRequest(Arc::clone(activity))
    }

    /// Tells whether the client closed its side, even beyond bytes that nobody read yet.
    pub(in crate::gateway) fn is_gone(&self) -> bool {
        is_read_closed(&self.stream)
    }

    /// Asks for what the client still sends to be read for a moment before the socket is closed:
    /// closed over unread bytes, it would be reset, and our answer with it.
    pub(in crate::gateway) fn linger(&self) {
        self.must_linger.store(true, Ordering::Relaxed);
    }

    /// Says what the connection becomes once the 101 is sent.
    pub(in crate::gateway) fn switch_to(&self, tunnel: Tunnel) {
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tunnel));
    }

    pub(super) fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    pub(super) fn on_read(&self) {
        add_one(&self.moved);
        if self.open.load(Ordering::Relaxed) == 0 {
            self.has_unread_head.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn on_write(&self, has_written: bool) {
        if has_written {
            add_one(&self.moved);
        }
        if self.is_write_blocked.load(Ordering::Relaxed) == has_written {
            self.is_write_blocked.store(!has_written, Ordering::Relaxed);
        }
    }
}

/// Only the connection's own task writes this counter, so it needs no locked addition.
fn add_one(counter: &AtomicU64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(1),
        Ordering::Relaxed,
    );
}

/// How long a connection over which nothing happens may have its next request when we drain. Its
/// client cannot know yet; what it sends later than that would meet a closed socket anyway.
pub(super) const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// How long after its last request an HTTP/1 connection gives its buffers up: long enough for one
/// in steady use never to, and looked at so often.
const PARK_AFTER: Duration = Duration::from_millis(500);

/// Judges a connection at each tick of its coarse timer.
pub(super) struct Watchdog {
    timeouts: Timeouts,
    is_http1: bool,
    is_draining: bool,
    moved: (u64, Instant),
    head: (u64, Option<Instant>),
}

/// What shall become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It lives on.
    Keep,
    /// It lives on without its buffers until something comes.
    Park,
    /// It ends as soon as nothing is open on it.
    Close,
    /// It ends at once.
    Cut,
}

impl Watchdog {
    pub(super) fn new(timeouts: Timeouts, is_http1: bool, now: Instant) -> Self {
        Self {
            timeouts,
            is_http1,
            is_draining: false,
            moved: (0, now),
            head: (0, None),
        }
    }

    /// Returns how often to judge: often enough that a time-out is late by a quarter at most.
    pub(super) fn period(&self) -> Duration {
        let shortest = self.timeouts.head.min(self.timeouts.idle);
        let longest = if self.is_http1 {
            PARK_AFTER
        } else {
            Duration::from_secs(5)
        };
        (shortest / 4).clamp(Duration::from_millis(20), longest)
    }

    /// Notes that we drain, and tells whether the connection shall be told to wind down at once:
    /// an idle HTTP/1 client may have sent a request that is still on its way.
    pub(super) fn drain(&mut self, activity: &Activity) -> bool {
        self.is_draining = true;
        !self.is_http1 || activity.is_open()
    }

    pub(super) fn judge(&mut self, activity: &Activity, now: Instant) -> Verdict {
        let is_open = activity.is_open();
        let moved = activity.moved.load(Ordering::Relaxed);
        if moved != self.moved.0 {
            self.moved = (moved, now);
        }
        let quiet = now.duration_since(self.moved.1);
        let is_blocked = activity.is_write_blocked.load(Ordering::Relaxed);
        let is_quiet = quiet >= self.timeouts.idle;
        // Bytes that are read while no request is open are a request's head, over HTTP/1.
        let has_head =
            self.is_http1 && !is_open && activity.has_unread_head.load(Ordering::Relaxed);
        if (is_quiet && is_blocked) || self.is_head_late(activity, has_head, now) {
            return Verdict::Cut;
        }
        if is_open {
            return Verdict::Keep;
        }
        let is_idle = self.is_http1 && !has_head && !is_blocked;
        if is_quiet || (is_idle && self.is_draining && quiet >= DRAIN_GRACE) {
            Verdict::Close
        } else if is_idle && !self.is_draining && quiet >= PARK_AFTER {
            Verdict::Park
        } else {
            Verdict::Keep
        }
    }

    fn is_head_late(&mut self, activity: &Activity, has_head: bool, now: Instant) -> bool {
        let begun = activity.begun.load(Ordering::Relaxed);
        if !has_head || self.head.0 != begun {
            self.head = (begun, None);
        }
        if !has_head {
            return false;
        }
        let since = *self.head.1.get_or_insert(now);
        now.duration_since(since) >= self.timeouts.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn watchdog(start: Instant) -> (Watchdog, Activity) {
        (
            Watchdog::new(Timeouts::default(), true, start),
            Activity::default(),
        )
    }

    #[test]
    fn a_head_that_does_not_end_is_cut_however_slowly_it_comes() {
        let start = Instant::now();
        let (mut watchdog, activity) = watchdog(start);
        activity.on_read();
        assert_eq!(watchdog.judge(&activity, start), Verdict::Keep);
        activity.on_read();
        assert_eq!(watchdog.judge(&activity, start + 9 * SECOND), Verdict::Keep);
        activity.on_read();
        assert_eq!(watchdog.judge(&activity, start + 10 * SECOND), Verdict::Cut);
    }

    #[test]
    fn a_quiet_connection_is_closed_only_when_nothing_is_open() {
        let start = Instant::now();
        let (mut watchdog, activity) = watchdog(start);
        activity.open.store(1, Ordering::Relaxed);
        assert_eq!(
            watchdog.judge(&activity, start + 301 * SECOND),
            Verdict::Keep
        );
        activity.open.store(0, Ordering::Relaxed);
        assert_eq!(
            watchdog.judge(&activity, start + 302 * SECOND),
            Verdict::Close
        );
    }

    #[test]
    fn a_client_that_takes_nothing_for_the_idle_time_is_cut() {
        let start = Instant::now();
        let (mut watchdog, activity) = watchdog(start);
        activity.open.store(1, Ordering::Relaxed);
        activity.on_write(false);
        assert_eq!(
            watchdog.judge(&activity, start + 299 * SECOND),
            Verdict::Keep
        );
        assert_eq!(
            watchdog.judge(&activity, start + 300 * SECOND),
            Verdict::Cut
        );
        activity.on_write(true);
        assert_eq!(
            watchdog.judge(&activity, start + 301 * SECOND),
            Verdict::Keep
        );
    }
}
