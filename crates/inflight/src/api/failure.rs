//! Errors of the API, as JSON.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::wire;

/// Why a request got no answer.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    text: String,
}

impl Failure {
    /// The request asks for something that cannot be.
    pub(super) fn bad_request(text: String) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            text,
        }
    }

    /// The request asks for something that is not there.
    pub(super) fn not_found(text: String) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            text,
        }
    }

    /// The fault is ours.
    pub(super) fn internal(text: String) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            text,
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(wire::Failure { error: self.text })).into_response()
    }
}
