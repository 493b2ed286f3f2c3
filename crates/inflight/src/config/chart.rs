//! Reads the values of the SuperSONIC Helm chart, which scales Triton by a query behind KEDA, and
//! says in plain sentences what they do, what inflight would do otherwise, and what to fix.
//!
//! Values that are no business of scaling are not looked at. Nothing is translated here: `render`
//! prints what KEDA and Prometheus need.

mod advice;
mod values;

use super::document::{self, Value};
use super::error::Problem;

/// What there is to say about a values file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartAdvice {
    /// What the values do, with the chart's defaults for what is not set.
    pub does: Vec<String>,
    /// What would be otherwise with inflight.
    pub changes: Vec<String>,
    /// What is wrong with them or worth a look, and how to mend it, in the order of the file.
    pub fixes: Vec<Problem>,
}

/// Reads a values file.
///
/// *Errors*: it is no YAML, larger than the bounds, or no mapping.
pub fn chart_advice(text: &str) -> Result<ChartAdvice, Problem> {
    let root = document::parse(text)?;
    if !matches!(root.value, Value::Mapping(_) | Value::Null) {
        return Err(Problem {
            place: root.place,
            what: "is not a mapping".to_owned(),
            allowed: Some("the values of a Helm chart".to_owned()),
        });
    }
    let mut fixes = Vec::new();
    let values = values::Values::read(&root, &mut fixes);
    advice::add_fixes(&values, &mut fixes);
    fixes.sort_by_key(|fix| fix.place.line);
    Ok(ChartAdvice {
        does: advice::does(&values),
        changes: advice::changes(&values),
        fixes,
    })
}

#[cfg(test)]
mod tests;
