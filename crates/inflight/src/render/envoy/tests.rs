//! What is printed, and what `check --envoy` says of it, whole and with one setting changed.

use std::path::Path;

use super::*;
use crate::config::{Config, Surroundings, envoy_advice};
use crate::render::lua::tests::places as lua_places;

const GATE: &str = "gate: { ext_authz: { listen: '127.0.0.1:9002' } }";

/// A fleet behind Envoy; `more` is keys of it.
fn config(more: &str) -> Config {
    config_of(
        "{ envoy: { admin: ['http://127.0.0.1:9901'], cluster: grpc, estimator: time_sum, backend: { \
         triton: { dns: 'http://triton:8002/metrics' } } } }",
        more,
    )
}

fn config_of(source: &str, more: &str) -> Config {
    let text = format!(
        "version: 1\nfleets:\n  - name: triton\n    replicas: {{ min: 1, max: 10 }}\n    source: \
         {source}\n    {more}\n"
    );
    Config::from_text(Path::new("inflight.yaml"), &text, &Surroundings::Elsewhere).unwrap()
}

fn places() -> EnvoyPlaces {
    EnvoyPlaces {
        listen: "0.0.0.0:10000".parse().unwrap(),
        admin: None,
        servers: Vec::new(),
        eds: None,
        protocol: None,
        gate: None,
        guard: Vec::new(),
        lua: None,
    }
}

fn with_lua() -> EnvoyPlaces {
    EnvoyPlaces {
        lua: Some(lua_places()),
        ..places()
    }
}

fn with_eds() -> EnvoyPlaces {
    EnvoyPlaces {
        eds: Some("/var/lib/inflight/triton.json".to_owned()),
        guard: vec!["/inference.GRPCInferenceService/ModelInfer".to_owned()],
        ..places()
    }
}

fn printed(config: &Config, places: &EnvoyPlaces) -> Rendered {
    let rendered = envoy(&config.fleets[0], &Selector::default(), places).unwrap();
    let gaps = rendered.text.split('@').skip(1);
    let is_gap = |text: &str| text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    assert!(
        !gaps
            .into_iter()
            .any(|text| !text.is_empty() && is_gap(text))
    );
    rendered
}

fn advice(text: &str, config: &Config) -> Vec<String> {
    let advice = envoy_advice(text, config).unwrap();
    advice.iter().map(ToString::to_string).collect()
}

/// Every form, with the configuration that it is for.
fn forms() -> Vec<(Config, EnvoyPlaces)> {
    let vllm = "{ vllm: { metrics: ['http://v1:8000', 'http://v2:8000/m'] } }";
    let own = "{ prometheus: { url: 'http://p:9090/x/', query: \"sum(a @ end())\\n + 1\" } }";
    let far = "{ envoy: { dns: 'http://envoys:9901', cluster: 'a \"b\"', backend: { vllm: { metrics: \
               ['http://10.0.0.1:8000', 'http://[::1]:8000'] } } } }";
    let open = "gate: { ext_authz: { listen: '0.0.0.0:9002', mode: every_request, on_failure: open, \
                ready_timeout: 90s, first_calls: [/a, /b] } }";
    vec![
        (config(GATE), places()),
        (config(GATE), with_eds()),
        (config(GATE), with_lua()),
        (config(""), places()),
        (config_of(far, open), places()),
        (config_of(vllm, ""), with_lua()),
        (config_of(own, "scaling: { target: 50 }"), with_lua()),
    ]
}

#[test]
fn an_envoy_before_a_fleet_has_each_setting_with_its_reason() {
    let gate = printed(&config(GATE), &with_eds());
    assert_eq!(gate.warnings, [] as [&str; 0]);
    insta::assert_snapshot!(gate.text);
    let (config, places) = &forms()[4];
    let far = printed(config, places);
    insta::assert_snapshot!(format!("{}\n{}", far.warnings.join("\n"), far.text));
    let (config, places) = &forms()[6];
    let lua = printed(config, places);
    insta::assert_snapshot!(format!("{}\n{}", lua.warnings.join("\n"), lua.text));
}

#[test]
fn replicas_that_are_told_in_a_file_are_read_from_it() {
    let process = "target: { process: { command: [a, '{port}'], publish: { envoy: { file: \
                   /run/inflight/t.json, cluster: mine, admin: ['http://127.0.0.1:9999'] } } } }";
    let own = "{ prometheus: { url: 'http://p:9090', query: a } }";
    let config = config_of(own, &format!("scaling: {{ target: 5 }}\n    {process}"));
    let rendered = printed(&config, &with_lua());
    assert_eq!(rendered.warnings.len(), 1, "{:?}", rendered.warnings);
    for line in [
        "path_config_source: { path: \"/run/inflight/t.json\" }",
        "- name: \"mine\"",
        "address: \"127.0.0.1\", port_value: 9999",
    ] {
        assert!(rendered.text.contains(line), "{line}: {}", rendered.text);
    }
    assert_eq!(advice(&rendered.text, &config), [] as [&str; 0]);
    let elsewhere = advice(&rendered.text.replace("/t.json", "/u.json"), &config);
    assert!(
        elsewhere[0].contains("path: is \"/run/inflight/u.json\": the replicas that inflight starts are told in /run/inflight/t.json"),
        "{elsewhere:#?}"
    );
}

#[test]
fn the_filter_in_it_is_the_filter_that_is_printed() {
    let config = config("");
    let text = printed(&config, &with_lua()).text;
    let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let filters = &read["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0];
    let lua = &filters["typed_config"]["http_filters"][0]["typed_config"];
    let alone = crate::render::lua(&config.fleets[0], &Selector::default(), &lua_places()).unwrap();
    assert_eq!(
        lua["default_source_code"]["inline_string"]
            .as_str()
            .unwrap(),
        alone.text.trim_end()
    );
}

#[test]
fn a_fleet_whose_requests_come_in_here_has_no_envoy() {
    let config = config_of(
        "{ gateway: { listen: '127.0.0.1:1' } }",
        "slots: 1\n    endpoints: { static: ['127.0.0.1:2'] }",
    );
    let error = envoy(&config.fleets[0], &Selector::default(), &places()).unwrap_err();
    assert_eq!(error, RenderError::NoEnvoy("triton".to_owned()));
}

#[test]
fn what_is_printed_has_nothing_to_warn_of_whole_or_as_a_dump() {
    for (config, places) in forms() {
        let text = printed(&config, &places).text;
        assert_eq!(advice(&text, &config), [] as [&str; 0], "{text}");
        // A dump is JSON, and has its messages inside others.
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let dump = serde_json::json!({ "configs": [{ "bootstrap": read }] }).to_string();
        assert_eq!(advice(&dump, &config), [] as [&str; 0], "{dump}");
    }
}

#[test]
fn what_is_said_once_and_referred_to_counts_at_each_place() {
    let config = config(GATE);
    let text = printed(&config, &places()).text;
    let said = text.replacen("max_requests: 100000", "max_requests: &many 100000", 1);
    let (before, after) = said.rsplit_once("max_requests: 100000").unwrap();
    let text = format!("{before}max_requests: *many{after}").replace("9901", "&port 9901");
    assert_eq!(advice(&text, &config), [] as [&str; 0], "{text}");
    let text = text.replace("&many 100000", "&many 7");
    assert_eq!(advice(&text, &config).len(), 2);
}

/// A setting as it is printed, what stands there instead, and what is said of it.
const CHANGES: [(&str, &str, &str); 33] = [
    (
        "healthy_panic_threshold: { value: 0 }",
        "",
        "common_lb_config.healthy_panic_threshold: is not set, which is 50: calls go to servers",
    ),
    (
        "healthy_panic_threshold: { value: 0 }",
        "healthy_panic_threshold: { value: 30 }",
        "healthy_panic_threshold: is 30: calls go to servers",
    ),
    (
        "update_merge_window: 0s",
        "",
        "update_merge_window: is not set, which is 1s",
    ),
    (
        "update_merge_window: 0s",
        "update_merge_window: 0.5s",
        "update_merge_window: is 0.5s",
    ),
    (
        "ignore_health_on_host_removal: true",
        "",
        "ignore_health_on_host_removal: is not set, which is false: a server that is taken out",
    ),
    (
        "no_traffic_interval: 1s, ",
        "",
        "health_checks[0].no_traffic_interval: is not set, which is 60s",
    ),
    (
        "health_checks:",
        "no_checks:",
        "health_checks: is not set: calls go to servers",
    ),
    (
        "path: \"/var/lib/inflight/triton.json\"",
        "path: /var/lib/inflight/triton",
        "path: is /var/lib/inflight/triton: Envoy takes a file by how its name ends",
    ),
    (
        "path: \"/var/lib/inflight/triton.json\" }",
        "path: /a/b.json, watched_directory: { path: /a/c } }",
        "watched_directory.path: is /a/c: the file is not replaced there",
    ),
    (
        "path_config_source: { path: \"/var/lib/inflight/triton.json\" }",
        "path: /a/b.json",
        "eds_config.path: is an older spelling",
    ),
    (
        "max_requests: 100000, max_retries: 100000, track_remaining: true }",
        "track_remaining: true }",
        "max_requests: is not set, which is 1024: calls above that are refused",
    ),
    (
        "max_pending_requests: 100000",
        "max_pending_requests: 1000",
        "max_pending_requests: is 1000: calls above that are refused",
    ),
    (
        ", track_remaining: true",
        "",
        "track_remaining: is not set, which is false",
    ),
    (
        "circuit_breakers:",
        "no_breakers:",
        "circuit_breakers: is not set, which is 1024: calls that wait above that are refused",
    ),
    (
        "stream_idle_timeout: 0s",
        "",
        "stream_idle_timeout: is not set, which is 300s: a call",
    ),
    (
        "stream_idle_timeout: 0s",
        "stream_idle_timeout: 299s",
        "stream_idle_timeout: is 299s",
    ),
    (
        "stream_idle_timeout: 0s",
        "stream_idle_timeout: 0s\n                common_http_protocol_options: { max_stream_duration: 60s }",
        "max_stream_duration: is 60s: a first call that waits is cut",
    ),
    (
        ", timeout: 0s }",
        " }",
        "routes[0].route.timeout: is not set, which is 15s: longer calls",
    ),
    (
        ", timeout: 0s }",
        ", timeout: 0s, retry_policy: { retry_on: 'connect-failure, 5xx,reset' } }",
        "retry_policy.retry_on: has 5xx, reset: a call that a server may have executed",
    ),
    (
        "timeout: 305s",
        "",
        "grpc_service.timeout: is not set, which is 200ms: a first call that waits",
    ),
    (
        "timeout: 305s",
        "timeout: 300s",
        "grpc_service.timeout: is 300s: a first call that waits for a server is refused after that; \
         should be 305s, above `gate.ext_authz.ready_timeout`",
    ),
    (
        "timeout: 0.9s",
        "",
        "grpc_service.timeout: is not set, which is 200ms: a busy machine",
    ),
    (
        "timeout: 0.9s",
        "timeout: 60s",
        "grpc_service.timeout: is 60s, and the filter is on for static_resources.listeners[0]",
    ),
    (
        "status_on_error: { code: ServiceUnavailable }",
        "",
        "status_on_error: is not set, which is 403: while nobody answers",
    ),
    (
        "failure_mode_allow: false",
        "failure_mode_allow: true",
        "failure_mode_allow: is true: while inflight does not answer clients pass, and \
         `gate.ext_authz.on_failure` is closed; should be false",
    ),
    (
        "transport_api_version: V3",
        "with_request_body: { max_request_bytes: 1024 }",
        "with_request_body: is set: each call waits for its body",
    ),
    (
        "grpc_service:\n",
        "allowed_headers: { patterns: [{ prefix: content- }] }\n                      http_service:\n",
        "allowed_headers.patterns[0]: lets `content-type` through: while nobody answers",
    ),
    (
        "grpc_service:\n",
        "http_service:\n",
        "http_service: is not what inflight answers",
    ),
    (
        "envoy_grpc: { cluster_name: inflight_gate }",
        "envoy_grpc: { cluster_name: other }",
        "cluster_name: is other, a cluster that is not there: every check fails",
    ),
    (
        "connection_keepalive: { interval: 0.4s, timeout: 0.4s }",
        "",
        "http2_protocol_options.connection_keepalive: is not set: while inflight hangs",
    ),
    (
        "connection_keepalive: { interval: 0.4s, timeout: 0.4s }",
        "connection_keepalive: { interval: 30s, timeout: 0.4s }",
        "connection_keepalive: is slower than 5 s in all",
    ),
    (
        "gate_first_calls:\n                              \"@type\"",
        "gate_first_calls:\n                              disabled: true\n                              \"@type\"",
        "routes[0]: takes /inference.GRPCInferenceService/RepositoryIndex, for which no filter \
         ext_authz is on",
    ),
    (
        "stats_flush_interval: 1s",
        "",
        "stats_flush_interval: is not set, which is 5s: sums of time",
    ),
];

#[test]
fn each_setting_that_is_taken_away_is_missed() {
    let config = config(GATE);
    let text = printed(&config, &with_eds()).text;
    for (setting, instead, said) in CHANGES {
        // Of settings that both filters or clusters have, the first, and where that is another's the last.
        let last = text
            .rfind(setting)
            .unwrap_or_else(|| panic!("{setting} is not printed"));
        let first = text.find(setting).unwrap();
        let changed = [first, last].map(|at| {
            let mut changed = text.clone();
            changed.replace_range(at..at + setting.len(), instead);
            advice(&changed, &config)
        });
        let is_said = |all: &Vec<String>| all.iter().any(|one| one.contains(said));
        assert!(
            changed.iter().any(is_said),
            "{setting} to {instead}: {changed:#?}"
        );
        // Nothing is said without a line to look at.
        assert!(
            changed.iter().flatten().all(|one| one.starts_with("line ")),
            "{changed:#?}"
        );
    }
}

/// The same of what surrounds the cluster.
const AROUND: [(&str, &str, &str); 4] = [
    (
        "    - name: \"grpc\"",
        "    - name: \"other\"",
        "has no cluster `grpc`, which fleet triton is of, unless that is behind another Envoy; there are: other, \
         inflight_gate",
    ),
    (
        "cluster: \"grpc\", timeout",
        "cluster: other, timeout",
        "have no route to cluster `grpc`",
    ),
    (
        "address: \"127.0.0.1\", port_value: 9901",
        "address: 0.0.0.0, port_value: 9901",
        "is 0.0.0.0: whoever reaches it can stop Envoy",
    ),
    (
        "port_value: 9901",
        "port_value: 9999",
        "port_value: is 9999, and no listener has a port that inflight reads: 127.0.0.1:9901",
    ),
];

#[test]
fn what_is_elsewhere_than_the_configuration_says_is_told() {
    let config = config(GATE);
    let text = printed(&config, &places()).text;
    for (setting, instead, said) in AROUND {
        let advice = advice(&text.replace(setting, instead), &config);
        assert!(
            advice.iter().any(|one| one.contains(said)),
            "{setting}: {advice:#?}"
        );
    }
    let none = advice(&text.replace("admin:\n", "no_admin:\n"), &config);
    assert!(
        none.iter()
            .any(|one| one.contains("admin: is not set: nobody can read")),
        "{none:#?}"
    );
}

#[test]
fn programs_that_let_everybody_pass_by_accident_are_told() {
    let config = config("");
    let text = printed(&config, &with_lua()).text;
    let (before, after) = text.split_once("inline_string: |2-\n").unwrap();
    let after = &after[after
        .find("\n                  - name: envoy.filters.http.router")
        .unwrap()..];
    let said_of = |program: &str| {
        let text = format!("{before}inline_string: {}{after}", quoted(program));
        advice(&text, &config)
    };
    let naive = "local n = tonumber(handle:httpCall(\"prom\", {}, nil, 1)) if n > 3 then";
    let said = said_of(naive);
    assert_eq!(said.len(), 3, "{said:#?}");
    assert!(said[0].contains("NaN is not above any limit"), "{said:#?}");
    assert!(said[1].contains("without `pcall`"), "{said:#?}");
    assert!(
        said[2].contains("asks cluster `prom`, which is not there"),
        "{said:#?}"
    );
    let careful = "pcall(handle.httpCall, 'prometheus') n = tonumber(x) if n ~= n then";
    assert_eq!(said_of(careful), [] as [&str; 0]);
    assert_eq!(said_of("return"), [] as [&str; 0]);
}

#[test]
fn a_file_of_another_kind_is_told_and_none_makes_a_panic() {
    let config = config(GATE);
    for text in ["", "[]", "x", "a: [", "\u{0}"] {
        assert!(envoy_advice(text, &config).is_err(), "{text}");
    }
    let text = printed(&config, &with_eds()).text;
    for line in text.lines().filter(|line| line.contains(": ")) {
        let (key, _) = line.split_once(": ").unwrap();
        for value in [
            "",
            "[]",
            "[x]",
            "{ value: -1 }",
            "1e999s",
            "-1",
            "\u{e9}~= =",
        ] {
            // Where that is still YAML.
            drop(envoy_advice(
                &text.replace(line, &format!("{key}: {value}")),
                &config,
            ));
        }
    }
}
