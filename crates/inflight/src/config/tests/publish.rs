//! Replicas that others are told of: what goes together, and what is refused by name.

use std::path::Path;

use crate::config::{Config, FleetConfig, Surroundings, Target};

const ENVOY: &str =
    "envoy: { admin: ['http://a:1'], cluster: c, backend: { triton: { port: m } } }";
const COMMAND: &str = "command: [server, '{port}', '{port.m}'], ports: [m]";
const FILE: &str = "envoy: { file: /run/e.json }";

fn read(source: &str, process: &str) -> Result<Config, String> {
    read_all(&[fleet("a", source, process)])
}

fn fleet(name: &str, source: &str, process: &str) -> String {
    format!(
        "- name: {name}\n  slots: 1\n  replicas: {{ max: 4 }}\n  source: {{ {source} }}\n  \
         target: {{ process: {{ {process} }} }}\n"
    )
}

fn read_all(fleets: &[String]) -> Result<Config, String> {
    let text = format!("version: 1\nfleets:\n{}", fleets.concat());
    let path = Path::new("inflight.yaml");
    Config::from_text(path, &text, &Surroundings::Elsewhere).map_err(|error| error.to_string())
}

#[track_caller]
fn process(config: &FleetConfig) -> &crate::config::ProcessSettings {
    match &config.target {
        Target::Process(process) => process,
        other @ (Target::Advise | Target::Keda { .. }) => panic!("{other:?}"),
    }
}

#[test]
fn the_cluster_and_its_envoys_are_those_of_the_source_unless_said_otherwise() {
    let config = read(ENVOY, &format!("{COMMAND}, publish: {{ {FILE} }}")).unwrap();
    assert_eq!(config.warnings, []);
    let told = process(&config.fleets[0]);
    let envoy = told.publish.envoy.as_ref().unwrap();
    assert_eq!(
        (envoy.cluster.as_str(), envoy.admin[0].authority.as_str()),
        ("c", "a:1")
    );
    assert_eq!(told.drain_timeout.as_secs(), 60);

    let source = "prometheus: { url: 'http://p:9', in_flight: a, executing: b, replicas: c }";
    let own = "envoy: { file: /run/e.json, cluster: d, admin: ['http://b:2', 'http://c:3'] }";
    let of_own = format!("{COMMAND}, drain_timeout: 5s, publish: {{ {own} }}");
    let config = read(source, &of_own).unwrap();
    let told = process(&config.fleets[0]);
    let envoy = told.publish.envoy.as_ref().unwrap();
    assert_eq!((envoy.cluster.as_str(), envoy.admin.len()), ("d", 2));
    assert_eq!(told.drain_timeout.as_secs(), 5);
}

#[test]
fn what_does_not_go_together_is_refused_with_what_would() {
    let prometheus = "prometheus: { url: 'http://p:9', in_flight: a, executing: b, replicas: c }";
    let gateway = "gateway: { listen: 127.0.0.1:1 }";
    let published = format!("{COMMAND}, publish: {{ {FILE} }}");
    let with = |publish: &str| format!("{COMMAND}, publish: {{ {publish} }}");
    let cases = [
        (ENVOY, COMMAND.to_owned()),
        (gateway, published.clone()),
        (gateway, format!("{COMMAND}, drain_timeout: 5s")),
        (prometheus, published),
        (
            ENVOY,
            "command: [server, '{port}'], publish: { envoy: { file: /run/e.json } }".to_owned(),
        ),
        (ENVOY, with("envoy: { file: e.json }")),
        (ENVOY, with("envoy: { file: /run/../run/e.json }")),
        (ENVOY, with("envoy: { file: /run/e.yaml }")),
        (ENVOY, with("envoy: { file: /run/.json }")),
        (
            ENVOY,
            with("envoy: { file: /run/e.json }, prometheus: { file: /run//e.json }"),
        ),
        (
            ENVOY,
            with("envoy: { file: /run/e.json }, prometheus: { file: /run/p.json, port: x }"),
        ),
        (ENVOY, with("")),
        (
            ENVOY,
            format!("command: [server, '{{port}}'], ports: [m, m, 'a-b'], publish: {{ {FILE} }}"),
        ),
        (
            "envoy: { dns: 'http://a:1', cluster: c, backend: { triton: { port: m } } }",
            with(FILE),
        ),
        (
            "envoy: { admin: ['http://a:1'], cluster: c, backend: { triton: { port: m, dns: \
             'http://b:2' } } }",
            with(FILE),
        ),
    ];
    let said = cases.map(|(source, process)| {
        let error = read(source, &process).unwrap_err();
        // What is shown of the file is shown elsewhere.
        let lines = error
            .lines()
            .filter(|line| line.contains(": fleets[") || line.contains("allowed"));
        let lines: Vec<&str> = lines.map(str::trim).collect();
        format!("{process}\n  {}", lines.join("\n  "))
    });
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn two_fleets_never_write_one_file() {
    let process = format!("{COMMAND}, publish: {{ {FILE} }}");
    let both = [fleet("a", ENVOY, &process), fleet("b", ENVOY, &process)];
    let said = read_all(&both).unwrap_err();
    assert!(
        said.contains(
            "fleets[1].target.process.publish.envoy.file: \"/run/e.json\" is written for \
             fleets[0].target.process.publish.envoy.file as well"
        ),
        "{said}"
    );
}

#[test]
fn pages_of_replicas_need_replicas_that_we_start() {
    let text = format!(
        "version: 1\nfleets:\n- name: a\n  slots: 1\n  replicas: {{ max: 4 }}\n  source: {{ {ENVOY} }}\n"
    );
    let path = Path::new("inflight.yaml");
    let said = Config::from_text(path, &text, &Surroundings::Elsewhere).unwrap_err();
    assert!(
        said.to_string().contains("no target starts any here"),
        "{said}"
    );
}

#[test]
fn a_port_that_nobody_listens_on_and_one_that_is_not_there_are_named() {
    let warned = |process: &str| {
        let config = read(ENVOY, &format!("{process}, publish: {{ {FILE} }}")).unwrap();
        let warnings = config.warnings.iter();
        warnings.map(|it| it.what.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        warned("command: [server, '{port}', '{port.n}', '{port.grpc}'], ports: [m, http]"),
        [
            "`{port.n}` stays as it is; did you mean `{port.m}`?",
            "`{port.grpc}` stays as it is: no port in `ports` is called \"grpc\"",
            "nothing listens there: `{port.m}` is nowhere in the command",
            "\"http\" is not used: `{port.http}` is nowhere in the command",
        ]
    );
    let in_env = "command: [server, '{port}'], env: { M: '{port.m}' }, ports: [m]";
    assert_eq!(warned(in_env), Vec::<String>::new());
}

#[test]
fn the_folder_of_a_file_must_be_there() {
    let envoy = "envoy: { admin: ['http://a:1'], cluster: c, backend: { triton: { port: m } } }";
    let process = "command: [sh, '{port}', '{port.m}'], ports: [m], publish: { envoy: { file: \
                   /nowhere-at-all/e.json } }";
    let text = format!("version: 1\nfleets:\n{}", fleet("a", envoy, process));
    let here = Surroundings::of_this_process();
    let said = Config::from_text(Path::new("inflight.yaml"), &text, &here).unwrap_err();
    assert!(
        said.to_string()
            .contains("/nowhere-at-all: there is no such folder"),
        "{said}"
    );
}
