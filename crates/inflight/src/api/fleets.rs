//! Fleets and their decisions, as JSON.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};

use super::failure::Failure;
use super::{Api, mapping, wire};
use crate::fleet::DECISIONS_KEPT;

/// How many decisions are shown when the request does not say.
const LIMIT_DEFAULT: usize = 50;

/// Shows every fleet, in the order of the configuration.
pub(super) async fn list(State(api): State<Arc<Api>>) -> Json<wire::Fleets> {
    let fleets = api
        .roster
        .fleets()
        .iter()
        .map(|fleet| mapping::fleet(fleet, api.clock))
        .collect();
    Json(wire::Fleets { fleets })
}

/// Shows one fleet.
pub(super) async fn one(
    State(api): State<Arc<Api>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<wire::Fleet>, Failure> {
    let fleet = api.member(&path(name)?)?.fleet;
    Ok(Json(mapping::fleet(&fleet, api.clock)))
}

/// Shows a fleet's last decisions, the newest first.
pub(super) async fn decisions(
    State(api): State<Arc<Api>>,
    name: Result<Path<String>, PathRejection>,
    query: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<wire::Decisions>, Failure> {
    let fleet = api.member(&path(name)?)?.fleet;
    let Query(query) = query.map_err(|rejected| Failure::bad_request(rejected.body_text()))?;
    let limit = limit(&query).map_err(Failure::bad_request)?;
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

fn path(name: Result<Path<String>, PathRejection>) -> Result<String, Failure> {
    name.map(|Path(name)| name)
        .map_err(|rejected| Failure::bad_request(rejected.body_text()))
}

fn limit(query: &[(String, String)]) -> Result<usize, String> {
    let Some((_, text)) = query.iter().find(|(key, _)| key == "limit") else {
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
        let ask = |text: &str| limit(&[("limit".to_owned(), text.to_owned())]);
        assert_eq!(ask("1"), Ok(1));
        assert_eq!(ask("1000"), Ok(1000));
        for bad in [
            "0",
            "1001",
            "-1",
            "ten",
            "",
            "1.5",
            "99999999999999999999999",
        ] {
            let error = ask(bad).unwrap_err();
            assert_eq!(
                error,
                format!("limit: {bad:?} is not a whole number from 1 to 1000")
            );
        }
        assert_eq!(limit(&[]), Ok(LIMIT_DEFAULT));
    }
}
