//! Asks a running instance's admin API: one GET at a time.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::api::wire;

const PORT_DEFAULT: u16 = 80;

/// How long the whole exchange may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The longest answer that is read: some 10,000 fleets.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Where an admin API listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAddress {
    host: String,
    port: u16,
}

/// Why a text is no admin address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected http://HOST:PORT without a path")]
pub struct BadAddress;

/// Why an instance gave no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// No connection.
    #[error(
        "nobody answers at {address}: {cause}; does `inflight run` run, and is this its \
         admin.listen? (--admin names another)"
    )]
    Connect {
        /// Whom we asked.
        address: AdminAddress,
        /// What the system says.
        cause: io::Error,
    },
    /// A connection, but no answer in time.
    #[error("{address} gave no whole answer within {} s", ANSWER_MAX.as_secs())]
    TooSlow {
        /// Whom we asked.
        address: AdminAddress,
    },
    /// The connection broke or carried something else than HTTP.
    #[error("{address} gave no HTTP answer: {cause}")]
    NotHttp {
        /// Whom we asked.
        address: AdminAddress,
        /// What broke.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An answer, but not with status 200.
    #[error("{address} answered {status}: {text}")]
    Refused {
        /// Whom we asked.
        address: AdminAddress,
        /// The HTTP status.
        status: http::StatusCode,
        /// What it says.
        text: String,
    },
}

impl FromStr for AdminAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let uri: Uri = text.parse().map_err(|_| BadAddress)?;
        let is_plain = uri.path() == "/" && uri.query().is_none();
        if uri.scheme() != Some(&Scheme::HTTP) || !is_plain {
            return Err(BadAddress);
        }
        let host = uri
            .host()
            .filter(|host| !host.is_empty())
            .ok_or(BadAddress)?;
        let port = uri.port_u16().unwrap_or(PORT_DEFAULT);
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

/// Builds what runs one question after the other.
pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Fetches one page as text.
pub(super) async fn get(address: &AdminAddress, path: &str) -> Result<String, AskError> {
    let late = |_| AskError::TooSlow {
        address: address.clone(),
    };
    timeout(ANSWER_MAX, exchange(address, path))
        .await
        .map_err(late)?
}

async fn exchange(address: &AdminAddress, path: &str) -> Result<String, AskError> {
    let host = address.host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, address.port))
        .await
        .map_err(|cause| AskError::Connect {
            address: address.clone(),
            cause,
        })?;
    let (status, body) = ask(stream, address, path)
        .await
        .map_err(|cause| AskError::NotHttp {
            address: address.clone(),
            cause,
        })?;
    let text = String::from_utf8_lossy(&body).into_owned();
    if status != http::StatusCode::OK {
        let text = serde_json::from_str(&text).map_or(text, |failure: wire::Failure| failure.error);
        return Err(AskError::Refused {
            address: address.clone(),
            status,
            text,
        });
    }
    Ok(text)
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

async fn ask(
    stream: TcpStream,
    address: &AdminAddress,
    path: &str,
) -> Result<(http::StatusCode, Bytes), AnyError> {
    let request = Request::get(path)
        .header(header::HOST, format!("{}:{}", address.host, address.port))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await?;
        Ok((status, body.to_bytes()))
    };
    // The connection moves bytes only while it is polled; its own errors come out of the answer.
    let (answer, _connection_end) = tokio::join!(answer, connection);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_address_is_a_plain_http_url() {
        let shown = |text: &str| {
            text.parse()
                .map(|address: AdminAddress| address.to_string())
        };
        assert_eq!(
            shown("http://127.0.0.1:9900"),
            Ok("http://127.0.0.1:9900".to_owned())
        );
        assert_eq!(
            shown("http://[::1]:9900/"),
            Ok("http://[::1]:9900".to_owned())
        );
        assert_eq!(shown("http://gateway"), Ok("http://gateway:80".to_owned()));
        for bad in [
            "",
            "127.0.0.1:9900",
            "https://a:1",
            "http://a:1/x",
            "http://a:1?x",
            "http://",
        ] {
            assert_eq!(shown(bad), Err(BadAddress), "{bad}");
        }
    }
}
