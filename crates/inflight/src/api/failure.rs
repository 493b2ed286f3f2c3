//! Errors of the API, as JSON.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::wire;

/// Why a request got no answer.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    text: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Failure {
    /// A failure with any status.
    pub(super) fn new(status: StatusCode, text: String) -> Self {
        Self {
            status,
            text,
            header: None,
        }
    }

    /// The request is not understood.
    pub(super) fn bad_request(text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// The request does not say who sends it.
    pub(super) fn unauthorized(text: String) -> Self {
        let challenge = HeaderValue::from_static("Bearer");
        Self {
            header: Some((header::WWW_AUTHENTICATE, challenge)),
            ..Self::new(StatusCode::UNAUTHORIZED, text)
        }
    }

    /// Nobody may do this, or not from there.
    pub(super) fn forbidden(text: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, text)
    }

    /// The request asks for something that is not there.
    pub(super) fn not_found(text: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// What is there knows no such method.
    pub(super) fn method_not_allowed(text: String) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, text)
    }

    /// The request is understood and asks for something that cannot be.
    pub(super) fn unprocessable(text: String) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, text)
    }

    /// It can be asked again a little later.
    pub(super) fn unavailable(text: String) -> Self {
        let later = HeaderValue::from_static("5");
        Self {
            header: Some((header::RETRY_AFTER, later)),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }

    /// The fault is ours.
    pub(super) fn internal(text: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let answer = Json(wire::Failure { error: self.text });
        let mut response = (self.status, answer).into_response();
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
