//! A scenario from a journal: the recorded arrivals at their rates, and service times about the
//! recorded mean.
//!
//! What is lost: arrivals are drawn anew at the rate that they had in each span, so that clients
//! that wait for their answers are taken for an open load; service times are taken for exponential,
//! each by itself; times in which nothing was written are left out.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use inflight_core::Slots;
use inflight_sim::Law;
use inflight_sim::scenario::{
    Binding, Fleet, Load, Model, OpenLoad, Point, Rates, Scenario, Service, Speed, Start,
};

use crate::replay::source::{Next, Source};
use crate::story::wire::{Config, Number, Observation, Replicas, Term, What};

/// How finely arrivals are known at first: the time between two readings.
const SPAN_SECONDS: f64 = 2.0;
/// More spans than a day and a half; what is longer is known less finely.
const SPANS_MAX: usize = 65_536;
/// A pause between readings that is longer is one in which nothing was written.
const PAUSE: Duration = Duration::from_secs(60);
/// Starts that are remembered.
const STARTED_MAX: usize = 1_000;
/// What is taken for a replica's start where none was seen, as the core does.
const START_SECONDS: f64 = 10.0;

/// What is gathered of a fleet.
struct Gathered {
    /// How long each span is. *Units*: seconds.
    span: f64,
    /// How far the load reaches. *Units*: seconds.
    end: f64,
    models: Vec<Counted>,
    started: Vec<u64>,
    config: Option<Config>,
    replicas_start: Option<u32>,
    latest: Option<(u64, u64)>,
}

/// What is gathered of a model.
#[derive(Clone, Default)]
struct Counted {
    arrivals: Vec<f64>,
    completions: f64,
    service_seconds: f64,
    /// The latest totals, and how far the load reached then.
    latest: Option<(f64, [f64; 3])>,
}

/// Reads a journal and returns the load of a fleet as a scenario, with the fleet's name. Without a
/// name it is the only one of the journal.
///
/// # Errors
/// The journal cannot be read, is not of such a fleet, or does not say what its load was.
pub(super) fn scenario(
    path: &Path,
    fleet: Option<&str>,
    slo: Option<Duration>,
) -> Result<(Scenario, String)> {
    let mut source = Source::open(path)?;
    let mut gathered = Gathered::new();
    let mut name = fleet.map(str::to_owned);
    loop {
        let next = source.read_on();
        let place = source.place();
        let at = || format!("{}, line {}", place.file, place.line);
        let line = match next.with_context(at)? {
            Some(Next::Line(line, _)) => line,
            Some(Next::Cut | Next::File) => {
                gathered.latest = None;
                continue;
            }
            None => break,
        };
        if let What::Lost { .. } = line.what {
            gathered.latest = None;
        }
        if line.fleet.is_empty() {
            continue;
        }
        let name = name.get_or_insert_with(|| line.fleet.clone());
        if *name == line.fleet {
            gathered.take(line.run, line.at, &line.what);
        } else if fleet.is_none() {
            let other = &line.fleet;
            bail!(
                "{}: it is of {name} and {other}: say which by --fleet",
                at()
            );
        }
    }
    let file = path.display();
    let name = name.ok_or_else(|| anyhow!("{file}: the journal is of no fleet"))?;
    let scenario = gathered.scenario(&name, slo);
    Ok((
        scenario.with_context(|| format!("{file}: fleet {name}"))?,
        name,
    ))
}

impl Gathered {
    fn new() -> Self {
        Self {
            span: SPAN_SECONDS,
            end: 0.0,
            models: Vec::new(),
            started: Vec::new(),
            config: None,
            replicas_start: None,
            latest: None,
        }
    }

    fn take(&mut self, run: u64, at: u64, what: &What) {
        match what {
            What::Start { config, .. } | What::Config { config } | What::State { config, .. } => {
                self.config = Some((**config).clone());
            }
            What::Tick {
                observation,
                decision,
            } => {
                let size = decision.as_ref().map(|decision| decision.current);
                self.replicas_start = self.replicas_start.or(size);
                self.read(run, at, observation);
            }
            What::Hold { .. }
            | What::Release { .. }
            | What::Replica { .. }
            | What::Admission { .. }
            | What::Error { .. }
            | What::Lost { .. } => {}
        }
    }

    fn read(&mut self, run: u64, at: u64, observation: &Observation) {
        if self.started.len() < STARTED_MAX {
            self.started.extend(&observation.started);
        }
        let since = self.latest.filter(|(of, since)| *of == run && *since <= at);
        let passed = since.map(|(_, since)| Duration::from_nanos(at - since));
        let passed = passed.filter(|passed| *passed <= PAUSE);
        self.latest = Some((run, at));
        match passed {
            Some(passed) => self.end += passed.as_secs_f64(),
            // What was counted meanwhile belongs to no time of the load.
            None => self.models.iter_mut().for_each(|model| model.latest = None),
        }
        if self.models.len() < observation.models.len() {
            self.models
                .resize(observation.models.len(), Counted::default());
        }
        while self.end >= self.span * float(SPANS_MAX) {
            self.span *= 2.0;
            self.models.iter_mut().for_each(Counted::halve);
        }
        for (model, read) in self.models.iter_mut().zip(&observation.models) {
            let totals = [read.arrivals, read.completions, read.service_seconds].map(known);
            let [Some(arrivals), Some(completions), Some(service)] = totals else {
                continue;
            };
            let totals = [arrivals, completions, service];
            if let Some((since, before)) = model.latest {
                model.count(self.span, since..self.end, before, totals);
            }
            model.latest = Some((self.end, totals));
        }
        if self.replicas_start.is_none()
            && let Replicas::Rows(rows) = &observation.replicas
        {
            self.replicas_start = u32::try_from(rows.len()).ok();
        }
    }

    fn scenario(self, name: &str, slo: Option<Duration>) -> Result<Scenario> {
        let config = self
            .config
            .as_ref()
            .context("its configuration is not in the journal")?;
        let arrived: f64 = self.models.iter().flat_map(|model| &model.arrivals).sum();
        if self.end <= 0.0 || arrived <= 0.0 {
            bail!("the journal does not say that requests arrived");
        }
        let slots = |place: usize| config.slots.get(place).copied().and_then(Slots::new);
        let models = self.models.iter().enumerate().map(|(place, model)| {
            let mean = model.mean().with_context(|| {
                format!("how long requests of model {} took is not known", place + 1)
            })?;
            Ok(Model {
                name: format!("model {}", place + 1),
                slots: slots(place).unwrap_or(Slots::ONE),
                service: Service::Each(Law::Exponential { mean }),
                slo: slo.map_or(mean, |slo| slo.as_secs_f64()),
                share: 1.0,
            })
        });
        let models = models.collect::<Result<_>>()?;
        let loads = self.models.iter().enumerate();
        let loads = loads.map(|(place, model)| {
            Load::Open(OpenLoad {
                rates: Rates::Steps(model.rates(self.span)),
                model: Some(place),
            })
        });
        Ok(Scenario {
            name: name.to_owned(),
            about: "As it was recorded.".to_owned(),
            duration: self.end,
            fleet: self.fleet(config),
            models,
            loads: loads.collect(),
            faults: Vec::new(),
            readings: Vec::new(),
        })
    }

    fn fleet(&self, config: &Config) -> Fleet {
        let mut started = self.started.clone();
        started.sort_unstable();
        let median = started.get(started.len() / 2);
        let delay = median.map_or(START_SECONDS, |&nanos| {
            Duration::from_nanos(nanos).as_secs_f64()
        });
        let start = self.replicas_start.unwrap_or(config.min);
        Fleet {
            replicas_start: start.clamp(config.min, config.max),
            replicas_min: config.min,
            replicas_max: config.max,
            start: Start {
                delay,
                spread: 0.0,
                never: 0.0,
            },
            speed: Speed {
                slow_share: 0.0,
                slow: 1.0,
                warm_up: 0.0,
                warming: 1.0,
            },
            // Our gateway's defaults.
            binding: Binding::Late {
                queue: 1000,
                wait: 30.0,
                cold_wait: 300.0,
                admission: None,
            },
            wire: None,
        }
    }
}

impl Counted {
    /// Adds what grew over a time, evenly.
    fn count(&mut self, span: f64, time: Range<f64>, before: [f64; 3], totals: [f64; 3]) {
        // A total that fell was started anew.
        let grown = |place: usize| {
            let (before, after) = (before[place], totals[place]);
            if after >= before {
                after - before
            } else {
                after
            }
        };
        let first = span_of(time.start, span);
        let spans = span_of((time.end / span).ceil(), 1.0).max(first + 1);
        if self.arrivals.len() < spans {
            self.arrivals.resize(spans, 0.0);
        }
        let arrived = grown(0);
        let length = time.end - time.start;
        let places = self.arrivals.iter_mut().enumerate();
        for (place, arrivals) in places.take(spans).skip(first) {
            let (begin, end) = (float(place) * span, float(place + 1) * span);
            let covered = time.end.min(end) - time.start.max(begin);
            *arrivals += if length > 0.0 {
                arrived * (covered / length).max(0.0)
            } else {
                arrived
            };
        }
        self.completions += grown(1);
        self.service_seconds += grown(2);
    }

    fn halve(&mut self) {
        let pairs = self.arrivals.chunks(2).map(|pair| pair.iter().sum());
        self.arrivals = pairs.collect();
    }

    /// Returns the mean service time; `None` where it is not known and needed.
    fn mean(&self) -> Option<f64> {
        let mean = self.service_seconds / self.completions;
        let is_known = mean.is_finite() && mean > 0.0;
        let is_idle = self.arrivals.iter().all(|&arrivals| arrivals <= 0.0);
        if is_known {
            Some(mean)
        } else {
            is_idle.then_some(SPAN_SECONDS)
        }
    }

    fn rates(&self, span: f64) -> Vec<Point> {
        let spans = self.arrivals.iter().enumerate();
        let mut points: Vec<Point> = spans
            .map(|(place, arrivals)| Point {
                at: float(place) * span,
                rate: arrivals / span,
            })
            .collect();
        points.dedup_by(|one, before| one.rate.total_cmp(&before.rate).is_eq());
        let at = float(self.arrivals.len()) * span;
        points.push(Point { at, rate: 0.0 });
        points
    }
}

fn known(term: Term) -> Option<f64> {
    let number = match term {
        Term::Exact(number) | Term::Known { value: number, .. } => number,
        Term::Unknown { .. } => return None,
    };
    match number {
        Number::Finite(value) if value >= 0.0 => Some(value),
        Number::Finite(_) | Number::Other(_) => None,
    }
}

fn float(place: usize) -> f64 {
    u32::try_from(place).map_or(f64::INFINITY, f64::from)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "there are at most SPANS_MAX spans, and times are not negative"
)]
fn span_of(at: f64, span: f64) -> usize {
    (at / span) as usize
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    fn line(at: u64, arrivals: f64, completions: f64) -> What {
        let text = format!(
            r#"{{"kind":"tick","observation":{{"replicas":{{"rows":[]}},"models":[{{
            "in_flight":{{"now":0.0,"integral":0.0}},"executing":{{"now":0.0,"integral":0.0}},
            "queued":{{"now":0.0,"integral":0.0}},"arrivals":{arrivals:?},
            "completions":{completions:?},"service_seconds":{:?},"in_flight_max":0.0}}],
            "peak_seconds":0.0,"started":[3000000000],"metric":{{"value":null,"missing":"not_offered"}},
            "is_partial":false}},"decision":null,"at":{at}}}"#,
            completions / 4.0
        );
        serde_json::from_str(&text).unwrap()
    }

    fn config() -> What {
        let text = r#"{"kind":"config","config":{"policy":{"name":"metric","target":1.0,
            "value":false},"min":1,"max":9,"down_window":null,"tolerance":0.0,"step_up":null,
            "step_down":null,"idle_grace":0,"unknown_hold":0,"unknown_fallback":null,"freshness":0,
            "slots":[4]}}"#;
        serde_json::from_str(text).unwrap()
    }

    fn gathered(lines: &[(u64, u64, f64)]) -> Gathered {
        let mut gathered = Gathered::new();
        gathered.take(1, 0, &config());
        for &(run, second, arrivals) in lines {
            let at = second * 1_000_000_000;
            gathered.take(run, at, &line(at, arrivals, arrivals));
        }
        gathered
    }

    #[test]
    fn arrivals_become_rates_and_a_restart_or_a_pause_adds_none() {
        let ticks = [
            (1, 10, 100.0),
            (1, 12, 120.0),
            (1, 14, 120.0),
            // Another process, and one that slept.
            (2, 1, 7.0),
            (2, 3, 17.0),
            (2, 900, 9000.0),
            (2, 902, 9002.0),
        ];
        let scenario = gathered(&ticks).scenario("hello", None).unwrap();
        let Load::Open(load) = &scenario.loads[0] else {
            panic!("{scenario:?}")
        };
        let Rates::Steps(points) = &load.rates else {
            panic!("{load:?}")
        };
        let rates: Vec<(f64, f64)> = points.iter().map(|point| (point.at, point.rate)).collect();
        let expected = [(0.0, 10.0), (2.0, 0.0), (4.0, 5.0), (6.0, 1.0), (8.0, 0.0)];
        assert_eq!(rates, expected);
        assert!((scenario.duration - 8.0).abs() < 1e-9);
        assert!((scenario.service_mean() - 0.25).abs() < 1e-9);
        assert!((scenario.fleet.start.delay - 3.0).abs() < 1e-9);
        assert_eq!(scenario.models[0].slots.get(), 4);
    }

    #[test]
    fn what_arrived_in_a_gap_arrived_over_all_of_it() {
        let mut gathered = gathered(&[(1, 10, 100.0), (1, 12, 102.0), (1, 52, 502.0)]);
        assert_eq!(
            gathered.models[0].arrivals[0].total_cmp(&2.0),
            Ordering::Equal
        );
        let of_gap = &gathered.models[0].arrivals[1..21];
        assert!(
            of_gap.iter().all(|arrivals| (arrivals - 20.0).abs() < 1e-9),
            "{of_gap:?}"
        );
        // Nor does what a pause brought belong to the reading after it.
        gathered.take(1, 900_000_000_000, &line(900, 9000.0, 9000.0));
        gathered.take(1, 902_000_000_000, &line(902, 9001.0, 9001.0));
        let sum: f64 = gathered.models[0].arrivals.iter().sum();
        assert!((sum - 403.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_long_journal_is_known_less_finely_in_the_same_memory() {
        let mut gathered = gathered(&[]);
        let ticks = 8_000_u64;
        for tick in 0..ticks {
            let at = tick * 50_000_000_000;
            let arrivals = f64::from(u32::try_from(tick).unwrap());
            gathered.take(1, at, &line(at, arrivals, arrivals));
        }
        assert!(gathered.models[0].arrivals.len() <= SPANS_MAX && gathered.span > 4.0);
        let sum: f64 = gathered.models[0].arrivals.iter().sum();
        assert!((sum + 1.0 - f64::from(u32::try_from(ticks).unwrap())).abs() < 1e-6);
    }

    #[test]
    fn a_journal_without_a_load_is_told() {
        let told = |lines: &[(u64, u64, f64)]| {
            let scenario = gathered(lines).scenario("hello", None);
            scenario.unwrap_err().to_string()
        };
        assert_eq!(told(&[]), "the journal does not say that requests arrived");
        let idle = told(&[(1, 1, 5.0), (1, 3, 5.0)]);
        assert_eq!(idle, "the journal does not say that requests arrived");
    }
}
