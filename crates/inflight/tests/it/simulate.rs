//! `inflight simulate` as a process: what it prints, and what it refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SCENARIO: &str = "\
name: small
about: A few requests.
duration: 20s
fleet:
  replicas: { start: 1, min: 1, max: 2 }
  start: { delay: 1s }
models:
  - { name: only, slots: 1, service: { constant: 10ms }, slo: 10ms }
load:
  - trace: { file: trace.csv, columns: { at: t } }
";

const TRACE: &str = "t,size\n1,5\n2,5\n3,5\n";

/// A folder of its own with a scenario and the trace that it names, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, scenario: &str, trace: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("small.yaml"), scenario).unwrap();
        fs::write(path.join("trace.csv"), trace).unwrap();
        Self(path)
    }

    fn simulate(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_inflight"))
            .current_dir(&self.0)
            .args(["simulate", "small.yaml"])
            .args(arguments)
            .output()
            .unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next build of the tests cleans what this cannot.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Runs a scenario that is wrong; it must be refused as a whole.
#[track_caller]
fn refused(name: &str, scenario: &str, trace: &str) -> String {
    let output = Folder::new(name, scenario, trace).simulate(&[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(
        output.stdout, b"",
        "nothing is printed before everything was read"
    );
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_scenario_prints_a_table_or_json_of_every_policy() {
    let folder = Folder::new("simulate-prints", SCENARIO, TRACE);
    let table = folder.simulate(&["--seeds", "1"]);
    assert_eq!(table.status.code(), Some(0), "{table:?}");
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(
        text.starts_with("small: A few requests. One seed.\npolicy "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2 + 16, "{text}");
    let json = folder.simulate(&["--seeds", "2", "--policy", "staffing,knative", "--json"]);
    let reports: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let policies: Vec<_> = reports[0]["rows"].as_array().unwrap().iter().collect();
    assert_eq!(policies.len(), 2);
    assert_eq!(policies[0]["policy"], "staffing");
    assert_eq!(policies[0]["violations"], 0.0);
}

#[test]
fn a_wrong_scenario_is_told_with_its_line_and_nothing_is_run() {
    let unknown = SCENARIO.replace("slo: 10ms", "slow: 10ms");
    assert!(refused("simulate-unknown", &unknown, TRACE).starts_with(
        "small.yaml: line 8: unknown field `slow`, expected one of name, slots, service, slo"
    ),);
    let order = "t,size\n1,5\n3,5\n2,5\n";
    assert_eq!(
        refused("simulate-order", SCENARIO, order),
        "small.yaml: trace trace.csv, line 4: 2 is before the line above: times are in order\n"
    );
    assert_eq!(
        refused("simulate-empty", SCENARIO, ""),
        "small.yaml: trace trace.csv, line 1: the trace is empty\n"
    );
    assert_eq!(
        refused("simulate-cut", SCENARIO, "t,size\n1,5\n2"),
        "small.yaml: trace trace.csv, line 3: the line has 1 fields, allowed is 2: is it cut?\n"
    );
    assert_eq!(
        refused("simulate-not-yaml", "name: [", TRACE)
            .lines()
            .count(),
        1
    );
}
