//! The cluster of a fleet's servers.

use std::path::Path;
use std::time::Duration;

use super::rule::{Rule, judge};
use super::spot::{Spot, problem};
use crate::config::error::Problem;

/// What Envoy lets be at the same time unless told otherwise.
const LIMIT_DEFAULT: f64 = 1024.0;

/// For every cluster that Envoy tells endpoints of.
const RULES: [Rule; 2] = [
    Rule {
        at: &["common_lb_config", "healthy_panic_threshold"],
        is_right: |found| found.number() == Some(0.0),
        default: "50",
        why: "calls go to servers that are not healthy, or drain, once so many of a hundred are so",
        should: "{ value: 0 }",
    },
    Rule {
        at: &["common_lb_config", "update_merge_window"],
        is_right: |found| found.span() == Some(Duration::ZERO),
        default: "1s",
        why: "a server that became healthy counts so much later, and calls from zero meet none; one that is \
              to go gets calls for as long, which may be lost",
        should: "0s",
    },
];

/// For those whose servers are checked, and come and go.
const REMOVAL: [Rule; 1] = [Rule {
    at: &["ignore_health_on_host_removal"],
    is_right: |found| found.is_true(),
    default: "false",
    why: "a server that is taken out gets calls as before while its health check passes",
    should: "true",
}];

const CHECK: [Rule; 1] = [Rule {
    at: &["no_traffic_interval"],
    is_right: |found| found.span().is_some_and(|span| span <= CHECK_MAX),
    default: "60s",
    why: "without calls a server is found healthy, or gone, so late",
    should: "1s",
}];

/// The longest interval between checks with which a fleet from zero is not kept waiting.
const CHECK_MAX: Duration = Duration::from_secs(5);

const REMAINING: [Rule; 1] = [Rule {
    at: &["track_remaining"],
    is_right: |found| found.is_true(),
    default: "false",
    why: "how near the limits are is told by nobody",
    should: "true",
}];

/// Says what is worth a look in the cluster of a fleet's servers, of which we tell Envoy by `told`.
pub(super) fn add(cluster: &Spot<'_>, told: Option<&Path>, advice: &mut Vec<Problem>) {
    judge(&RULES, cluster, advice);
    let checks = cluster.get("health_checks");
    if !checks.is_there() {
        let what = "is not set: calls go to servers that hang or are not ready yet, and every one \
                    that is listed counts as healthy; should be a check, such as \
                    `{ timeout: 1s, interval: 1s, no_traffic_interval: 1s, unhealthy_threshold: 2, \
                    healthy_threshold: 1, grpc_health_check: {} }`";
        advice.push(problem(&checks, what));
    }
    for check in checks.items() {
        judge(&CHECK, &check, advice);
    }
    let kind = cluster.get("type").text().unwrap_or("STATIC");
    if kind != "STATIC" && checks.is_there() {
        judge(&REMOVAL, cluster, advice);
    }
    let read = check_eds(cluster, advice);
    if let Some(told) = told.filter(|told| read.text().map(Path::new) != Some(told)) {
        let what = format!(
            "{}: the replicas that inflight starts are told in {}, with `type: EDS`",
            read.found(""),
            told.display()
        );
        advice.push(problem(&read, what));
    }
    if let Some(limits) = check_limits(cluster, "calls", advice) {
        judge(&REMAINING, &limits, advice);
    }
}

/// Says where a cluster refuses what is above Envoy's default, and returns its limits.
pub(super) fn check_limits<'a>(
    cluster: &Spot<'a>,
    what: &str,
    advice: &mut Vec<Problem>,
) -> Option<Spot<'a>> {
    let breakers = cluster.get("circuit_breakers");
    let thresholds = breakers.get("thresholds").items();
    let limits = thresholds.into_iter().find(|one| {
        let priority = one.get("priority").text();
        priority.is_none_or(|priority| priority == "DEFAULT")
    });
    let Some(limits) = limits else {
        advice.push(problem(
            &breakers,
            format!(
                "is not set, which is 1024: {what} above that are refused, and are seen by no query; \
                 should be max_connections, max_pending_requests and max_requests far above what \
                 comes, with track_remaining"
            ),
        ));
        return None;
    };
    for key in ["max_connections", "max_pending_requests", "max_requests"] {
        let limit = limits.get(key);
        if limit.number().unwrap_or(LIMIT_DEFAULT) <= LIMIT_DEFAULT {
            let found = limit.found("1024");
            let why = format!("{found}: {what} above that are refused; should be 100000");
            advice.push(problem(&limit, why));
        }
    }
    Some(limits)
}

/// Judges where a cluster reads its endpoints, and returns the place of the file.
fn check_eds<'a>(cluster: &Spot<'a>, advice: &mut Vec<Problem>) -> Spot<'a> {
    let config = cluster.get("eds_cluster_config").get("eds_config");
    let plain = config.get("path");
    if plain.is_there() {
        let what =
            "is an older spelling, which Envoy removes; should be path_config_source: { path }";
        advice.push(problem(&plain, what));
        return plain;
    }
    let source = config.get("path_config_source");
    let path = source.get("path");
    let Some(file) = path.text() else { return path };
    let endings = [".json", ".yaml", ".yml", ".pb", ".pb_text"];
    if !endings.iter().any(|ending| file.ends_with(ending)) || !file.contains('/') {
        let what = format!(
            "{}: Envoy takes a file by how its name ends, in a folder that is named; should be as \
             /var/lib/inflight/triton.json",
            path.found("")
        );
        advice.push(problem(&path, what));
    }
    let watched = source.get("watched_directory").get("path");
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    if watched
        .text()
        .is_some_and(|it| it.trim_end_matches('/') != folder)
    {
        let what = format!(
            "{}: the file is not replaced there, so that no change is seen; should be {folder}",
            watched.found("")
        );
        advice.push(problem(&watched, what));
    }
    path
}
