//! Fleets and their decisions, as JSON.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;

use super::failure::Failure;
use super::query::parameters;
use super::{Shared, mapping, wire};
use crate::fleet::DECISIONS_KEPT;

/// How many decisions are shown when the request does not say.
const LIMIT_DEFAULT: usize = 50;

/// Shows every fleet, in the order of the configuration.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<Json<wire::Fleets>, Failure> {
    parameters(&uri, &[])?;
    let api = &shared.api;
    let fleets = api.roster.fleets();
    let fleets = fleets.iter().map(|fleet| mapping::fleet(fleet, api.clock));
    Ok(Json(wire::Fleets {
        fleets: fleets.collect(),
    }))
}

/// Shows one fleet.
pub(super) async fn one(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<wire::Fleet>, Failure> {
    let api = &shared.api;
    let fleet = api.member(&path(name)?)?.fleet;
    parameters(&uri, &[])?;
    Ok(Json(mapping::fleet(&fleet, api.clock)))
}

/// Shows a fleet's last decisions, the newest first.
pub(super) async fn decisions(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Result<Json<wire::Decisions>, Failure> {
    let api = &shared.api;
    let fleet = api.member(&path(name)?)?.fleet;
    let parameters = parameters(&uri, &["limit"])?;
    let limit = limit(parameters.get("limit")).map_err(Failure::bad_request)?;
    let board = fleet.board();
    let decisions = board
        .decisions()
        .take(limit)
        .map(|made| mapping::decision(made, api.clock))
        .collect();
    Ok(Json(wire::Decisions {
        fleet: fleet.name().to_owned(),
        decisions,
    }))
}

/// Reads a fleet's name out of a path.
pub(super) fn path(name: Result<Path<String>, PathRejection>) -> Result<String, Failure> {
    name.map(|Path(name)| name)
        .map_err(|rejected| Failure::bad_request(rejected.body_text()))
}

fn limit(text: Option<&String>) -> Result<usize, String> {
    let Some(text) = text else {
        return Ok(LIMIT_DEFAULT);
    };
    text.parse()
        .ok()
        .filter(|limit| (1..=DECISIONS_KEPT).contains(limit))
        .ok_or_else(|| format!("limit: {text:?} is not a whole number from 1 to {DECISIONS_KEPT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_outside_its_range_is_named_with_the_range() {
        let ask = |text: &str| limit(Some(&text.to_owned()));
        assert_eq!(ask("1"), Ok(1));
        assert_eq!(ask("200"), Ok(200));
        for bad in [
            "0",
            "201",
            "-1",
            "ten",
            "",
            "1.5",
            "99999999999999999999999",
        ] {
            let error = ask(bad).unwrap_err();
            assert_eq!(
                error,
                format!("limit: {bad:?} is not a whole number from 1 to 200")
            );
        }
        assert_eq!(limit(None), Ok(LIMIT_DEFAULT));
    }
}
