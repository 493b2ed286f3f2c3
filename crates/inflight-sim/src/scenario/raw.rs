//! A scenario as its file writes it, and the way from there to checked values.
//!
//! Strict: an unknown key, a bad unit or an impossible value is an error with its line.

mod loads;
mod values;

use inflight_core::Slots;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::error::ScenarioError;
use super::faults::{FleetFault, FleetFaultAt, ReadingFault, ReadingFaultFrom};
use super::{Binding, Fleet, Model, Scenario, Service, Speed, Start};
use crate::law::Law;

use self::loads::{Context, RawLoad, load};
use self::values::{Count, Positive, Share, Span};

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

#[cfg(test)]
mod tests;
