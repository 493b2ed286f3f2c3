//! `inflight render`: what its queries are worth, judged by Prometheus itself, and the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use inflight::config::{Config, FleetConfig, Surroundings};
use inflight::render::{Consumer, Selector, query};
use serde_json::{Value, json};

use crate::judges::{agrees, promtool};

const ROWS: &str = include_str!("../../../inflight-core/tests/scaling/vectors/occupancy.json");

/// A folder of its own, gone at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next build of the tests cleans what this cannot.
        drop(fs::remove_dir_all(&self.0));
    }
}

fn triton(estimator: &str) -> FleetConfig {
    let text = format!(
        "version: 1\nfleets:\n  - name: triton\n    replicas: {{ min: 0, max: 10 }}\n    source: {{ \
         envoy: {{ admin: ['http://e:9901'], cluster: grpc, estimator: {estimator}, backend: {{ \
         triton: {{ metrics: ['http://t:8002/metrics'] }} }} }} }}\n"
    );
    let path = Path::new("inflight.yaml");
    let config = Config::from_text(path, &text, &Surroundings::Elsewhere).unwrap();
    config.fleets.into_iter().next().unwrap()
}

fn number(text: &Value) -> f64 {
    let text = text.as_str().unwrap();
    match text.split_once('/') {
        Some((above, below)) => above.parse::<f64>().unwrap() / below.parse::<f64>().unwrap(),
        None => text.parse().unwrap(),
    }
}

/// What Envoy and Triton show over five minutes, as the tool writes series down.
#[derive(Clone, Copy)]
struct Seen {
    in_flight: Option<f64>,
    executing: Option<f64>,
    /// How many, and whether Envoy still answers at the end.
    healthy: Option<(f64, bool)>,
}

impl Seen {
    fn series(self) -> Vec<Value> {
        // A counter that grows by so much in each of twenty steps of 15 s.
        let counter = |name: &str, labels: &str, per_second: f64| {
            let values = format!("0+{:e}x20", per_second * 15.0);
            json!({"series": format!("{name}{{{labels}}}"), "values": values})
        };
        let gauge = |name: &str, labels: &str, value: f64, is_there: bool| {
            let values = if is_there {
                format!("{value}+0x20")
            } else {
                format!("{value}+0x18 stale")
            };
            json!({"series": format!("{name}{{{labels}}}"), "values": values})
        };
        let mut series = Vec::new();
        let is_there = self.healthy.is_none_or(|(_, is_there)| is_there);
        let (one, two) = (
            "envoy_cluster_name=\"grpc\",instance=\"one\"",
            "envoy_cluster_name=\"grpc\",instance=\"two\"",
        );
        let other = "envoy_cluster_name=\"other\",instance=\"one\"";
        if let Some(in_flight) = self.in_flight {
            // Two Envoys, each with half; another cluster is none of ours.
            for (labels, value) in [(one, in_flight / 2.0), (two, in_flight / 2.0), (other, 7.0)] {
                let sum = "envoy_cluster_upstream_rq_time_sum";
                series.push(counter(sum, labels, value * 1e3));
                let active = "envoy_cluster_upstream_rq_active";
                series.push(gauge(active, labels, value / 4.0, is_there));
                let pending = "envoy_cluster_upstream_rq_pending_active";
                series.push(gauge(pending, labels, value * 3.0 / 4.0, is_there));
            }
        }
        if let Some(executing) = self.executing {
            // Two pods; each second of execution waited for one.
            for pod in ["one", "two"] {
                let labels = format!("model=\"m\",version=\"1\",instance=\"{pod}\"");
                let micros = executing / 2.0 * 1e6;
                let request = "nv_inference_request_duration_us";
                series.push(counter(request, &labels, micros * 2.0));
                let queue = "nv_inference_queue_duration_us";
                series.push(counter(queue, &labels, micros));
            }
        }
        if let Some((healthy, is_there)) = self.healthy {
            let name = "envoy_cluster_membership_healthy";
            series.push(gauge(name, one, healthy, is_there));
            series.push(gauge(name, two, healthy, is_there));
            series.push(gauge(name, other, 9.0, true));
        }
        series
    }
}

/// Returns a test of the tool: what is seen, and what each query must say then.
fn judged(name: &str, seen: Seen, expected: &[(&str, Option<f64>)]) -> Value {
    let asked = expected.iter().map(|(query, value)| match value {
        // The tool compares digit by digit, and rates are quotients.
        Some(value) => json!({
            "expr": format!("abs(({query}) - {value:e}) <= bool {:e}", value.abs() * 1e-9),
            "eval_time": "5m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }),
        None => json!({"expr": query, "eval_time": "5m", "exp_samples": []}),
    });
    json!({
        "name": name,
        "interval": "15s",
        "input_series": seen.series(),
        "promql_expr_test": asked.collect::<Vec<_>>(),
    })
}

#[test]
fn the_queries_give_the_words_value_for_every_row_and_nothing_for_what_is_unknown() {
    let Some(tool) = promtool() else {
        return;
    };
    let rows: Value = serde_json::from_str(ROWS).unwrap();
    for estimator in ["gauges", "time_sum"] {
        let fleet = triton(estimator);
        let asked = |consumer| {
            let none = Selector::default();
            query(&fleet, &none, consumer).unwrap().text
        };
        let (required, inflation) = (asked(Consumer::Scaler), asked(Consumer::Gate));
        let mut tests = Vec::new();
        for row in rows["rows"].as_array().unwrap() {
            let name = row["id"].as_str().unwrap();
            let healthy = row["healthy"].as_f64().unwrap();
            let seen = Seen {
                in_flight: Some(number(&row["l_in_flight"])),
                executing: Some(number(&row["l_service"])),
                healthy: Some((healthy, true)),
            };
            let expected = &row["expected"];
            let ratio = (healthy > 0.0).then(|| number(&expected["ratio"]));
            let both = [
                (required.as_str(), Some(number(&expected["r_needed"]))),
                (inflation.as_str(), ratio),
            ];
            tests.push(judged(name, seen, &both));
        }
        let seen = |in_flight, executing, healthy| Seen {
            in_flight,
            executing,
            healthy,
        };
        for (name, seen, needed, ratio) in [
            (
                "Envoy is gone and its series too",
                seen(None, Some(4.0), None),
                None,
                None,
            ),
            (
                "Envoy stopped answering",
                seen(Some(8.0), Some(4.0), Some((2.0, false))),
                None,
                None,
            ),
            (
                "only what is in flight is there",
                seen(Some(8.0), Some(4.0), None),
                None,
                None,
            ),
            (
                "the servers are gone",
                seen(Some(8.0), None, Some((2.0, true))),
                None,
                None,
            ),
            (
                "there are no replicas and no servers",
                seen(Some(8.0), None, Some((0.0, true))),
                Some(8.0),
                None,
            ),
            (
                "no replicas, no servers, no request ever",
                seen(None, None, Some((0.0, true))),
                Some(0.0),
                None,
            ),
            (
                "no request ever",
                seen(None, Some(0.0), Some((2.0, true))),
                Some(0.0),
                Some(0.0),
            ),
        ] {
            let both = [(required.as_str(), needed), (inflation.as_str(), ratio)];
            tests.push(judged(name, seen, &both));
        }
        assert!(tests.len() > 40, "{}", tests.len());
        let folder = Folder::new(&format!("render-rows-{estimator}"));
        let file = json!({"rule_files": [], "evaluation_interval": "15s", "tests": tests});
        fs::write(folder.0.join("rows.yaml"), file.to_string()).unwrap();
        agrees(&tool, &folder.0, &["test", "rules", "rows.yaml"]);
    }
}

const FLEETS: &str = "\
version: 1
fleets:
  - name: triton
    replicas: { min: 1, max: 10 }
    source:
      envoy:
        admin: ['http://e1:9901', 'http://e2:9901']
        cluster: \"gr\\\"pc\"
        backend: { triton: { dns: 'http://triton:8002/metrics?a=b%26c', models: [a, 'b|c'] } }
    target: { keda: { listen: 127.0.0.1:9443 } }
  - name: vllm
    replicas: { min: 1, max: 4 }
    source: { vllm: { metrics: ['http://v1:8000'], cache_target: 0.8 } }
  - name: hello
    slots: 2
    replicas: { min: 0, max: 8 }
    source: { gateway: { listen: '127.0.0.1:8080' } }
    endpoints: { static: ['10.0.0.1:80'] }
  - name: own
    replicas: { min: 1, max: 5 }
    source: { prometheus: { url: 'http://p:9090', query: \"sum(queue{a=\\\"b\\\"})\\n/ 2 # half\" } }
    scaling: { target: 50 }
";

/// Runs the product in a folder with these fleets; returns its exit code and what it said.
pub(crate) fn run_on(
    fleets: &str,
    folder: &Folder,
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    fs::write(folder.0.join("inflight.yaml"), fleets).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_inflight"))
        .current_dir(&folder.0)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn rendered(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String, String) {
    run_on(FLEETS, folder, &[&["render"], arguments].concat())
}

#[test]
fn prometheus_takes_the_scrape_configuration_and_the_rules() {
    let folder = Folder::new("render-rules");
    let files = [
        ("prometheus.yaml", &["prometheus"][..]),
        ("inflight.rules.yaml", &["prometheus", "--rules"]),
    ];
    for (file, arguments) in files {
        let (code, text, said) = rendered(&folder, arguments);
        assert_eq!(code, Some(0), "{said}");
        fs::write(folder.0.join(file), text).unwrap();
    }
    let Some(tool) = promtool() else {
        return;
    };
    agrees(&tool, &folder.0, &["check", "rules", "inflight.rules.yaml"]);
    // With the rules that it names.
    agrees(&tool, &folder.0, &["check", "config", "prometheus.yaml"]);
}

#[test]
fn results_go_to_one_stream_warnings_to_the_other_and_what_is_wrong_ends_with_2() {
    let folder = Folder::new("render-command");
    let (code, text, said) = rendered(&folder, &["promql", "--fleet", "own", "--only", "scaler"]);
    assert_eq!(
        (code, text.as_str(), said.as_str()),
        (Some(0), "sum(queue{a=\"b\"})\n/ 2 # half\n", "")
    );
    let (code, text, said) = rendered(
        &folder,
        &["keda", "--fleet", "triton", "--target", "StatefulSet/t"],
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(
        text.contains("kind: \"StatefulSet\"") && text.contains("external-push"),
        "{text}"
    );
    assert!(
        said.starts_with("warning: fleet triton: KEDA is told to ask inflight.default:9443"),
        "{said}"
    );
    for (arguments, why) in [
        (
            &["promql", "--fleet", "nobody"][..],
            "there is no fleet `nobody`, allowed is triton, vllm",
        ),
        (
            &["promql", "--only", "gate"],
            "--fleet says which one: triton, vllm",
        ),
        (
            &["promql", "--selector", "a=\"b\"} or x{c=\"d\""],
            "is not a list such as release=",
        ),
        (&["promql", "-c", "no-such.yaml"], "no-such.yaml"),
        (
            &["keda", "--namespace", "A b"],
            "Kubernetes takes for a name",
        ),
        (&["keda", "--target", "t"], "--fleet says which one"),
        (&["helm"], "unrecognized subcommand"),
    ] {
        let (code, text, said) = rendered(&folder, arguments);
        assert_eq!(
            (code, text.as_str()),
            (Some(2), ""),
            "{arguments:?}: {said}"
        );
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn what_is_rendered_may_be_for_a_machine_with_other_programs_and_folders() {
    let folder = Folder::new("render-elsewhere");
    let fleet = "version: 1\nfleets:\n- name: f\n  replicas: { max: 2 }\n  source: { envoy: { admin: \
                 ['http://127.0.0.1:9901'], cluster: c, backend: { triton: { port: m } } } }\n  \
                 target: { process: { command: [no-such-program, '{port}', '{port.m}'], ports: [m], \
                 publish: { envoy: { file: /no-such-folder/f.json } } } }\n";
    fs::write(folder.0.join("other.yaml"), fleet).unwrap();
    let (code, text, said) = rendered(&folder, &["envoy", "-c", "other.yaml"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(text.contains("/no-such-folder/f.json"), "{text}");
}
