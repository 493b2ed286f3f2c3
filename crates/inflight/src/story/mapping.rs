//! Where core types become lines of the journal, and back; nothing else of the story knows both.

use std::time::Duration;

use inflight_core::load::{self, ReplicaRow, ReplicaView};
use inflight_core::scaling::staffing::{Batching, Parts};
use inflight_core::scaling::{
    self, Bounds, ConcurrencyConfig, ConfigError, DownWindow, Held, Hold, Measure, MetricConfig,
    MetricKind, OccupancyConfig, ScalingConfig, StaffingConfig, StepLimit, Tolerance,
};
use inflight_core::{Occupancy, ReplicaId, Slots, Timestamp};
use thiserror::Error;

use super::wire::{self, NotFinite, Number, Term, What};
use crate::ports::{ReplicaChange, TargetEvent};

/// Why a line cannot be what was written.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Unreadable {
    /// A number of requests is not finite or negative.
    #[error("{0} is no number of requests")]
    Occupancy(f64),
    /// A number of replicas is no whole number, 0 to 2^32 - 1.
    #[error("{0} is no number of replicas")]
    Replicas(f64),
    /// A model has no slots.
    #[error("slots is 0, allowed is 1 or more")]
    Slots,
    /// A setting is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

pub(super) fn observation(observation: &load::Observation) -> wire::Observation {
    let replicas = match &observation.replicas {
        ReplicaView::Rows(rows) => wire::Replicas::Rows(
            rows.iter()
                .map(|row| (row.id.0, state(row.state), row.in_flight))
                .collect(),
        ),
        ReplicaView::Ready(ready) => {
            wire::Replicas::Ready(term(ready, |replicas| replicas.as_f64()))
        }
    };
    wire::Observation {
        replicas,
        models: observation.models.iter().map(model).collect(),
        peak_seconds: float(&observation.peak_seconds),
        started: observation
            .started
            .iter()
            .map(|&span| nanos(span))
            .collect(),
        metric: float(&observation.metric),
        filled: float(&observation.filled),
        is_partial: observation.is_partial,
        is_called: observation.is_called,
    }
}

/// Reads a reading back.
///
/// # Errors
/// A number is of no quantity that it stands for.
pub fn observation_of(line: &wire::Observation) -> Result<load::Observation, Unreadable> {
    let replicas = match &line.replicas {
        wire::Replicas::Rows(rows) => {
            let row = |&(id, state, in_flight): &_| ReplicaRow {
                id: ReplicaId(id),
                state: state_of(state),
                in_flight,
            };
            ReplicaView::Rows(rows.iter().map(row).collect())
        }
        wire::Replicas::Ready(ready) => ReplicaView::Ready(term_of(*ready, replicas_of)?),
    };
    let models = line.models.iter().map(model_of);
    Ok(load::Observation {
        replicas,
        models: models.collect::<Result<_, _>>()?,
        peak_seconds: float_of(line.peak_seconds)?,
        started: line
            .started
            .iter()
            .map(|&span| Duration::from_nanos(span))
            .collect(),
        metric: float_of(line.metric)?,
        filled: float_of(line.filled)?,
        is_partial: line.is_partial,
        is_called: line.is_called,
    })
}

fn model(model: &load::ModelLoad) -> wire::Model {
    wire::Model {
        in_flight: level(&model.in_flight),
        executing: level(&model.executing),
        queued: level(&model.queued),
        arrivals: float(&model.arrivals),
        completions: float(&model.completions),
        service_seconds: float(&model.service_seconds),
        in_flight_max: term(&model.in_flight_max, Occupancy::get),
    }
}

fn model_of(line: &wire::Model) -> Result<load::ModelLoad, Unreadable> {
    Ok(load::ModelLoad {
        in_flight: level_of(line.in_flight)?,
        executing: level_of(line.executing)?,
        queued: level_of(line.queued)?,
        arrivals: float_of(line.arrivals)?,
        completions: float_of(line.completions)?,
        service_seconds: float_of(line.service_seconds)?,
        in_flight_max: term_of(line.in_flight_max, occupancy_of)?,
    })
}

fn level(level: &load::Level) -> wire::Level {
    wire::Level {
        now: term(&level.now, Occupancy::get),
        integral: float(&level.integral),
    }
}

fn level_of(line: wire::Level) -> Result<load::Level, Unreadable> {
    Ok(load::Level {
        now: term_of(line.now, occupancy_of)?,
        integral: float_of(line.integral)?,
    })
}

fn float(term: &load::Term<f64>) -> Term {
    self::term(term, |value| value)
}

fn float_of(line: Term) -> Result<load::Term<f64>, Unreadable> {
    term_of(line, Ok)
}

fn term<T: Copy>(term: &load::Term<T>, number_in: impl Fn(T) -> f64) -> Term {
    match *term {
        load::Term::Known {
            value,
            age: Duration::ZERO,
            estimator: load::Estimator::Exact,
        } => Term::Exact(number(number_in(value))),
        load::Term::Known {
            value,
            age,
            estimator,
        } => Term::Known {
            value: number(number_in(value)),
            age: nanos(age),
            by: match estimator {
                load::Estimator::Exact => wire::Estimator::Exact,
                load::Estimator::LiveGauge => wire::Estimator::LiveGauge,
                load::Estimator::CompletionCounter => wire::Estimator::CompletionCounter,
                load::Estimator::Query => wire::Estimator::Query,
            },
        },
        load::Term::Unknown(missing) => {
            let (missing, age) = missing_to(missing);
            let value = ();
            Term::Unknown {
                value,
                missing,
                age,
            }
        }
    }
}

fn term_of<T: Copy>(
    line: Term,
    value_of: impl Fn(f64) -> Result<T, Unreadable>,
) -> Result<load::Term<T>, Unreadable> {
    Ok(match line {
        Term::Exact(value) => load::Term::exact(value_of(number_of(value))?),
        Term::Known { value, age, by } => load::Term::Known {
            value: value_of(number_of(value))?,
            age: Duration::from_nanos(age),
            estimator: match by {
                wire::Estimator::Exact => load::Estimator::Exact,
                wire::Estimator::LiveGauge => load::Estimator::LiveGauge,
                wire::Estimator::CompletionCounter => load::Estimator::CompletionCounter,
                wire::Estimator::Query => load::Estimator::Query,
            },
        },
        Term::Unknown { missing, age, .. } => load::Term::Unknown(missing_of(missing, age)),
    })
}

/// Writes why a value is unknown, with the age of one that is stale.
pub(super) fn missing_to(missing: load::Missing) -> (wire::Missing, Option<u64>) {
    match missing {
        load::Missing::NotOffered => (wire::Missing::NotOffered, None),
        load::Missing::NeverRead => (wire::Missing::NeverRead, None),
        load::Missing::Stale { age } => (wire::Missing::Stale, Some(nanos(age))),
        load::Missing::NotANumber => (wire::Missing::NotANumber, None),
        load::Missing::NoRow => (wire::Missing::NoRow, None),
        load::Missing::SeveralRows => (wire::Missing::SeveralRows, None),
    }
}

pub(super) fn missing_of(missing: wire::Missing, age: Option<u64>) -> load::Missing {
    match missing {
        wire::Missing::NotOffered => load::Missing::NotOffered,
        wire::Missing::NeverRead => load::Missing::NeverRead,
        wire::Missing::Stale => load::Missing::Stale {
            age: Duration::from_nanos(age.unwrap_or_default()),
        },
        wire::Missing::NotANumber => load::Missing::NotANumber,
        wire::Missing::NoRow => load::Missing::NoRow,
        wire::Missing::SeveralRows => load::Missing::SeveralRows,
    }
}

fn occupancy_of(value: f64) -> Result<Occupancy, Unreadable> {
    Occupancy::new(value).ok_or(Unreadable::Occupancy(value))
}

fn replicas_of(value: f64) -> Result<inflight_core::Replicas, Unreadable> {
    let replicas = inflight_core::Replicas::ceil(value);
    if replicas.as_f64().to_bits() == value.to_bits() {
        Ok(replicas)
    } else {
        Err(Unreadable::Replicas(value))
    }
}

fn number(value: f64) -> Number {
    if value.is_finite() {
        Number::Finite(value)
    } else if value.is_nan() {
        Number::Other(NotFinite::Nan)
    } else if value > 0.0 {
        Number::Other(NotFinite::Infinite)
    } else {
        Number::Other(NotFinite::NegativeInfinite)
    }
}

fn number_of(line: Number) -> f64 {
    match line {
        Number::Finite(value) => value,
        Number::Other(NotFinite::Nan) => f64::NAN,
        Number::Other(NotFinite::Infinite) => f64::INFINITY,
        Number::Other(NotFinite::NegativeInfinite) => f64::NEG_INFINITY,
    }
}

/// 2^64 ns are 584 years; longer spans are that long.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn state(state: load::ReplicaState) -> wire::ReplicaState {
    match state {
        load::ReplicaState::Starting => wire::ReplicaState::Starting,
        load::ReplicaState::Ready => wire::ReplicaState::Ready,
        load::ReplicaState::Draining => wire::ReplicaState::Draining,
        load::ReplicaState::Unhealthy => wire::ReplicaState::Unhealthy,
    }
}

fn state_of(line: wire::ReplicaState) -> load::ReplicaState {
    match line {
        wire::ReplicaState::Starting => load::ReplicaState::Starting,
        wire::ReplicaState::Ready => load::ReplicaState::Ready,
        wire::ReplicaState::Draining => load::ReplicaState::Draining,
        wire::ReplicaState::Unhealthy => load::ReplicaState::Unhealthy,
    }
}

/// Writes a decision; it is compared as it is written, never read back.
#[must_use]
pub fn decision(decision: &inflight_core::Decision) -> wire::Decision {
    let inputs = decision.inputs.iter();
    wire::Decision {
        current: decision.current.get(),
        wanted: decision.wanted.map(inflight_core::Replicas::get),
        desired: decision.desired.get(),
        drain: decision.drain.iter().map(|replica| replica.0).collect(),
        at_max: decision.at_max,
        inputs: inputs
            .map(|input| (input.name.to_owned(), input.value.map(number)))
            .collect(),
        reason: decision.reason.to_string(),
    }
}

pub(super) fn replica(event: &TargetEvent) -> What {
    let (why, unexpected) = match &event.change {
        ReplicaChange::Gone { why, unexpected } => (Some(why.clone()), *unexpected),
        ReplicaChange::Unhealthy { why } => (Some(why.clone()), false),
        ReplicaChange::Starting
        | ReplicaChange::Ready { .. }
        | ReplicaChange::GivenUp
        | ReplicaChange::Draining => (None, false),
    };
    What::Replica {
        replica: event.replica.0,
        index: event.index,
        state: event.change.name().to_owned(),
        why,
        unexpected,
    }
}

pub(super) fn held(held: Held) -> What {
    What::Hold {
        replicas: match held.hold {
            Hold::Pause => None,
            Hold::Size(size) => Some(size.get()),
        },
        until: held.until.as_nanos(),
    }
}

/// Reads a hold back.
#[must_use]
pub fn hold_of(replicas: Option<u32>, until: u64) -> Held {
    let size = |size| Hold::Size(inflight_core::Replicas::new(size));
    Held {
        hold: replicas.map_or(Hold::Pause, size),
        until: Timestamp::from_nanos(until),
    }
}

pub(super) fn config(config: &ScalingConfig) -> wire::Config {
    wire::Config {
        policy: policy(&config.policy),
        min: config.bounds.min().get(),
        max: config.bounds.max().get(),
        down_window: match config.down_window {
            DownWindow::Auto => None,
            DownWindow::Fixed(window) => Some(nanos(window)),
        },
        tolerance: config.tolerance.get(),
        step_up: step(config.step_up),
        step_down: step(config.step_down),
        idle_grace: nanos(config.idle_grace),
        unknown_hold: nanos(config.unknown_hold),
        unknown_fallback: config.unknown_fallback.map(inflight_core::Replicas::get),
        is_sized_elsewhere: config.is_sized_elsewhere,
        freshness: nanos(config.freshness),
        slots: config.slots.iter().map(|slots| slots.get()).collect(),
    }
}

/// Reads a configuration back.
///
/// # Errors
/// A setting is outside its range.
pub fn config_of(line: &wire::Config) -> Result<ScalingConfig, Unreadable> {
    let slots = line.slots.iter().map(|&slots| Slots::new(slots));
    let replicas = inflight_core::Replicas::new;
    Ok(ScalingConfig {
        policy: policy_of(&line.policy)?,
        bounds: Bounds::new(replicas(line.min), replicas(line.max))?,
        down_window: line.down_window.map_or(DownWindow::Auto, |window| {
            DownWindow::Fixed(Duration::from_nanos(window))
        }),
        tolerance: Tolerance::new(line.tolerance)?,
        step_up: step_of(line.step_up),
        step_down: step_of(line.step_down),
        idle_grace: Duration::from_nanos(line.idle_grace),
        unknown_hold: Duration::from_nanos(line.unknown_hold),
        unknown_fallback: line.unknown_fallback.map(replicas),
        is_sized_elsewhere: line.is_sized_elsewhere,
        freshness: Duration::from_nanos(line.freshness),
        slots: slots.collect::<Option<_>>().ok_or(Unreadable::Slots)?,
    })
}

fn step(limit: StepLimit) -> Option<wire::Step> {
    match limit {
        StepLimit::Unlimited => None,
        StepLimit::Limited { replicas, every } => Some(wire::Step {
            replicas: replicas.get(),
            every: nanos(every),
        }),
    }
}

fn step_of(line: Option<wire::Step>) -> StepLimit {
    line.map_or(StepLimit::Unlimited, |step| StepLimit::Limited {
        replicas: inflight_core::Replicas::new(step.replicas),
        every: Duration::from_nanos(step.every),
    })
}

fn policy(policy: &scaling::Policy) -> wire::Policy {
    match policy {
        scaling::Policy::Staffing(config) => wire::Policy::Staffing {
            margin: config.margin(),
            down_factor: config.down_factor(),
            utilization_ceiling: config.utilization_ceiling(),
            batching: config
                .batching()
                .iter()
                .map(|batching| batching.map(|batching| batching.terms()))
                .collect(),
            backlog: config.parts.backlog,
            trend: config.parts.trend,
            closed_loop: config.parts.closed_loop,
            cap: config.parts.cap,
            returns: config.parts.returns,
        },
        scaling::Policy::Occupancy(config) => wire::Policy::Occupancy {
            threshold: config.threshold(),
            window: nanos(config.window()),
            filled_target: config.filled_target(),
        },
        scaling::Policy::Concurrency(config) => wire::Policy::Concurrency {
            utilization: config.utilization(),
            peak: config.measure() == Measure::Peak,
            stable_window: nanos(config.stable_window()),
            burst_window: nanos(config.burst_window()),
            burst_threshold: config.burst_threshold(),
        },
        scaling::Policy::Metric(config) => wire::Policy::Metric {
            target: config.target(),
            value: config.kind() == MetricKind::Value,
        },
    }
}

fn policy_of(line: &wire::Policy) -> Result<scaling::Policy, Unreadable> {
    Ok(match line {
        wire::Policy::Staffing {
            margin,
            down_factor,
            utilization_ceiling,
            batching,
            backlog,
            trend,
            closed_loop,
            cap,
            returns,
        } => {
            let batching = batching.iter().map(|batching| {
                batching
                    .map(|(batch, each, largest)| Batching::new(batch, each, largest))
                    .transpose()
            });
            let mut config = StaffingConfig::balanced()
                .with_margin(*margin)?
                .with_utilization_ceiling(*utilization_ceiling)?
                .with_down_factor(*down_factor)
                .with_batching(batching.collect::<Result<_, _>>()?);
            config.parts = Parts {
                backlog: *backlog,
                trend: *trend,
                closed_loop: *closed_loop,
                cap: *cap,
                returns: *returns,
            };
            scaling::Policy::Staffing(config)
        }
        wire::Policy::Occupancy {
            threshold,
            window,
            filled_target,
        } => scaling::Policy::Occupancy({
            let config = OccupancyConfig::new(*threshold, Duration::from_nanos(*window))?;
            match filled_target {
                Some(target) => config.with_filled_target(*target)?,
                None => config,
            }
        }),
        wire::Policy::Concurrency {
            utilization,
            peak,
            stable_window,
            burst_window,
            burst_threshold,
        } => {
            let measure = if *peak { Measure::Peak } else { Measure::Mean };
            let span = Duration::from_nanos;
            let (stable, burst) = (span(*stable_window), span(*burst_window));
            let config = ConcurrencyConfig::new(*utilization, measure, stable, burst)?;
            scaling::Policy::Concurrency(config.with_burst_threshold(*burst_threshold)?)
        }
        wire::Policy::Metric { target, value } => {
            let kind = if *value {
                MetricKind::Value
            } else {
                MetricKind::AverageValue
            };
            scaling::Policy::Metric(MetricConfig::new(*target, kind)?)
        }
    })
}

#[cfg(test)]
mod tests;
