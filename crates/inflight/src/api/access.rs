//! Who may ask and who may order.
//!
//! Everybody who reaches the listener may read. Orders need the bearer token of
//! `admin.token_file`; without one they are taken on a loopback listener only. There, a page in a
//! browser on this machine is the danger: it gets no CORS headers, and no other name than
//! this machine's own is answered, so that a name of its own that it points at us (DNS rebinding)
//! gets it nowhere.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::task::spawn_blocking;

use super::Shared;
use super::failure::Failure;
use crate::config::read_secret;

/// The longest target of a request: no path of ours comes near.
const TARGET_MAX: usize = 8 << 10;

/// Who may order.
#[derive(Clone, Debug)]
pub struct Access {
    address: SocketAddr,
    token_file: Option<PathBuf>,
}

impl Access {
    /// For a listener at `address`, and a token that is read anew for each order.
    #[must_use]
    pub fn new(address: SocketAddr, token_file: Option<PathBuf>) -> Self {
        Self {
            address,
            token_file,
        }
    }

    /// Tells whether whoever sends these headers may give orders.
    pub(super) async fn authorize(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let Some(file) = self.token_file.clone() else {
            if self.address.ip().is_loopback() {
                return Ok(());
            }
            return Err(Failure::forbidden(format!(
                "orders are refused: admin.listen is {}, which is no loopback address, and no \
                 admin.token_file is configured",
                self.address
            )));
        };
        let Some(sent) = bearer(headers) else {
            return Err(Failure::unauthorized(
                "needs the header `authorization: Bearer TOKEN`, with the token of \
                 admin.token_file"
                    .to_owned(),
            ));
        };
        // A file system that hangs holds up nobody else.
        let read = spawn_blocking(move || read_secret(&file)).await;
        let token = match read {
            Ok(Ok(token)) => token,
            Ok(Err(error)) => {
                tracing::error!(%error, "admin.token_file gives no token: orders are refused");
                return Err(Failure::unavailable(format!(
                    "admin.token_file {error}; orders are refused"
                )));
            }
            Err(_) => return Err(Failure::internal("the token could not be read".to_owned())),
        };
        if is_same(sent.as_bytes(), token.as_bytes()) {
            Ok(())
        } else {
            Err(Failure::unauthorized(
                "the token is not that of admin.token_file".to_owned(),
            ))
        }
    }

    /// Refuses requests that a page in a browser may have sent here under a name of its own.
    fn check_host(&self, request: &Request) -> Result<(), Failure> {
        if self.token_file.is_some() || !self.address.ip().is_loopback() {
            return Ok(());
        }
        let header = request.headers().get(header::HOST);
        let host = request
            .uri()
            .authority()
            .map(|authority| authority.as_str())
            .or_else(|| header?.to_str().ok())
            .unwrap_or_default();
        if is_this_machine(host) {
            return Ok(());
        }
        Err(Failure::forbidden(format!(
            "host {host:?} is not this machine: ask for localhost or {}, or configure \
             admin.token_file",
            self.address
        )))
    }
}

/// Stands before every handler.
pub(super) async fn guard(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    if request.uri().to_string().len() > TARGET_MAX {
        let text = format!("the request's target is longer than {TARGET_MAX} bytes");
        return Failure::new(StatusCode::URI_TOO_LONG, text).into_response();
    }
    // Probes and scrapes come under whatever name; they tell little.
    if request.uri().path().starts_with("/api/")
        && let Err(failure) = shared.api.access.check_host(&request)
    {
        return failure.into_response();
    }
    next.run(request).await
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// Compares in a time that depends on the lengths alone.
fn is_same(sent: &[u8], token: &[u8]) -> bool {
    let differs = sent
        .iter()
        .zip(token)
        .fold(0, |differs, (a, b)| black_box(differs | (a ^ b)));
    differs == 0 && sent.len() == token.len()
}

/// Tells whether a host, with or without its port, names this machine from within.
fn is_this_machine(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.is_empty() => name,
        Some(_) | None => host,
    };
    let name = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_from_within_are_this_machine() {
        let own = [
            "localhost",
            "LOCALHOST:9900",
            "127.0.0.1:9900",
            "127.1.2.3",
            "[::1]:9900",
            "[::1]",
        ];
        for host in own {
            assert!(is_this_machine(host), "{host}");
        }
        let others = [
            "",
            "evil.example",
            "evil.example:9900",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:9900",
            "localhost:x",
            ":9900",
        ];
        for host in others {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn tokens_are_the_same_byte_for_byte() {
        assert!(is_same(b"secret", b"secret"));
        for other in ["", "secre", "secrets", "secreT", "Secret"] {
            assert!(!is_same(other.as_bytes(), b"secret"), "{other}");
        }
    }
}
