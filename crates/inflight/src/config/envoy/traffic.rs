//! What is done with the requests of a fleet before they reach its cluster: what cuts them, and what
//! sends them twice.

use std::time::Duration;

use super::file::{File, Manager, Route};
use super::spot::{Spot, problem};
use crate::config::FleetConfig;
use crate::config::error::Problem;

/// How long a stream may be idle, and a request take, unless told otherwise.
const STREAM_IDLE_DEFAULT: Duration = Duration::from_secs(300);
const ROUTE_TIMEOUT_DEFAULT: &str = "15s";
/// How long a call is expected to run at least, where nothing is held for longer.
const CALL_LONG: Duration = Duration::from_secs(300);
/// Conditions of a retry under which a server may have executed the call.
const MAY_HAVE_RUN: [&str; 9] = [
    "5xx",
    "gateway-error",
    "reset",
    "retriable-4xx",
    "retriable-status-codes",
    "cancelled",
    "deadline-exceeded",
    "internal",
    "unavailable",
];

/// Says what is worth a look on the way to a fleet's cluster.
pub(super) fn add(file: &File<'_>, fleet: &FleetConfig, cluster: &str, advice: &mut Vec<Problem>) {
    let waits = fleet.ext_authz.as_ref().map(|gate| gate.ready_timeout);
    let mut managers = file.managers_of(cluster).peekable();
    if managers.peek().is_none() {
        let elsewhere = file
            .managers
            .iter()
            .find(|one| one.spot.get("rds").is_there());
        let (at, what) = match elsewhere {
            Some(manager) => (
                manager.spot.get("rds"),
                "has routes that the file does not have, which were not looked at".to_owned(),
            ),
            None => (
                file.root.get("static_resources").get("listeners"),
                format!("have no route to cluster `{cluster}`"),
            ),
        };
        advice.push(problem(&at, what));
    }
    for manager in managers {
        check_idle(manager, waits.unwrap_or(CALL_LONG), advice);
        for route in &manager.routes {
            if route.clusters().contains(&cluster) {
                check_route(route, advice);
            }
        }
    }
}

/// Whether calls that wait, or run for long, are cut.
fn check_idle(manager: &Manager<'_>, longest: Duration, advice: &mut Vec<Problem>) {
    let is_short = |span: Duration| !span.is_zero() && span <= longest;
    let idle = manager.spot.get("stream_idle_timeout");
    if is_short(idle.span().unwrap_or(STREAM_IDLE_DEFAULT)) {
        let what = format!(
            "{}: a call that waits, or runs for as long, moves nothing and is cut; should be 0s",
            idle.found("300s")
        );
        advice.push(problem(&idle, what));
    }
    let whole = (manager.spot.get("common_http_protocol_options")).get("max_stream_duration");
    if whole.span().is_some_and(is_short) {
        let what = format!(
            "{}: a first call that waits is cut; should be 0s, or above {longest:?}",
            whole.found("")
        );
        advice.push(problem(&whole, what));
    }
}

fn check_route(route: &Route<'_>, advice: &mut Vec<Problem>) {
    let action = route.spot.get("route");
    let timeout = action.get("timeout");
    if !timeout.is_there() {
        let what = format!(
            "{}: longer calls are cut while the server goes on with them; should be 0s, as clients \
             say how long they wait (grpc-timeout)",
            timeout.found(ROUTE_TIMEOUT_DEFAULT)
        );
        advice.push(problem(&timeout, what));
    }
    let own = action.get("retry_policy");
    let policy = if own.is_there() {
        own
    } else {
        route.host.get("retry_policy")
    };
    check_retries(&policy, advice);
}

fn check_retries(policy: &Spot<'_>, advice: &mut Vec<Problem>) {
    let on = policy.get("retry_on");
    let words = on.text().unwrap_or_default().split(',').map(str::trim);
    let risky: Vec<&str> = words.filter(|word| MAY_HAVE_RUN.contains(word)).collect();
    if !risky.is_empty() {
        let what = format!(
            "has {}: a call that a server may have executed is sent again, and an overloaded fleet \
             gets more calls; should be connect-failure,refused-stream at most",
            risky.join(", ")
        );
        advice.push(problem(&on, what));
    }
}
