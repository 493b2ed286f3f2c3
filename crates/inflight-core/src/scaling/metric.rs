//! The `metric` policy: a number of the user's own, with the arithmetic of a Kubernetes HPA.
//!
//! The number is taken as it is. Source of the arithmetic: Kubernetes,
//! `pkg/controller/podautoscaler/replica_calculator.go`, external metrics.

use std::fmt;

use super::error::{self, ConfigError};
use super::sizing::{Assessment, Finding, Situation, Sizing};
use crate::decision::{Counted, Input};
use crate::units::Replicas;

/// Settings of the `metric` policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricConfig {
    target: f64,
    kind: MetricKind,
}

/// What the number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A total of the fleet, of which each replica takes `target`.
    AverageValue,
    /// A number that shall be `target` at any size: the ready replicas are multiplied by how far
    /// it is off.
    Value,
}

/// What the policy found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricFinding {
    /// The number.
    pub metric: f64,
    /// What it counts.
    pub kind: MetricKind,
    /// Settings: the target.
    pub target: f64,
    /// The size wished for.
    pub want: Replicas,
}

impl MetricConfig {
    /// Builds the settings.
    ///
    /// # Errors
    ///
    /// `target` is not from 0.001 to 10^15; KEDA prints targets with three decimals, so that
    /// smaller ones would become zero.
    pub fn new(target: f64, kind: MetricKind) -> Result<Self, ConfigError> {
        let target = error::number("scaling.target", target, 1e-3, 1e15)?;
        Ok(Self { target, kind })
    }

    /// Returns the target.
    #[must_use]
    pub const fn target(&self) -> f64 {
        self.target
    }

    /// Returns what the number counts.
    #[must_use]
    pub const fn kind(&self) -> MetricKind {
        self.kind
    }

    pub(super) fn assess(&self, situation: &Situation<'_>) -> Assessment {
        let metric = situation.history.metric(situation.now);
        let inputs = vec![Input {
            name: "metric",
            value: metric.ok(),
        }];
        let metric = match metric {
            Ok(metric) => metric,
            Err(unknown) => return Assessment::unknown(inputs, unknown),
        };
        let sizing = match self.kind {
            MetricKind::AverageValue => {
                let ratio = average_value_ratio(metric, self.target, situation.current);
                Sizing::flat(average_value(metric, self.target), ratio)
            }
            MetricKind::Value => match situation.history.ready(situation.now) {
                Ok(ready) => self.value(metric, situation.current, ready),
                Err(unknown) => return Assessment::unknown(inputs, unknown),
            },
        };
        let finding = MetricFinding {
            metric,
            kind: self.kind,
            target: self.target,
            want: sizing.want,
        };
        Assessment {
            inputs,
            finding: Finding::Metric(finding),
            sizing: Some(sizing),
        }
    }

    fn value(&self, metric: f64, current: Replicas, ready: Replicas) -> Sizing {
        let ratio = metric / self.target;
        let from_zero = current == Replicas::ZERO;
        let base = if from_zero { Replicas::ONE } else { ready };
        let flat = Sizing::flat(Replicas::ceil(ratio * base.as_f64()), Some(ratio));
        // Zero ready replicas times anything is zero: no reason to end those that are starting.
        Sizing {
            complete: from_zero || ready > Replicas::ZERO,
            ..flat
        }
    }
}

/// Returns the size for a fleet's total.
#[must_use]
pub fn average_value(total: f64, target: f64) -> Replicas {
    Replicas::ceil(total / target)
}

/// Returns the total by what the present size is for; `None` without a size.
#[must_use]
pub fn average_value_ratio(total: f64, target: f64, current: Replicas) -> Option<f64> {
    (current > Replicas::ZERO).then(|| total / (target * current.as_f64()))
}

impl fmt::Display for MetricFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            metric,
            target,
            want,
            kind,
        } = self;
        match kind {
            MetricKind::AverageValue => {
                write!(
                    f,
                    "the metric is {metric}, with {target} for each {}",
                    Counted(*want)
                )
            }
            MetricKind::Value => {
                write!(
                    f,
                    "the metric is {metric}, to bring it to {target} {}",
                    Counted(*want)
                )
            }
        }
    }
}
