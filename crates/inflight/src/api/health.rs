//! Probes: whether the process is alive, and whether it takes requests.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::{Shared, mapping, wire};
use crate::fleet::Fleet;

/// Answers as long as the process runs.
pub(super) async fn alive() -> &'static str {
    "alive\n"
}

/// Answers 200 once every fleet's gateway listens and its first decision was made, and 503 with
/// what is missing until then. A configuration file that was refused is told and changes nothing:
/// the former one serves.
pub(super) async fn ready(
    State(shared): State<Arc<Shared>>,
) -> (StatusCode, Json<wire::Readiness>) {
    let api = &shared.api;
    let fleets = api.roster.fleets();
    let missing: Vec<_> = fleets.iter().flat_map(|fleet| missing(fleet)).collect();
    let ready = missing.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let configuration_refused =
        mapping::configuration_refused(&api.roster.configuration(), api.clock);
    let answer = wire::Readiness {
        ready,
        missing,
        configuration_refused,
    };
    (status, Json(answer))
}

fn missing(fleet: &Fleet) -> Vec<wire::Missing> {
    let board = fleet.board();
    let reasons = [
        (!board.is_listening).then_some("its gateway does not listen"),
        board
            .decisions()
            .next()
            .is_none()
            .then_some("its first decision was not made"),
    ];
    let fleet = fleet.name();
    reasons
        .into_iter()
        .flatten()
        .map(|reason| wire::Missing {
            fleet: fleet.to_owned(),
            reason: reason.to_owned(),
        })
        .collect()
}
