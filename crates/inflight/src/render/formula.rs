//! The occupancy rule as one query, from its terms.
//!
//! `R_needed = L / max(S/R, 1)` for R > 0 and `L` for R = 0; for each replica `L / max(S/R, 1) / R`.
//! Both give nothing, and never zero, when the replicas are not known, and when there are replicas
//! and what they execute is not known. R under S is averaged over the window as S is, and at least
//! one; whether there are replicas is judged by this moment.

use super::RenderError;
use super::expression::{Rows, judge, laid_out};
use super::terms::{Reported, Terms, span};
use crate::config::QueryError;

/// How long after it reported last one that is scraped still, and does not answer, leaves the sum
/// unknown. One that was removed on purpose is scraped no more, and leaves nothing unknown.
const SILENT: &str = "1h";
/// The part of the window, before it, in which somebody must have reported. `check` asks for four
/// scrapes in a window.
const BEFORE: u32 = 4;

/// The rule's two queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Formula {
    /// R_needed, a total of the fleet.
    pub(super) required: String,
    /// R_needed / R, which has no value without replicas.
    pub(super) inflation: String,
    /// The terms by themselves, each with one row without labels.
    pub(super) in_flight: String,
    pub(super) executing: String,
    pub(super) replicas: String,
    /// The terms that are sums of whatever rows their queries have, by name.
    pub(super) summed: Vec<&'static str>,
}

impl Formula {
    /// Puts the terms of a fleet together.
    ///
    /// *Errors*: a term is no query.
    pub(super) fn new(fleet: &str, terms: &Terms) -> Result<Self, RenderError> {
        let mut summed = Vec::new();
        let mut row = |what: &'static str, query: &str| {
            let (row, is_summed) = one_row(query).map_err(|error| RenderError::Query {
                fleet: fleet.to_owned(),
                what,
                error,
            })?;
            if is_summed && !summed.contains(&what) {
                summed.push(what);
            }
            Ok(row)
        };
        let executing = row("executing", &terms.executing)?;
        let replicas = row("replicas", &terms.replicas)?;
        let replicas_mean = row("replicas", &terms.replicas_mean)?;
        let mut parts = Vec::new();
        for part in &terms.in_flight {
            parts.push(row("in_flight", part)?);
        }
        let mut in_flight = in_flight(&parts, &replicas, terms.absent_is_none);
        if let Some(reported) = &terms.reported {
            in_flight = format!("({in_flight})\nunless {}", is_silent(reported));
            if reported.has_rates {
                // Without replicas nothing is executed, and whoever waits wakes the fleet at once.
                let full = is_full(reported);
                in_flight = format!("({in_flight})\nand ({full}\nor {replicas}\n== 0)");
            }
        }
        // At least one of them, at each moment at which there are any.
        let mean = format!("clamp_min({replicas_mean}\n, 1)");
        let each = format!("clamp_min({executing}\n/ ({mean}\nand {replicas}\n> 0), 1)");
        let laid_out = |query: String| {
            laid_out(&query).map_err(|error| RenderError::Query {
                fleet: fleet.to_owned(),
                what: "the rule",
                error,
            })
        };
        Ok(Self {
            required: laid_out(format!(
                "({in_flight})\n/ ({each}\nor ({replicas}\n== 0) + 1)"
            ))?,
            inflation: laid_out(format!("({in_flight})\n/ {each}\n/ {mean}"))?,
            in_flight: laid_out(in_flight)?,
            executing: laid_out(executing)?,
            replicas: laid_out(replicas)?,
            summed,
        })
    }
}

/// Makes the vector of one row without labels that arithmetic between terms needs, an operand that
/// holds together. Returns also whether rows had to be summed for that.
///
/// A line ends behind each query, and so does a comment in it.
fn one_row(query: &str) -> Result<(String, bool), QueryError> {
    Ok(match judge(query)? {
        Rows::One => (format!("({query}\n)"), false),
        Rows::Scalar => (format!("vector({query}\n)"), false),
        Rows::Many => (format!("sum({query}\n)"), true),
    })
}

/// Returns the condition that one of those who report does not answer: without it a sum over them
/// would be less than what there is.
fn is_silent(reported: &Reported) -> String {
    format!(
        "count(up == 0 and on (job, instance) present_over_time({}[{SILENT}]))",
        reported.series
    )
}

/// Returns the condition that the window is full: a rate divides by all of it, so that it is too
/// little as long as a gap in what is scraped reaches into its beginning.
fn is_full(reported: &Reported) -> String {
    format!(
        "count(present_over_time({}[{}] offset {}))",
        reported.series,
        span(reported.window / BEFORE),
        span(reported.window)
    )
}

fn in_flight(parts: &[String], replicas: &str, absent_is_none: bool) -> String {
    let each = parts.iter().map(|part| {
        if absent_is_none {
            format!("({part}\nor 0 * {replicas})")
        } else {
            part.clone()
        }
    });
    each.collect::<Vec<_>>().join("\n+ ")
}
