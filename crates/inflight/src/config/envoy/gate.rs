//! The filters by which Envoy asks the gate: whether they are on for first calls, wait long enough for
//! those and not for others, and what they do when nobody answers.

use std::time::Duration;

use super::cluster::check_limits;
use super::file::{File, Filter, Manager, Route, endpoint_ports};
use super::rule::{Rule, down, judge};
use super::spot::{Spot, problem};
use crate::config::error::Problem;
use crate::config::{ExtAuthzSettings, FleetConfig, OnFailure};

/// How long Envoy waits for an answer unless told otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_millis(200);
/// The longest that a call which never waits may hang on a gate that does.
const HANG_MAX: Duration = Duration::from_secs(5);
/// Where the options of HTTP/2 are, in either spelling.
const HTTP2: [&[&str]; 2] = [
    &[
        "typed_extension_protocol_options",
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config",
        "http2_protocol_options",
    ],
    &["http2_protocol_options"],
];

const FILTER: [Rule; 2] = [
    Rule {
        at: &["status_on_error"],
        is_right: |found| {
            let code = found.get("code");
            code.text() == Some("ServiceUnavailable") || code.number() == Some(503.0)
        },
        default: "403",
        why: "while nobody answers gRPC clients get PERMISSION_DENIED, and do not try again",
        should: "{ code: ServiceUnavailable }",
    },
    Rule {
        at: &["with_request_body"],
        is_right: |found| !found.is_there(),
        default: "",
        why: "each call waits for its body, which the gate does not read",
        should: "left out",
    },
];

/// Says what is worth a look where a fleet's clients are judged.
pub(super) fn add(file: &File<'_>, fleet: &FleetConfig, cluster: &str, advice: &mut Vec<Problem>) {
    let Some(gate) = &fleet.ext_authz else { return };
    for manager in file.managers_of(cluster) {
        let ours = ours(file, manager, gate);
        check_first_calls(manager, &ours, gate, advice);
        for filter in ours {
            check_filter(file, manager, filter, gate, advice);
        }
    }
}

/// Returns the filters that ask us: all but those which ask a cluster without our port, where that
/// leaves any.
fn ours<'f, 'a>(
    file: &File<'a>,
    manager: &'f Manager<'a>,
    gate: &ExtAuthzSettings,
) -> Vec<&'f Filter<'a>> {
    let all = manager
        .filters
        .iter()
        .filter(|filter| filter.is_ext_authz());
    let all: Vec<&Filter<'_>> = all.collect();
    let port = gate.listen.value.port();
    let asks_another = |filter: &Filter<'_>| {
        let http = down(&filter.config, &["http_service", "server_uri", "cluster"]);
        let name = asked(filter).text().or(http.text());
        let cluster = name.and_then(|name| file.cluster(name));
        cluster.is_some_and(|cluster| !endpoint_ports(&cluster).contains(&port))
    };
    let ours: Vec<&Filter<'_>> = (all.iter().copied())
        .filter(|filter| !asks_another(filter))
        .collect();
    if ours.is_empty() { all } else { ours }
}

/// Returns the cluster that a filter asks over gRPC.
fn asked<'a>(filter: &Filter<'a>) -> Spot<'a> {
    down(
        &filter.config,
        &["grpc_service", "envoy_grpc", "cluster_name"],
    )
}

/// Returns the route that a path takes.
fn route_of<'m, 'a>(manager: &'m Manager<'a>, path: &str) -> Option<&'m Route<'a>> {
    manager.routes.iter().find(|route| route.takes(path))
}

fn check_first_calls(
    manager: &Manager<'_>,
    ours: &[&Filter<'_>],
    gate: &ExtAuthzSettings,
    advice: &mut Vec<Problem>,
) {
    if manager.filters.iter().any(Filter::is_lua) && ours.is_empty() {
        return;
    }
    for path in &gate.first_calls {
        let Some(route) = route_of(manager, path) else {
            continue;
        };
        if !ours.iter().any(|filter| filter.is_on(route)) {
            let what = format!(
                "takes {path}, for which no filter ext_authz is on: new clients are not judged, and \
                 nothing wakes a fleet at zero; should have one, as `inflight render envoy` prints it"
            );
            advice.push(problem(&route.spot, what));
        }
    }
}

fn check_filter(
    file: &File<'_>,
    manager: &Manager<'_>,
    filter: &Filter<'_>,
    gate: &ExtAuthzSettings,
    advice: &mut Vec<Problem>,
) {
    judge(&FILTER, &filter.config, advice);
    check_failure_mode(filter, gate, advice);
    if filter.config.get("http_service").is_there() {
        check_http(filter, advice);
        return;
    }
    check_timeout(manager, filter, gate, advice);
    let name = asked(filter);
    match name.text().map(|name| (name, file.cluster(name))) {
        Some((_, Some(cluster))) => check_cluster(&cluster, advice),
        Some((name, None)) => advice.push(problem(
            &asked(filter),
            format!("is {name}, a cluster that is not there: every check fails"),
        )),
        // Another way of asking, of which we know nothing.
        None => {}
    }
}

fn check_failure_mode(filter: &Filter<'_>, gate: &ExtAuthzSettings, advice: &mut Vec<Problem>) {
    let allow = filter.config.get("failure_mode_allow");
    let wanted = gate.on_failure == OnFailure::Open;
    if allow.is_true() != wanted {
        let (word, what) = match gate.on_failure {
            OnFailure::Open => ("open", "are refused"),
            OnFailure::Closed => ("closed", "pass"),
        };
        let what = format!(
            "{}: while inflight does not answer clients {what}, and `gate.ext_authz.on_failure` is \
             {word}; should be {wanted}",
            allow.found("false")
        );
        advice.push(problem(&allow, what));
    }
}

/// Asking over HTTP has a hole, and no way to say that there is no capacity.
fn check_http(filter: &Filter<'_>, advice: &mut Vec<Problem>) {
    let http = filter.config.get("http_service");
    let what = "is not what inflight answers, and over HTTP a refusal cannot be UNAVAILABLE; should \
                be grpc_service";
    advice.push(problem(&http, what));
    let older = down(&http, &["authorization_request", "allowed_headers"]);
    for allowed in [filter.config.get("allowed_headers"), older] {
        let patterns = allowed.get("patterns").items();
        if let Some(pattern) = patterns.iter().find(|one| matches_content_type(one)) {
            let what = "lets `content-type` through: while nobody answers, or answers late, every gRPC \
                        call passes, whatever failure_mode_allow says";
            advice.push(problem(pattern, what));
        }
    }
}

fn matches_content_type(pattern: &Spot<'_>) -> bool {
    const NAME: &str = "content-type";
    let part = |key: &str| pattern.get(key).text().map(str::to_ascii_lowercase);
    part("exact").is_some_and(|text| text == NAME)
        || part("prefix").is_some_and(|text| NAME.starts_with(&text))
        || part("suffix").is_some_and(|text| NAME.ends_with(&text))
        || part("contains").is_some_and(|text| NAME.contains(&text))
        || pattern.get("safe_regex").get("regex").text() == Some(".*")
}

fn check_timeout(
    manager: &Manager<'_>,
    filter: &Filter<'_>,
    gate: &ExtAuthzSettings,
    advice: &mut Vec<Problem>,
) {
    let timeout = filter.config.get("grpc_service").get("timeout");
    let span = timeout.span().unwrap_or(TIMEOUT_DEFAULT);
    let found = timeout.found("200ms");
    let mut first = gate
        .first_calls
        .iter()
        .filter_map(|path| route_of(manager, path));
    let holds = first.any(|route| filter.is_on(route));
    if holds && !span.is_zero() && span <= gate.ready_timeout {
        let what = format!(
            "{found}: a first call that waits for a server is refused after that; should be {}s, \
             above `gate.ext_authz.ready_timeout`",
            gate.ready_timeout.as_secs() + 5
        );
        advice.push(problem(&timeout, what));
        return;
    }
    let is_first = |route: &Route<'_>| {
        let mut calls = gate.first_calls.iter();
        calls.any(|call| route.spot.get("match").get("path").text() == Some(call))
    };
    let is_on_others = |route: &&Route<'_>| filter.is_on(route) && !is_first(route);
    let other = manager.routes.iter().find(is_on_others);
    if let Some(other) = other.filter(|_| span.is_zero() || span > HANG_MAX) {
        let what = format!(
            "{found}, and the filter is on for {} as well: while inflight hangs all of those do; \
             should be a filter of its own with 0.9s for what does not wait",
            other.spot.place.key
        );
        advice.push(problem(&timeout, what));
    } else if !timeout.is_there() {
        let what = format!("{found}: a busy machine takes longer; should be 0.9s");
        advice.push(problem(&timeout, what));
    }
}

/// The cluster of the gate itself.
fn check_cluster(cluster: &Spot<'_>, advice: &mut Vec<Problem>) {
    check_limits(cluster, "calls that wait", advice);
    let places = HTTP2.map(|path| down(cluster, path).get("connection_keepalive"));
    let pings = places.iter().find(|one| one.is_there());
    let whole = pings.and_then(|pings| {
        let interval = pings.get("interval").span()?;
        Some(interval.saturating_add(pings.get("timeout").span()?))
    });
    if whole.is_some_and(|whole| whole <= HANG_MAX) {
        return;
    }
    let found = match pings {
        Some(_) => "is slower than 5 s in all",
        None => "is not set",
    };
    let what = format!(
        "{found}: while inflight hangs, calls that wait hang with it, for as long as they may wait; \
         should be {{ interval: 0.4s, timeout: 0.4s }}"
    );
    advice.push(problem(pings.unwrap_or(&places[0]), what));
}
