//! `inflight check --live`: asks every source for a few readings, and says what each term is, how
//! it was got, and what it would lead to. Opens no gateway, changes no fleet, writes nothing.

mod advice;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use inflight_core::Replicas;
use inflight_core::load::{Estimator, Level, Missing, ModelLoad, Observation, Term};
use tokio::time::{Instant, sleep};

use crate::api::{self, wire};
use crate::cli::run::runtime;
use crate::config::{Config, Endpoints, Target};
use crate::fleet::Fleet;
use crate::runtime::Running;
use crate::telemetry::{self, LogFormat};

/// How long sources are asked at most: the slowest policy decides every 15 s, and rates need two
/// readings before that.
const ASKED_MAX: Duration = Duration::from_secs(20);

/// Prints what the sources say and returns the exit code: 0 all is known, 1 not, or failed.
pub(super) fn run(config: &Config) -> ExitCode {
    telemetry::start(LogFormat::Text, "error");
    let asked = runtime().and_then(|runtime| runtime.block_on(ask(config.clone())));
    let written = match &asked {
        Ok((text, _)) => io::stdout().write_all(text.as_bytes()),
        Err(error) => writeln!(io::stderr(), "error: {error:#}"),
    };
    match (written, asked) {
        (Ok(()), Ok((_, true))) => ExitCode::SUCCESS,
        (Ok(()) | Err(_), Ok(_) | Err(_)) => ExitCode::FAILURE,
    }
}

/// Runs the sources for a while; returns what they said, and whether that is all.
async fn ask(config: Config) -> anyhow::Result<(String, bool)> {
    let counted_here: Vec<String> = (config.fleets.iter())
        .filter(|fleet| fleet.peers.is_none() && fleet.measured.is_none())
        .map(|fleet| format!("{}: counts what comes in here, once it runs\n", fleet.name))
        .collect();
    let mut text = counted_here.concat();
    let config = sources_alone(config);
    if config.fleets.is_empty() {
        return Ok((text, true));
    }
    let settings = config.fleets.clone();
    let running = Running::start(config, false)
        .await
        .context("the sources cannot be asked")?;
    let (fleets, clock) = (running.fleets(), running.clock());
    let end = Instant::now() + ASKED_MAX;
    while Instant::now() < end && !fleets.iter().all(|fleet| is_decided(fleet)) {
        sleep(Duration::from_millis(100)).await;
    }
    let mut is_all_known = true;
    for (fleet, settings) in fleets.iter().zip(&settings) {
        let (_, observed) = fleet.observe();
        let (said, is_known) = report(&api::fleet(fleet, clock), &observed);
        text.push_str(&said);
        for advice in advice::advice(settings).await {
            text.push_str(&format!("  warning: {advice}\n"));
        }
        is_all_known &= is_known;
    }
    running.stop().await?;
    Ok((text, is_all_known))
}

/// Returns the fleets that others count, with nothing to open, to start or to write.
fn sources_alone(mut config: Config) -> Config {
    (config.fleets).retain(|fleet| fleet.peers.is_some() || fleet.measured.is_some());
    for fleet in &mut config.fleets {
        fleet.gateway = None;
        fleet.endpoints = Endpoints::Elsewhere;
        fleet.health = None;
        fleet.target = Target::Advise;
    }
    config.admin.listen.value = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    config.admin.token_file = None;
    config.state_dir = None;
    config.journal = None;
    config
}

/// Tells whether all that is to be known was decided from: the first decision comes before
/// counters were read twice.
fn is_decided(fleet: &Fleet) -> bool {
    let board = fleet.board();
    let known = board
        .decisions()
        .filter(|decision| decision.wanted.is_some());
    known.count() > 1
}

/// Says what one fleet's sources tell, and whether every term that the policy needs is known.
fn report(fleet: &wire::Fleet, observed: &Observation) -> (String, bool) {
    let mut text = format!("{} ({}):\n", fleet.name, fleet.policy);
    for source in &fleet.sources {
        let address = source.address.as_deref().unwrap_or("here");
        let age = source.age_seconds;
        let age = age.map_or_else(String::new, |age| format!(", {age:.1} s ago"));
        let failure = source.failure.as_deref();
        let failure = failure.map_or_else(String::new, |why| format!(": {why}"));
        text.push_str(&format!(
            "  {} {address}: {}{age}{failure}\n",
            source.kind, source.state
        ));
    }
    for (name, got) in terms(observed) {
        text.push_str(&format!("  {name}: {got}\n"));
    }
    let Some(decision) = &fleet.decision else {
        text.push_str("  nothing was decided\n");
        return (text, false);
    };
    for (name, value) in &decision.inputs {
        let value = value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.3}"));
        text.push_str(&format!("  {name} over the window so far: {value}\n"));
    }
    text.push_str(&format!(
        "  size {}: {}\n",
        decision.desired, decision.reason
    ));
    let is_known = decision.wanted.is_some() && decision.inputs.values().all(Option::is_some);
    (text, is_known)
}

/// Returns the terms of an observation that its source offers, with how each was got.
fn terms(observed: &Observation) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let [only] = observed.models.as_slice() {
        all.push(("in flight L", of_level(only, |model| model.in_flight)));
        all.push(("executing S", of_level(only, |model| model.executing)));
    }
    let replicas = observed.replicas.ready().map(Replicas::as_f64);
    all.push(("replicas R", of_term(replicas)));
    all.push(("the query's number", of_term(observed.metric)));
    let offered = |(name, said): (_, Option<String>)| Some((name, said?));
    all.into_iter().filter_map(offered).collect()
}

/// Says what a level is; one that is known by its growth alone has no value at a moment.
fn of_level(model: &ModelLoad, level: fn(&ModelLoad) -> Level) -> Option<String> {
    let level = level(model);
    match (level.now, level.integral) {
        (Term::Unknown(Missing::NotOffered), Term::Known { age, estimator, .. }) => {
            let age = age.as_secs_f64();
            Some(format!("a rate by {}, {age:.1} s old", by(estimator)))
        }
        (Term::Unknown(Missing::NotOffered), Term::Unknown(_)) => of_term(level.integral),
        (now, _) => of_term(now.map(inflight_core::Occupancy::get)),
    }
}

fn of_term(term: Term<f64>) -> Option<String> {
    match term {
        Term::Known {
            value,
            age,
            estimator,
        } => {
            let age = age.as_secs_f64();
            Some(format!("{value:.3} by {}, {age:.1} s old", by(estimator)))
        }
        Term::Unknown(Missing::NotOffered) => None,
        Term::Unknown(why) => Some(format!("unknown, {why}")),
    }
}

/// Says how a value was got.
const fn by(estimator: Estimator) -> &'static str {
    match estimator {
        Estimator::Exact => "exact counts",
        Estimator::LiveGauge => "live gauges",
        Estimator::CompletionCounter => "counters that move when requests end",
        Estimator::Query => "a query",
    }
}

#[cfg(test)]
mod tests;
