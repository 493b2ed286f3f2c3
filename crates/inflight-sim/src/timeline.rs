//! What a run looked like over time, in pieces of equal length. Made only when it is asked for.

use serde::Serialize;

use crate::histogram::Histogram;
use crate::outcome::{Outcome, SizeAt};
use crate::units::{float, nanos, seconds};

/// Pieces of a whole run: more than a screen has points for a chart.
const PIECES: f64 = 300.0;

/// A run over time. *Units*: seconds, requests, replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// When the run ended.
    pub end: f64,
    /// How long a piece is; the last may be shorter.
    pub width: f64,
    /// Requests per second that arrived in each piece.
    pub arrivals: Vec<f64>,
    /// The mean number in flight in each piece.
    pub in_flight: Vec<f64>,
    /// Half of the requests that ended in the piece took no longer; `None` where none did.
    pub p50: Vec<Option<f64>>,
    /// Ninety-nine in a hundred took no longer.
    pub p99: Vec<Option<f64>>,
    /// The mean number of ready replicas in each piece.
    pub ready: Vec<f64>,
    /// The largest size that was asked for in each piece.
    pub wanted: Vec<u32>,
    /// Each change of the size that was asked for.
    pub changes: Vec<Change>,
}

/// A change of the size that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// When.
    pub at: f64,
    /// The size before.
    pub from: u32,
    /// The size asked for.
    pub to: u32,
    /// Why; `None` of rules that do not say it.
    pub reason: Option<String>,
}

/// What a run writes its timeline with.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    width: u64,
    since: u64,
    arrivals: u64,
    area: u128,
    sojourn: Histogram,
    timeline: Timeline,
}

impl Recorder {
    /// Records a run that is known to end at `end`.
    pub(crate) fn new(end: f64) -> Self {
        // Rounded up, so that no sliver is left at the end.
        let width = nanos(end / PIECES) + 1;
        Self {
            width,
            since: 0,
            arrivals: 0,
            area: 0,
            sojourn: Histogram::default(),
            timeline: Timeline {
                width: seconds(width),
                ..Timeline::default()
            },
        }
    }

    /// Returns how long a piece is. *Units*: nanoseconds.
    pub(crate) fn width(&self) -> u64 {
        self.width
    }

    /// A request ended so long after it arrived.
    pub(crate) fn ended(&mut self, sojourn: u64) {
        self.sojourn.record(sojourn);
    }

    /// The size that is asked for may have changed.
    pub(crate) fn decided(&mut self, now: u64, from: u32, to: u32, reason: Option<String>) {
        if from != to {
            let at = seconds(now);
            self.timeline.changes.push(Change {
                at,
                from,
                to,
                reason,
            });
        }
    }

    /// A piece ends; `arrivals` and `area` are those of the whole run so far.
    pub(crate) fn piece(&mut self, now: u64, arrivals: u64, area: u128) {
        let length = seconds(now - self.since);
        if length <= 0.0 {
            return;
        }
        let arrived = float(arrivals - self.arrivals);
        let in_flight = crate::units::area_seconds(area - self.area);
        self.timeline.arrivals.push(arrived / length);
        self.timeline.in_flight.push(in_flight / length);
        let quantile = |per_mille| self.sojourn.quantile(per_mille).map(seconds);
        self.timeline.p50.push(quantile(500));
        self.timeline.p99.push(quantile(990));
        (self.since, self.arrivals, self.area) = (now, arrivals, area);
        self.sojourn = Histogram::default();
    }

    pub(crate) fn finish(mut self, outcome: &Outcome) -> Timeline {
        let count = self.timeline.arrivals.len();
        let (ready, wanted) = sizes(&outcome.sizes, self.timeline.width, count, outcome.end);
        self.timeline.end = outcome.end;
        self.timeline.ready = ready;
        self.timeline.wanted = wanted;
        self.timeline
    }
}

/// The mean of the ready and the largest of the wanted in each of `count` pieces.
fn sizes(sizes: &[SizeAt], width: f64, count: usize, end: f64) -> (Vec<f64>, Vec<u32>) {
    let (mut ready, mut wanted) = (vec![0.0; count], vec![0; count]);
    let mut from = 0.0;
    for (place, (ready, wanted)) in ready.iter_mut().zip(&mut wanted).enumerate() {
        let to = if place + 1 == count {
            end
        } else {
            from + width
        };
        let first = sizes.partition_point(|size| size.at <= from).max(1) - 1;
        let within = sizes.iter().enumerate().skip(first);
        for (place, size) in within.take_while(|(_, size)| size.at < to) {
            let next = sizes.get(place + 1).map_or(end, |next| next.at);
            let span = (next.min(to) - size.at.max(from)).max(0.0);
            *ready += f64::from(size.ready) * span / (to - from).max(f64::MIN_POSITIVE);
            *wanted = size.desired.max(*wanted);
        }
        from = to;
    }
    (ready, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(at: f64, desired: u32, ready: u32) -> SizeAt {
        SizeAt { at, desired, ready }
    }

    #[test]
    fn sizes_are_means_of_the_ready_and_maxima_of_the_wanted() {
        let changes = [
            size(0.0, 1, 1),
            size(12.0, 5, 1),
            size(15.0, 2, 5),
            size(28.0, 2, 2),
        ];
        let (ready, wanted) = sizes(&changes, 10.0, 3, 30.0);
        let expected = [1.0, 3.0, 4.4];
        let is_near = |(one, other): (&f64, f64)| (one - other).abs() < 1e-9;
        assert!(ready.iter().zip(expected).all(is_near), "{ready:?}");
        assert_eq!(wanted, [1, 5, 2]);
    }
}
