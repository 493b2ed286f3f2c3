//! `inflight simulate`: runs scenarios in virtual time under one or all policies, and prints a
//! table for each, or which settings to take.

mod page;
mod recorded;
mod runs;
mod suggest;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use inflight_sim::scenario::{Scenario, parse};
use inflight_sim::{POLICIES, Policy, Report};

use self::page::Recorded;
use self::runs::{side_by_side, whole};
use self::suggest::Suggestion;
use super::USAGE;
use super::output::replace_file;

/// The first seed: rules are tuned on 1 to 7, and reported on others.
const FIRST_SEED: u64 = 11;

/// The largest scenario or trace that is read.
const BYTES_MAX: u64 = 256 << 20;

/// Runs scenarios under policies in virtual time and compares them.
#[derive(Clone, Debug, Args)]
pub(super) struct SimulateArgs {
    /// Scenario files, or folders of them; with `--suggest` journals (`.jsonl`) too.
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Policies, separated by commas; all of them by default.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    policy: Vec<String>,
    /// How many seeds the medians are of; the first is 11.
    #[arg(long, default_value = "7", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: u32,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
    /// Writes a page that shows the runs of the first seed over time; it needs no other file.
    #[arg(long, value_name = "FILE", conflicts_with = "suggest")]
    html: Option<PathBuf>,
    /// Tries policies, thresholds and maxima, and says which to take.
    #[arg(long, conflicts_with = "policy")]
    suggest: bool,
    /// The present setting, to compare with.
    #[arg(
        short = 'c',
        long = "config",
        value_name = "FILE",
        requires = "suggest"
    )]
    config: Option<PathBuf>,
    /// Which fleet of the configuration or the journal; needed where there are several.
    #[arg(long, value_name = "NAME", requires = "suggest")]
    fleet: Option<String>,
    /// How long a request of a journal may wait; by default as long as it executes on average.
    #[arg(long, value_name = "SPAN", requires = "suggest", value_parser = humantime::parse_duration)]
    slo: Option<Duration>,
    /// How long to try.
    #[arg(long, value_name = "SPAN", default_value = "60s", requires = "suggest", value_parser = humantime::parse_duration)]
    within: Duration,
}

/// Runs and prints; returns the exit code: 0 done, 1 failed, 2 a wrong scenario or policy.
#[must_use]
pub(super) fn run(args: &SimulateArgs) -> ExitCode {
    let (done, failed) = match Job::new(args) {
        Ok(job) => (job.run(args), ExitCode::FAILURE),
        Err(error) => (Err(error), ExitCode::from(USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody is left to be told when standard error is gone as well.
        Err(error) => writeln!(io::stderr(), "{error:#}").map_or(ExitCode::FAILURE, |()| failed),
    }
}

/// What is to be run, read and checked.
enum Job {
    Compare {
        scenarios: Vec<Scenario>,
        policies: Vec<Policy>,
    },
    Suggest(Vec<Suggestion>),
}

impl Job {
    fn new(args: &SimulateArgs) -> Result<Self> {
        if args.suggest {
            let suggestion = |path| Suggestion::new(path, args);
            let paths = files(&args.scenarios)?;
            let suggestions = paths.iter().map(|path| suggestion(path));
            return Ok(Self::Suggest(suggestions.collect::<Result<_>>()?));
        }
        let policies = policies(&args.policy)?;
        let scenarios = scenarios(&args.scenarios)?;
        check(&scenarios, &policies)?;
        Ok(Self::Compare {
            scenarios,
            policies,
        })
    }

    fn run(&self, args: &SimulateArgs) -> Result<()> {
        match self {
            Self::Compare {
                scenarios,
                policies,
            } => {
                let reports = simulate(scenarios, policies, args.seeds)?;
                if let Some(file) = &args.html {
                    let recorded = record(scenarios, policies)?;
                    let page = page::page(&reports, recorded, FIRST_SEED)?;
                    replace_file(file, page.as_bytes())?;
                }
                print(&reports, args.json)
            }
            Self::Suggest(suggestions) => suggest::run(suggestions, args),
        }
    }
}

fn policies(names: &[String]) -> Result<Vec<Policy>> {
    if names.is_empty() {
        return Ok(POLICIES.iter().map(|&(policy, _)| policy).collect());
    }
    let known = || POLICIES.map(|(_, name)| name).join(", ");
    names
        .iter()
        .map(|name| {
            Policy::named(name)
                .with_context(|| format!("there is no policy `{name}`, allowed is {}", known()))
        })
        .collect()
}

fn scenarios(paths: &[PathBuf]) -> Result<Vec<Scenario>> {
    files(paths)?.iter().map(|file| scenario(file)).collect()
}

/// Returns the files that paths name, and those in folders.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let found =
                yaml_files(path).with_context(|| format!("{} cannot be read", path.display()))?;
            if found.is_empty() {
                bail!("{} has no .yaml file", path.display());
            }
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    Ok(files)
}

fn yaml_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|end| end == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a scenario; traces that it names are found beside it.
fn scenario(file: &Path) -> Result<Scenario> {
    let name = || file.display().to_string();
    let text = read(file).map_err(|what| anyhow!("{}: {what}", name()))?;
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    parse(&text, &|trace| read(&folder.join(trace))).map_err(|error| anyhow!("{}: {error}", name()))
}

fn read(file: &Path) -> Result<String, String> {
    let told = |error: io::Error| error.to_string();
    if fs::metadata(file).map_err(told)?.len() > BYTES_MAX {
        return Err(format!("is larger than {} MB", BYTES_MAX >> 20));
    }
    fs::read_to_string(file).map_err(told)
}

/// Refuses what could not be run, before the first run.
fn check(scenarios: &[Scenario], policies: &[Policy]) -> Result<()> {
    for scenario in scenarios {
        for policy in policies {
            policy
                .control(scenario, FIRST_SEED, 0.0)
                .with_context(|| format!("{} under {}", scenario.name, policy.name()))?;
        }
    }
    Ok(())
}

/// Runs everything, several runs side by side; the order of the results is that of the arguments.
fn simulate(scenarios: &[Scenario], policies: &[Policy], seeds: u32) -> Result<Vec<Report>> {
    let seeds: Vec<u64> = (FIRST_SEED..).take(seeds as usize).collect();
    let mut jobs = Vec::new();
    for scenario in scenarios {
        for &policy in policies {
            jobs.extend(seeds.iter().map(|&seed| (scenario, policy, seed)));
        }
    }
    let outcomes = side_by_side(jobs.len(), |place| {
        let (scenario, policy, seed) = jobs[place];
        let outcome = policy.outcome(scenario, seed)?;
        whole(outcome, scenario, policy.name(), seed)
    });
    let mut outcomes = outcomes?.into_iter();
    let mut reports = Vec::new();
    for scenario in scenarios {
        let mut runs = Vec::new();
        for &policy in policies {
            runs.push((policy, outcomes.by_ref().take(seeds.len()).collect()));
        }
        reports.push(Report::new(scenario, &runs));
    }
    Ok(reports)
}

/// Runs each policy once more, with the first seed, to see what it looks like over time; and what
/// knows the load ahead beside them.
fn record(scenarios: &[Scenario], policies: &[Policy]) -> Result<Vec<Vec<Recorded>>> {
    let mut shown = policies.to_vec();
    if !shown.contains(&Policy::Clairvoyant) {
        shown.push(Policy::Clairvoyant);
    }
    let jobs: Vec<(&Scenario, Policy)> = (scenarios.iter())
        .flat_map(|scenario| shown.iter().map(move |&policy| (scenario, policy)))
        .collect();
    let recorded = side_by_side(jobs.len(), |place| {
        let (scenario, policy) = jobs[place];
        Ok(Recorded {
            policy: policy.name(),
            timeline: policy.timeline(scenario, FIRST_SEED)?,
        })
    });
    let mut recorded = recorded?.into_iter();
    let of_each = scenarios
        .iter()
        .map(|_| recorded.by_ref().take(shown.len()).collect());
    Ok(of_each.collect())
}

fn print(reports: &[Report], json: bool) -> Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, reports)?;
        writeln!(out)?;
    } else {
        let tables: Vec<String> = reports.iter().map(Report::to_string).collect();
        out.write_all(tables.join("\n").as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
    }

    #[test]
    fn every_scenario_of_the_repository_can_be_run_under_every_policy() {
        let scenarios = scenarios(&[folder()]).unwrap();
        assert!(scenarios.len() >= 17, "{}", scenarios.len());
        check(&scenarios, &policies(&[]).unwrap()).unwrap();
    }

    #[test]
    fn an_unknown_policy_is_told_with_those_there_are() {
        let error = policies(&["knativ".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("there is no policy `knativ`, allowed is staffing, "));
    }

    #[test]
    fn a_file_that_is_not_there_is_told_by_its_name() {
        let error = scenarios(&[PathBuf::from("no-such.yaml")]).unwrap_err();
        assert!(error.to_string().starts_with("no-such.yaml: "), "{error}");
    }

    #[test]
    fn the_table_is_the_same_on_any_number_of_processors() {
        let scenarios = scenarios(&[folder().join("closed15free.yaml")]).unwrap();
        let policies = [Policy::Staffing, Policy::Knative];
        let reports = || simulate(&scenarios, &policies, 2).unwrap();
        assert_eq!(reports(), reports());
        assert_eq!(reports()[0].rows.len(), 2);
    }
}
