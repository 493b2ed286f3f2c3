//! The examples, the reference page and the contract say the same as the declarations.

use super::*;

#[test]
fn the_examples_are_right() {
    let mut count = 0;
    for entry in fs::read_dir(repository().join("config")).unwrap() {
        let path = entry.unwrap().path();
        let config = Config::load(&path, &Surroundings::Elsewhere);
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.warnings, [], "{}", path.display());
        count += 1;
    }
    assert!(count >= 5);
}

#[test]
fn the_full_example_says_the_defaults() {
    let full = fs::read_to_string(repository().join("config/inflight.yaml")).unwrap();
    let full = &judge(&full).unwrap().fleets[0];
    let least = file_with(&[("replicas", Some("{ max: 8 }"))]);
    let least = &judge(&least).unwrap().fleets[0];
    assert_eq!(full.scaling, least.scaling);
    assert_eq!(full.queue, least.queue);
    let gateways = [full, least].map(|fleet| fleet.gateway.clone().unwrap());
    assert_eq!(gateways[0].timeouts, gateways[1].timeouts);
    assert_eq!(gateways[0].limits, gateways[1].limits);
    assert_eq!(full.session, least.session);
    assert_eq!(full.endpoints, least.endpoints);
    assert_eq!(
        (full.replicas_min, full.replicas_max),
        (least.replicas_min, least.replicas_max)
    );
    let (Target::Process(full), Target::Process(least)) = (&full.target, &least.target) else {
        panic!()
    };
    assert_eq!(full.ready, least.ready);
    let spans = |one: &ProcessSettings| {
        (
            one.ready_every,
            one.ready_timeout,
            one.stop_grace,
            one.drain_timeout,
        )
    };
    assert_eq!(spans(full), spans(least));
}

#[test]
fn the_full_example_and_the_page_name_every_key() {
    let mut sections = Vec::new();
    <raw::File as setting::Setting>::describe("", &mut sections);
    let example = fs::read_to_string(repository().join("config/inflight.yaml")).unwrap();
    let page = reference_page();
    for section in &sections {
        for key in &section.keys {
            assert!(
                example.contains(&format!("{}:", key.name)),
                "{}: {}",
                section.path,
                key.name
            );
            assert!(page.contains(&format!("| `{}` |", key.name)));
            assert!(key.doc.ends_with('.'), "{}: {}", section.path, key.name);
        }
    }
    for path in CONTRACT {
        let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
        let found = sections
            .iter()
            .any(|one| one.path == section && one.keys.iter().any(|row| row.name == key));
        assert!(found, "{path}");
    }
}

/// The keys that users rely on; taking one away breaks their files.
const CONTRACT: &[&str] = &[
    "version",
    "admin.listen",
    "admin.token_file",
    "state.dir",
    "fleets[].name",
    "fleets[].slots",
    "fleets[].models[].name",
    "fleets[].models[].path",
    "fleets[].models[].header",
    "fleets[].models[].slots",
    "fleets[].replicas.min",
    "fleets[].replicas.max",
    "fleets[].source.gateway.listen",
    "fleets[].source.gateway.upstream",
    "fleets[].source.gateway.timeouts.head",
    "fleets[].source.gateway.timeouts.connect",
    "fleets[].source.gateway.timeouts.first_byte",
    "fleets[].source.gateway.timeouts.idle",
    "fleets[].source.gateway.timeouts.drain",
    "fleets[].source.gateway.limits.head",
    "fleets[].source.gateway.limits.headers",
    "fleets[].source.gateway.limits.connections",
    "fleets[].source.gateway.ignore_paths",
    "fleets[].source.gateway.deadline_header",
    "fleets[].source.gateway.trusted_proxies",
    "fleets[].source.gateway.cancellable",
    "fleets[].source.envoy.admin",
    "fleets[].source.envoy.dns",
    "fleets[].source.envoy.cluster",
    "fleets[].source.envoy.estimator",
    "fleets[].source.envoy.every",
    "fleets[].source.envoy.timeout",
    "fleets[].source.envoy.backend.triton.metrics",
    "fleets[].source.envoy.backend.triton.dns",
    "fleets[].source.envoy.backend.triton.models",
    "fleets[].source.envoy.backend.vllm.metrics",
    "fleets[].source.envoy.backend.vllm.dns",
    "fleets[].source.envoy.backend.vllm.model",
    "fleets[].source.envoy.backend.vllm.cache_target",
    "fleets[].source.envoy.backend.custom.metrics",
    "fleets[].source.envoy.backend.custom.preset",
    "fleets[].source.envoy.backend.custom.executing",
    "fleets[].source.envoy.backend.custom.executing_time",
    "fleets[].source.envoy.backend.custom.waiting_time",
    "fleets[].source.envoy.backend.custom.unit",
    "fleets[].source.envoy.backend.custom.queued",
    "fleets[].source.envoy.backend.custom.labels",
    "fleets[].source.vllm.metrics",
    "fleets[].source.prometheus.url",
    "fleets[].source.prometheus.in_flight",
    "fleets[].source.prometheus.executing",
    "fleets[].source.prometheus.replicas",
    "fleets[].source.prometheus.query",
    "fleets[].source.prometheus.every",
    "fleets[].source.prometheus.timeout",
    "fleets[].target.keda.listen",
    "fleets[].scaling.target",
    "fleets[].scaling.kind",
    "fleets[].endpoints.static",
    "fleets[].endpoints.dns",
    "fleets[].endpoints.every",
    "fleets[].endpoints.family",
    "fleets[].health.path",
    "fleets[].health.grpc",
    "fleets[].health.tcp",
    "fleets[].health.every",
    "fleets[].health.timeout",
    "fleets[].health.unhealthy_after",
    "fleets[].health.healthy_after",
    "fleets[].health.restart_after",
    "fleets[].target.process.command",
    "fleets[].target.process.env",
    "fleets[].target.process.ready.path",
    "fleets[].target.process.ready.grpc",
    "fleets[].target.process.ready.tcp",
    "fleets[].target.process.ready.every",
    "fleets[].target.process.ready.timeout",
    "fleets[].target.process.stop_grace",
    "fleets[].target.process.on_exit",
    "fleets[].target.process.orphan_grace",
    "fleets[].scaling.policy",
    "fleets[].scaling.profile",
    "fleets[].scaling.threshold",
    "fleets[].scaling.window",
    "fleets[].scaling.utilization",
    "fleets[].scaling.measure",
    "fleets[].scaling.down_window",
    "fleets[].scaling.tolerance",
    "fleets[].scaling.step.up",
    "fleets[].scaling.step.down",
    "fleets[].scaling.idle.grace",
    "fleets[].scaling.unknown.hold",
    "fleets[].scaling.unknown.fallback",
    "fleets[].scaling.bucket",
    "fleets[].admission.threshold",
    "fleets[].admission.reopen",
    "fleets[].admission.when",
    "fleets[].admission.session.header",
    "fleets[].admission.first_calls",
    "fleets[].queue.requests",
    "fleets[].queue.bytes",
    "fleets[].queue.wait",
    "fleets[].queue.cold_wait",
];

#[test]
fn the_reference_page_is_what_the_declarations_say() {
    let path = repository().join("docs/configuration.md");
    let page = reference_page();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/configuration.md is stale; run the tests with UPDATE=1"
    );
}
