//! `render promql`: a fleet's rule as queries, for a scaler that wants a total of the fleet and for
//! a gate that wants a number that does not grow with it.

use inflight_core::Replicas;

use super::expression::{self, judge};
use super::formula::Formula;
use super::selector::Selector;
use super::terms::{Basis, Terms, basis, span, window};
use super::{RenderError, Rendered};
use crate::config::{FleetConfig, MeasuredSettings, MetricKind, PolicySettings};

/// The inflation that `occupancy` aims for, for a fleet that has another policy.
const THRESHOLD: f64 = 2.0;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// Something that divides the number by what one replica is for.
    Scaler,
    /// Something that compares the number with a threshold.
    Gate,
}

/// A fleet's number as queries.
pub(super) struct Number {
    pub(super) queries: Queries,
    /// How many of it a replica is for, or what it shall be.
    pub(super) target: f64,
    pub(super) kind: MetricKind,
}

/// What is asked for it.
pub(super) enum Queries {
    /// The rule, and what it is made of.
    Rule(Box<Terms>, Box<Formula>),
    /// The user's own query.
    Own(String),
}

impl Number {
    /// Returns what a fleet's settings say.
    ///
    /// *Errors*: one of its queries is none.
    pub(super) fn of(fleet: &FleetConfig, selector: &Selector) -> Result<Self, RenderError> {
        let queries = match basis(fleet, selector) {
            Basis::Terms(terms) => {
                let formula = Formula::new(&fleet.name, &terms)?;
                Queries::Rule(terms, Box::new(formula))
            }
            Basis::Own(query) => {
                judge(&query).map_err(|error| RenderError::Query {
                    fleet: fleet.name.clone(),
                    what: "query",
                    error,
                })?;
                Queries::Own(query)
            }
        };
        let (target, kind) = match fleet.scaling.policy {
            PolicySettings::Metric { target, kind } => (target, kind),
            PolicySettings::Occupancy { threshold, .. } => (threshold, MetricKind::AverageValue),
            PolicySettings::Staffing { .. } | PolicySettings::Concurrency { .. } => {
                (THRESHOLD, MetricKind::AverageValue)
            }
        };
        Ok(Self {
            queries,
            target,
            kind,
        })
    }

    /// Returns what one of the two asks.
    pub(super) fn query(&self, consumer: Consumer) -> &str {
        match (&self.queries, consumer) {
            (Queries::Rule(_, formula), Consumer::Scaler) => &formula.required,
            (Queries::Rule(_, formula), Consumer::Gate) => &formula.inflation,
            (Queries::Own(query), _) => query,
        }
    }

    /// Returns what is worth a look before these queries are used.
    pub(super) fn warnings(&self, fleet: &FleetConfig) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Queries::Rule(terms, formula) = &self.queries {
            for what in &formula.summed {
                warnings.push(format!(
                    "fleet {}: {what} may have several rows, which are summed here; source \
                     `prometheus` takes them for unknown",
                    fleet.name
                ));
            }
            warnings.extend(bare_counters(fleet, &formula.required));
            if !terms.knows_zero && fleet.replicas_min == Replicas::ZERO {
                warnings.push(format!(
                    "fleet {}: its servers tell all that is known of it, so that at zero replicas \
                     nothing wakes it: keep `replicas.min` at 1, or measure in front of them",
                    fleet.name
                ));
            }
        }
        if let Queries::Own(query) = &self.queries {
            warnings.extend(bare_counters(fleet, query));
        }
        warnings
    }
}

/// Tells of counters that only ever grow and would size a fleet.
fn bare_counters(fleet: &FleetConfig, query: &str) -> Option<String> {
    let names = expression::bare_counters(query);
    (!names.is_empty()).then(|| {
        format!(
            "fleet {}: {} grows as long as it runs, whatever the load: take its rate",
            fleet.name,
            names.join(", ")
        )
    })
}

/// Returns one query of a fleet, and nothing else.
///
/// *Errors*: one of its queries is none.
pub fn query(
    fleet: &FleetConfig,
    selector: &Selector,
    consumer: Consumer,
) -> Result<Rendered, RenderError> {
    let number = Number::of(fleet, selector)?;
    Ok(Rendered {
        text: format!("{}\n", number.query(consumer)),
        warnings: number.warnings(fleet),
    })
}

/// Returns the queries of fleets, with what they are.
///
/// *Errors*: one of their queries is none.
pub fn promql(fleets: &[&FleetConfig], selector: &Selector) -> Result<Rendered, RenderError> {
    let mut rendered = Rendered::default();
    for fleet in fleets {
        let number = Number::of(fleet, selector)?;
        let text = match &number.queries {
            Queries::Rule(terms, formula) => rule(fleet, &number, terms, formula),
            Queries::Own(query) => own(fleet, &number, query),
        };
        if !rendered.text.is_empty() {
            rendered.text.push('\n');
        }
        rendered.text.push_str(&text);
        rendered.warnings.extend(number.warnings(fleet));
    }
    Ok(rendered)
}

fn rule(fleet: &FleetConfig, number: &Number, terms: &Terms, formula: &Formula) -> String {
    let [in_flight, executing, replicas] = &terms.says;
    let (name, target) = (&fleet.name, number.target);
    let over = match &fleet.measured {
        Some(MeasuredSettings::Prometheus(_)) => "from your own queries".to_owned(),
        Some(MeasuredSettings::Envoy(_) | MeasuredSettings::Vllm(_)) | None => {
            format!("over {}", span(window(fleet)))
        }
    };
    let zero = if terms.knows_zero {
        "At R = 0 it is L. It has no value, and never zero,\n# when R is unknown, or when S is and \
         R is not 0."
    } else {
        "Without servers it has no value, and never zero."
    };
    let mut text = format!(
        "# Fleet {name}: the occupancy rule {over}.\n\
         #   L, in flight: {in_flight}.\n\
         #   S, executing: {executing}.\n\
         #   R, replicas: {replicas}.\n\
         \n\
         # For the scaler: R_needed = L / max(S/R, 1), a total of the fleet; it is to \
         have ceil(R_needed / {target}) replicas.\n\
         # KEDA: metricType AverageValue, threshold {target}, ignoreNullValues \"false\". {zero}\n\
         {required}\n\
         \n\
         # For a gate: R_needed / R, which is 1 when nobody waits and 2 when requests wait as long \
         as they are served.\n{gate}\
         # It has no value without replicas: then the gate keeps its state.\n\
         {inflation}\n",
        required = formula.required,
        gate = gate(fleet),
        inflation = formula.inflation,
    );
    if let Some(second) = &terms.second {
        text.push_str(&format!(
            "\n# A second trigger for the scaler, of which the larger size wins: the key-value \
             caches in use, summed.\n# KEDA: metricType AverageValue, threshold {}.\n{}\n",
            second.target, second.query
        ));
    }
    text
}

fn gate(fleet: &FleetConfig) -> String {
    fleet
        .admission
        .map(|admission| {
            format!(
                "# Refuse new clients above {}, let them in again below {}.\n",
                number(admission.threshold),
                number(admission.reopen)
            )
        })
        .unwrap_or_default()
}

/// Spells a number for people, without what rounding left at its end.
pub(super) fn number(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn own(fleet: &FleetConfig, number: &Number, query: &str) -> String {
    let kind = match number.kind {
        MetricKind::AverageValue => "a total of the fleet: metricType AverageValue",
        MetricKind::Value => "not a total: metricType Value",
    };
    format!(
        "# Fleet {}: your own query, as it is, for the scaler and for a gate. It is {kind}, threshold \
         {}.\n# A gate's threshold must be in its unit.\n{query}\n",
        fleet.name, number.target
    )
}
