//! Accepting clients, and letting them finish at the end.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::{GatewayConfig, Shared, connection};

/// Clients that may wait to be accepted; the system caps it at its own limit.
const BACKLOG: i32 = 4096;

/// How often idle connections to replicas are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The pause after a failed accept, doubled up to the second value while it goes on failing.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Accepts and serves until `shutdown` ends, then drains.
pub(super) async fn serve(
    listener: TcpListener,
    mut settings: watch::Receiver<GatewayConfig>,
    shared: Shared,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut shared = Arc::new(shared);
    let (publish, published) = watch::channel(Arc::clone(&shared));
    let mut connections = JoinSet::new();
    let (drain, draining) = watch::channel(false);
    let mut door = Door {
        listener,
        pause: None,
    };
    let mut sweep = interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut serial = 0;
    shared.fleet.board().open_doors += 1;
    loop {
        let has_room = connections.len() < shared.config.limits.connections;
        tokio::select! {
            () = &mut shutdown => break,
            (stream, peer) = door.accept(), if has_room => {
                serial += 1;
                let shared = published.clone();
                connections.spawn(connection::serve(shared, stream, peer, serial, draining.clone()));
            }
            Ok(()) = settings.changed() => {
                let config = settings.borrow_and_update().clone();
                shared = Arc::new(shared.configured(config));
                publish.send_replace(Arc::clone(&shared));
            }
            Some(ended) = connections.join_next() => note_panic(ended),
            now = sweep.tick() => {
                shared.upstream.sweep(now.into_std(), |replica| shared.fleet.knows(replica));
            }
        }
    }
    shared.is_draining.store(true, Ordering::Relaxed);
    drain.send_replace(true);
    for (stream, peer) in door.close() {
        serial += 1;
        connections.spawn(connection::serve(
            published.clone(),
            stream,
            peer,
            serial,
            draining.clone(),
        ));
    }
    shared.fleet.board().open_doors -= 1;
    let finish = async {
        while let Some(ended) = connections.join_next().await {
            note_panic(ended);
        }
    };
    if timeout(shared.config.timeouts.drain, finish).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "the drain time is over, connections are cut"
        );
    }
    connections.shutdown().await;
    shared.stragglers.cut();
}

/// The listening socket, which rests after a failed accept instead of trying on and on.
struct Door {
    listener: TcpListener,
    pause: Option<(Instant, Duration)>,
}

impl Door {
    /// Takes the next client. Safe to drop and call again: a pause goes on.
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            if let Some((until, _)) = self.pause {
                sleep_until(until).await;
            }
            match self.listener.accept().await {
                Ok(accepted) => {
                    self.pause = None;
                    return accepted;
                }
                Err(error) if concerns_one_client(&error) => {}
                Err(error) => {
                    let pause = self
                        .pause
                        .map_or(PAUSE.0, |(_, pause)| (pause * 2).min(PAUSE.1));
                    tracing::warn!(%error, "no client can be accepted");
                    self.pause = Some((Instant::now() + pause, pause));
                }
            }
        }
    }
}

impl Door {
    /// Closes, and hands over the clients that the system took for us before: closing the socket
    /// would reset them. Never more than the system lets wait.
    fn close(self) -> Vec<(TcpStream, SocketAddr)> {
        let mut waiting = Vec::new();
        let Ok(listener) = self.listener.into_std() else {
            return waiting;
        };
        while waiting.len() < usize::try_from(BACKLOG).unwrap_or(usize::MAX) {
            match listener.accept() {
                Ok((stream, peer)) => {
                    let taken = stream
                        .set_nonblocking(true)
                        .and_then(|()| TcpStream::from_std(stream));
                    waiting.extend(taken.ok().map(|stream| (stream, peer)));
                }
                Err(error) if concerns_one_client(&error) => {}
                Err(_) => break,
            }
        }
        waiting
    }
}

/// The client was gone before it was accepted; the next may be fine.
fn concerns_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// A panic ends the connection it happened on, and is a fault of ours.
fn note_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a client's connection met a fault of ours");
    }
}
