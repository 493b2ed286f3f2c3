//! A fleet whose size follows a query, by the binary.

use std::time::Duration;

use serde_json::Value;

use super::instance::{Instance, configuration, get, wait_until};
use crate::queries::{Monitor, Say};

fn fleet(monitor: &Monitor, replicas: &str, queries: &str, scaling: &str) -> String {
    let address = monitor.address;
    format!(
        "  - name: queried\n    replicas: {{ {replicas} }}\n    source: {{ prometheus: {{ url: \
         'http://{address}', every: 1s, {queries} }} }}\n    scaling: {{ {scaling} }}\n"
    )
}

fn shown(instance: &Instance) -> Value {
    let asked = get(
        instance.admin(),
        "/api/v1/fleets/queried",
        Duration::from_secs(10),
    );
    asked.map_or(Value::Null, |(_, body)| {
        serde_json::from_str(&body).unwrap_or(Value::Null)
    })
}

#[test]
fn a_number_of_the_users_own_sizes_the_fleet_and_wakes_it_at_once() {
    let monitor = Monitor::start(Say::Numbers(vec![("queue", "0")]));
    let text = fleet(&monitor, "min: 0, max: 20", "query: queue", "target: 10");
    let instance = Instance::start(&[text]);
    let desired = |wanted: u64| {
        wait_until(
            || shown(&instance)["replicas"]["desired"] == wanted,
            &format!("{wanted} replicas"),
        );
    };
    desired(0);
    monitor.say(Say::Numbers(vec![("queue", "61.5")]));
    desired(7);
    let reason = shown(&instance)["decision"]["reason"].to_string();
    assert!(
        reason.contains("the metric is 61.5, with 10 for each 7 replicas"),
        "{reason}"
    );
    monitor.say(Say::Numbers(Vec::new()));
    let is_told = |instance: &Instance| {
        let sources = shown(instance)["sources"].to_string();
        sources.contains("the answer is empty")
    };
    wait_until(|| is_told(&instance), "the reason");
    assert_eq!(shown(&instance)["replicas"]["desired"], 7);
}

#[test]
fn the_terms_of_ones_own_size_the_fleet_by_the_rule() {
    let monitor = Monitor::start(Say::Numbers(vec![("L", "12"), ("S", "4"), ("R", "2")]));
    let queries = "in_flight: L, executing: S, replicas: R";
    let text = fleet(&monitor, "min: 0, max: 20", queries, "threshold: 2");
    let instance = Instance::start(&[text]);
    // 12 / (4/2) = 6 would not wait; with 2 for each, 3 replicas.
    wait_until(
        || shown(&instance)["replicas"]["desired"] == 3,
        "three replicas",
    );
}

#[test]
fn a_changed_query_is_asked_at_once_and_no_number_of_the_former_one_counts() {
    let numbers = vec![("rate", "3000"), ("queue", "61.5")];
    let monitor = Monitor::start(Say::Numbers(numbers));
    let of = |query: &str, target: &str| fleet(&monitor, "min: 0, max: 20", query, target);
    let instance = Instance::start(&[of("query: rate", "target: 1000")]);
    let desired = |wanted: u64| {
        wait_until(
            || shown(&instance)["replicas"]["desired"] == wanted,
            &format!("{wanted} replicas"),
        );
    };
    desired(3);
    // 3000 by the new target would be 20 replicas, for a down window.
    instance.rewrite(&configuration(&[of("query: queue", "target: 10")]));
    desired(7);
}
