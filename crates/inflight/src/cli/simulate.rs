//! `inflight simulate`: runs scenarios in virtual time under one or all policies, and prints a
//! table for each.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use inflight_sim::scenario::{Scenario, parse};
use inflight_sim::{Outcome, POLICIES, Policy, Report};

use super::USAGE;

/// The first seed: rules are tuned on 1 to 7, and reported on others.
const FIRST_SEED: u64 = 11;

/// The largest scenario or trace that is read.
const BYTES_MAX: u64 = 256 << 20;

/// Runs scenarios under policies in virtual time and compares them.
#[derive(Clone, Debug, Args)]
pub(super) struct SimulateArgs {
    /// Scenario files, or folders of them.
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
}

/// Runs and prints; returns the exit code: 0 done, 1 failed, 2 a wrong scenario or policy.
#[must_use]
pub(super) fn run(args: &SimulateArgs) -> ExitCode {
    let prepared = policies(&args.policy).and_then(|policies| {
        let scenarios = scenarios(&args.scenarios)?;
        check(&scenarios, &policies)?;
        Ok((policies, scenarios))
    });
    let (policies, scenarios) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            let told = writeln!(io::stderr(), "{error:#}");
            return told.map_or(ExitCode::FAILURE, |()| ExitCode::from(USAGE));
        }
    };
    match simulate(&scenarios, &policies, args.seeds).and_then(|reports| print(&reports, args.json))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to be told when standard error is gone as well.
            writeln!(io::stderr(), "{error:#}").map_or(ExitCode::FAILURE, |()| ExitCode::FAILURE)
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
    files.iter().map(|file| scenario(file)).collect()
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
    let mut outcomes = side_by_side(&jobs)?.into_iter();
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

fn side_by_side(jobs: &[(&Scenario, Policy, u64)]) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(scenario, policy, seed)) = jobs.get(place) else {
                return Ok(done);
            };
            progress(place, jobs.len());
            let outcome = policy.outcome(scenario, seed)?;
            if let Some(broken) = outcome.broken_identity() {
                let (name, policy) = (&scenario.name, policy.name());
                bail!("{name} under {policy}, seed {seed}: {broken}");
            }
            done.push((place, outcome));
        }
    };
    let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut done = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut done = Vec::new();
        for thread in threads {
            let results = thread.join().map_err(|_| anyhow!("a run panicked"))??;
            done.extend(results);
        }
        Ok::<_, anyhow::Error>(done)
    })?;
    progress(jobs.len(), jobs.len());
    done.sort_by_key(|&(place, _)| place);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Says on a terminal how far it is; a terminal that is gone does not matter.
fn progress(done: usize, all: usize) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        let end = if done == all { "\r\x1b[K" } else { "" };
        drop(write!(terminal, "\r{done} of {all} runs{end}"));
    }
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
