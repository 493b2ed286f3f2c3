//! Asks a starting replica whether it is ready.
//!
//! Each question has a connection and a time-out of its own and the next one waits for its answer.
//! A replica that was ready is not asked again: its process is watched instead.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::config::ReadyProbe;

/// How long one question may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// A health answer is a few bytes; anything longer is none.
const ANSWER_BYTES: usize = 4 * 1024;

/// `grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u8 = 1;

/// Why a replica is not ready yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReady {
    #[error("not asked yet")]
    NotAsked,
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    #[error("no answer within {ANSWER_WITHIN:?}")]
    NoAnswer,
    #[error("no HTTP answer: {0}")]
    Protocol(#[from] hyper::Error),
    #[error("the question cannot be asked: {0}")]
    Question(#[from] http::Error),
    #[error("HTTP status {0}")]
    Status(StatusCode),
    #[error("gRPC status {0}")]
    GrpcStatus(String),
    #[error("gRPC status 12, the server has no health service: use a tcp probe")]
    NoHealthService,
    #[error("the health service does not say SERVING")]
    NotServing,
}

/// Asks until the replica is ready; until then `last` holds why it is not.
pub(super) async fn until_ready(
    probe: &ReadyProbe,
    address: SocketAddr,
    every: Duration,
    last: &mut Option<NotReady>,
) {
    loop {
        match timeout(ANSWER_WITHIN, ask(probe, address)).await {
            Ok(Ok(())) => {
                *last = None;
                return;
            }
            Ok(Err(why)) => *last = Some(why),
            Err(_) => *last = Some(NotReady::NoAnswer),
        }
        sleep(every).await;
    }
}

async fn ask(probe: &ReadyProbe, address: SocketAddr) -> Result<(), NotReady> {
    let stream = TcpStream::connect(address).await?;
    match probe {
        ReadyProbe::Tcp => Ok(()),
        ReadyProbe::Http { path } => ask_http(stream, path, address).await,
        ReadyProbe::Grpc { service } => ask_grpc(stream, service, address).await,
    }
}

async fn ask_http(stream: TcpStream, path: &str, address: SocketAddr) -> Result<(), NotReady> {
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
        Err(NotReady::Status(status))
    }
}

async fn ask_grpc(stream: TcpStream, service: &str, address: SocketAddr) -> Result<(), NotReady> {
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

async fn read_grpc(response: Response<Incoming>) -> Result<(), NotReady> {
    if response.status() != StatusCode::OK {
        return Err(NotReady::Status(response.status()));
    }
    check_grpc_status(response.headers())?;
    let body = Limited::new(response.into_body(), ANSWER_BYTES)
        .collect()
        .await;
    let body = body.map_err(|_| NotReady::NotServing)?;
    if let Some(trailers) = body.trailers() {
        check_grpc_status(trailers)?;
    }
    if is_serving(&body.to_bytes()) {
        Ok(())
    } else {
        Err(NotReady::NotServing)
    }
}

fn check_grpc_status(headers: &HeaderMap) -> Result<(), NotReady> {
    match headers
        .get("grpc-status")
        .map(|status| status.to_str().unwrap_or("?"))
    {
        None | Some("0") => Ok(()),
        Some("12") => Err(NotReady::NoHealthService),
        Some(other) => Err(NotReady::GrpcStatus(other.to_owned())),
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
            Err(NotReady::NoHealthService)
        ));
        assert!(matches!(
            check_grpc_status(&with("5")),
            Err(NotReady::GrpcStatus(_))
        ));
    }
}
