//! What is printed, as a whole.

use std::path::Path;

use super::*;
use crate::config::{Config, FleetConfig, Surroundings};

/// Reads the fleets of a file that has these lines under `fleets`.
pub(super) fn fleets(text: &str) -> Vec<FleetConfig> {
    let text = format!("version: 1\nfleets:\n{text}");
    let path = Path::new("inflight.yaml");
    Config::from_text(path, &text, &Surroundings::Elsewhere)
        .unwrap()
        .fleets
}

/// Reads a fleet with this source that nobody here serves.
pub(super) fn measured(source: &str, rest: &str) -> FleetConfig {
    let text = format!(
        "  - name: triton\n    replicas: {{ min: 1, max: 10 }}\n    source: {source}\n{rest}"
    );
    fleets(&text).remove(0)
}

const TRITON: &str = "{ envoy: { admin: ['http://e:9901'], cluster: grpc, estimator: ESTIMATOR, \
    backend: { triton: { metrics: ['http://t:8002/metrics'], models: [a, 'b.c'] } } } }";

pub(super) fn triton(estimator: &str) -> FleetConfig {
    measured(&TRITON.replace("ESTIMATOR", estimator), "")
}

fn printed(fleet: &FleetConfig) -> String {
    let rendered = promql(&[fleet], &"release=\"x\"".parse().unwrap()).unwrap();
    let warnings = rendered
        .warnings
        .iter()
        .map(|text| format!("warning: {text}\n"));
    warnings.collect::<String>() + &rendered.text
}

#[test]
fn a_proxy_and_its_servers_become_the_rule_as_queries() {
    insta::assert_snapshot!(printed(&triton("time_sum")));
    insta::assert_snapshot!(printed(&triton("gauges")));
}

#[test]
fn gateways_of_ours_become_the_rule_as_queries() {
    let text = "  - name: hello\n    slots: 2\n    replicas: { min: 0, max: 10 }\n    \
                source: { gateway: { listen: '127.0.0.1:8080' } }\n    \
                endpoints: { static: ['10.0.0.1:80'] }\n";
    insta::assert_snapshot!(printed(&fleets(text)[0]));
}

#[test]
fn servers_of_other_kinds_become_the_rule_as_queries() {
    let vllm = "{ vllm: { metrics: ['http://v:8000/metrics'], model: \"a\\\"\\\\\\nb\", cache_target: 0.8 } }";
    insta::assert_snapshot!(printed(&measured(vllm, "")));
    let custom = "{ envoy: { admin: ['http://e:9901'], cluster: c, backend: { custom: { \
                  metrics: ['http://t:80/metrics'], executing_time: busy_ms, waiting_time: wait_ms, \
                  unit: ms, labels: { zone: 'a' } } } } }";
    insta::assert_snapshot!(printed(&measured(custom, "    scaling: { window: 90s }\n")));
}

#[test]
fn queries_of_ones_own_are_put_together_or_left_as_they_are() {
    let terms = "{ prometheus: { url: 'http://p:9090', in_flight: 'in_flight # all of it', \
                 executing: 'sum(b) - sum(c)', replicas: '3' } }";
    insta::assert_snapshot!(printed(&measured(terms, "")));
    let own = "{ prometheus: { url: 'http://p:9090', query: \"sum ( b )  # mine\\n\" } }";
    let own = measured(own, "    scaling: { target: 50, kind: value }\n");
    insta::assert_snapshot!(printed(&own));
    let verbatim = query(&own, &Selector::default(), Consumer::Scaler).unwrap();
    assert_eq!(verbatim.text, "sum ( b )  # mine\n\n");
}

#[test]
fn what_is_no_query_is_told_by_its_key_and_not_printed() {
    for (key, source) in [
        (
            "query",
            "{ prometheus: { url: 'http://p:9090', query: 'sum(' } }",
        ),
        (
            "executing",
            "{ prometheus: { url: 'http://p:9090', in_flight: a, executing: 'b[5m]', replicas: c } }",
        ),
    ] {
        let scaling = if key == "query" {
            "    scaling: { target: 1 }\n"
        } else {
            ""
        };
        let error = promql(&[&measured(source, scaling)], &Selector::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("fleet triton: {key} is no query: ")),
            "{error}"
        );
    }
}
