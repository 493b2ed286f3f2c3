//! Golden reports: every scenario of the repository under three policies, with one seed.
//!
//! They change when a rule changes, and then say how; no other change may move a digit, on any
//! machine.

use std::fs;
use std::path::{Path, PathBuf};

use inflight_sim::scenario::{Scenario, ScenarioError, parse};
use inflight_sim::{Policy, Report};

const POLICIES: [Policy; 3] = [Policy::Staffing, Policy::OccupancyExact, Policy::Knative];
const SEED: u64 = 11;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = fs::read_dir(folder).expect("the repository has scenarios");
    let paths = entries.flatten().map(|entry| entry.path());
    let is_scenario = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml");
    let mut files: Vec<PathBuf> = paths.filter(is_scenario).collect();
    files.sort();
    files
}

fn read(file: &Path) -> Result<Scenario, ScenarioError> {
    let text = fs::read_to_string(file).unwrap_or_default();
    parse(&text, &|_| {
        Err("no scenario of the repository has a trace".to_owned())
    })
}

fn report(scenario: &Scenario) -> Report {
    let run = |policy: Policy| {
        let outcome = policy.outcome(scenario, SEED);
        (policy, outcome.into_iter().collect())
    };
    Report::new(scenario, &POLICIES.map(run))
}

#[test]
fn every_scenario_gives_the_same_report_everywhere() {
    let mut tables = String::new();
    for file in files() {
        let scenario = read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        tables.push_str(&report(&scenario).to_string());
        tables.push('\n');
    }
    insta::assert_snapshot!("reports", tables);
}

#[test]
fn a_scenario_has_the_name_of_its_file() {
    for file in files() {
        let scenario = read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        assert_eq!(scenario.name, stem);
    }
}
