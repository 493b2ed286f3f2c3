//! `render lua`: an admission filter for Envoy that asks Prometheus, for those who want nothing else
//! beside the two.
//!
//! The program is `lua/admission.lua`; here its gaps are filled. The Helm chart has a copy of what is
//! printed, which its test compares.

use std::time::Duration;

use inflight_core::Replicas;

use super::address::{Address, Server};
use super::promql::{Consumer, Number, Queries, number};
use super::selector::Selector;
use super::template::fill;
use super::{RenderError, Rendered};
use crate::config::{FleetConfig, MeasuredSettings, OnFailure};
use crate::retry;

const PROGRAM: &str = include_str!("lua/admission.lua");
/// What the program says to those whom it refuses, by gRPC's codes for it.
const FULL: (u16, &str) = (8, "the load is above the limit");
const UNKNOWN: (u16, &str) = (14, "the load is unknown");
/// What clients of Triton begin with, where the file does not say.
const FIRST_CALL: &str = "/inference.GRPCInferenceService/RepositoryIndex";
/// How the waits of those refused together differ.
const DRAWS: [u64; 4] = [0, 85, 170, 255];

/// What the file does not say of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuaPlaces {
    /// Where Prometheus is, as Envoy sees it; by default that of source `prometheus`.
    pub prometheus: Option<Server>,
    /// The name of its cluster in Envoy.
    pub cluster: String,
    /// How long an answer of it may take.
    pub timeout: Duration,
    /// When those who are refused are to come again.
    pub retry_after: Duration,
    /// Paths that begin a session; empty: those of the file.
    pub first_calls: Vec<String>,
    /// Whether clients pass while the load is unknown; by default as the file says of its gate.
    pub on_failure: Option<OnFailure>,
}

/// Returns the filter of a fleet.
///
/// *Errors*: its query is none, or it refuses nobody.
pub fn lua(
    fleet: &FleetConfig,
    selector: &Selector,
    places: &LuaPlaces,
) -> Result<Rendered, RenderError> {
    let filter = Filter::new(fleet, selector, places)?;
    Ok(Rendered {
        text: filter.text,
        warnings: filter.warnings,
    })
}

/// The program, and who is asked by it.
pub(super) struct Filter {
    pub(super) text: String,
    pub(super) prometheus: Address,
    pub(super) warnings: Vec<String>,
}

impl Filter {
    pub(super) fn new(
        fleet: &FleetConfig,
        selector: &Selector,
        places: &LuaPlaces,
    ) -> Result<Self, RenderError> {
        let Some(admission) = &fleet.admission else {
            return Err(RenderError::NobodyRefused(fleet.name.clone()));
        };
        let asked = Number::of(fleet, selector)?;
        let mut warnings = asked.warnings(fleet);
        let limit = number(admission.threshold);
        warnings.extend(judgement_warnings(fleet, &asked, limit));
        let prometheus = server(fleet, places, &mut warnings);
        let asked_for = asked.query(Consumer::Gate);
        let is_open = on_failure(fleet, places) == OnFailure::Open;
        let values = [
            ("FLEET", fleet.name.clone()),
            ("FIRST_CALLS", listed(&first_calls(fleet, places))),
            ("LIMIT", limit.to_string()),
            ("FAIL_OPEN", is_open.to_string()),
            ("TIMEOUT_MS", places.timeout.as_millis().to_string()),
            ("AUTHORITY", quoted(&prometheus.address.to_string())),
            ("API", quoted(&format!("{}/api/v1/query", prometheus.below))),
            ("QUERY", bracketed(asked_for)),
            ("CLUSTER", quoted(&places.cluster)),
            ("AGAIN", again(places.retry_after)),
        ];
        Ok(Self {
            text: fill(PROGRAM, &values),
            prometheus: prometheus.address,
            warnings,
        })
    }
}

/// Returns what is worth a look before a number of this kind refuses anybody.
fn judgement_warnings(fleet: &FleetConfig, asked: &Number, limit: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    match &asked.queries {
        Queries::Own(_) => warnings.push(format!(
            "fleet {}: clients are refused while your own query gives more than \
             `admission.threshold`, {limit}, which must be in its unit",
            fleet.name
        )),
        Queries::Rule(..) if fleet.replicas_min == Replicas::ZERO => warnings.push(format!(
            "fleet {}: at zero replicas the query has no value, and the filter wakes nobody: keep \
             `replicas.min` at 1, or take `gate.ext_authz`, which holds first calls",
            fleet.name
        )),
        Queries::Rule(..) => {}
    }
    warnings
}

/// Returns the calls that are judged.
pub(super) fn first_calls(fleet: &FleetConfig, places: &LuaPlaces) -> Vec<String> {
    let of_gate = fleet.ext_authz.as_ref().map(|gate| &gate.first_calls);
    [Some(&places.first_calls), of_gate, Some(&fleet.first_calls)]
        .into_iter()
        .flatten()
        .find(|calls| !calls.is_empty())
        .cloned()
        .unwrap_or_else(|| vec![FIRST_CALL.to_owned()])
}

fn on_failure(fleet: &FleetConfig, places: &LuaPlaces) -> OnFailure {
    let of_gate = fleet.ext_authz.as_ref().map(|gate| gate.on_failure);
    places.on_failure.or(of_gate).unwrap_or(OnFailure::Closed)
}

fn server(fleet: &FleetConfig, places: &LuaPlaces, warnings: &mut Vec<String>) -> Server {
    let of_source = match &fleet.measured {
        Some(MeasuredSettings::Prometheus(settings)) => Server::of_page(&settings.url),
        Some(MeasuredSettings::Envoy(_) | MeasuredSettings::Vllm(_)) | None => None,
    };
    places.prometheus.clone().or(of_source).unwrap_or_else(|| {
        let guess = Server {
            address: Address {
                host: "prometheus".to_owned(),
                port: 9090,
            },
            below: String::new(),
        };
        warnings.push(format!(
            "fleet {}: the filter is told to ask http://{}; --prometheus says where it is",
            fleet.name, guess.address
        ));
        guess
    })
}

fn listed(calls: &[String]) -> String {
    let lines = calls
        .iter()
        .map(|call| format!("[{}] = true,\n", quoted(call)));
    lines.collect()
}

fn again(wait: Duration) -> String {
    let lines = DRAWS.iter().map(|draw| {
        let wait = retry::stretched(wait, *draw);
        format!(
            "{{ \"{}\", \"{}\",\n  \"{}\",\n  \"{}\" }},\n",
            retry::whole_seconds(wait),
            wait.as_millis(),
            retry::status_details(FULL.0, FULL.1, wait),
            retry::status_details(UNKNOWN.0, UNKNOWN.1, wait),
        )
    });
    lines.collect()
}

/// Spells a text in quotes.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => out.push_str(&format!("\\{:03}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Spells a text of lines as it is, between brackets that it does not have.
fn bracketed(text: &str) -> String {
    let mut level = "=".to_owned();
    while text.contains(&format!("]{level}]")) {
        level.push('=');
    }
    // What is between them begins after the first line break.
    format!("[{level}[\n{}\n]{level}]", text.trim_end())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::render::tests::{measured, triton};

    pub(in crate::render) fn places() -> LuaPlaces {
        LuaPlaces {
            prometheus: None,
            cluster: "prometheus".to_owned(),
            timeout: Duration::from_secs(1),
            retry_after: Duration::from_secs(10),
            first_calls: Vec::new(),
            on_failure: None,
        }
    }

    fn printed(fleet: &FleetConfig, places: &LuaPlaces) -> Rendered {
        lua(fleet, &Selector::default(), places).unwrap()
    }

    #[test]
    fn the_filter_of_a_fleet_asks_its_own_query_and_is_closed() {
        let rendered = printed(&triton("gauges"), &places());
        insta::assert_snapshot!(rendered.text);
        assert_eq!(
            rendered.warnings,
            [
                "fleet triton: the filter is told to ask http://prometheus:9090; --prometheus says where it is"
            ]
        );
    }

    #[test]
    fn a_query_of_ones_own_is_asked_verbatim_whatever_is_in_it() {
        let source = "{ prometheus: { url: 'http://p:9090/x/', query: \"sum(a{b=~'[[:alpha:]]=]@LIMIT@'} @ end())\\n+ 1\" } }";
        let rest = "    scaling: { target: 50 }\n    admission: { threshold: 150.5 }\n";
        let text = printed(&measured(source, rest), &places()).text;
        assert!(
            text.contains(
                "local QUERY = [==[\nsum(a{b=~'[[:alpha:]]=]@LIMIT@'} @ end())\n+ 1\n]==]\n"
            ),
            "{text}"
        );
        assert!(text.contains("local LIMIT = 150.5\n"), "{text}");
        assert!(text.contains("local API = \"/x/api/v1/query\"\n"), "{text}");
    }

    #[test]
    fn what_is_said_is_taken_and_the_gate_of_the_file_otherwise() {
        let gate = "    gate: { ext_authz: { listen: '127.0.0.1:1', first_calls: [/a, /b], on_failure: open } }\n";
        let source = "{ envoy: { admin: ['http://e:9901'], cluster: grpc, backend: { triton: { metrics: ['http://t:8002/metrics'] } } } }";
        let fleet = measured(source, gate);
        let text = printed(&fleet, &places()).text;
        assert!(
            text.contains("[\"/a\"] = true,\n  [\"/b\"] = true,\n"),
            "{text}"
        );
        assert!(text.contains("local FAIL_OPEN = true\n"), "{text}");
        let said = LuaPlaces {
            prometheus: Some("http://[::1]:1/p".parse().unwrap()),
            first_calls: vec!["/c\"\\".to_owned()],
            on_failure: Some(OnFailure::Closed),
            ..places()
        };
        let text = printed(&fleet, &said).text;
        assert!(text.contains("{\n  [\"/c\\\"\\\\\"] = true,\n}"), "{text}");
        assert!(text.contains("local FAIL_OPEN = false\n"), "{text}");
        assert!(text.contains("local AUTHORITY = \"[::1]:1\"\n"), "{text}");
    }

    #[test]
    fn a_fleet_that_refuses_nobody_has_no_filter() {
        let source = "{ vllm: { metrics: ['http://v:8000'] } }";
        let fleet = measured(source, "    admission: off\n");
        let error = lua(&fleet, &Selector::default(), &places()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "fleet triton: `admission` is off, so that nobody is refused"
        );
    }

    #[test]
    fn the_texts_of_the_program_are_those_of_the_details() {
        let line = format!("local FULL, UNKNOWN = \"{}\", \"{}\"\n", FULL.1, UNKNOWN.1);
        assert!(PROGRAM.contains(&line));
    }
}
