//! Replays recorded traces through [`InFlight`] and compares every exact figure.
//!
//! `vectors/concurrency_traces.json`: intervals `[arrive, depart)` in microseconds, with the
//! means as fractions.

use std::time::Duration;

use inflight_core::Timestamp;
use inflight_core::load::InFlight;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    traces: Vec<Trace>,
}

#[derive(Deserialize)]
struct Trace {
    name: String,
    bucket_us: u64,
    horizon_us: u64,
    events: Vec<Interval>,
    exact_mean_concurrency: String,
    per_bucket_mean: Vec<String>,
    per_bucket_max: Vec<u64>,
    avg_of_max_per_1s: Vec<String>,
    avg_of_max: String,
}

#[derive(Deserialize)]
struct Interval {
    arrive: u64,
    depart: u64,
}

/// The integrals of count and bucket maximum at one moment.
struct Reading {
    integral: u128,
    peak: u128,
}

impl Trace {
    fn bucket(&self) -> Duration {
        Duration::from_micros(self.bucket_us)
    }

    /// Reads the integrals at every bucket's edge, from the first to the horizon.
    fn readings(&self, begins_first: bool) -> Vec<Reading> {
        let mut events: Vec<(u64, bool)> = Vec::new();
        for event in &self.events {
            events.push((event.arrive, true));
            events.push((event.depart, false));
        }
        events.sort_by_key(|&(time, is_begin)| (time, is_begin != begins_first));
        let mut load = InFlight::new(self.bucket(), at(0));
        let mut events = events.into_iter().peekable();
        let mut readings = Vec::new();
        for edge in (0..=self.horizon_us / self.bucket_us).map(|bucket| bucket * self.bucket_us) {
            while let Some((time, is_begin)) = events.next_if(|&(time, _)| time < edge) {
                if is_begin {
                    load.begin(at(time))
                } else {
                    load.end(at(time))
                }
            }
            let integral = load.integral(at(edge));
            readings.push(Reading {
                integral,
                peak: load.peak_integral(at(edge)),
            });
        }
        readings
    }
}

fn at(micros: u64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_micros(micros)
}

fn number(text: &str) -> u128 {
    text.parse()
        .expect("fractions of the vectors are whole numbers over whole numbers")
}

/// Compares `area / length` with a fraction such as `7/20`, without rounding.
fn assert_mean(what: &str, area: u128, length: Duration, fraction: &str) {
    let (over, under) = fraction.split_once('/').unwrap_or((fraction, "1"));
    let (over, under): (u128, u128) = (number(over), number(under));
    assert_eq!(
        area * under,
        length.as_nanos() * over,
        "{what}: expected {fraction}"
    );
}

fn check(trace: &Trace, begins_first: bool) {
    let readings = trace.readings(begins_first);
    let name = &trace.name;
    let horizon = Duration::from_micros(trace.horizon_us);
    let last = &readings[readings.len() - 1];
    assert_mean(name, last.integral, horizon, &trace.exact_mean_concurrency);
    assert_mean(name, last.peak, horizon, &trace.avg_of_max);
    assert_eq!(readings.len() - 1, trace.per_bucket_mean.len(), "{name}");
    for (bucket, pair) in readings.windows(2).enumerate() {
        let what = format!("{name}, bucket {bucket}");
        let area = pair[1].integral - pair[0].integral;
        assert_mean(&what, area, trace.bucket(), &trace.per_bucket_mean[bucket]);
        let peak = (pair[1].peak - pair[0].peak) / trace.bucket().as_nanos();
        assert_eq!(peak, u128::from(trace.per_bucket_max[bucket]), "{what}");
    }
    let buckets_per_second = trace.per_bucket_max.len() / trace.avg_of_max_per_1s.len();
    for (second, expected) in trace.avg_of_max_per_1s.iter().enumerate() {
        let start = &readings[second * buckets_per_second];
        let end = &readings[(second + 1) * buckets_per_second];
        let what = format!("{name}, second {second}");
        assert_mean(
            &what,
            end.peak - start.peak,
            Duration::from_secs(1),
            expected,
        );
    }
}

#[test]
fn every_trace_yields_its_exact_means_and_bucket_maxima() {
    let file: File = serde_json::from_str(include_str!("vectors/concurrency_traces.json")).unwrap();
    assert_eq!(file.traces.len(), 9);
    for trace in &file.traces {
        for begins_first in [false, true] {
            check(trace, begins_first);
        }
    }
}
