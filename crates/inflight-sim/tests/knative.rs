//! The Knative baseline against sequences that were recorded from Knative itself.
//!
//! The recordings are third-party data and not in the repository. Where `INFLIGHT_VECTORS` names
//! the folder that has them, every tick is compared; else the test says that it was skipped. The
//! rules are also held by the unit tests of the baseline.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use inflight_core::load::{Level, Missing, ModelLoad, Observation, ReplicaView, Term};
use inflight_core::scaling::{Bounds, ConcurrencyConfig, Measure, Policy, Scaler, ScalingConfig};
use inflight_core::{Replicas, Slots, Timestamp};
use inflight_sim::baseline::kpa::{Kpa, KpaConfig};
use serde::Deserialize;

#[derive(Deserialize)]
struct Recordings {
    sequences: Vec<Sequence>,
}

#[derive(Deserialize)]
struct Sequence {
    name: String,
    params: Params,
    t0_unix_s: u64,
    /// Milliseconds, average concurrency, average proxied concurrency.
    records: Vec<(u64, f64, f64)>,
    ready_per_second: Vec<u32>,
    happenings: Vec<Happening>,
    ticks: Vec<Tick>,
}

#[derive(Deserialize)]
struct Params {
    target_value: f64,
    total_value: f64,
    stable_window_s: f64,
    panic_window_percentage: f64,
    panic_threshold: f64,
    max_scale_up_rate: f64,
    max_scale_down_rate: f64,
    activation_scale: u32,
    scale_down_delay_s: f64,
    target_burst_capacity: f64,
    reachable: bool,
    aggregation: String,
    has_scrape_target: bool,
}

#[derive(Deserialize)]
struct Happening {
    t_ms: u64,
    what: String,
    params: Option<Params>,
}

/// Milliseconds, ready, valid, desired, excess, stable, panic, panicking, most pods, since.
#[derive(Deserialize)]
struct Tick(
    u64,
    u32,
    bool,
    Option<u32>,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    bool,
    u32,
    Option<u64>,
);

impl Params {
    fn config(&self) -> KpaConfig {
        KpaConfig {
            target: self.target_value,
            total: self.total_value,
            stable_window: self.stable_window_s,
            panic_percentage: self.panic_window_percentage,
            panic_threshold: self.panic_threshold,
            up_rate: self.max_scale_up_rate,
            down_rate: self.max_scale_down_rate,
            activation: self.activation_scale,
            down_delay: self.scale_down_delay_s,
            reachable: self.reachable,
            burst_capacity: self.target_burst_capacity,
            is_weighted: self.aggregation != "linear",
            has_pods: self.has_scrape_target,
        }
    }
}

/// A replay of one sequence.
struct Replay<'a> {
    sequence: &'a Sequence,
    config: KpaConfig,
    kpa: Kpa,
    records: usize,
    happenings: usize,
}

impl<'a> Replay<'a> {
    fn new(sequence: &'a Sequence) -> Self {
        let config = sequence.params.config();
        let start = sequence.t0_unix_s * 1_000_000_000;
        Self {
            config,
            kpa: Kpa::new(config, start, sequence.ready_per_second[0]),
            sequence,
            records: 0,
            happenings: 0,
        }
    }

    fn time(&self, millis: u64) -> u64 {
        self.sequence.t0_unix_s * 1_000_000_000 + millis * 1_000_000
    }

    /// Does what happens up to a tick, in the order of time, reports first.
    fn advance(&mut self, now: u64) {
        loop {
            let records = &self.sequence.records;
            let report = records.get(self.records).filter(|(at, ..)| *at <= now);
            let happenings = &self.sequence.happenings;
            let other = happenings.get(self.happenings);
            let other = other.filter(|other| other.t_ms <= now);
            match (report, other) {
                (Some(&(at, average, proxied)), other)
                    if other.is_none_or(|other| at <= other.t_ms) =>
                {
                    self.records += 1;
                    self.kpa.record(self.time(at), average - proxied);
                }
                (_, Some(other)) => {
                    self.happenings += 1;
                    self.happen(other);
                }
                (Some(_) | None, None) => return,
            }
        }
    }

    fn happen(&mut self, happening: &Happening) {
        if let Some(params) = &happening.params {
            self.config = params.config();
            self.kpa.set_config(self.config);
        }
        if happening.what == "restart" {
            let ready = self.sequence.ready_per_second.iter();
            let ready = ready
                .zip(0..)
                .find(|(_, second)| *second == happening.t_ms / 1000);
            let ready = ready.map_or(0, |(ready, _)| *ready);
            self.kpa = Kpa::new(self.config, self.time(happening.t_ms), ready);
        }
    }

    fn compare(&mut self, tick: &Tick) {
        let Tick(now, ready, valid, desired, excess, stable, panic, panicking, most, since) = tick;
        self.advance(*now);
        let place = format!("{} at {now} ms", self.sequence.name);
        let said = self.kpa.tick(self.time(*now), *ready);
        assert_eq!(said.is_some(), *valid, "{place}: valid");
        assert_eq!(said.map(|said| said.desired), *desired, "{place}: desired");
        let near = |said: Option<f64>, expected: Option<f64>, what: &str| {
            let is_near = match (said, expected) {
                (Some(said), Some(expected)) => (said - expected).abs() < 1e-9,
                (said, expected) => said.is_none() && expected.is_none(),
            };
            assert!(is_near, "{place}: {what} is {said:?}, not {expected:?}");
        };
        near(said.map(|said| said.excess), *excess, "excess");
        near(said.map(|said| said.stable), *stable, "stable");
        near(said.map(|said| said.panic), *panic, "panic");
        assert_eq!(self.kpa.panicking(), (*panicking, *most), "{place}: panic");
        let since = since.map(|since| self.time(since));
        assert_eq!(self.kpa.panicking_since(), since, "{place}: since");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the recordings are outside of the repository"
)]
fn recordings() -> Option<Recordings> {
    let folder = std::env::var("INFLIGHT_VECTORS").ok()?;
    let path = Path::new(&folder).join("knative_autoscaler.json");
    let text = fs::read_to_string(path).expect("INFLIGHT_VECTORS has knative_autoscaler.json");
    Some(serde_json::from_str(&text).expect("it has the format kpa-golden-1"))
}

#[test]
fn the_knative_baseline_says_what_knative_says_tick_for_tick() {
    let Some(recordings) = recordings() else {
        println!("skipped: INFLIGHT_VECTORS names no folder with recordings");
        return;
    };
    let mut ticks = 0;
    for sequence in &recordings.sequences {
        let mut replay = Replay::new(sequence);
        for tick in &sequence.ticks {
            replay.compare(tick);
            ticks += 1;
        }
    }
    println!("{} sequences, {ticks} ticks", recordings.sequences.len());
    assert!(ticks > 5000);
}

/// Our policy on one sequence.
struct Ours<'a> {
    sequence: &'a Sequence,
    scaler: Scaler,
    records: usize,
    integral: f64,
}

fn ours_of(params: &Params) -> Option<ScalingConfig> {
    let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
    let slots = params.total_value;
    if slots.fract() > 0.0 || slots < 1.0 || params.aggregation != "linear" {
        return None;
    }
    let burst = seconds(params.stable_window_s * params.panic_window_percentage / 100.0);
    let utilization = params.target_value / params.total_value;
    let stable = seconds(params.stable_window_s);
    let config = ConcurrencyConfig::new(utilization, Measure::Mean, stable, burst).ok()?;
    let config = config.with_burst_threshold(params.panic_threshold).ok()?;
    let bounds = Bounds::new(Replicas::ZERO, Replicas::new(10_000)).ok()?;
    let slots = Slots::new(format!("{slots}").parse().ok()?)?;
    Some(ScalingConfig::new(
        Policy::Concurrency(config),
        bounds,
        slots,
    ))
}

impl<'a> Ours<'a> {
    fn new(sequence: &'a Sequence) -> Option<Self> {
        let config = ours_of(&sequence.params)?;
        let found = Replicas::new(sequence.ready_per_second[0]);
        Some(Self {
            scaler: Scaler::new(config, Timestamp::ORIGIN, found),
            sequence,
            records: 0,
            integral: 0.0,
        })
    }

    /// Tells whether a second of the stable window has no report, or the first is still to come.
    fn has_holes(&self, now: u64) -> bool {
        let window = self.sequence.params.stable_window_s;
        let from = Duration::from_millis(now).saturating_sub(Duration::from_secs_f64(window));
        let records = self.sequence.records.iter().take(self.records);
        let times = records.map(|(at, ..)| Duration::from_millis(*at));
        let recent: Vec<Duration> = times.filter(|at| *at >= from).collect();
        let mut edges = vec![from];
        edges.extend(recent);
        edges.push(Duration::from_millis(now));
        let mut pauses = edges.windows(2).map(|pair| pair[1] - pair[0]);
        pauses.any(|pause| pause > Duration::from_millis(1500))
    }

    /// Tells whether reports that are not at whole seconds are counted into another second than
    /// their own, by one replica.
    fn is_between_seconds(&self, tick: &Tick, wished: Option<u32>) -> bool {
        let is_near = wished
            .zip(tick.3)
            .is_some_and(|(one, other)| one.abs_diff(other) == 1);
        let mut records = self.sequence.records.iter();
        is_near && records.any(|(at, ..)| at % 1000 != 0)
    }

    /// Reads what was reported up to a tick and returns the size wished for.
    fn tick(&mut self, tick: &Tick) -> Option<u32> {
        let now = Timestamp::ORIGIN + Duration::from_millis(tick.0);
        let before = self.records;
        while let Some(&(at, average, proxied)) = self.sequence.records.get(self.records)
            && at <= tick.0
        {
            self.integral += (average - proxied).max(0.0);
            self.records += 1;
        }
        let known = self.records > before;
        let total = |value: f64| {
            if known {
                Term::exact(value)
            } else {
                Term::Unknown(Missing::NeverRead)
            }
        };
        let unknown = Term::Unknown(Missing::NotOffered);
        let level = Level {
            now: Term::Unknown(Missing::NotOffered),
            integral: total(self.integral),
        };
        let observation = Observation {
            replicas: ReplicaView::Ready(Term::exact(Replicas::new(tick.1))),
            models: vec![ModelLoad {
                in_flight: level,
                executing: Level::NOT_OFFERED,
                queued: Level::NOT_OFFERED,
                arrivals: unknown,
                completions: unknown,
                service_seconds: unknown,
                in_flight_max: Term::Unknown(Missing::NotOffered),
            }],
            peak_seconds: unknown,
            started: Vec::new(),
            metric: unknown,
            filled: unknown,
            is_partial: false,
            is_called: false,
        };
        self.scaler.observe(now, &observation);
        self.scaler.decide(now).wanted.map(Replicas::get)
    }
}

/// Whether a sequence is of what our policy has as well; its other limits have settings of their
/// own (steps, the down window, a minimum).
fn is_ours(params: &Params) -> bool {
    let without = params.activation_scale <= 1 && params.scale_down_delay_s <= 0.0;
    without && params.max_scale_up_rate > 10.0 && params.reachable && params.has_scrape_target
}

/// Says why our policy wishes for another size than Knative, as `docs/policies.md` has it.
fn why(tick: &Tick, ours: Option<u32>, params: &Params, young: bool, holes: bool) -> &'static str {
    let Tick(_, ready, _, theirs, _, stable, panic, panicking, ..) = *tick;
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return if ours == theirs { "same" } else { "unknown" };
    };
    let is_whole = |mean: Option<f64>| {
        let need = mean.unwrap_or(0.5 * params.target_value) / params.target_value;
        (need - need.round()).abs() < 1e-6
    };
    let least = (f64::from(ready) / params.max_scale_down_rate).floor();
    if ours == theirs {
        "same"
    } else if holes {
        "unknown"
    } else if young {
        "start"
    } else if theirs == ours + 1 && (is_whole(stable) || is_whole(panic)) {
        "rounding"
    } else if panicking && ours < theirs {
        "panic"
    } else if f64::from(theirs) <= least && ours < theirs {
        "down rate"
    } else {
        "unexplained"
    }
}

#[test]
fn our_concurrency_differs_from_knative_only_where_the_documents_say() {
    let Some(recordings) = recordings() else {
        println!("skipped: INFLIGHT_VECTORS names no folder with recordings");
        return;
    };
    let mut counts: BTreeMap<&'static str, u32> = BTreeMap::new();
    for sequence in &recordings.sequences {
        let params = &sequence.params;
        let is_one = is_ours(params) && sequence.happenings.is_empty();
        let Some(mut ours) = Ours::new(sequence).filter(|_| is_one) else {
            *counts.entry("other sequences").or_default() += 1;
            continue;
        };
        for tick in &sequence.ticks {
            let wished = ours.tick(tick);
            let first = sequence.records.first().map_or(0, |(at, ..)| *at);
            let young = Duration::from_millis(tick.0.saturating_sub(first))
                <= Duration::from_secs_f64(params.stable_window_s + 2.0);
            let why = match why(tick, wished, params, young, ours.has_holes(tick.0)) {
                "unexplained" if ours.is_between_seconds(tick, wished) => "seconds",
                why => why,
            };
            *counts.entry(why).or_default() += 1;
        }
    }
    println!("{counts:?}");
    assert_eq!(counts.get("unexplained"), None, "{counts:?}");
}
