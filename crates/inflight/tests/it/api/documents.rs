//! The reference pages agree with the code.

use std::collections::BTreeSet;

use serde_json::Value;

use super::instance::{Instance, decision, estimate};

const METRICS: &str = include_str!("../../../../../docs/metrics.md");
const API: &str = include_str!("../../../../../docs/api.md");

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let code: BTreeSet<_> = inflight::api::metrics::names().collect();
    let words = METRICS.split('`').skip(1).step_by(2);
    let page: BTreeSet<_> = words
        .filter(|word| word.starts_with("inflight_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(code, page);
}

#[tokio::test]
async fn every_label_is_documented() {
    let instance = Instance::start(&["hello"]).await;
    instance.decide(0, decision(2, 3), estimate());
    for series in instance.samples().await.keys() {
        let labels = series
            .split(['{', ',', '}'])
            .filter_map(|label| label.split_once('='));
        for (key, value) in labels.filter(|(key, _)| !matches!(*key, "le" | "version" | "id")) {
            let word = if matches!(key, "fleet" | "model") {
                key
            } else {
                value.trim_matches('"')
            };
            assert!(METRICS.contains(word) && METRICS.contains(key), "{series}");
        }
    }
}

#[tokio::test]
async fn the_documented_fleet_has_the_keys_of_the_real_one() {
    let instance = Instance::start(&["hello"]).await;
    instance.decide(0, decision(2, 3), estimate());
    let (_, rest) = API.split_once("```json\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let documented: Value = serde_json::from_str(example).unwrap();
    let real = instance.get("/api/v1/fleets/hello").await.json();
    assert_eq!(keys(&documented), keys(&real));
}

/// Returns the paths of all keys; those of a decision's inputs differ by policy.
fn keys(value: &Value) -> BTreeSet<String> {
    let Value::Object(entries) = value else {
        return BTreeSet::new();
    };
    let mut paths = BTreeSet::new();
    for (key, value) in entries {
        paths.insert(key.clone());
        if key != "inputs" {
            paths.extend(keys(value).iter().map(|inner| format!("{key}.{inner}")));
        }
    }
    paths
}
