//! `render envoy`: a whole configuration of an Envoy before a fleet, with every setting without which
//! requests are lost or are not seen, each with its reason.
//!
//! What is needed is settled first (`plan`), then written into templates.

mod parts;
mod plan;

use std::time::Duration;

pub use plan::{EnvoyPlaces, Protocol};

use super::address::Address;
use super::selector::Selector;
use super::template::fill;
use super::yaml::{block, quoted};
use super::{RenderError, Rendered};
use crate::config::{FleetConfig, OnFailure};
use plan::{Guard, Plan, Servers};

const BOOTSTRAP: &str = include_str!("envoy/bootstrap.yaml");
/// The filter of calls that may wait for a first replica, and that of all others.
const FIRST_CALLS: &str = "gate_first_calls";
const OTHERS: &str = "gate_others";
/// How much longer than the gate itself Envoy waits for its answer about a first call.
const BEYOND_READY: Duration = Duration::from_secs(5);
/// How long it waits for an answer that comes from memory.
const ANSWER: Duration = Duration::from_millis(900);

/// Returns the configuration of an Envoy before a fleet.
///
/// *Errors*: its requests do not pass an Envoy, or there is no filter in Lua for it.
pub fn envoy(
    fleet: &FleetConfig,
    selector: &Selector,
    places: &EnvoyPlaces,
) -> Result<Rendered, RenderError> {
    let mut warnings = Vec::new();
    let plan = Plan::settle(fleet, selector, places, &mut warnings)?;
    let text = fill(
        BOOTSTRAP,
        &[
            ("FLEET", quoted(&fleet.name)),
            ("ADMIN_HOST", quoted(&plan.admin.ip().to_string())),
            ("ADMIN_PORT", plan.admin.port().to_string()),
            ("LISTEN_HOST", quoted(&plan.listen.ip().to_string())),
            ("LISTEN_PORT", plan.listen.port().to_string()),
            ("ROUTES", routes(&plan)),
            ("FILTERS", filters(&plan)),
            ("STATS_LISTENER", stats_listener(&plan)),
            ("CLUSTER", quoted(&plan.cluster)),
            ("PROTOCOL", plan.protocol.options().to_owned()),
            ("HEALTH", plan.protocol.health_check().to_owned()),
            ("UNLIMITED", part(parts::UNLIMITED, &[])),
            ("ADDRESSES", servers(&plan)),
            ("MORE_CLUSTERS", more_clusters(&plan)),
        ],
    );
    Ok(Rendered { text, warnings })
}

/// Fills a part, which begins after the line break that its quotes begin with.
fn part(template: &str, values: &[(&str, String)]) -> String {
    fill(template.trim_start_matches('\n'), values)
}

fn routes(plan: &Plan<'_>) -> String {
    let mut out = String::new();
    let mut route = |matched: String, filter: Option<&str>| {
        let values = [("MATCH", matched), ("CLUSTER", quoted(&plan.cluster))];
        out.push_str(&part(parts::ROUTE, &values));
        if let Some(filter) = filter {
            out.push_str(&part(parts::JUDGED, &[("FILTER", filter.to_owned())]));
        }
    };
    let exactly = |path: &String| format!("path: {}", quoted(path));
    let mut every = None;
    if let Guard::Gate { gate, others, .. } = &plan.guard {
        for path in &gate.first_calls {
            route(exactly(path), Some(FIRST_CALLS));
        }
        match others {
            Others::Paths(paths) => {
                for path in paths {
                    route(exactly(path), Some(OTHERS));
                }
            }
            Others::All => every = Some(OTHERS),
        }
    }
    route("prefix: /".to_owned(), every);
    out
}

/// Which calls are judged that are no first calls.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Others {
    Paths(Vec<String>),
    All,
}

impl Others {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Paths(paths) if paths.is_empty())
    }
}

fn filters(plan: &Plan<'_>) -> String {
    match &plan.guard {
        Guard::Nobody => String::new(),
        Guard::Lua { program, .. } => part(parts::LUA_FILTER, &[("PROGRAM", block(program, 6))]),
        Guard::Gate { gate, others, .. } => {
            let is_open = gate.on_failure == OnFailure::Open;
            let asks = |filter: &str, timeout: Duration, why: &str| {
                let values = [
                    ("FILTER", filter.to_owned()),
                    ("TIMEOUT", format!("{}s", timeout.as_secs_f64())),
                    ("TIMEOUT_WHY", why.to_owned()),
                    ("OPEN", is_open.to_string()),
                    ("STATS", filter.trim_start_matches("gate_").to_owned()),
                ];
                part(parts::GATE_FILTER, &values)
            };
            let mut out = asks(
                FIRST_CALLS,
                gate.ready_timeout.saturating_add(BEYOND_READY),
                "Above `ready_timeout`, for which a first call may wait; the default is 200 ms.",
            );
            if !others.is_empty() {
                let why = "Nothing else waits: so long it hangs at most when inflight does.";
                out.push_str(&asks(OTHERS, ANSWER, why));
            }
            out
        }
    }
}

fn stats_listener(plan: &Plan<'_>) -> String {
    let Some(stats) = plan.stats else {
        return String::new();
    };
    let values = [
        ("STATS_HOST", quoted(&stats.ip().to_string())),
        ("STATS_PORT", stats.port().to_string()),
    ];
    part(parts::STATS_LISTENER, &values)
}

fn servers(plan: &Plan<'_>) -> String {
    match &plan.servers {
        Servers::Listed(servers) => addresses(&plan.cluster, servers),
        Servers::File(file) => part(parts::EDS, &[("FILE", quoted(file))]),
    }
}

fn addresses(cluster: &str, of: &[Address]) -> String {
    let endpoints = of.iter().map(|one| {
        let values = [("HOST", quoted(&one.host)), ("PORT", one.port.to_string())];
        part(parts::ENDPOINT, &values)
    });
    let is_static = of.iter().all(Address::is_ip);
    let kind = if is_static { "STATIC" } else { "STRICT_DNS" };
    let values = [
        ("TYPE", kind.to_owned()),
        ("NAME", quoted(cluster)),
        ("ENDPOINTS", endpoints.collect()),
    ];
    part(parts::ADDRESSES, &values)
}

/// The clusters of whom is asked, beside that of the servers.
fn more_clusters(plan: &Plan<'_>) -> String {
    let plain = |name: &str, address: &Address| {
        let values = [
            ("NAME", quoted(name)),
            ("ADDRESSES", addresses(name, std::slice::from_ref(address))),
        ];
        part(parts::PLAIN_CLUSTER, &values)
    };
    let mut out = match &plan.guard {
        Guard::Nobody => String::new(),
        Guard::Lua {
            cluster,
            prometheus,
            ..
        } => plain(cluster, prometheus),
        Guard::Gate { at, .. } => {
            let values = [
                (
                    "ADDRESSES",
                    addresses("inflight_gate", std::slice::from_ref(at)),
                ),
                ("UNLIMITED", part(parts::UNLIMITED, &[])),
            ];
            part(parts::GATE_CLUSTER, &values)
        }
    };
    if plan.stats.is_some() {
        out.push_str(&plain("envoy_admin", &plan.admin.into()));
    }
    out
}

#[cfg(test)]
mod tests;
