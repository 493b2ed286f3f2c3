//! The small built-in server that `demo` and the tests scale: `inflight __serve`.
//!
//! `GET /healthz` and the gRPC health check are answered at once, everything else after the time
//! that a request takes, with status 200 or the one in `?status=503`, as JSON that tells how many
//! requests it executed at once. It never holds a request back: more than `slots` at once are
//! counted as violations, so that a test can see that whoever stands in front kept to the slots.
//! SIGTERM lets running requests end.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The hidden subcommand.
const SERVE: &str = "__serve";

/// How long a burst of failing accepts (no file handles) is waited out.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// `grpc.health.v1.HealthCheckResponse { status: SERVING }` as a gRPC message.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 0x08, 1];

/// A request may not ask for more work than this.
const LONGEST_WORK: Duration = Duration::from_secs(3_600);

/// What the server is told.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "inflight __serve",
    about = "A small server to scale, for demos and tests"
)]
pub struct ServeArgs {
    /// Where to listen on 127.0.0.1.
    #[arg(long, env = "PORT")]
    pub port: u16,
    /// How long a request takes, unless it says so itself with `?work=50ms`.
    #[arg(long, default_value = "10ms", value_parser = parse_span)]
    pub work: Duration,
    /// How many requests at once are right.
    #[arg(long, default_value_t = 1)]
    pub slots: u64,
    /// How long after its start it begins to listen.
    #[arg(long, default_value = "0ms", value_parser = parse_span)]
    pub start_delay: Duration,
    /// The number it tells.
    #[arg(long, env = "INFLIGHT_REPLICA", default_value_t = 0)]
    pub replica: u32,
}

/// Runs the server if the arguments ask for it.
pub fn run_server_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != SERVE {
        return None;
    }
    let program = std::ffi::OsString::from("inflight __serve");
    Some(
        match ServeArgs::try_parse_from(std::iter::once(program).chain(arguments)) {
            Ok(arguments) => run(&arguments),
            Err(error) => {
                // Nobody is left to tell when the output is gone.
                error.print().ok();
                ExitCode::from(2)
            }
        },
    )
}

fn run(arguments: &ServeArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime.and_then(|runtime| runtime.block_on(serve(arguments))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // It has no log of its own, and nobody is left to tell when the output is gone.
            writeln!(
                io::stderr(),
                "cannot serve port {}: {error}",
                arguments.port
            )
            .ok();
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: &ServeArgs) -> io::Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = stop.recv() => return Ok(()),
        () = sleep(arguments.start_delay) => {}
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port)).await?;
    let server = Arc::new(Server::new(arguments));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&server), graceful.watcher()));
                }
                Err(_) => sleep(ACCEPT_AGAIN_AFTER).await,
            },
            Some(_) = connections.join_next() => {}
            _ = stop.recv() => break,
        }
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    server: Arc<Server>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Only costs time when it fails.
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    // A client that breaks off is the client's business.
    watcher.watch(connection.into_owned()).await.ok();
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What the server counts.
#[derive(Debug)]
struct Server {
    replica: u32,
    slots: u64,
    work: Duration,
    executing: AtomicU64,
    max_seen: AtomicU64,
    executed: AtomicU64,
    violations: AtomicU64,
}

impl Server {
    const fn new(arguments: &ServeArgs) -> Self {
        Self {
            replica: arguments.replica,
            slots: arguments.slots,
            work: arguments.work,
            executing: AtomicU64::new(0),
            max_seen: AtomicU64::new(0),
            executed: AtomicU64::new(0),
            violations: AtomicU64::new(0),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match request.uri().path() {
            "/healthz" => return json("{\"ok\":true}\n".to_owned()),
            "/grpc.health.v1.Health/Check" => return grpc_serving(),
            _ => {}
        }
        let query = request.uri().query().unwrap_or_default();
        let work = work_of(query).unwrap_or(self.work);
        let status = status_of(query).unwrap_or(StatusCode::OK);
        let executing = Executing::begin(self);
        // An upload is read, so that its connection can be used again; a broken one has no reader.
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        sleep(work).await;
        let mut answer = json(self.describe(executing.count));
        *answer.status_mut() = status;
        drop(executing);
        answer
    }

    fn describe(&self, executing: u64) -> String {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let text = serde_json::json!({
            "replica": self.replica,
            "slots": self.slots,
            "executing": executing,
            "max_seen": read(&self.max_seen),
            "executed": read(&self.executed),
            "violations": read(&self.violations),
        });
        format!("{text}\n")
    }
}

/// A request being executed; its end is counted however it ends.
struct Executing<'a> {
    server: &'a Server,
    count: u64,
}

impl<'a> Executing<'a> {
    fn begin(server: &'a Server) -> Self {
        let count = server.executing.fetch_add(1, Ordering::Relaxed) + 1;
        server.max_seen.fetch_max(count, Ordering::Relaxed);
        server.executed.fetch_add(1, Ordering::Relaxed);
        if count > server.slots {
            server.violations.fetch_add(1, Ordering::Relaxed);
        }
        Self { server, count }
    }
}

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.server.executing.fetch_sub(1, Ordering::Relaxed);
    }
}

fn json(text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

fn grpc_serving() -> Answer {
    let trailers = async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Some(Ok(trailers))
    };
    let body = Full::new(Bytes::from_static(SERVING))
        .with_trailers(trailers)
        .boxed();
    let mut answer = Response::new(body);
    let grpc = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert(header::CONTENT_TYPE, grpc);
    answer
}

fn work_of(query: &str) -> Option<Duration> {
    parse_span(parameter(query, "work=")?).ok()
}

/// Returns the status asked for; one below 200 would not end a request.
fn status_of(query: &str) -> Option<StatusCode> {
    let status: StatusCode = parameter(query, "status=")?.parse().ok()?;
    (!status.is_informational()).then_some(status)
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| pair.strip_prefix(name))
}

/// Reads `250ms` or `2s`.
fn parse_span(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, Duration::from_millis(1)),
        None => (text.strip_suffix('s').unwrap_or(""), Duration::from_secs(1)),
    };
    let count: u32 = number
        .parse()
        .map_err(|_| format!("'{text}' is not like 250ms or 2s"))?;
    let span = unit.saturating_mul(count);
    let out_of_range = || format!("'{text}' is out of range; it is at most {LONGEST_WORK:?}");
    if span <= LONGEST_WORK {
        Ok(span)
    } else {
        Err(out_of_range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_milliseconds_or_seconds() {
        assert_eq!(parse_span("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_span("2s"), Ok(Duration::from_secs(2)));
        for bad in ["", "2", "ms", "-1s", "1.5s", "2m", "3601s", "99999999999s"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_says_how_long_it_takes_and_how_it_ends() {
        assert_eq!(work_of("a=1&work=50ms"), Some(Duration::from_millis(50)));
        assert_eq!(work_of("work=soon"), None);
        assert_eq!(work_of(""), None);
        assert_eq!(
            status_of("work=1s&status=503"),
            Some(StatusCode::SERVICE_UNAVAILABLE)
        );
        assert_eq!(status_of("status=100"), None);
    }
}
