//! Asks one address for a metric page, again and again, over one connection.
//!
//! A fetch has one deadline for everything, connecting included, and a limit on the page's size. A
//! kept connection that turns out to be closed is replaced once, within the same deadline. Knows
//! HTTP/1.1 without TLS; redirections are not followed.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use inflight_core::Timestamp;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::text_format::{End, Sample, TextError, TextReader};
use crate::clock::Clock;

/// The largest page: a hundred times that of a large proxy.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The largest answer to a form: one number, or a word why not.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// How a form is spelled.
const FORM: &str = "application/x-www-form-urlencoded";
/// An answer's head, for which the connection keeps a buffer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The text format first: everybody has it, and it is what the readings were made with.
const ACCEPT: &str = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5";

/// Why a page could not be had. It is dropped whole.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection.
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    /// Not all of it arrived in time.
    #[error("no whole answer within {0:?}")]
    Deadline(Duration),
    /// No HTTP, or an answer that was cut.
    #[error("no whole HTTP answer: {0}")]
    Protocol(#[from] hyper::Error),
    /// The address cannot be asked for.
    #[error("the question cannot be asked: {0}")]
    Question(#[from] http::Error),
    /// Another status than 200.
    #[error("HTTP status {0}")]
    Status(StatusCode),
    /// A compression that was not asked for.
    #[error("the answer is encoded, which was not asked for")]
    Encoded,
    /// A page without end.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// A page that is cut, or none.
    #[error("no metric page: {0}")]
    Text(#[from] TextError),
}

/// What is asked for, and how.
#[derive(Clone, Debug)]
pub struct FetchConfig {
    /// Host and port.
    pub authority: String,
    /// Path and query.
    pub path: String,
    /// How long a fetch may take.
    pub timeout: Duration,
    /// Whether a page has an end mark whatever its type: ours have.
    pub is_marked: bool,
}

/// Fetches the page of one address.
#[derive(Debug)]
pub struct Client {
    config: FetchConfig,
    clock: Clock,
    kept: Option<Connection>,
}

/// A connection, which ends with its handle.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Client {
    /// Builds a client that has not asked yet.
    #[must_use]
    pub fn new(config: FetchConfig, clock: Clock) -> Self {
        Self {
            config,
            clock,
            kept: None,
        }
    }

    /// Asks for another page from here on.
    pub fn ask_for(&mut self, path: &str) {
        path.clone_into(&mut self.config.path);
    }

    /// Fetches the page and hands out its samples. Returns when it was made, by our own clock: in
    /// the middle between the question and the beginning of the answer.
    ///
    /// # Errors
    /// The page could not be had whole: the samples are not to be used.
    pub async fn fetch(
        &mut self,
        on_sample: impl FnMut(&Sample<'_>),
    ) -> Result<Timestamp, FetchError> {
        let is_marked = self.config.is_marked;
        let read = async |response| read(response, is_marked, on_sample).await;
        let (at, ()) = self.within_time(None, read).await?;
        Ok(at)
    }

    /// Asks with a form and returns the answer whatever its status, with the moment as above.
    ///
    /// # Errors
    /// The answer could not be had whole.
    pub async fn post(
        &mut self,
        form: String,
    ) -> Result<(Timestamp, StatusCode, Vec<u8>), FetchError> {
        let read = async |response| read_whole(response, ANSWER_BYTES_MAX).await;
        let (at, (status, body)) = self.within_time(Some(form.into()), read).await?;
        Ok((at, status, body))
    }

    /// Asks and returns the answer whatever its status.
    ///
    /// # Errors
    /// The answer could not be had whole.
    pub async fn get(&mut self) -> Result<(StatusCode, Vec<u8>), FetchError> {
        let read = async |response| read_whole(response, PAGE_BYTES_MAX).await;
        let (_, answer) = self.within_time(None, read).await?;
        Ok(answer)
    }

    /// Asks and reads within the one deadline. A connection on which something went wrong goes down
    /// with the attempt.
    async fn within_time<T>(
        &mut self,
        form: Option<Bytes>,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, FetchError>,
    ) -> Result<(Timestamp, T), FetchError> {
        let limit = self.config.timeout;
        let kept = self.kept.take();
        let attempt = async {
            let (connection, response, at) = self.answer(kept, form).await?;
            Ok::<_, FetchError>((connection, at, read(response).await?))
        };
        let (connection, at, answer) = timeout(limit, attempt)
            .await
            .map_err(|_| FetchError::Deadline(limit))??;
        self.kept = Some(connection);
        Ok((at, answer))
    }

    async fn answer(
        &self,
        kept: Option<Connection>,
        form: Option<Bytes>,
    ) -> Result<(Connection, Response<Incoming>, Timestamp), FetchError> {
        if let Some(mut connection) = kept {
            // The other side may have closed it since; then nothing was answered.
            if let Ok((response, at)) = self.ask(&mut connection, form.clone()).await {
                return Ok((connection, response, at));
            }
        }
        let mut connection = self.connect().await?;
        let (response, at) = self.ask(&mut connection, form).await?;
        Ok((connection, response, at))
    }

    async fn connect(&self) -> Result<Connection, FetchError> {
        let stream = TcpStream::connect(&self.config.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await?;
        let driver = tokio::spawn(async move {
            // Whoever waits for the answer learns of a failure from it.
            connection.await.ok();
        });
        Ok(Connection { sender, driver })
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        form: Option<Bytes>,
    ) -> Result<(Response<Incoming>, Timestamp), FetchError> {
        let request = match form {
            None => Request::get(&self.config.path).header(header::ACCEPT, ACCEPT),
            Some(_) => Request::post(&self.config.path)
                .header(header::ACCEPT, "application/json")
                .header(header::CONTENT_TYPE, FORM),
        };
        let request = request
            .header(header::HOST, &self.config.authority)
            .header(header::USER_AGENT, "inflight")
            .body(Full::new(form.unwrap_or_default()))?;
        connection.sender.ready().await?;
        let asked_at = self.clock.now();
        let response = connection.sender.send_request(request).await?;
        let at = asked_at + self.clock.now().since(asked_at) / 2;
        Ok((response, at))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Reads an answer whole, within a bound.
async fn read_whole(
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<(StatusCode, Vec<u8>), FetchError> {
    check_encoding(response.headers())?;
    let status = response.status();
    let mut body = response.into_body();
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else {
            continue;
        };
        if whole.len() + chunk.len() > bytes_max {
            return Err(FetchError::TooLarge(bytes_max));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok((status, whole))
}

fn check_encoding(headers: &HeaderMap) -> Result<(), FetchError> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err(FetchError::Encoded);
    }
    Ok(())
}

async fn read(
    response: Response<Incoming>,
    is_marked: bool,
    mut on_sample: impl FnMut(&Sample<'_>),
) -> Result<(), FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    check_encoding(response.headers())?;
    let end = end(response.headers(), is_marked);
    let mut body = response.into_body();
    let mut reader = TextReader::new();
    let mut left = PAGE_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else {
            continue;
        };
        left = left
            .checked_sub(chunk.len())
            .ok_or(FetchError::TooLarge(PAGE_BYTES_MAX))?;
        reader.feed(&chunk, &mut on_sample)?;
    }
    Ok(reader.finish(end, on_sample)?)
}

/// Tells what proves that a page with these headers is whole.
fn end(headers: &HeaderMap, is_marked: bool) -> End {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    if is_marked || kind.is_some_and(|kind| kind.starts_with("application/openmetrics-text")) {
        End::Marked
    } else if headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING)
    {
        End::Delimited
    } else {
        End::Closed
    }
}
