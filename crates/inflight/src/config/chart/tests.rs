use super::*;

/// Draws an advice as `check --values` prints it, without headings.
fn drawn(text: &str) -> String {
    let advice = chart_advice(text).unwrap();
    let fixes = advice.fixes.iter().map(|fix| format!("fix {fix}"));
    let does = advice.does.iter().map(|line| format!("does {line}"));
    let changes = advice.changes.iter().map(|line| format!("change {line}"));
    let lines: Vec<String> = does.chain(changes).chain(fixes).collect();
    lines.join("\n")
}

fn fixes(text: &str) -> Vec<String> {
    let advice = chart_advice(text).unwrap();
    advice.fixes.iter().map(ToString::to_string).collect()
}

#[test]
fn a_threshold_of_the_former_metric_is_to_be_dropped_wherever_it_stands() {
    insta::assert_snapshot!(drawn(
        "\
serverLoadThreshold: 100
keda:
  enabled: true
  minReplicaCount: 1
  maxReplicaCount: 8
  scaleUp: { stabilizationWindowSeconds: 60, periodSeconds: 60, stepsize: 1 }
prometheus:
  external: { enabled: true, url: prometheus.example.org }
  serverLoadThreshold: 100
autoscaler: { enabled: false }
"
    ));
}

#[test]
fn a_metric_in_milliseconds_needs_both_thresholds_in_milliseconds() {
    insta::assert_snapshot!(drawn(
        "\
serverLoadMetric: |
  sum(rate(nv_inference_queue_duration_us[30s])) / (sum(rate(nv_inference_exec_count[30s])) * 1000 + 0.001)
envoy: { rate_limiter: { prometheus_based: { enabled: true } } }
keda: { enabled: true, metricType: AverageValue }
prometheus: { enabled: true }
"
    ));
}

#[test]
fn the_later_chart_has_other_defaults() {
    insta::assert_snapshot!(drawn(
        "\
inferenceServer: { replicas: 1 }
serverLoadRateInterval: 15s
serverAdmissionThreshold: \"1.5\"
scaleFromZero: { enabled: true, holdMinReplicasSeconds: 60 }
envoy: { rate_limiter: { prometheus_based: { enabled: true } } }
keda: { enabled: true, minReplicaCount: 0 }
prometheus: { enabled: true, server: { global: { scrape_interval: 10s } } }
"
    ));
}

#[test]
fn a_fleet_that_cannot_wake_is_named() {
    let text = "keda: { enabled: true, minReplicaCount: 0 }\nprometheus: { enabled: true }\n";
    assert!(fixes(text)[0].starts_with("line 1: keda.minReplicaCount: nothing wakes the fleet"));
    let text = "keda: { enabled: true, zeroIdleReplicas: true }\nprometheus: { enabled: true }\n";
    assert!(fixes(text)[0].starts_with("line 1: keda.zeroIdleReplicas: nothing wakes the fleet"));
}

#[test]
fn a_total_under_value_and_a_metric_without_envoy_are_named() {
    let text = "\
envoy: { enabled: false }
keda: { enabled: true, metricType: Value }
prometheus: { enabled: true }
";
    let found = fixes(text);
    assert!(
        found[0].starts_with("line 1: envoy.enabled: without Envoy"),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("line 2: keda.metricType: \"Value\" multiplies"),
        "{found:?}"
    );
}

#[test]
fn right_values_need_no_fix_and_no_values_are_the_defaults() {
    let text = "\
serverLoadThreshold: 1.5
keda: { enabled: true, maxReplicaCount: 10 }
prometheus: { enabled: true }
";
    assert_eq!(fixes(text), Vec::<String>::new());
    assert_eq!(fixes(""), Vec::<String>::new());
    assert!(chart_advice("").unwrap().does[0].starts_with("nothing scales"));
}

#[test]
fn values_of_a_wrong_kind_are_named_and_their_defaults_hold() {
    let text = "\
serverLoadThreshold: [2]
serverLoadRateInterval: 60
keda: { enabled: yes please, maxReplicaCount: .nan }
";
    let found = fixes(text);
    assert!(
        found
            .iter()
            .any(|fix| fix == "line 1: serverLoadThreshold: a list is not a number")
    );
    assert!(
        found
            .iter()
            .any(|fix| fix.starts_with("line 2: serverLoadRateInterval: 60 is not a duration"))
    );
    assert!(
        found
            .iter()
            .any(|fix| fix.starts_with("line 3: keda.enabled: \"yes please\" is not"))
    );
    assert!(
        found
            .iter()
            .any(|fix| fix.starts_with("line 3: keda.maxReplicaCount: .nan is not a number"))
    );
}

#[test]
fn what_is_no_values_file_is_refused() {
    assert!(chart_advice("- a\n- b\n").is_err());
    assert!(chart_advice("a: [\n").is_err());
}
