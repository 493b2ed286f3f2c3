//! Sources that others measure: what goes with what, and the rule that goes with each.

use std::time::Duration;

use super::*;

/// A fleet that nobody here serves, with its source, target and scaling.
fn elsewhere(source: &str, rest: &str) -> String {
    format!(
        "version: 1\nfleets:\n  - name: triton\n    replicas: {{ min: 1, max: 10 }}\n    source: {source}\n{rest}"
    )
}

const ENVOY: &str = "{ envoy: { admin: ['http://127.0.0.1:9901'], cluster: triton, \
    backend: { triton: { metrics: ['http://127.0.0.1:8002/metrics'] } } } }";

const TERMS: &str =
    "{ prometheus: { url: 'http://p:9090', in_flight: a, executing: b, replicas: c } }";
const QUERY: &str = "{ prometheus: { url: 'http://p:9090/prefix', query: 'sum(up)' } }";
const WITH_REPLICAS: &str =
    "{ prometheus: { url: 'http://p:9090/prefix', query: 'sum(up)', replicas: 'count(up)' } }";

fn only(text: &str) -> FleetConfig {
    judge(text).unwrap().fleets.remove(0)
}

#[test]
fn a_fleet_that_others_measure_needs_neither_slots_nor_a_policy() {
    let fleet = only(&elsewhere(
        ENVOY,
        "    target: { keda: { listen: '127.0.0.1:9443' } }\n",
    ));
    assert_eq!(fleet.scaling.policy.name(), "occupancy");
    assert!(matches!(fleet.measured, Some(MeasuredSettings::Envoy(_))));
    assert!(matches!(fleet.target, Target::Keda { .. }));
    assert_eq!(fleet.endpoints, Endpoints::Elsewhere);
    assert_eq!(fleet.models[0].slots.get(), 1);
}

#[test]
fn answers_that_are_averages_are_not_averaged_again() {
    let PolicySettings::Occupancy { window, .. } = only(&elsewhere(TERMS, "")).scaling.policy
    else {
        panic!("another policy");
    };
    assert_eq!(window, Duration::from_secs(1));
    let PolicySettings::Occupancy { window, .. } = only(&elsewhere(ENVOY, "")).scaling.policy
    else {
        panic!("another policy");
    };
    assert_eq!(window, Duration::from_secs(60));
}

#[test]
fn staffing_takes_what_a_proxy_counts_before_servers_that_count_what_completes() {
    let chosen = "    scaling: { policy: staffing }\n    slots: 1\n";
    let policy = only(&elsewhere(ENVOY, chosen)).scaling.policy;
    assert!(
        matches!(policy, PolicySettings::Staffing { .. }),
        "{policy:?}"
    );
    let vllm = ENVOY.replace("triton", "vllm");
    let refused = judge(&elsewhere(&vllm, chosen)).unwrap_err().to_string();
    assert!(refused.contains("arrivals and completions"), "{refused}");
}

#[test]
fn one_number_of_your_own_goes_with_policy_metric_alone() {
    let value = "    scaling: { target: 50, kind: value }\n";
    let refused = judge(&elsewhere(QUERY, value)).unwrap_err().to_string();
    assert!(
        refused.contains("multiplies the ready replicas"),
        "{refused}"
    );
    let fleet = only(&elsewhere(WITH_REPLICAS, value));
    assert_eq!(
        fleet.scaling.policy,
        PolicySettings::Metric {
            target: 50.0,
            kind: MetricKind::Value
        }
    );
    let Some(MeasuredSettings::Prometheus(settings)) = fleet.measured else {
        panic!("another source");
    };
    assert_eq!(settings.url.authority, "p:9090");
    assert_eq!(settings.url.path, "/prefix");
}

#[test]
fn what_does_not_go_together_is_refused_with_what_would() {
    let cases = [
        (
            "{ gateway: { listen: 127.0.0.1:1 }, vllm: { metrics: ['http://v:1'] } }",
            "",
        ),
        (
            "{ vllm: { metrics: ['https://v:1', 'http://v', 'v:1'] } }",
            "",
        ),
        ("{ vllm: { metrics: ['http://v:1', 'http://v:1'] } }", ""),
        ("{ vllm: {} }", ""),
        (
            "{ envoy: { admin: ['http://e:1'], cluster: c, backend: {} } }",
            "",
        ),
        (
            "{ envoy: { admin: ['http://e:1'], cluster: c, backend: { custom: { metrics: ['http://v:1'] } } } }",
            "",
        ),
        (
            "{ envoy: { admin: ['http://e:1'], cluster: c, backend: { custom: { metrics: ['http://v:1'], preset: tgi, queued: q } } } }",
            "",
        ),
        ("{ prometheus: { url: 'http://p:1', in_flight: a } }", ""),
        (
            "{ prometheus: { url: 'http://p:1', query: a, in_flight: a } }",
            "",
        ),
        (QUERY, ""),
        (QUERY, "    scaling: { policy: occupancy }\n"),
        (TERMS, "    scaling: { policy: staffing }\n    slots: 1\n"),
        (TERMS, "    scaling: { policy: metric, target: 1 }\n"),
        (TERMS, "    scaling: { policy: concurrency }\n"),
        (
            ENVOY,
            "    scaling: { policy: concurrency, measure: peak }\n    slots: 2\n",
        ),
        (TERMS, "    models: [{ name: a, slots: 1 }]\n"),
        (
            ENVOY,
            "    target: { process: { command: [x, '{port}'] } }\n",
        ),
        (ENVOY, "    target: {}\n"),
        (
            ENVOY,
            "    target: { keda: { listen: '127.0.0.1:1' }, process: { command: [x, '{port}'] } }\n",
        ),
    ];
    let mut said = String::new();
    for (source, rest) in cases {
        said.push_str(&format!("source: {source}\n{rest}"));
        match judge(&elsewhere(source, rest)) {
            Err(ConfigError::Invalid { problems, .. }) => {
                for problem in problems {
                    said.push_str(&format!("    -> {problem}\n"));
                }
            }
            other => panic!("not refused: {source} {rest}: {other:?}"),
        }
    }
    insta::assert_snapshot!(said);
}

fn problems(text: &str) -> String {
    let problems = errors(text);
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    told.join("\n")
}

const GATE: &str = "    gate: { ext_authz: { listen: '127.0.0.1:9002' } }\n";

#[test]
fn a_gate_waits_for_a_first_replica_and_is_closed_on_failure_unless_told_otherwise() {
    let gate = only(&elsewhere(ENVOY, GATE)).ext_authz.unwrap();
    assert_eq!(gate.mode, GateMode::NewSessions);
    assert_eq!(gate.on_failure, OnFailure::Closed);
    let index = "/inference.GRPCInferenceService/RepositoryIndex";
    assert_eq!(gate.first_calls, [index]);
    let five_minutes = Duration::from_secs(300);
    assert_eq!(
        (gate.ready_timeout, gate.hold_min),
        (five_minutes, five_minutes)
    );
}

#[test]
fn a_gate_needs_a_proxy_that_tells_and_keys_of_the_gateway_are_not_its_own() {
    let told = problems(&elsewhere(TERMS, GATE));
    assert!(told.contains("has nothing to judge by"), "{told}");
    let text = format!("{GATE}    admission: {{ first_calls: [/a] }}\n");
    let told = problems(&elsewhere(ENVOY, &text));
    assert!(told.contains("is of the gateway"), "{told}");
    let told = problems(&elsewhere(ENVOY, "    gate: {}\n"));
    assert!(told.contains("asks nobody"), "{told}");
    let twice = format!("{GATE}admin: {{ listen: '127.0.0.1:9002' }}\n");
    let told = problems(&elsewhere(ENVOY, &twice));
    assert!(told.contains("is taken by"), "{told}");
}

#[test]
fn a_session_is_known_by_its_certificate_where_a_proxy_tells_it() {
    let by = "    admission: { session: certificate }\n";
    let fleet = only(&elsewhere(ENVOY, &format!("{GATE}{by}")));
    assert_eq!(fleet.session, SessionBy::Certificate);
    let told = problems(&elsewhere(ENVOY, by));
    assert!(told.contains("none asks here"), "{told}");
}

#[test]
fn maxima_of_several_gateways_are_not_summed() {
    let source = "{ inflight: { peers: ['10.0.0.2:9900'] } }";
    let scaling = "{ policy: concurrency, measure: peak }";
    let text = file_with(&[
        ("source", Some(source)),
        ("target", None),
        ("scaling", Some(scaling)),
    ]);
    let said = judge(&text).unwrap_err().to_string();
    assert!(said.contains("cannot be summed"), "{said}");
    let mean = judge(&text.replace("peak", "mean")).unwrap();
    let fleet = &mean.fleets[0];
    assert!(fleet.gateway.is_none());
    assert_eq!(fleet.endpoints, Endpoints::Elsewhere);
    let peers = fleet.peers.as_ref().unwrap();
    assert_eq!((peers.listed.len(), &peers.fleet), (1, &fleet.name));
}
