//! What is allowed and worth a look where others measure a fleet.

use std::path::Path;

use crate::config::{Config, Surroundings};

/// The warnings of one fleet, with `{source}` and what else it has.
fn warnings(source: &str, more: &str) -> Vec<String> {
    let text = format!(
        "version: 1\nadmin: {{ listen: 127.0.0.1:9900 }}\nfleets:\n- name: a\n  source: {{ {source} }}\n  {more}\n"
    );
    let config =
        Config::from_text(Path::new("inflight.yaml"), &text, &Surroundings::Elsewhere).unwrap();
    config.warnings.iter().map(ToString::to_string).collect()
}

const ENVOY: &str =
    "admin: ['http://a:1'], cluster: c, backend: { triton: { metrics: ['http://b:2/metrics'] } }";

#[track_caller]
fn only(found: &[String], place: &str, part: &str) {
    let [warning] = found else {
        panic!("{found:#?}");
    };
    assert!(warning.starts_with(place), "{warning}");
    assert!(warning.contains(part), "{warning}");
}

#[test]
fn a_measured_fleet_as_it_should_be_has_no_warning() {
    let source = format!("envoy: {{ {ENVOY}, estimator: time_sum }}");
    assert_eq!(
        warnings(&source, "replicas: { max: 4 }"),
        Vec::<String>::new()
    );
    let zero = "replicas: { min: 0, max: 4 }\n  target: { keda: { listen: 127.0.0.1:9443 } }";
    assert_eq!(warnings(&source, zero), Vec::<String>::new());
}

#[test]
fn a_window_of_few_readings_or_few_flushes_is_named() {
    let seldom = format!("envoy: {{ {ENVOY}, every: 10s }}");
    let found = warnings(&seldom, "replicas: { max: 4 }\n  scaling: { window: 30s }");
    only(
        &found,
        "line 7: fleets[0].scaling.window: 30s holds fewer than 4",
        "at least 40s",
    );
    let flushed = format!("envoy: {{ {ENVOY}, estimator: time_sum }}");
    let found = warnings(&flushed, "replicas: { max: 4 }\n  scaling: { window: 19s }");
    only(
        &found,
        "line 7: fleets[0].scaling.window: 19s",
        "at least 20s",
    );
    let gauges = format!("envoy: {{ {ENVOY} }}");
    assert_eq!(
        warnings(&gauges, "replicas: { max: 4 }\n  scaling: { window: 19s }"),
        Vec::<String>::new()
    );
}

#[test]
fn a_fleet_that_nothing_wakes_is_named() {
    let zero = "replicas: { min: 0, max: 4 }\n  target: { keda: { listen: 127.0.0.1:9443 } }";
    let vllm = "vllm: { metrics: ['http://b:2/metrics'] }";
    only(
        &warnings(vllm, zero),
        "line 6: fleets[0].replicas.min",
        "nothing wakes the fleet",
    );
    let queries = |in_flight: &str| {
        format!(
            "prometheus: {{ url: 'http://p:9090', in_flight: '{in_flight}', executing: sum(e), replicas: max(r) }}"
        )
    };
    let of_servers = queries("sum(vllm:num_requests_running)");
    only(
        &warnings(&of_servers, zero),
        "line 6: fleets[0].replicas.min",
        "nothing wakes",
    );
    let of_proxies = queries("sum(envoy_cluster_upstream_rq_active)");
    assert_eq!(warnings(&of_proxies, zero), Vec::<String>::new());
}

#[test]
fn a_query_of_another_kind_than_its_policy_takes_is_asked_about() {
    let source = |query: &str| format!("prometheus: {{ url: 'http://p:9090', query: '{query}' }}");
    let ratio = source("sum(queued) / sum(done)");
    let total = source("sum(queued)");
    let replicas = "replicas: { max: 4 }";
    let kinds = ["", ", kind: value"];
    let [average, value] =
        kinds.map(|kind| format!("{replicas}\n  scaling: {{ target: 10{kind} }}"));
    only(&warnings(&ratio, &average), "line", "Is it `kind: value`?");
    assert_eq!(warnings(&total, &average), Vec::<String>::new());
    let total = source("sum(queued)").replace("query:", "replicas: count(up), query:");
    let found = warnings(&total, &value);
    assert!(
        found
            .iter()
            .any(|it| it.contains("Is it `kind: average_value`?")),
        "{found:?}"
    );
}

#[test]
fn b19_a_counter_that_is_taken_as_it_is_is_asked_about() {
    let source = "prometheus: { url: 'http://p:9090', query: sum(requests_total) }";
    let scaling = "replicas: { max: 4 }\n  scaling: { target: 10 }";
    only(
        &warnings(source, scaling),
        "line 5: fleets[0].source.prometheus.query: requests_total is a counter",
        "rate",
    );
    let source = "prometheus: { url: 'http://p:9090', query: 'sum(rate(requests_total[1m]))' }";
    assert_eq!(warnings(source, scaling), Vec::<String>::new());
}

#[test]
fn a_span_of_few_flushes_and_what_is_no_query_are_named() {
    let source = "prometheus: { url: 'http://p:9090', in_flight: 'sum(rate(envoy_cluster_upstream_rq_time_sum[10s])) / 1e3', \
                  executing: 'sum(', replicas: max(r) }";
    let found = warnings(source, "replicas: { max: 4 }");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].contains("upstream_rq_time_sum[10s]: Envoy moves it only with"),
        "{found:?}"
    );
    assert!(
        found[1].contains("is no PromQL that we can read"),
        "{found:?}"
    );
}
