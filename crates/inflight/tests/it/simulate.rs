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

/// Checks that every element is closed in order, outside of scripts and styles.
#[track_caller]
fn assert_closed(page: &str) {
    const VOID: [&str; 3] = ["meta", "br", "input"];
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some((_, tag)) = rest.split_once('<') {
        let (tag, after) = tag.split_once('>').unwrap();
        let name = tag.split_whitespace().next().unwrap();
        rest = after;
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None if VOID.contains(&name) => {}
            None if name == "script" || name == "style" => {
                rest = after.split_once(&format!("</{name}>")).unwrap().1;
            }
            None => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn a_page_needs_nothing_else_and_has_the_figures_of_the_json() {
    let named = SCENARIO.replace("name: small", r#"name: "</script><b>&'""#);
    let folder = Folder::new("simulate-page", &named, TRACE);
    let arguments = [
        "--seeds",
        "2",
        "--policy",
        "staffing,knative",
        "--json",
        "--html",
        "page.html",
    ];
    let output = folder.simulate(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = fs::read_to_string(folder.0.join("page.html")).unwrap();
    assert_closed(&page);
    for outside in ["http://", "https://", "src=", "<link", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("<h2 id=\"name-0\">&lt;/script&gt;&lt;b&gt;&amp;&#39;</h2>"));
    assert!(page.contains("prefers-color-scheme"));
    let data = page.split_once("id=\"data\">").unwrap().1;
    let data = data.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let reports: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(data["reports"], reports);
    let runs = data["timelines"][0].as_array().unwrap();
    let policies: Vec<_> = runs
        .iter()
        .map(|run| run["policy"].as_str().unwrap())
        .collect();
    assert_eq!(policies, ["staffing", "knative", "clairvoyant"]);
    for run in runs {
        assert!(page.contains(run["policy"].as_str().unwrap()));
        let arrivals = run["arrivals"].as_array().unwrap().iter();
        let arrived: f64 = arrivals.map(|rate| rate.as_f64().unwrap()).sum();
        let arrived = arrived * run["width"].as_f64().unwrap();
        assert!((arrived - 3.0).abs() < 0.05, "{arrived} of 3");
    }
    let kept = fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(kept, 3, "the page is written beside and put in place");
}

#[test]
fn a_page_that_cannot_be_written_leaves_the_former_one() {
    let folder = Folder::new("simulate-no-page", SCENARIO, TRACE);
    let nowhere = folder.simulate(&["--seeds", "1", "--policy", "ray", "--html", "no/page.html"]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert_eq!(nowhere.stdout, b"");
    let told = String::from_utf8(nowhere.stderr).unwrap();
    assert!(
        told.starts_with("no/page.html cannot be written: "),
        "{told}"
    );
    fs::write(folder.0.join("page.html"), "former").unwrap();
    fs::write(folder.0.join("trace.csv"), "t,size\n1,5\n2").unwrap();
    let cut = folder.simulate(&["--html", "page.html"]);
    assert_eq!(cut.status.code(), Some(2), "{cut:?}");
    assert_eq!(
        fs::read_to_string(folder.0.join("page.html")).unwrap(),
        "former"
    );
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 3);
}

#[test]
fn a_suggestion_says_what_to_take_and_what_it_saves() {
    let folder = Folder::new("simulate-suggest", SCENARIO, TRACE);
    let alone = folder.simulate(&["--suggest", "--seeds", "1"]);
    assert_eq!(alone.status.code(), Some(0), "{alone:?}");
    let text = String::from_utf8(alone.stdout).unwrap();
    assert!(text.contains("Take `policy: "), "{text}");
    let present = "\
version: 1
fleets:
  - name: wasteful
    slots: 1
    replicas: { min: 2, max: 2 }
    source: { gateway: { listen: '127.0.0.1:0' } }
    endpoints: { static: ['127.0.0.1:1'] }
    scaling: { policy: concurrency, utilization: 0.5 }
";
    fs::write(folder.0.join("present.yaml"), present).unwrap();
    let compared = folder.simulate(&["--suggest", "--seeds", "1", "-c", "present.yaml", "--json"]);
    assert_eq!(compared.status.code(), Some(0), "{compared:?}");
    let all: serde_json::Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!(
        all[0]["present"]["setting"],
        "concurrency 0.5 of the mean over 60s, max: 2"
    );
    assert!(all[0]["tried"].as_array().unwrap().len() >= 13, "{all}");
    let unknown = folder.simulate(&["--suggest", "-c", "present.yaml", "--fleet", "thrifty"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let told = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(
        told,
        "present.yaml: there is no fleet thrifty, but wasteful\n"
    );
}

#[test]
fn a_wrong_journal_is_told_with_its_line() {
    let folder = Folder::new("simulate-journal", SCENARIO, TRACE);
    let told = |text: &str| {
        fs::write(folder.0.join("journal.jsonl"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_inflight"));
        let command = command.current_dir(&folder.0);
        let output = command
            .args(["simulate", "--suggest", "journal.jsonl"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(output.stdout, b"");
        String::from_utf8(output.stderr).unwrap()
    };
    let line = r#"{"v":2,"run":1,"time":"t","at":1,"fleet":"a","kind":"admission","open":true}"#;
    assert_eq!(told(""), "journal.jsonl, line 1: the journal is empty\n");
    assert_eq!(
        told(&format!("{line}\n{}", &line[..30])),
        "journal.jsonl, line 2: the line is cut in the middle: the journal ends there\n"
    );
    assert_eq!(
        told(&format!("{line}\n{}\n", line.replace("\"a\"", "\"b\""))),
        "journal.jsonl, line 2: it is of a and b: say which by --fleet\n"
    );
    assert_eq!(
        told(&format!("{line}\n")),
        "journal.jsonl: fleet a: its configuration is not in the journal\n"
    );
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
