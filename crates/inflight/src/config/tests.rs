//! What the configuration accepts, refuses and says about it.

mod advice;
mod documents;
mod measured;
mod publish;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

/// A whole file around one fleet, whose keys `changes` replaces or adds (`None` takes one away).
fn file_with(changes: &[(&str, Option<&str>)]) -> String {
    let mut keys = vec![
        ("name", "hello"),
        ("slots", "2"),
        ("replicas", "{ min: 0, max: 8 }"),
        ("source", "{ gateway: { listen: 127.0.0.1:8080 } }"),
        ("target", "{ process: { command: [server, '{port}'] } }"),
    ];
    for (key, value) in changes {
        keys.retain(|(name, _)| name != key);
        keys.extend(value.map(|value| (*key, value)));
    }
    let mut text = "version: 1\nfleets:\n  -\n".to_owned();
    for (key, value) in keys {
        text.push_str(&format!("    {key}: {value}\n"));
    }
    text
}

fn judge(text: &str) -> Result<Config, ConfigError> {
    Config::from_text(Path::new("inflight.yaml"), text, &Surroundings::Elsewhere)
}

fn errors(text: &str) -> Vec<Problem> {
    match judge(text) {
        Err(ConfigError::Invalid { problems, .. }) => problems,
        other => panic!("not refused: {other:?}"),
    }
}

/// What is said about one changed key.
fn said_about(key: &str, value: Option<&str>) -> String {
    let text = file_with(&[(key, value)]);
    let lines: Vec<String> = errors(&text).iter().map(ToString::to_string).collect();
    format!(
        "{key}: {}\n    {}\n",
        value.unwrap_or("(absent)"),
        lines.join("\n    ")
    )
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn each_slip_gets_a_message_that_names_line_key_value_and_range() {
    let cases: &[(&str, Option<&str>)] = &[
        ("name", None),
        ("name", Some("a b")),
        ("name", Some("''")),
        ("slots", None),
        ("slots", Some("0")),
        ("slots", Some("-1")),
        ("slots", Some("two")),
        ("slots", Some("1.5")),
        ("slots", Some("99999999999999999999999999")),
        ("slotz", Some("1")),
        ("gate", Some("{}")),
        ("replicas", None),
        ("replicas", Some("{ min: 5, max: 2 }")),
        ("replicas", Some("{ max: 0 }")),
        ("replicas", Some("{ min: 1 }")),
        ("replicas", Some("3")),
        ("replicas", Some("{ max: 3, max: 4 }")),
        (
            "models",
            Some("[{ name: a, path: /a }, { name: a, path: /a }]"),
        ),
        ("models", Some("[{ name: a, path: a }]")),
        ("source", Some("{ envoy: {} }")),
        ("source", Some("{}")),
        ("source", Some("{ inflight: {} }")),
        (
            "source",
            Some("{ inflight: { peers: [10.0.0.2, 'http://b:9900', ':9900'] } }"),
        ),
        (
            "source",
            Some("{ inflight: { peers: ['b:1', 'b:1'], every: 1m } }"),
        ),
        ("source", Some("{ gateway: { listen: localhost:80 } }")),
        ("source", Some("{ gateway: { listen: 0.0.0.0:9900 } }")),
        (
            "source",
            Some("{ gateway: { listen: 127.0.0.1:1, upstream: http3 } }"),
        ),
        (
            "source",
            Some("{ gateway: { listen: 127.0.0.1:1, cancellable: perhaps } }"),
        ),
        (
            "source",
            Some("{ gateway: { listen: 127.0.0.1:1, timeouts: { head: -5s, idle: 5 } } }"),
        ),
        (
            "source",
            Some("{ gateway: { listen: 127.0.0.1:1, timeouts: { drain: 2w } } }"),
        ),
        (
            "source",
            Some("{ gateway: { listen: 127.0.0.1:1, limits: { head: 64 } } }"),
        ),
        ("endpoints", Some("{ static: ['10.0.0.1:80'] }")),
        ("endpoints", Some("{ dns: 'triton:8001' }")),
        ("endpoints", Some("{ dns: 'http://triton' }")),
        ("endpoints", Some("{}")),
        ("health", Some("{ path: /, tcp: true, every: 0s }")),
        (
            "health",
            Some("{ unhealthy_after: 0, restart_after: never }"),
        ),
        ("health", Some("true")),
        (
            "models",
            Some(
                "[{ name: a, path: /a/, header: { X: b } }, { name: b, path: /a, header: { x: b } }]",
            ),
        ),
        ("models", Some("[{ name: a, header: { 'a b': c } }]")),
        ("endpoints", Some("elsewhere")),
        ("target", Some("advise")),
        ("target", Some("{ keda: {} }")),
        ("target", Some("{ process: { command: [] } }")),
        (
            "target",
            Some("{ process: { command: [x, '{port}'], on_exit: keep } }"),
        ),
        (
            "target",
            Some("{ process: { command: [x], ready: { path: /, grpc: '' } } }"),
        ),
        (
            "target",
            Some("{ process: { command: [x], ready: { every: 1m, timeout: 1s } } }"),
        ),
        (
            "target",
            Some("{ process: { command: [x], ready: { tcp: false } } }"),
        ),
        ("scaling", Some("{ policy: metric }")),
        ("scaling", Some("{ policy: staffin }")),
        ("scaling", Some("{ threshold: 2, window: 60s }")),
        (
            "scaling",
            Some("{ policy: occupancy, profile: latency, utilization: 0.7 }"),
        ),
        ("scaling", Some("{ policy: concurrency, threshold: 2 }")),
        ("scaling", Some("{ down_window: never, tolerance: 1 }")),
        (
            "scaling",
            Some("{ step: { up: { replicas: 0, every: 1ms } } }"),
        ),
        ("scaling", Some("{ unknown: { fallback: 9 } }")),
        ("admission", Some("{ threshold: 2, reopen: 3 }")),
        (
            "admission",
            Some("{ when: never, session: { header: 'a b' } }"),
        ),
        (
            "queue",
            Some("{ requests: 0, bytes: 1TB, wait: , cold_wait: -1m }"),
        ),
    ];
    let said: String = cases
        .iter()
        .map(|(key, value)| said_about(key, *value))
        .collect();
    insta::assert_snapshot!(said);
}

#[test]
fn all_errors_come_at_once_in_the_order_of_the_file() {
    let text = "\
version: 2
admin: { listen: here }
fleets:
  - name: a
    slots: 0
    replicas: { min: 5, max: 2 }
    source: { gateway: { listen: 127.0.0.1:8080 } }
    target: { process: { command: [server, '{port}'] } }
    scalling: {}
  - name: a
    slots: 1
    replicas: { max: 1 }
    source: { gateway: { listen: 127.0.0.1:8080 } }
    target: { process: { command: [server, '{port}'] } }
";
    insta::assert_snapshot!(judge(text).unwrap_err());
}

#[test]
fn a_text_that_is_no_yaml_is_one_error_with_its_line() {
    for text in [
        "version: 1\nfleets: [",
        "version: 1\n\tfleets: 1\n",
        "a: b: c\n",
        "---\n---\n",
    ] {
        let errors = errors(text);
        assert_eq!(errors.len(), 1, "{text:?}: {errors:?}");
    }
    let two = format!("{}---\n{}", file_with(&[]), file_with(&[]));
    assert_eq!(errors(&two).len(), 1);
    let first = &errors("version: 1\nfleets: [}\n")[0];
    assert_eq!(first.place.line, 2);
}

/// Cases B43.
#[test]
fn b43_a_target_that_would_divide_by_nothing_is_refused_by_name() {
    for value in ["0", "-1", "abc", ".nan", ".inf", "1e-12", "'2'", "", "[1]"] {
        for (policy, key) in [("occupancy", "threshold"), ("concurrency", "utilization")] {
            let scaling = format!("{{ policy: {policy}, {key}: {value} }}");
            let errors = errors(&file_with(&[("scaling", Some(&scaling))]));
            assert_eq!(errors.len(), 1, "{value}: {errors:?}");
            assert_eq!(errors[0].place.key, format!("fleets[0].scaling.{key}"));
            assert!(errors[0].allowed.is_some(), "{value}");
        }
        let gate = format!("{{ threshold: {value} }}");
        assert_eq!(
            errors(&file_with(&[("admission", Some(&gate))])).len(),
            1,
            "{value}"
        );
    }
    for scaling in [
        "{ policy: occupancy, window: 0s }",
        "{ policy: concurrency, window: -1s }",
    ] {
        let errors = errors(&file_with(&[("scaling", Some(scaling))]));
        assert_eq!(errors[0].place.key, "fleets[0].scaling.window");
    }
    assert_eq!(
        errors(&file_with(&[("replicas", Some("{ min: 5, max: 2 }"))])).len(),
        1
    );
}

/// Cases B45: what cannot be meant is refused as the file is read. There are no schedules to ask
/// for, and a key that asks for one is not passed over.
#[test]
fn b45_a_schedule_is_not_taken_silently() {
    let errors = errors(&file_with(&[(
        "scaling",
        Some("{ schedules: [{ zone: Mars/Base }] }"),
    )]));
    assert_eq!(errors[0].place.key, "fleets[0].scaling.schedules");
}

/// Cases B46.
#[test]
fn b46_names_are_refused_only_when_really_equal() {
    let models = "[{ name: a, path: /a, slots: 1 }, { name: A, path: /a/b, slots: 1 }]";
    assert!(judge(&file_with(&[("models", Some(models)), ("slots", None)])).is_ok());
}

#[test]
fn defaults_are_those_of_the_declarations() {
    let config = judge(&file_with(&[])).unwrap();
    insta::assert_debug_snapshot!(config);
}

#[test]
fn words_may_stand_for_values() {
    let config = judge(&file_with(&[
        ("admission", Some("off")),
        (
            "scaling",
            Some("{ down_window: 10s, step: { down: { replicas: 1, every: 60s } } }"),
        ),
        (
            "target",
            Some("{ process: { command: [a, $PORT], env: { N: 7, Y: on } } }"),
        ),
    ]))
    .unwrap();
    let fleet = &config.fleets[0];
    assert_eq!(fleet.admission, None);
    assert_eq!(fleet.scaling.down_window, Some(Duration::from_secs(10)));
    assert_eq!(fleet.scaling.step_up, None);
    assert_eq!(
        fleet.scaling.step_down.map(|step| step.replicas),
        Some(Replicas::ONE)
    );
    let Target::Process(process) = &fleet.target else {
        panic!("{:?}", fleet.target)
    };
    assert_eq!(process.env["N"], "7");
    assert_eq!(process.env["Y"], "on");
    assert_eq!(config.warnings, []);
}

#[test]
fn replicas_are_checked_as_they_are_asked_for_readiness_unless_the_file_says_otherwise() {
    let probe = |changes: &[(&str, Option<&str>)]| {
        let health = judge(&file_with(changes)).unwrap().fleets.remove(0).health;
        health.map(|health| (health.probe, health.restart_after))
    };
    let http = |path: &str| Probe::Http { path: path.into() };
    let minute = Some(Duration::from_secs(60));
    let process = Some("{ process: { command: [a, '{port}'], ready: { path: /up } } }");
    let ready = ("target", process);
    assert_eq!(probe(&[ready]), Some((http("/up"), minute)));
    assert_eq!(
        probe(&[
            ready,
            ("health", Some("{ path: /live, restart_after: off }"))
        ]),
        Some((http("/live"), None))
    );
    assert_eq!(
        probe(&[ready, ("health", Some("{ tcp: true }"))]),
        Some((Probe::Tcp, minute))
    );
    assert_eq!(probe(&[ready, ("health", Some("off"))]), None);
    let named = [
        ("target", Some("advise")),
        (
            "endpoints",
            Some("{ dns: 'triton.ns.svc:8001', family: ipv4 }"),
        ),
    ];
    assert_eq!(probe(&named), Some((Probe::Tcp, None)));
    assert_eq!(
        judge(&file_with(&named)).unwrap().fleets[0].endpoints,
        Endpoints::Dns {
            name: "triton.ns.svc:8001".into(),
            every: Duration::from_secs(5),
            family: IpFamily::Ipv4,
        }
    );
}

#[test]
fn a_fleet_without_models_has_one_row_and_models_inherit_slots() {
    let config = judge(&file_with(&[])).unwrap();
    let [row] = config.fleets[0].models.as_slice() else {
        panic!()
    };
    assert_eq!(
        (row.name.as_str(), row.path.as_str(), row.slots.get()),
        ("hello", "/", 2)
    );
    let models = "[{ name: a, path: /a, slots: 7 }, { name: b, path: /b }]";
    let config = judge(&file_with(&[("models", Some(models))])).unwrap();
    let slots: Vec<u32> = config.fleets[0]
        .models
        .iter()
        .map(|row| row.slots.get())
        .collect();
    assert_eq!(slots, [7, 2]);
}

#[test]
fn warnings_do_not_refuse() {
    let cases: &[(&str, &str)] = &[
        ("target", "{ process: { command: [server] } }"),
        (
            "target",
            "{ process: { command: [server, '{prot}', PORT] } }",
        ),
        ("scaling", "{ policy: occupancy, threshold: 3 }"),
        ("scaling", "{ policy: concurrency, measure: peak }"),
        ("health", "{ every: 1m }"),
        (
            "models",
            "[{ name: a, path: /a }, { name: b, header: { x: b } }]",
        ),
    ];
    let mut said = String::new();
    for (key, value) in cases {
        let config = judge(&file_with(&[(key, Some(value))])).unwrap();
        let lines: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        said.push_str(&format!("{key}: {value}\n    {}\n", lines.join("\n    ")));
    }
    let text = file_with(&[]) + "admin: { listen: 0.0.0.0:9900 }\n";
    said.push_str(&judge(&text).unwrap().warnings[0].to_string());
    insta::assert_snapshot!(said);
}

#[test]
fn two_listeners_never_share_a_port_of_one_interface() {
    let clash = |gateway: &str, admin: &str| {
        let source = format!("{{ gateway: {{ listen: '{gateway}' }} }}");
        let text = file_with(&[("source", Some(&source))]);
        judge(&format!("{text}admin: {{ listen: '{admin}' }}\n")).is_err()
    };
    assert!(clash("127.0.0.1:80", "127.0.0.1:80"));
    assert!(clash("0.0.0.0:80", "127.0.0.1:80"));
    assert!(clash("127.0.0.1:80", "[::]:80"));
    assert!(clash("[::ffff:127.0.0.1]:80", "127.0.0.1:80"));
    assert!(!clash("127.0.0.1:80", "127.0.0.2:80"));
    assert!(!clash("127.0.0.1:80", "127.0.0.1:81"));
    assert!(!clash("127.0.0.1:0", "127.0.0.1:0"));
    assert!(!clash("[::1]:80", "0.0.0.0:80"));
}

#[test]
fn a_command_that_cannot_be_started_is_refused_by_name() {
    let folder = std::env::temp_dir().join(format!("inflight-config-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let server = folder.join("server");
    fs::write(&server, "").unwrap();
    let here = Surroundings::ThisMachine {
        path: folder.clone().into_os_string(),
    };
    let judge = |program: &str| {
        let target = format!("{{ process: {{ command: ['{program}', '{{port}}'] }} }}");
        let text = file_with(&[("target", Some(&target))]);
        Config::from_text(Path::new("inflight.yaml"), &text, &here)
            .map_err(|error| error.to_string())
    };
    let mode = |bits| fs::set_permissions(&server, fs::Permissions::from_mode(bits)).unwrap();
    mode(0o644);
    let refused = judge("server").unwrap_err();
    assert!(
        refused.contains("\"server\" is not executable"),
        "{refused}"
    );
    mode(0o755);
    assert!(judge("server").is_ok());
    assert!(judge(server.to_str().unwrap()).is_ok());
    assert!(judge("server-{replica}").is_ok());
    let refused = judge("other").unwrap_err();
    assert!(
        refused.contains("line 8: fleets[0].target.process.command[0]: \"other\""),
        "{refused}"
    );
    assert!(
        judge("/no/such/file")
            .unwrap_err()
            .contains("does not exist")
    );
    assert!(
        judge(folder.to_str().unwrap())
            .unwrap_err()
            .contains("is not a file")
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_token_file_must_be_readable_where_it_runs() {
    let here = Surroundings::ThisMachine { path: "".into() };
    let text = file_with(&[
        ("target", Some("advise")),
        ("endpoints", Some("{ static: ['[::1]:1'] }")),
    ]);
    let text = format!("{text}admin: {{ token_file: /no/such/token }}\n");
    let error = Config::from_text(Path::new("inflight.yaml"), &text, &here).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("admin.token_file: \"/no/such/token\" cannot be read")
    );
    assert!(judge(&text).is_ok());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Path::new("/no/such.yaml"), &Surroundings::Elsewhere).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("configuration /no/such.yaml: cannot be read: ")
    );
}

#[test]
fn bombs_end_early() {
    let mut laughs = "version: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs.push_str(&format!("k{level}: &a{level} [{alias}]\n"));
    }
    let deep_block: String = (0..200)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    let huge = format!("# {}", "x".repeat(document::BYTES_MAX));
    for text in [
        laughs,
        "[".repeat(100_000),
        "{a: ".repeat(10_000),
        "- ".repeat(10_000),
        deep_block,
        huge,
    ] {
        assert_eq!(errors(&text).len(), 1);
    }
}

#[test]
fn a_flood_of_errors_is_cut_when_it_is_printed() {
    let flood: String = (0..20_000).map(|index| format!("k{index}: 1, ")).collect();
    let error = judge(&format!("{{ {flood} version: 1 }}"))
        .unwrap_err()
        .to_string();
    assert!(error.len() < 100_000, "{}", error.len());
    assert!(error.contains("more"), "{error}");
}

#[test]
fn anchors_and_merges_may_be_used() {
    let text = "\
version: 1
fleets:
  - &first
    name: a
    slots: 2
    replicas: { max: 8 }
    source: { gateway: { listen: 127.0.0.1:1 } }
    target: { process: { command: [server, '{port}'] } }
  - <<: *first
    name: b
    source: { gateway: { listen: 127.0.0.1:2 } }
";
    let config = judge(text).unwrap();
    assert_eq!(config.fleets[1].replicas_max, Replicas::new(8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        drop(judge(&text).map_err(|error| error.to_string()));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(judge(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string()));
    }

    /// The file is nearly right, so that the judging is reached.
    #[test]
    fn no_damaged_file_panics(
        at in 0.0..1.0,
        length in 0usize..20,
        put in "[-\\[\\]{}:,&*!'\"#0-9a-z. \n]{0,12}",
    ) {
        let full = include_str!("../../../../config/inflight.yaml");
        let chars: Vec<char> = full.chars().collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a part of the length, between 0 and it"
        )]
        let from = (at * chars.len() as f64) as usize;
        let to = (from + length).min(chars.len());
        let mut text: String = chars[..from].iter().collect();
        text.push_str(&put);
        text.extend(&chars[to..]);
        drop(judge(&text).map_err(|error| error.to_string()));
    }

    #[test]
    fn spans_are_read_to_the_microsecond(millis in 0u64..10_000_000) {
        let span = Duration::from_millis(millis);
        let scaling = format!("{{ down_window: {millis}ms }}");
        let config = judge(&file_with(&[("scaling", Some(&scaling))])).unwrap();
        let read = config.fleets[0].scaling.down_window.unwrap();
        prop_assert!(read.abs_diff(span) < Duration::from_nanos(1_000));
    }
}
