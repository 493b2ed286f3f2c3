//! The Knative baseline against sequences that were recorded from Knative itself.
//!
//! The recordings are third-party data and not in the repository. Where `INFLIGHT_VECTORS` names
//! the folder that has them, every tick is compared; else the test says that it was skipped. The
//! rules are also held by the unit tests of the baseline.

use std::fs;
use std::path::Path;

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
