//! Loads as a scenario's file writes them.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::at;
use super::values::{Count, Positive, Rate, Share, Span};
use crate::scenario::error::ScenarioError;
use crate::scenario::loads::{Alternating, Closed, Job, Load, OpenLoad, Point, Rates, TraceRow};
use crate::scenario::trace::{TraceColumns, read_trace};

/// The most jobs × streams: what a run keeps in memory.
const STREAMS_MAX: u32 = 1_000_000;

/// The most pieces of a rate, for the same reason.
const PIECES_MAX: f64 = 1e6;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum RawLoad {
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
pub(super) struct RawPoint {
    at: Spanned<Span>,
    rate: Rate,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAlternating {
    rate: Rate,
    span: Spanned<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawClosed {
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

fn one() -> Count {
    Count(1)
}

/// What the rows of a load may refer to.
pub(super) struct Context<'a> {
    pub(super) names: Vec<String>,
    pub(super) duration: f64,
    pub(super) file: &'a dyn Fn(&str) -> Result<String, String>,
}

/// Checks a load.
pub(super) fn load(raw: RawLoad, context: &Context<'_>) -> Result<Load, ScenarioError> {
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
            let (low, high) = (alternating(&low, context)?, alternating(&high, context)?);
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
                period: context.piece(&period, "period")?,
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
                every: context.piece(&every, "every")?,
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
            let row = TraceRow {
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
    if streams == 0 || streams > STREAMS_MAX {
        let what = format!("jobs × streams is {streams}, allowed is 1 to {STREAMS_MAX}");
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

fn alternating(raw: &RawAlternating, context: &Context<'_>) -> Result<Alternating, ScenarioError> {
    Ok(Alternating {
        rate: raw.rate.0,
        span: context.piece(&raw.span, "span")?,
    })
}

impl Context<'_> {
    /// Checks how long a piece of a rate is: the pieces of a run must fit into memory.
    fn piece(&self, raw: &Spanned<Span>, key: &str) -> Result<f64, ScenarioError> {
        let least = self.duration / PIECES_MAX;
        if raw.value.0 < least {
            let what = format!("{key} is {} s, allowed is {least} s or more", raw.value.0);
            return Err(at(raw, what));
        }
        Ok(raw.value.0)
    }

    fn model(&self, name: Option<Spanned<String>>) -> Result<Option<usize>, ScenarioError> {
        let Some(name) = name else { return Ok(None) };
        let found = self.names.iter().position(|known| *known == name.value);
        let known = self.names.join(", ");
        let what = || format!("there is no model `{}`, allowed is {known}", name.value);
        found.map(Some).ok_or_else(|| at(&name, what()))
    }
}
