//! A scenario as its file writes it, and the way from there to checked values.
//!
//! Strict: an unknown key, a bad unit or an impossible value is an error with its line.

mod values;

use inflight_core::Slots;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::error::ScenarioError;
use super::faults::{FleetFault, FleetFaultAt, ReadingFault, ReadingFaultFrom};
use super::loads::{Alternating, Closed, Job, Load, OpenLoad, Point, Rates};
use super::trace::{TraceColumns, read_trace};
use super::{Binding, Fleet, Model, Scenario, Service, Speed, Start};
use crate::law::Law;

use self::values::{Count, Positive, Rate, Share, Span};

/// The most replicas, jobs × streams and pieces of a rate: what a run keeps in memory.
const COUNT_MAX: u32 = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: String,
    about: String,
    duration: Span,
    fleet: RawFleet,
    models: Spanned<Vec<RawModel>>,
    load: Spanned<Vec<RawLoad>>,
    #[serde(default)]
    faults: Vec<RawFault>,
    #[serde(default)]
    readings: Vec<RawReadingFault>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFleet {
    replicas: Spanned<RawReplicas>,
    start: RawStart,
    #[serde(default)]
    speed: RawSpeed,
    #[serde(default)]
    binding: RawBinding,
    #[serde(default)]
    wire: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReplicas {
    start: Count,
    min: Count,
    max: Count,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStart {
    delay: Span,
    #[serde(default)]
    spread: Share,
    #[serde(default)]
    never: Share,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawSpeed {
    slow_share: Share,
    slow: Option<Positive>,
    warm_up: Option<Span>,
    warming: Option<Positive>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RawBinding {
    LeastOfTwo {
        queue: Count,
    },
    LeastRequest {
        queue: Count,
    },
    Late {
        queue: Count,
        wait: Span,
        cold_wait: Span,
        #[serde(default)]
        admission: Option<Positive>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    name: String,
    slots: Spanned<u32>,
    service: RawService,
    slo: Span,
    #[serde(default = "whole")]
    share: Positive,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RawService {
    Constant(Span),
    Exponential(Span),
    Lognormal {
        mean: Span,
        sigma: Positive,
    },
    Bimodal {
        short: Span,
        long: Span,
        long_share: Share,
    },
    Batches {
        batch: Span,
        each: Span,
        largest: Spanned<u32>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RawLoad {
    Steps {
        points: Spanned<Vec<RawPoint>>,
        #[serde(default)]
        model: Option<Spanned<String>>,
    },
    Ramp {
        points: Spanned<Vec<RawPoint>>,
        #[serde(default)]
        model: Option<Spanned<String>>,
    },
    Alternating {
        low: RawAlternating,
        high: RawAlternating,
        #[serde(default)]
        random: bool,
        #[serde(default)]
        model: Option<Spanned<String>>,
    },
    Sine {
        mean: Rate,
        swing: Share,
        period: Spanned<Span>,
    },
    Walk {
        every: Spanned<Span>,
        median: Rate,
        max: Rate,
        keep: Share,
        noise: Positive,
        spike_share: Share,
        spike: Positive,
    },
    Closed(RawClosed),
    Burst {
        at: Span,
        requests: Count,
    },
    Trace {
        file: String,
        columns: TraceColumns,
        #[serde(default)]
        model: Option<Spanned<String>>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPoint {
    at: Spanned<Span>,
    rate: Rate,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAlternating {
    rate: Rate,
    span: Spanned<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClosed {
    #[serde(default)]
    at: Span,
    jobs: Count,
    #[serde(default)]
    every: Span,
    #[serde(default = "one")]
    streams: Count,
    #[serde(default)]
    requests: Option<u64>,
    #[serde(default)]
    think: Span,
    #[serde(default)]
    until: Option<Span>,
    #[serde(default)]
    model: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFault {
    at: Span,
    what: RawFleetFault,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RawFleetFault {
    Crash {
        replicas: Count,
    },
    Unhealthy {
        replicas: Count,
        span: Span,
    },
    Slow {
        replicas: Count,
        span: Span,
        factor: Positive,
    },
    NeverReady {
        span: Span,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReadingFault {
    from: Span,
    span: Span,
    what: RawReading,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum RawReading {
    Delay { by: Span },
    Drop,
    Freeze,
    Corrupt,
}

fn whole() -> Positive {
    Positive(1.0)
}

fn one() -> Count {
    Count(1)
}

impl Default for RawBinding {
    /// That of the policy tables.
    fn default() -> Self {
        Self::LeastOfTwo {
            queue: Count(20_000),
        }
    }
}

/// Reads a scenario; `file` gives the text of a trace that it names.
///
/// # Errors
///
/// The text is no scenario, or a trace that it names is wrong or cannot be read.
pub fn parse(
    text: &str,
    file: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Scenario, ScenarioError> {
    let raw: RawScenario = read(text)?;
    let names: Vec<String> = raw.models.value.iter().map(|m| m.name.clone()).collect();
    if names.is_empty() {
        return Err(at(
            &raw.models,
            "models has no row, allowed is one at least",
        ));
    }
    if raw.load.value.is_empty() {
        return Err(at(&raw.load, "load has no row, allowed is one at least"));
    }
    let duration = raw.duration.0;
    if duration <= 0.0 {
        let what = "duration is 0, allowed is more".to_owned();
        return Err(ScenarioError::Whole { what });
    }
    let models = raw.models.value.into_iter().map(model);
    let context = Context {
        names,
        duration,
        file,
    };
    let loads = raw.load.value.into_iter().map(|raw| load(raw, &context));
    Ok(Scenario {
        name: raw.name,
        about: raw.about,
        duration,
        fleet: fleet(raw.fleet)?,
        models: models.collect::<Result<_, _>>()?,
        loads: loads.collect::<Result<_, _>>()?,
        faults: raw.faults.into_iter().map(fault).collect(),
        readings: raw.readings.into_iter().map(reading_fault).collect(),
    })
}

/// What the rows of a load may refer to.
struct Context<'a> {
    names: Vec<String>,
    duration: f64,
    file: &'a dyn Fn(&str) -> Result<String, String>,
}

fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, ScenarioError> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error
            .location()
            .map_or(0, |location| line_number(location.line()));
        let what = error.without_snippet().to_string();
        let what = what.lines().next().unwrap_or("is no scenario");
        // The library says the place at the end again.
        let what = what.split(" at line ").next().unwrap_or(what).to_owned();
        ScenarioError::Scenario { line, what }
    })
}

fn line_number<N>(line: N) -> u64
where
    u64: TryFrom<N>,
{
    u64::try_from(line).unwrap_or(0)
}

fn at<T>(spanned: &Spanned<T>, what: impl Into<String>) -> ScenarioError {
    ScenarioError::Scenario {
        line: line_number(spanned.referenced.line()),
        what: what.into(),
    }
}

fn fleet(raw: RawFleet) -> Result<Fleet, ScenarioError> {
    let RawReplicas { start, min, max } = &raw.replicas.value;
    if !(1..=10_000).contains(&max.0) {
        let what = format!("replicas.max is {}, allowed is 1 to 10000", max.0);
        return Err(at(&raw.replicas, what));
    }
    if min.0 > max.0 || start.0 > max.0 {
        let what = format!(
            "replicas.min is {} and replicas.start {}, allowed is 0 to replicas.max, which is {}",
            min.0, start.0, max.0
        );
        return Err(at(&raw.replicas, what));
    }
    let share = |value: Option<Positive>| value.map_or(1.0, |value| value.0);
    Ok(Fleet {
        replicas_start: start.0,
        replicas_min: min.0,
        replicas_max: max.0,
        start: Start {
            delay: raw.start.delay.0,
            spread: raw.start.spread.0,
            never: raw.start.never.0,
        },
        speed: Speed {
            slow_share: raw.speed.slow_share.0,
            slow: share(raw.speed.slow),
            warm_up: raw.speed.warm_up.map_or(0.0, |span| span.0),
            warming: share(raw.speed.warming),
        },
        binding: binding(raw.binding),
        wire: raw.wire.map(|Span(mean)| Law::TwoHalves { mean }),
    })
}

fn binding(raw: RawBinding) -> Binding {
    match raw {
        RawBinding::LeastOfTwo { queue } => Binding::LeastOfTwo { queue: queue.0 },
        RawBinding::LeastRequest { queue } => Binding::LeastRequest { queue: queue.0 },
        RawBinding::Late {
            queue,
            wait,
            cold_wait,
            admission,
        } => Binding::Late {
            queue: queue.0,
            wait: wait.0,
            cold_wait: cold_wait.0,
            admission: admission.map(|threshold| threshold.0),
        },
    }
}

fn model(raw: RawModel) -> Result<Model, ScenarioError> {
    let slots = Slots::new(raw.slots.value);
    Ok(Model {
        name: raw.name,
        slots: slots.ok_or_else(|| at(&raw.slots, "slots is 0, allowed is 1 at least"))?,
        service: service(raw.service)?,
        slo: raw.slo.0,
        share: raw.share.0,
    })
}

fn service(raw: RawService) -> Result<Service, ScenarioError> {
    Ok(match raw {
        RawService::Constant(Span(mean)) => Service::Each(Law::Constant { mean }),
        RawService::Exponential(Span(mean)) => Service::Each(Law::Exponential { mean }),
        RawService::Lognormal { mean, sigma } => Service::Each(Law::Lognormal {
            mean: mean.0,
            sigma: sigma.0,
        }),
        RawService::Bimodal {
            short,
            long,
            long_share,
        } => Service::Each(Law::Bimodal {
            short: short.0,
            long: long.0,
            long_share: long_share.0,
        }),
        RawService::Batches {
            batch,
            each,
            largest,
        } => {
            if largest.value == 0 {
                return Err(at(&largest, "largest is 0, allowed is 1 at least"));
            }
            Service::Batches {
                batch: batch.0,
                each: each.0,
                largest: largest.value,
            }
        }
    })
}

fn load(raw: RawLoad, context: &Context<'_>) -> Result<Load, ScenarioError> {
    let open = |rates, model| Ok(Load::Open(OpenLoad { rates, model }));
    match raw {
        RawLoad::Steps {
            points: list,
            model,
        } => open(Rates::Steps(points(&list)?), context.model(model)?),
        RawLoad::Ramp {
            points: list,
            model,
        } => open(Rates::Ramp(points(&list)?), context.model(model)?),
        RawLoad::Alternating {
            low,
            high,
            random,
            model,
        } => {
            let (low, high) = (alternating(&low)?, alternating(&high)?);
            open(
                Rates::Alternating { low, high, random },
                context.model(model)?,
            )
        }
        RawLoad::Sine {
            mean,
            swing,
            period,
        } => {
            let rates = Rates::Sine {
                mean: mean.0,
                swing: swing.0,
                period: positive(&period, "period")?,
            };
            open(rates, None)
        }
        RawLoad::Walk {
            every,
            median,
            max,
            keep,
            noise,
            spike_share,
            spike,
        } => {
            let rates = Rates::Walk {
                every: positive(&every, "every")?,
                median: median.0,
                max: max.0,
                keep: keep.0,
                noise: noise.0,
                spike_share: spike_share.0,
                spike: spike.0,
            };
            open(rates, None)
        }
        RawLoad::Closed(raw) => closed(raw, context),
        RawLoad::Burst { at, requests } => {
            let row = super::TraceRow {
                at: at.0,
                work: None,
                model: None,
            };
            Ok(Load::Trace(vec![row; requests.0 as usize]))
        }
        RawLoad::Trace {
            file,
            columns,
            model,
        } => {
            let model = context.model(model)?;
            let text = (context.file)(&file).map_err(|what| ScenarioError::Unreadable {
                file: file.clone(),
                what,
            })?;
            Ok(Load::Trace(read_trace(&file, &text, &columns, model)?))
        }
    }
}

fn closed(raw: RawClosed, context: &Context<'_>) -> Result<Load, ScenarioError> {
    let streams = raw.jobs.0.saturating_mul(raw.streams.0);
    if streams == 0 || streams > COUNT_MAX {
        let what = format!("jobs × streams is {streams}, allowed is 1 to {COUNT_MAX}");
        return Err(ScenarioError::Whole { what });
    }
    Ok(Load::Closed(Closed {
        at: raw.at.0,
        jobs: raw.jobs.0,
        every: raw.every.0,
        job: Job {
            streams: raw.streams.0,
            requests: raw.requests,
            think: raw.think.0,
            until: raw.until.map_or(context.duration, |until| until.0),
            model: context.model(raw.model)?,
        },
    }))
}

fn points(raw: &Spanned<Vec<RawPoint>>) -> Result<Vec<Point>, ScenarioError> {
    let mut points: Vec<Point> = Vec::new();
    for point in &raw.value {
        let here = point.at.value.0;
        if points.last().is_some_and(|last| last.at >= here) {
            let what = format!("at is {here} s, allowed is a time after the point before");
            return Err(at(&point.at, what));
        }
        points.push(Point {
            at: here,
            rate: point.rate.0,
        });
    }
    if points.is_empty() {
        return Err(at(raw, "points has no row, allowed is one at least"));
    }
    Ok(points)
}

fn alternating(raw: &RawAlternating) -> Result<Alternating, ScenarioError> {
    Ok(Alternating {
        rate: raw.rate.0,
        span: positive(&raw.span, "span")?,
    })
}

fn positive(raw: &Spanned<Span>, key: &str) -> Result<f64, ScenarioError> {
    // Shorter pieces would be more than a run can keep.
    if raw.value.0 < 0.01 {
        return Err(at(
            raw,
            format!("{key} is {} s, allowed is 0.01 s or more", raw.value.0),
        ));
    }
    Ok(raw.value.0)
}

fn fault(raw: RawFault) -> FleetFaultAt {
    let fault = match raw.what {
        RawFleetFault::Crash { replicas } => FleetFault::Crash {
            replicas: replicas.0,
        },
        RawFleetFault::Unhealthy { replicas, span } => FleetFault::Unhealthy {
            replicas: replicas.0,
            span: span.0,
        },
        RawFleetFault::Slow {
            replicas,
            span,
            factor,
        } => FleetFault::Slow {
            replicas: replicas.0,
            span: span.0,
            factor: factor.0,
        },
        RawFleetFault::NeverReady { span } => FleetFault::NeverReady { span: span.0 },
    };
    FleetFaultAt {
        at: raw.at.0,
        fault,
    }
}

fn reading_fault(raw: RawReadingFault) -> ReadingFaultFrom {
    ReadingFaultFrom {
        from: raw.from.0,
        span: raw.span.0,
        fault: match raw.what {
            RawReading::Delay { by } => ReadingFault::Delay { by: by.0 },
            RawReading::Drop => ReadingFault::Drop,
            RawReading::Freeze => ReadingFault::Freeze,
            RawReading::Corrupt => ReadingFault::Corrupt,
        },
    }
}

impl Context<'_> {
    fn model(&self, name: Option<Spanned<String>>) -> Result<Option<usize>, ScenarioError> {
        let Some(name) = name else { return Ok(None) };
        let found = self.names.iter().position(|known| *known == name.value);
        let known = self.names.join(", ");
        let what = || format!("there is no model `{}`, allowed is {known}", name.value);
        found.map(Some).ok_or_else(|| at(&name, what()))
    }
}

#[cfg(test)]
mod tests;
