//! Reads a configuration of Envoy, or what its admin interface dumps of it, and says what in it loses
//! requests of a fleet, hides them from us, or opens its gate.
//!
//! It is read leniently: what is not known is none of our business, and what is not there has Envoy's
//! default. Envoy itself says what is wrong with it (`envoy --mode validate`).

mod cluster;
mod file;
mod gate;
mod lua;
mod rule;
mod spot;
mod traffic;

use std::time::Duration;

use super::document;
use super::error::Problem;
use super::{Config, EnvoyEstimator, FleetConfig, MeasuredSettings, PageUrl};
use file::File;
use spot::{Spot, problem};

/// From this on a flush makes the rate of a sum of time come in steps, with a usual window.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// How often Envoy flushes unless told otherwise.
const FLUSH_DEFAULT: Duration = Duration::from_secs(5);
/// Returns what is worth a look for the fleets of a configuration, in the order of the file.
///
/// *Errors*: it is no YAML, larger than the bounds, or no mapping.
pub fn envoy_advice(text: &str, config: &Config) -> Result<Vec<Problem>, Problem> {
    let root = document::parse(text)?;
    let root = Spot::of(&root);
    if !root.is_mapping() {
        return Err(problem(
            &root,
            "is no configuration of Envoy: a mapping with `static_resources`, or a dump with `configs`",
        ));
    }
    let file = File::read(&root);
    let mut advice = Vec::new();
    let mut is_behind = false;
    for fleet in config
        .fleets
        .iter()
        .filter(|fleet| fleet.measured.is_some())
    {
        is_behind = true;
        of_fleet(&file, fleet, &mut advice);
    }
    if !is_behind {
        let what = "is not needed: no fleet of the configuration is measured at an Envoy";
        advice.push(problem(&root, what));
    }
    lua::add(&file, &mut advice);
    advice.sort_by_key(|one| (one.place.line, one.place.column));
    advice.dedup();
    Ok(advice)
}

fn of_fleet(file: &File<'_>, fleet: &FleetConfig, advice: &mut Vec<Problem>) {
    let endpoints = fleet.endpoints_file();
    let names = match (&fleet.measured, endpoints) {
        (Some(MeasuredSettings::Envoy(envoy)), _) => vec![envoy.cluster.clone()],
        (_, Some(endpoints)) => vec![endpoints.cluster.clone()],
        (Some(MeasuredSettings::Vllm(_) | MeasuredSettings::Prometheus(_)) | None, None) => {
            file.routed_clusters()
        }
    };
    for name in &names {
        let Some(cluster) = file.cluster(name) else {
            let there: Vec<&str> = file.clusters.iter().filter_map(Spot::name).collect();
            let what = format!(
                "has no cluster `{name}`, which fleet {} is of, unless that is behind another \
                 Envoy; there are: {}",
                fleet.name,
                there.join(", ")
            );
            advice.push(problem(&file.root, what));
            return;
        };
        cluster::add(&cluster, endpoints.map(|it| it.file.as_path()), advice);
        traffic::add(file, fleet, name, advice);
        gate::add(file, fleet, name, advice);
    }
    let mut read: Vec<&PageUrl> = endpoints.iter().flat_map(|it| &it.admin).collect();
    if let Some(MeasuredSettings::Envoy(envoy)) = &fleet.measured {
        if envoy.estimator == EnvoyEstimator::TimeSum {
            check_flush(file, advice);
        }
        read.extend(envoy.admin.listed.iter().chain(&envoy.admin.dns));
    }
    if !read.is_empty() {
        check_admin(file, &read, advice);
    }
}

fn check_flush(file: &File<'_>, advice: &mut Vec<Problem>) {
    let flush = file.root.get("stats_flush_interval");
    if flush.span().unwrap_or(FLUSH_DEFAULT) > FLUSH_MAX {
        let what = format!(
            "{}: sums of time move with it alone, so that with `estimator: time_sum` the load comes \
             in steps; should be 1s",
            flush.found("5s")
        );
        advice.push(problem(&flush, what));
    }
}

/// Whether what we read is there, and nobody else can stop Envoy.
fn check_admin(file: &File<'_>, pages: &[&PageUrl], advice: &mut Vec<Problem>) {
    let socket = file.root.get("admin").get("address").get("socket_address");
    if !socket.is_there() {
        let what = "is not set: nobody can read what is in flight";
        advice.push(problem(&file.root.get("admin"), what));
        return;
    }
    let host = socket.get("address");
    if host.text().is_some_and(|host| !is_loopback(host)) {
        let what = format!(
            "{}: whoever reaches it can stop Envoy; should be 127.0.0.1, with a listener that passes \
             on `/ready`, `/stats/prometheus` and `/clusters` alone, as `inflight render envoy` prints \
             it, for those who read it from elsewhere",
            host.found("")
        );
        advice.push(problem(&host, what));
    }
    let mut ports: Vec<u16> = file.listeners.iter().filter_map(file::port_of).collect();
    ports.extend(socket.get("port_value").port());
    let is_there = |page: &&PageUrl| {
        let port = (page.authority.rsplit_once(':')).map_or("80", |(_, port)| port);
        port.parse().is_ok_and(|port| ports.contains(&port))
    };
    // Of several Envoys each has one of them.
    if !pages.iter().any(is_there) {
        let at = socket.get("port_value");
        let read: Vec<&str> = pages.iter().map(|page| page.authority.as_str()).collect();
        let what = format!(
            "{}, and no listener has a port that inflight reads: {}",
            at.found(""),
            read.join(", ")
        );
        advice.push(problem(&at, what));
    }
}

fn is_loopback(host: &str) -> bool {
    let ip = host.parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}
