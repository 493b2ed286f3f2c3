//! What to say of the runs of a scenario: medians over seeds for each policy, and who is beaten.
//!
//! Formats numbers and decides nothing; runs are made by the caller, on as many processors as it
//! likes.

mod table;

use serde::Serialize;

use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::scenario::Scenario;
use crate::units::float;

/// A policy is beaten by one that is nowhere worse by more than this share, and somewhere better.
const SLACK: f64 = 0.005;

/// A scenario's table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// What it shows.
    pub about: String,
    /// How many seeds the medians are of.
    pub seeds: usize,
    /// A row for each policy.
    pub rows: Vec<Row>,
}

/// A policy's row: medians over seeds. *Units*: seconds where no other is named.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The policy.
    pub policy: &'static str,
    /// Replicas × minutes, from being asked for to being gone.
    pub replica_minutes: f64,
    /// The least and the most of the seeds.
    pub replica_minutes_range: (f64, f64),
    /// Replica-seconds beyond need for each million requests within the SLO.
    pub beyond_need: Option<f64>,
    /// Requests within the SLO for each replica-minute.
    pub within_slo_per_minute: Option<f64>,
    /// When the load had ended, if it ends by itself.
    pub wall: Option<f64>,
    /// Half of the requests took no longer.
    pub p50: Option<f64>,
    /// Nine in ten took no longer.
    pub p90: Option<f64>,
    /// Ninety-nine in a hundred took no longer.
    pub p99: Option<f64>,
    /// Percent of the requests that waited too long, were refused or failed.
    pub violations: f64,
    /// The least and the most of the seeds.
    pub violations_range: (f64, f64),
    /// Requests refused.
    pub refused: f64,
    /// Replicas by which the size that was asked for changed.
    pub changes: f64,
    /// Whether no policy that could be had is better; unknown of the clairvoyant.
    pub pareto: Option<bool>,
}

impl Report {
    /// Puts the runs of a scenario together: for each policy one outcome for each seed.
    #[must_use]
    pub fn new(scenario: &Scenario, runs: &[(Policy, Vec<Outcome>)]) -> Self {
        let mut rows: Vec<Row> = runs
            .iter()
            .map(|(policy, outcomes)| row(*policy, outcomes))
            .collect();
        let pareto: Vec<Option<bool>> = rows.iter().map(|row| on_front(row, &rows)).collect();
        for (row, pareto) in rows.iter_mut().zip(pareto) {
            row.pareto = pareto;
        }
        Self {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            seeds: runs
                .iter()
                .map(|(_, outcomes)| outcomes.len())
                .max()
                .unwrap_or(0),
            rows,
        }
    }
}

fn row(policy: Policy, outcomes: &[Outcome]) -> Row {
    let sorted = |of: &dyn Fn(&Outcome) -> Option<f64>| {
        let mut values: Vec<f64> = outcomes.iter().filter_map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median_of = |of: &dyn Fn(&Outcome) -> Option<f64>| median(&sorted(of));
    let median_or_zero = |of: &dyn Fn(&Outcome) -> Option<f64>| median_of(of).unwrap_or(0.0);
    let range = |of: &dyn Fn(&Outcome) -> Option<f64>| {
        let values = sorted(of);
        let end = |value: Option<&f64>| value.copied().unwrap_or(0.0);
        (end(values.first()), end(values.last()))
    };
    let quantile = |per_mille: u64| {
        median_of(&|outcome| {
            outcome
                .sojourn
                .quantile(per_mille)
                .map(crate::units::seconds)
        })
    };
    let minutes = |outcome: &Outcome| Some(outcome.replica_seconds / 60.0);
    let violations = |outcome: &Outcome| Some(100.0 * outcome.violation_share());
    Row {
        policy: policy.name(),
        replica_minutes: median_or_zero(&minutes),
        replica_minutes_range: range(&minutes),
        beyond_need: median_of(&Outcome::beyond_need),
        within_slo_per_minute: median_of(&Outcome::within_slo_per_minute),
        wall: median_of(&|outcome| outcome.load_ended.then_some(outcome.end)),
        p50: quantile(500),
        p90: quantile(900),
        p99: quantile(990),
        violations: median_or_zero(&violations),
        violations_range: range(&violations),
        refused: median_or_zero(&|outcome| Some(float(outcome.refused))),
        changes: median_or_zero(&|outcome| Some(float(outcome.changes))),
        pareto: None,
    }
}

/// The median; of an even number, the mean of the middle two.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        return sorted.get(middle).copied();
    }
    let (low, high) = (sorted.get(middle.checked_sub(1)?)?, sorted.get(middle)?);
    Some((low + high) / 2.0)
}

/// Tells whether nobody beats a row in replica-minutes, p90, p99 and violations together.
fn on_front(row: &Row, rows: &[Row]) -> Option<bool> {
    let clairvoyant = Policy::Clairvoyant.name();
    if row.policy == clairvoyant {
        return None;
    }
    let mut others = rows
        .iter()
        .filter(|other| other.policy != clairvoyant && other.policy != row.policy);
    Some(!others.any(|other| beats(other, row)))
}

fn beats(one: &Row, other: &Row) -> bool {
    let figures = |row: &Row| {
        let worst = f64::INFINITY;
        [
            row.replica_minutes,
            row.p90.unwrap_or(worst),
            row.p99.unwrap_or(worst),
            row.violations,
        ]
    };
    is_better_than(figures(one), figures(other))
}

/// Tells whether figures of which less is better are nowhere worse than others, and somewhere
/// better; both by more than half a percent.
pub(crate) fn is_better_than<const N: usize>(one: [f64; N], other: [f64; N]) -> bool {
    let pairs = || one.iter().zip(&other);
    let nowhere_worse = pairs().all(|(one, other)| *one <= other * (1.0 + SLACK));
    let somewhere_better = pairs().any(|(one, other)| *one < other * (1.0 - SLACK));
    nowhere_worse && somewhere_better
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &'static str, replica_minutes: f64, p90: f64) -> Row {
        Row {
            policy,
            replica_minutes,
            replica_minutes_range: (0.0, 0.0),
            beyond_need: None,
            within_slo_per_minute: None,
            wall: None,
            p50: None,
            p90: Some(p90),
            p99: Some(p90),
            violations: 1.0,
            violations_range: (0.0, 0.0),
            refused: 0.0,
            changes: 0.0,
            pareto: None,
        }
    }

    #[test]
    fn who_is_beaten_in_everything_is_not_on_the_front() {
        let rows = [
            row("cheap", 100.0, 2.0),
            row("quick", 200.0, 1.0),
            row("beaten", 201.0, 2.0),
            row("as good", 100.2, 2.001),
            row("clairvoyant", 1.0, 0.1),
        ];
        let front: Vec<_> = rows.iter().map(|row| on_front(row, &rows)).collect();
        let expected = [Some(true), Some(true), Some(false), Some(true), None];
        assert_eq!(front, expected);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0, 9.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
    }
}
