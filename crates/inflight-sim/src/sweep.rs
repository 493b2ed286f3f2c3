//! Settings to choose from: the core's policies with their thresholds, at several maxima; and which
//! of them to take.
//!
//! Runs are made by the caller, on as many processors and for as long as it likes.

use std::fmt;
use std::time::Duration;

use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, ConfigError, Measure, OccupancyConfig, Policy, ScalingConfig,
    StaffingConfig,
};
use inflight_core::{Replicas, Slots};
use serde::Serialize;

use crate::control::Control;
use crate::observer::Style;
use crate::outcome::Outcome;
use crate::policy::{batching, core, scaling};
use crate::report::{is_better_than, median};
use crate::scenario::Scenario;
use crate::units::{replicas_ceil, seconds};

/// Policies and thresholds that are tried; around the defaults, as far as they are of use.
pub const RULES: [Rule; 13] = [
    Rule::Staffing { is_latency: false },
    Rule::Staffing { is_latency: true },
    Rule::Occupancy { threshold: 1.25 },
    Rule::Occupancy { threshold: 1.5 },
    Rule::Occupancy { threshold: 2.0 },
    Rule::Occupancy { threshold: 3.0 },
    Rule::Occupancy { threshold: 4.0 },
    Rule::Concurrency { utilization: 0.5 },
    Rule::Concurrency { utilization: 0.6 },
    Rule::Concurrency { utilization: 0.7 },
    Rule::Concurrency { utilization: 0.8 },
    Rule::Concurrency { utilization: 0.9 },
    Rule::Concurrency { utilization: 1.0 },
];

/// Maxima that are tried, as shares of the present one.
const MAXIMA: [f64; 4] = [0.5, 0.75, 1.0, 1.5];

/// How many more percent of violations are as good: about what seeds differ by.
const AS_GOOD_VIOLATIONS: f64 = 0.5;
/// How much longer a p99 is as good, as a share.
const AS_GOOD_P99: f64 = 1.05;

/// A policy with its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// `staffing` by its profile.
    Staffing {
        /// `latency` or `balanced`.
        is_latency: bool,
    },
    /// `occupancy` over 60 s.
    Occupancy {
        /// Its threshold.
        threshold: f64,
    },
    /// `concurrency` over 60 s.
    Concurrency {
        /// Its share of the slots.
        utilization: f64,
    },
}

/// A rule at a maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The rule.
    pub rule: Rule,
    /// The largest size.
    pub max: u32,
}

/// What came of a setting: medians over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Replicas × minutes.
    pub replica_minutes: f64,
    /// Ninety-nine in a hundred requests took no longer. *Units*: seconds.
    pub p99: Option<f64>,
    /// Percent of the requests that waited too long, were refused or failed.
    pub violations: f64,
}

impl Rule {
    fn policy(self, scenario: &Scenario) -> Result<Policy, ConfigError> {
        const WINDOW: Duration = Duration::from_secs(60);
        Ok(match self {
            Self::Staffing { is_latency } => {
                let config = if is_latency {
                    StaffingConfig::latency()
                } else {
                    StaffingConfig::balanced()
                };
                Policy::Staffing(batching(scenario, config)?)
            }
            Self::Occupancy { threshold } => {
                Policy::Occupancy(OccupancyConfig::new(threshold, WINDOW)?)
            }
            Self::Concurrency { utilization } => {
                let burst = WINDOW / 10;
                let config = ConcurrencyConfig::new(utilization, Measure::Mean, WINDOW, burst);
                Policy::Concurrency(config?)
            }
        })
    }
}

impl Setting {
    /// Builds what sizes a run. All but the policy and the maximum is as in `base`.
    ///
    /// # Errors
    ///
    /// A setting is impossible.
    pub fn control(
        &self,
        scenario: &Scenario,
        base: Option<&ScalingConfig>,
    ) -> Result<Control, ConfigError> {
        let policy = self.rule.policy(scenario)?;
        let config = match base {
            Some(base) => ScalingConfig {
                policy,
                ..base.clone()
            },
            None => scaling(scenario, policy)?,
        };
        let max = Replicas::new(self.max);
        let bounds = Bounds::new(config.bounds.min().min(max), max)?;
        Ok(sized(scenario, ScalingConfig { bounds, ..config }))
    }
}

/// Puts a configuration before a scenario's fleet, whose models and slots are the scenario's.
#[must_use]
pub fn sized(scenario: &Scenario, config: ScalingConfig) -> Control {
    let slots: Vec<Slots> = scenario.models.iter().map(|model| model.slots).collect();
    core(scenario, ScalingConfig { slots, ..config }, Style::Exact)
}

/// Returns the maxima to try of a rule that asked for `peak` replicas when nothing bound it: those
/// that bind it, and the smallest that does not.
#[must_use]
pub fn maxima(present: u32, min: u32, peak: u32) -> Vec<u32> {
    let mut maxima: Vec<u32> = MAXIMA
        .iter()
        .map(|share| replicas_ceil(share * f64::from(present)).max(min).max(1))
        .collect();
    maxima.dedup();
    let binding = maxima.iter().filter(|max| **max < peak).count();
    maxima.truncate(binding + 1);
    maxima
}

/// Returns the largest maximum that is tried.
#[must_use]
pub fn largest(present: u32, min: u32) -> u32 {
    maxima(present, min, u32::MAX).last().copied().unwrap_or(1)
}

/// Returns the largest size that was asked for in a run.
#[must_use]
pub fn peak(outcome: &Outcome) -> u32 {
    let sizes = outcome.sizes.iter().map(|size| size.desired);
    sizes.max().unwrap_or(0)
}

impl Figures {
    /// Returns the medians of runs; `None` of none.
    #[must_use]
    pub fn of(outcomes: &[Outcome]) -> Option<Self> {
        let median_of = |of: &dyn Fn(&Outcome) -> Option<f64>| {
            let mut values: Vec<f64> = outcomes.iter().filter_map(of).collect();
            values.sort_by(f64::total_cmp);
            median(&values)
        };
        Some(Self {
            replica_minutes: median_of(&|outcome| Some(outcome.replica_seconds / 60.0))?,
            p99: median_of(&|outcome| outcome.sojourn.quantile(990).map(seconds)),
            violations: median_of(&|outcome| Some(100.0 * outcome.violation_share()))?,
        })
    }

    fn all(&self) -> [f64; 3] {
        let p99 = self.p99.unwrap_or(f64::INFINITY);
        [self.replica_minutes, p99, self.violations]
    }

    /// Tells whether others serve as well as these, to within noise.
    fn is_as_good_as(&self, other: &Self) -> bool {
        let p99 = |figures: &Self| figures.p99.unwrap_or(f64::INFINITY);
        self.violations <= other.violations + AS_GOOD_VIOLATIONS
            && p99(self) <= p99(other) * AS_GOOD_P99
    }
}

/// Tells of each whether no other is better in replica-minutes, p99 and violations together.
#[must_use]
pub fn front(all: &[Figures]) -> Vec<bool> {
    let is_on = |one: &Figures| {
        let mut others = all.iter();
        !others.any(|other| is_better_than(other.all(), one.all()))
    };
    all.iter().map(is_on).collect()
}

/// Which setting to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// This one serves as well as the present setting and costs less.
    Cheaper(usize),
    /// This one costs no more than the present setting and serves better.
    Better(usize),
    /// The present setting.
    Keep,
    /// There is no present setting: this is the cheapest of those that serve about as well as any.
    Cheapest(usize),
}

/// Advises on the settings with these figures; `None` without any.
#[must_use]
pub fn advise(all: &[Figures], present: Option<&Figures>) -> Option<Advice> {
    let cheapest = |is_good: &dyn Fn(&Figures) -> bool| {
        let good = all
            .iter()
            .enumerate()
            .filter(|(_, figures)| is_good(figures));
        good.min_by(|(_, one), (_, other)| one.replica_minutes.total_cmp(&other.replica_minutes))
            .map(|(place, _)| place)
    };
    let Some(present) = present else {
        let least = all.iter().map(|figures| figures.violations);
        let least = least.fold(f64::INFINITY, f64::min);
        let good = |figures: &Figures| figures.violations <= least + 2.0 * AS_GOOD_VIOLATIONS;
        return cheapest(&good).map(Advice::Cheapest);
    };
    let costs = |figures: &Figures| figures.replica_minutes;
    let cheaper = cheapest(&|figures| {
        figures.is_as_good_as(present) && costs(figures) < 0.98 * costs(present)
    });
    let no_dearer = all
        .iter()
        .enumerate()
        .filter(|(_, figures)| costs(figures) <= costs(present));
    let better = no_dearer
        .filter(|(_, figures)| figures.violations < present.violations - AS_GOOD_VIOLATIONS)
        .min_by(|(_, one), (_, other)| one.violations.total_cmp(&other.violations));
    let better = better.map(|(place, _)| Advice::Better(place));
    Some(
        cheaper
            .map(Advice::Cheaper)
            .or(better)
            .unwrap_or(Advice::Keep),
    )
}

impl fmt::Display for Rule {
    /// As the configuration writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Staffing { is_latency: false } => f.write_str("policy: staffing"),
            Self::Staffing { is_latency: true } => {
                f.write_str("policy: staffing, profile: latency")
            }
            Self::Occupancy { threshold } => write!(f, "policy: occupancy, threshold: {threshold}"),
            Self::Concurrency { utilization } => {
                write!(f, "policy: concurrency, utilization: {utilization}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(replica_minutes: f64, p99: f64, violations: f64) -> Figures {
        Figures {
            replica_minutes,
            p99: Some(p99),
            violations,
        }
    }

    #[test]
    fn maxima_that_would_never_bind_are_tried_once() {
        assert_eq!(maxima(20, 1, u32::MAX), [10, 15, 20, 30]);
        assert_eq!(maxima(20, 1, 13), [10, 15]);
        assert_eq!(maxima(20, 1, 10), [10]);
        assert_eq!(maxima(1, 1, u32::MAX), [1, 2]);
        assert_eq!(maxima(4, 3, u32::MAX), [3, 4, 6]);
        assert_eq!(largest(20, 1), 30);
    }

    #[test]
    fn what_is_beaten_in_all_three_is_not_on_the_front() {
        let all = [
            figures(100.0, 1.0, 1.0),
            figures(90.0, 2.0, 2.0),
            figures(101.0, 2.0, 1.5),
        ];
        assert_eq!(front(&all), [true, true, false]);
    }

    #[test]
    fn the_advice_is_what_is_cheaper_and_as_good_or_else_what_is_better_and_no_dearer() {
        let all = [
            figures(100.0, 1.0, 1.0),
            figures(60.0, 3.0, 9.0),
            figures(80.0, 1.0, 1.2),
        ];
        let advice = |present: &Figures| advise(&all, Some(present)).unwrap();
        assert_eq!(advice(&figures(120.0, 1.0, 1.0)), Advice::Cheaper(2));
        assert_eq!(advice(&figures(79.0, 1.0, 1.0)), Advice::Keep);
        assert_eq!(advice(&figures(81.0, 0.5, 5.0)), Advice::Better(2));
        assert_eq!(advise(&all, None), Some(Advice::Cheapest(2)));
        assert_eq!(advise(&[], None), None);
    }
}
