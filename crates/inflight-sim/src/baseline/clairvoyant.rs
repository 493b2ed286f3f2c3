//! A reference that knows the load ahead by a start delay: the slots that it keeps busy, and a
//! number of square roots of them to spare.
//!
//! Strong, but no bound: what waits, and replicas that are slow or gone, it does not look at. Of
//! several margins the best one is taken for each seed, which nobody could know.

use std::time::Duration;

use crate::control::Rule;
use crate::readings::Readings;
use crate::scenario::{Load, Point, Scenario, TraceRow};
use crate::units::replicas_ceil;
use crate::workload::rates;

/// The margins that are tried, in square roots of the busy slots.
pub const MARGINS: [f64; 9] = [-0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0];

/// The rule. *Units*: seconds.
#[derive(Debug)]
pub struct Clairvoyant {
    margin: f64,
    ahead: f64,
    /// The rates of each open load, and of which model it is.
    open: Vec<(Vec<Point>, Option<usize>)>,
    /// The slots that each trace would keep busy if nobody waited, and of which model it is.
    traces: Vec<(Vec<Point>, Option<usize>)>,
    /// When the streams of closed loads start, in order, with the share of its time that a stream
    /// keeps a slot busy when it never waits.
    streams: Vec<(f64, f64)>,
    models: Vec<Sized>,
}

/// A model: its share, how long a request keeps a server busy, and servers per replica.
#[derive(Clone, Copy, Debug)]
struct Sized {
    share: f64,
    seconds: f64,
    servers: f64,
}

impl Clairvoyant {
    /// Builds the rule for a run of a scenario with a seed.
    #[must_use]
    pub fn new(scenario: &Scenario, seed: u64, margin: f64) -> Self {
        let speed = scenario.fleet.speed;
        let mean_speed = 1.0 - speed.slow_share * (1.0 - speed.slow);
        let shares: f64 = scenario.models.iter().map(|model| model.share).sum();
        let models = scenario.models.iter().map(|model| Sized {
            share: model.share / shares,
            seconds: model.service.seconds_each() / mean_speed,
            servers: model.servers(),
        });
        let models: Vec<Sized> = models.collect();
        let opens = scenario.loads.iter().filter_map(|load| match load {
            Load::Open(open) => Some(open.model),
            Load::Closed(_) | Load::Trace(_) => None,
        });
        let traces = scenario.loads.iter().filter_map(|load| match load {
            Load::Trace(rows) => {
                let model = rows.first().and_then(|row| row.model);
                let service = scenario.service_mean() / mean_speed;
                Some((busy_slots(rows, service, scenario.duration), model))
            }
            Load::Open(_) | Load::Closed(_) => None,
        });
        Self {
            margin,
            ahead: scenario.fleet.start.delay * (1.0 + scenario.fleet.start.spread),
            open: rates(scenario, seed).into_iter().zip(opens).collect(),
            traces: traces.collect(),
            streams: streams(scenario),
            models,
        }
    }

    /// The largest rate from a moment to `ahead` of it.
    fn rate(&self, pieces: &[Point], now: f64) -> f64 {
        let from = pieces.partition_point(|piece| piece.at <= now).max(1) - 1;
        let coming = pieces.iter().skip(from);
        let coming = coming.take_while(|piece| piece.at <= now + self.ahead);
        coming.map(|piece| piece.rate).fold(0.0, f64::max)
    }

    fn busy(&self, model: usize, now: f64, clients_gone: u32) -> f64 {
        let Sized { share, seconds, .. } = self.models[model];
        let mut busy = 0.0;
        for (pieces, of) in &self.open {
            busy += match of {
                Some(of) if *of == model => self.rate(pieces, now) * seconds,
                Some(_) => 0.0,
                None => self.rate(pieces, now) * share * seconds,
            };
        }
        for (pieces, of) in &self.traces {
            busy += match of {
                Some(of) if *of == model => self.rate(pieces, now),
                Some(_) => 0.0,
                None => self.rate(pieces, now) * share,
            };
        }
        let begun = self.streams.iter();
        let begun = begun.take_while(|(at, _)| *at <= now + self.ahead);
        let living = begun.skip(clients_gone as usize);
        busy + living.map(|(_, busy)| busy * share).sum::<f64>()
    }
}

/// When each stream of the closed loads starts, and the share of its time that it keeps a slot busy.
fn streams(scenario: &Scenario) -> Vec<(f64, f64)> {
    let mut streams = Vec::new();
    for load in &scenario.loads {
        if let Load::Closed(closed) = load {
            let service = scenario.service_mean();
            let wire = scenario.fleet.wire.map_or(0.0, |law| law.mean());
            let busy = service / (service + closed.job.think + wire);
            for job in 0..closed.jobs {
                let at = closed.at + f64::from(job) * closed.every;
                streams.extend((0..closed.job.streams).map(|_| (at, busy)));
            }
        }
    }
    streams.sort_by(|a, b| a.0.total_cmp(&b.0));
    streams
}

/// How finely the slots of a trace are known. *Units*: seconds.
const PIECE: f64 = 10.0;

/// The mean number of a trace's requests that are executed in each piece of time if nobody waits.
fn busy_slots(rows: &[TraceRow], service: f64, end: f64) -> Vec<Point> {
    let pieces = (0..replicas_ceil(end / PIECE)).map(|piece| Point {
        at: f64::from(piece) * PIECE,
        rate: 0.0,
    });
    let mut pieces: Vec<Point> = pieces.collect();
    for row in rows {
        let ends = row.at + row.work.unwrap_or(service);
        let first = pieces.partition_point(|piece| piece.at + PIECE <= row.at);
        for piece in pieces.iter_mut().skip(first) {
            if piece.at >= ends {
                break;
            }
            let within = ends.min(piece.at + PIECE) - row.at.max(piece.at);
            piece.rate += within / PIECE;
        }
    }
    pieces
}

impl Rule for Clairvoyant {
    fn every(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32> {
        let sizes = (0..self.models.len()).map(|model| {
            let busy = self.busy(model, now, fleet.clients_gone);
            let slots = busy + self.margin * busy.sqrt();
            replicas_ceil(slots / self.models[model].servers - 0.05)
        });
        sizes.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_keeps_the_slots_busy_that_its_requests_would_if_nobody_waited() {
        let row = |at, work| TraceRow {
            at,
            work,
            model: None,
        };
        let rows = [row(0.0, Some(25.0)), row(5.0, None), row(12.0, Some(3.0))];
        let busy = busy_slots(&rows, 1.0, 40.0);
        let rates: Vec<f64> = busy.iter().map(|piece| piece.rate).collect();
        let expected = [1.1, 1.3, 0.5, 0.0];
        let is_near = |(rate, expected): (&f64, f64)| (rate - expected).abs() < 1e-9;
        assert!(rates.iter().zip(expected).all(is_near), "{rates:?}");
    }
}
