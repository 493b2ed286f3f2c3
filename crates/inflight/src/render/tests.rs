//! What is printed, as a whole.

use std::path::Path;

use super::*;
use crate::config::{Config, FleetConfig, Surroundings};

fn config(fleets: &str) -> Config {
    let text = format!("version: 1\nfleets:\n{fleets}");
    let path = Path::new("inflight.yaml");
    Config::from_text(path, &text, &Surroundings::Elsewhere).unwrap()
}

/// Reads the fleets of a file that has these lines under `fleets`.
fn fleets(text: &str) -> Vec<FleetConfig> {
    config(text).fleets
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
    let own =
        "{ prometheus: { url: 'http://p:9090', query: \"sum ( b )  # mine\\n\", replicas: c } }";
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

const FLEETS: &str = "
  - name: triton
    replicas: { min: 1, max: 10 }
    source:
      envoy:
        admin: ['http://e1:9901', 'http://e2:9901']
        cluster: grpc
        backend: { triton: { dns: 'http://triton:8002/metrics' } }
    target: { keda: { listen: 127.0.0.1:9443 } }
    scaling: { down_window: 2m, step: { down: { replicas: 2, every: 30s } } }
  - name: vllm
    replicas: { min: 1, max: 4 }
    source: { vllm: { metrics: ['http://v1:8000', 'http://v2:8000/m?a=b%26c'], cache_target: 0.8 } }
    scaling: { window: 20s, down_window: 2h, unknown: { fallback: 3 } }
  - name: Hello_World
    slots: 2
    replicas: { min: 0, max: 8 }
    source: { gateway: { listen: '127.0.0.1:8080' } }
    endpoints: { static: ['10.0.0.1:80'] }
  - name: own
    replicas: { min: 1, max: 5 }
    source: { prometheus: { url: 'http://p:9090/x/', query: \"sum(queue{a=\\\"b\\\"})\\n/ 2\", replicas: 'sum(up)' } }
    scaling: { target: 50, kind: value, tolerance: 0.1 }
";

/// Every metric that a query names.
fn metrics(query: &str) -> Vec<String> {
    use promql_parser::parser::{Expr, parse};
    use promql_parser::util::{ExprVisitor, walk_expr};
    struct Names(Vec<String>);
    impl ExprVisitor for Names {
        type Error = ();
        fn pre_visit(&mut self, expression: &Expr) -> Result<bool, ()> {
            if let Expr::VectorSelector(series) = expression {
                self.0.extend(series.name.clone());
            }
            if let Expr::MatrixSelector(series) = expression {
                self.0.extend(series.vs.name.clone());
            }
            Ok(true)
        }
    }
    let mut names = Names(Vec::new());
    walk_expr(&mut names, &parse(query).unwrap()).unwrap();
    names.0
}

#[test]
fn dashboard_and_alerts_name_only_what_is_exported_or_recorded() {
    let mut exported: Vec<String> = crate::api::metrics::names().collect();
    for base in [
        "inflight_wait_duration_seconds",
        "inflight_request_duration_seconds",
    ] {
        assert!(exported.contains(&base.to_owned()));
        exported.push(format!("{base}_bucket"));
    }
    let recorded = rules(&config(FLEETS), &Selector::default()).unwrap().text;
    let mut seen = 0;
    for query in dashboard::expressions().chain(monitoring::expressions().map(str::to_owned)) {
        for name in metrics(&query) {
            let is_recorded = recorded.contains(&format!("record: {name}\n"));
            let is_known = name == "up" || is_recorded || exported.contains(&name);
            assert!(is_known, "{name} in {query}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
    let dashboard = grafana(&config(FLEETS)).text;
    let read: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert_eq!(read["panels"].as_array().unwrap().len(), 10);
    insta::assert_snapshot!(dashboard);
}

fn places() -> Places {
    Places {
        name: None,
        namespace: "serving".to_owned(),
        workload: None,
        prometheus: None,
        scaler: None,
    }
}

#[test]
fn each_fleet_becomes_the_object_by_which_keda_sizes_it() {
    let config = config(FLEETS);
    let fleets: Vec<&FleetConfig> = config.fleets.iter().collect();
    let rendered = keda(&fleets, &Selector::default(), &places()).unwrap();
    insta::assert_snapshot!(format!(
        "{}\n{}",
        rendered.warnings.join("\n"),
        rendered.text
    ));
    for (document, fleet) in rendered.text.split("---\n").zip(&fleets) {
        let read: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        assert_eq!(read["kind"], "ScaledObject");
        assert_eq!(read["spec"]["maxReplicaCount"], fleet.replicas_max.get());
        let metadata = &read["spec"]["triggers"][0]["metadata"];
        if fleet.name == "own" {
            assert_eq!(metadata["query"], "sum(queue{a=\"b\"})\n/ 2");
            assert_eq!(metadata["serverAddress"], "http://p:9090/x");
        }
        // KEDA's metadata are texts.
        let values = metadata.as_object().unwrap().values();
        assert!(
            values.into_iter().all(serde_json::Value::is_string),
            "{metadata}"
        );
    }
}

#[test]
fn a_query_in_an_object_is_the_query_that_is_printed() {
    let fleet = triton("time_sum");
    let object = keda(&[&fleet], &Selector::default(), &places())
        .unwrap()
        .text;
    let read: serde_json::Value = serde_saphyr::from_str(&object).unwrap();
    let printed = query(&fleet, &Selector::default(), Consumer::Scaler)
        .unwrap()
        .text;
    let query = read["spec"]["triggers"][0]["metadata"]["query"]
        .as_str()
        .unwrap();
    assert_eq!(query, printed.trim_end());
}

#[test]
fn what_measures_the_fleets_is_scraped_and_recorded() {
    let config = config(FLEETS);
    let scraped = scrape(&config);
    insta::assert_snapshot!(format!("{}\n{}", scraped.warnings.join("\n"), scraped.text));
    let recorded = rules(&config, &"release=\"x\"".parse().unwrap()).unwrap();
    insta::assert_snapshot!(format!(
        "{}\n{}",
        recorded.warnings.join("\n"),
        recorded.text
    ));
}

#[test]
fn replicas_that_we_start_are_scraped_by_the_file_that_tells_of_them() {
    let scraped = |publish: &str| {
        let config = config(&format!(
            "- name: a\n  slots: 1\n  replicas: {{ max: 4 }}\n  source: {{ envoy: {{ admin: \
             ['http://a:1'], cluster: c, backend: {{ triton: {{ port: m }} }} }} }}\n  target: {{ \
             process: {{ command: [x, '{{port}}', '{{port.m}}'], ports: [m], publish: {{ envoy: {{ \
             file: /run/e.json }}{publish} }} }} }}\n"
        ));
        scrape(&config)
    };
    let told = scraped(", prometheus: { file: /run/t.json, port: m }");
    assert!(
        told.text.contains(
            "  - job_name: \"triton\"\n    scrape_interval: 15s\n    metrics_path: \"/metrics\"\n"
        ),
        "{}",
        told.text
    );
    let file = "    file_sd_configs:\n      - files: [\"/run/t.json\"]\n";
    assert!(told.text.contains(file), "{}", told.text);
    let untold = scraped(", prometheus: { file: /run/t.json }");
    let said = untold.warnings.join("\n");
    assert!(
        said.contains("fleet a: its replicas are not scraped"),
        "{said}"
    );
    assert!(!untold.text.contains("triton"), "{}", untold.text);
}
