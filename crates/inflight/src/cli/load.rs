//! A closed-loop load: clients that each send the next request once the last was answered.
//!
//! For `demo` and the scripts in `bench/seen`; it measures what a client sees and knows nothing
//! of fleets.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::output::line;
use super::run::{conclude, runtime};

type Connection = http1::SendRequest<Empty<Bytes>>;

/// How long a client rests that found nobody to connect to.
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// The load as arguments.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LoadArgs {
    /// Where to send.
    #[arg(long)]
    address: SocketAddr,
    /// How many clients there are.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// How long they go on, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The path to ask for.
    #[arg(long, default_value = "/")]
    path: String,
    /// How long a client waits between an answer and its next request, in milliseconds.
    #[arg(long, default_value_t = 0)]
    think_ms: u64,
}

/// Sends the load and prints what the clients saw, as JSON.
#[must_use]
pub(super) fn run(args: &LoadArgs) -> ExitCode {
    let load = Load {
        address: args.address,
        path: args.path.clone(),
        clients: args.clients,
        duration: Duration::from_secs(args.seconds),
        think: Duration::from_millis(args.think_ms),
    };
    let sent = runtime().and_then(|runtime| {
        let tally = runtime.block_on(load.run());
        let seconds = |quantile| tally.latency(quantile).map(|latency| latency.as_secs_f64());
        line(format_args!(
            "{}",
            json!({
                "requests": tally.requests,
                "lost": tally.lost,
                "broken": tally.broken,
                "refused": tally.refused,
                "p50_seconds": seconds(0.5),
                "p90_seconds": seconds(0.9),
            })
        ))?;
        Ok(ExitCode::SUCCESS)
    });
    conclude(sent)
}

/// What the clients do.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Where they send.
    pub(super) address: SocketAddr,
    /// The path they ask for.
    pub(super) path: String,
    /// How many there are.
    pub(super) clients: usize,
    /// How long they go on; what was sent by then is waited for.
    pub(super) duration: Duration,
    /// How long a client waits between an answer and its next request.
    pub(super) think: Duration,
}

/// What the clients saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Requests sent.
    pub(super) requests: u64,
    /// Requests without an answer, or with one that is neither a success nor a refusal.
    pub(super) lost: u64,
    /// Those of them that were sent on an open connection and not answered to the end.
    pub(super) broken: u64,
    /// Requests answered 429 or 503.
    pub(super) refused: u64,
    /// From sending a request to the last byte of its answer, for those answered with success.
    pub(super) latencies: Vec<Duration>,
}

impl Load {
    /// Runs the clients and adds up what they saw.
    pub(super) async fn run(&self) -> Tally {
        let end = Instant::now() + self.duration;
        let mut clients = JoinSet::new();
        for _ in 0..self.clients {
            clients.spawn(client(self.clone(), end));
        }
        let mut total = Tally::default();
        while let Some(tally) = clients.join_next().await {
            match tally {
                Ok(tally) => total.add(tally),
                Err(_) => total.lost += 1,
            }
        }
        total
    }
}

impl Tally {
    /// Adds what others saw.
    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.lost += other.lost;
        self.broken += other.broken;
        self.refused += other.refused;
        self.latencies.extend(other.latencies);
    }

    /// Returns the latency that the share `quantile` (0 to 1) of the requests did not exceed, by
    /// the nearest rank; `None` without a request.
    pub(super) fn latency(&self, quantile: f64) -> Option<Duration> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank within the list"
        )]
        let rank = (last as f64 * quantile.clamp(0.0, 1.0)).round() as usize;
        sorted.get(rank).copied()
    }
}

async fn client(load: Load, end: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut connection = None;
    while Instant::now() < end {
        let sent = Instant::now();
        tally.requests += 1;
        match exchange(&load, &mut connection).await {
            Ok(status) if status.is_success() => tally.latencies.push(sent.elapsed()),
            Ok(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) => {
                tally.refused += 1;
            }
            Ok(_) => tally.lost += 1,
            Err(failure) => {
                tally.lost += 1;
                tally.broken += u64::from(failure == Failure::Broken);
                if failure == Failure::NotConnected {
                    tokio::time::sleep(RECONNECT_AFTER).await;
                }
            }
        }
        if !load.think.is_zero() {
            tokio::time::sleep(load.think).await;
        }
    }
    tally
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// There was no connection to send it on.
    NotConnected,
    /// It was handed to a connection, which ended before the answer did.
    Broken,
}

/// Sends one request and reads its answer to the end.
async fn exchange(load: &Load, kept: &mut Option<Connection>) -> Result<StatusCode, Failure> {
    let mut connection = match reuse(kept.take()).await {
        Some(connection) => connection,
        None => connect(load.address).await.ok_or(Failure::NotConnected)?,
    };
    let request = Request::get(&load.path)
        .header(header::HOST, load.address.to_string())
        .body(Empty::new())
        .map_err(|_| Failure::NotConnected)?;
    let response = match connection.try_send_request(request).await {
        Ok(response) => response,
        Err(unsent) if unsent.message().is_some() => return Err(Failure::NotConnected),
        Err(_) => return Err(Failure::Broken),
    };
    let status = response.status();
    response
        .into_body()
        .collect()
        .await
        .map_err(|_| Failure::Broken)?;
    *kept = Some(connection);
    Ok(status)
}

async fn reuse(kept: Option<Connection>) -> Option<Connection> {
    let mut connection = kept?;
    connection.ready().await.ok()?;
    Some(connection)
}

/// The connection's own task ends when its sender is dropped.
async fn connect(address: SocketAddr) -> Option<Connection> {
    let stream = TcpStream::connect(address).await.ok()?;
    stream.set_nodelay(true).ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    sender.ready().await.ok()?;
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let tally = Tally {
            latencies: (1..=11).rev().map(Duration::from_millis).collect(),
            ..Tally::default()
        };
        assert_eq!(tally.latency(0.9), Some(Duration::from_millis(10)));
        assert_eq!(tally.latency(1.0), Some(Duration::from_millis(11)));
        assert_eq!(Tally::default().latency(0.9), None);
    }
}
