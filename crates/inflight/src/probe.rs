//! Asks a server whether it takes requests: by HTTP, by the gRPC health protocol, or by connecting.
//!
//! Each question has a connection and a time-out of its own. What an answer means for a replica is
//! not judged here.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long one question may take of those that a starting replica is asked.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// A health answer is a few bytes; anything longer is none.
const ANSWER_BYTES: usize = 4 * 1024;

/// `grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u8 = 1;

/// How a server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `GET` of this path answers with a status from 200 to 299.
    Http {
        /// Begins with `/`.
        path: String,
    },
    /// `grpc.health.v1.Health/Check` answers SERVING. A server without that service answers
    /// UNIMPLEMENTED and never passes: ask it with `Tcp`.
    Grpc {
        /// The service asked about; empty for the server as a whole.
        service: String,
    },
    /// A connection is accepted.
    Tcp,
}

/// Why a server did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It has not been asked.
    #[error("not asked yet")]
    NotAsked,
    /// It takes no connection.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// It said nothing in time.
    #[error("no answer within {within:?}")]
    NoAnswer {
        /// How long it was waited for.
        within: Duration,
    },
    /// What it said is no HTTP.
    #[error("no HTTP answer: {0}")]
    Protocol(#[from] hyper::Error),
    /// The path or service makes no request.
    #[error("the question cannot be asked: {0}")]
    Question(#[from] http::Error),
    /// It said no.
    #[error("HTTP status {0}")]
    Status(StatusCode),
    /// It said no.
    #[error("gRPC status {0}")]
    GrpcStatus(String),
    /// It does not speak the health protocol.
    #[error("gRPC status 12, the server has no health service: use a tcp probe")]
    NoHealthService,
    /// It said something else.
    #[error("the health service does not say SERVING")]
    NotServing,
}

impl Unfit {
    /// Tells whether this says nothing about the server, since we could not ask.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        match self {
            Self::NotAsked | Self::Question(_) => true,
            Self::Connect(error) => is_ours(error),
            Self::NoAnswer { .. }
            | Self::Protocol(_)
            | Self::Status(_)
            | Self::GrpcStatus(_)
            | Self::NoHealthService
            | Self::NotServing => false,
        }
    }
}

/// Tells whether a connection failed for want of something on this machine: descriptors, ports,
/// memory, leave. It says nothing about the other side.
#[must_use]
pub fn is_ours(error: &std::io::Error) -> bool {
    const OURS: [Errno; 7] = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::ACCESS,
        Errno::PERM,
    ];
    Errno::from_io_error(error).is_some_and(|errno| OURS.contains(&errno))
}

/// Asks until the replica is ready; until then `last` holds why it is not.
pub async fn until_ready(
    probe: &Probe,
    address: SocketAddr,
    every: Duration,
    last: &mut Option<Unfit>,
) {
    loop {
        match ask(probe, address, ANSWER_WITHIN).await {
            Ok(()) => {
                *last = None;
                return;
            }
            Err(why) => *last = Some(why),
        }
        sleep(every).await;
    }
}

/// Asks once.
///
/// # Errors
/// Why the server did not pass.
pub async fn ask(probe: &Probe, address: SocketAddr, within: Duration) -> Result<(), Unfit> {
    let answer = timeout(within, question(probe, address)).await;
    answer.unwrap_or(Err(Unfit::NoAnswer { within }))
}

async fn question(probe: &Probe, address: SocketAddr) -> Result<(), Unfit> {
    let stream = TcpStream::connect(address).await?;
    match probe {
        Probe::Tcp => Ok(()),
        Probe::Http { path } => ask_http(stream, path, address).await,
        Probe::Grpc { service } => ask_grpc(stream, service, address).await,
    }
}

async fn ask_http(stream: TcpStream, path: &str, address: SocketAddr) -> Result<(), Unfit> {
    let request = Request::get(path)
        .header(header::HOST, address.to_string())
        .header(header::USER_AGENT, "inflight")
        .body(Full::<Bytes>::default())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let status = alongside(connection, sender.send_request(request))
        .await?
        .status();
    if status.is_success() {
        Ok(())
    } else {
        Err(Unfit::Status(status))
    }
}

async fn ask_grpc(stream: TcpStream, service: &str, address: SocketAddr) -> Result<(), Unfit> {
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, "inflight")
        .body(Full::new(health_question(service)))?;
    let io = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        read_grpc(response).await
    };
    alongside(connection, exchange).await
}

/// Drives a connection while its only exchange runs, so that neither outlives the question.
async fn alongside<T>(
    connection: impl Future<Output = hyper::Result<()>>,
    exchange: impl Future<Output = T>,
) -> T {
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // What arrived before the close or the failure still counts; if nothing did, the exchange
        // says so.
        _ = connection => exchange.await,
    }
}

async fn read_grpc(response: Response<Incoming>) -> Result<(), Unfit> {
    if response.status() != StatusCode::OK {
        return Err(Unfit::Status(response.status()));
    }
    check_grpc_status(response.headers())?;
    let body = Limited::new(response.into_body(), ANSWER_BYTES)
        .collect()
        .await;
    let body = body.map_err(|_| Unfit::NotServing)?;
    if let Some(trailers) = body.trailers() {
        check_grpc_status(trailers)?;
    }
    if is_serving(&body.to_bytes()) {
        Ok(())
    } else {
        Err(Unfit::NotServing)
    }
}

fn check_grpc_status(headers: &HeaderMap) -> Result<(), Unfit> {
    match headers
        .get("grpc-status")
        .map(|status| status.to_str().unwrap_or("?"))
    {
        None | Some("0") => Ok(()),
        Some("12") => Err(Unfit::NoHealthService),
        Some(other) => Err(Unfit::GrpcStatus(other.to_owned())),
    }
}

/// Encodes `HealthCheckRequest { service = 1 }` as a gRPC message: no compression, length, fields.
fn health_question(service: &str) -> Bytes {
    let mut field = BytesMut::new();
    if !service.is_empty() {
        field.put_u8(0x0a);
        put_varint(&mut field, service.len());
        field.put_slice(service.as_bytes());
    }
    let mut message = BytesMut::with_capacity(5 + field.len());
    message.put_u8(0);
    message.put_u32(u32::try_from(field.len()).unwrap_or(u32::MAX));
    message.put_slice(&field);
    message.freeze()
}

fn put_varint(buffer: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        buffer.put_u8(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    buffer.put_u8(u8::try_from(value).unwrap_or(0));
}

/// Whether a gRPC message is `HealthCheckResponse { status = 1: SERVING }` and nothing else.
fn is_serving(message: &[u8]) -> bool {
    message == [0, 0, 0, 0, 2, 0x08, SERVING]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_the_service() {
        assert_eq!(health_question("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(
            health_question("ab").as_ref(),
            [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']
        );
        let long = health_question(&"x".repeat(300));
        assert_eq!(&long[..8], [0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
    }

    #[test]
    fn what_this_machine_lacks_says_nothing_about_the_other_side() {
        let error = |errno: Errno| std::io::Error::from_raw_os_error(errno.raw_os_error());
        for ours in [Errno::MFILE, Errno::ADDRNOTAVAIL, Errno::PERM] {
            assert!(Unfit::from(error(ours)).is_ours());
        }
        for theirs in [Errno::CONNREFUSED, Errno::CONNRESET, Errno::HOSTUNREACH] {
            assert!(!is_ours(&error(theirs)));
        }
        assert!(!is_ours(&std::io::ErrorKind::ConnectionReset.into()));
    }

    #[test]
    fn only_serving_is_ready() {
        assert!(is_serving(&[0, 0, 0, 0, 2, 8, 1]));
        for other in [
            &[][..],
            &[0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 2, 8, 2],
            &[0, 0, 0, 0, 2, 8],
        ] {
            assert!(!is_serving(other));
        }
    }

    #[test]
    fn a_grpc_status_other_than_ok_is_not_ready() {
        let with = |status: &str| {
            HeaderMap::from_iter([(
                header::HeaderName::from_static("grpc-status"),
                status.parse().unwrap(),
            )])
        };
        assert!(check_grpc_status(&HeaderMap::new()).is_ok());
        assert!(check_grpc_status(&with("0")).is_ok());
        assert!(matches!(
            check_grpc_status(&with("12")),
            Err(Unfit::NoHealthService)
        ));
        assert!(matches!(
            check_grpc_status(&with("5")),
            Err(Unfit::GrpcStatus(_))
        ));
    }
}
