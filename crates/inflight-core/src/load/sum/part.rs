//! One instance's part of a sum: its counters as they add up, at any moment of the last readings.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Counted, ModelCounts};
use crate::time::Timestamp;
use crate::units::Replicas;

/// Readings that are kept: enough to interpolate at any moment that the sum may be of.
const POINTS_MAX: usize = 16;
/// Readings closer than this replace one another.
const APART: Duration = Duration::from_millis(100);

pub(super) const IN_FLIGHT: usize = 0;
pub(super) const EXECUTING: usize = 1;
pub(super) const QUEUED: usize = 2;
pub(super) const ARRIVALS: usize = 3;
pub(super) const COMPLETIONS: usize = 4;
pub(super) const SERVICE: usize = 5;
const COUNT: usize = 6;

/// The cumulative counters of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals([f64; COUNT]);

/// One instance's part.
#[derive(Clone, Debug)]
pub(super) struct Part {
    points: VecDeque<Point>,
    /// What was read last, as the instance told it; empty before the first reading.
    raw: Vec<ModelCounts>,
    read_at: Timestamp,
    ready: Option<Replicas>,
    /// Whether the newest point is held, so that nobody knows what the instance counted until then.
    is_held: bool,
    has_ended: bool,
}

#[derive(Clone, Debug)]
struct Point {
    at: Timestamp,
    models: Vec<Totals>,
}

impl Totals {
    pub(super) fn get(&self, index: usize) -> f64 {
        self.0.get(index).copied().unwrap_or(0.0)
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (total, more) in self.0.iter_mut().zip(other.0) {
            *total += more;
        }
    }

    /// Returns what lies between two totals at a part of the way.
    fn between(&self, later: &Self, part: f64) -> Self {
        let mut totals = *self;
        for (total, later) in totals.0.iter_mut().zip(later.0) {
            *total += (later - *total) * part;
        }
        totals
    }

    fn grown(&self, rates: &[f64; COUNT], span: Duration) -> Self {
        let mut totals = *self;
        for (total, rate) in totals.0.iter_mut().zip(rates) {
            *total += rate * span.as_secs_f64();
        }
        totals
    }

    fn of(counts: &ModelCounts) -> Self {
        let mut totals = [0.0; COUNT];
        totals[IN_FLIGHT] = counts.executing_seconds + counts.queued_seconds;
        totals[EXECUTING] = counts.executing_seconds;
        totals[QUEUED] = counts.queued_seconds;
        totals[ARRIVALS] = counts.arrivals;
        totals[COMPLETIONS] = counts.completions;
        totals[SERVICE] = counts.service_seconds;
        Self(totals)
    }

    /// Adds by how much an instance's counters grew.
    fn add_growth(&mut self, before: &ModelCounts, after: &ModelCounts) {
        let growth = Self::of(after).0.into_iter().zip(Self::of(before).0);
        for (total, (after, before)) in self.0.iter_mut().zip(growth) {
            *total += (after - before).max(0.0);
        }
    }
}

impl Part {
    /// Begins with an instance that was running before anybody asked: what it had counted by its
    /// first reading is not of our time.
    pub(super) fn from_reading(at: Timestamp, model_count: usize) -> Self {
        let mut part = Self::from_zero(at, model_count);
        part.raw.clear();
        part
    }

    /// Begins with an instance that starts at `at`.
    pub(super) fn from_zero(at: Timestamp, model_count: usize) -> Self {
        let models = vec![Totals::default(); model_count];
        Self {
            points: VecDeque::from([Point { at, models }]),
            raw: vec![ModelCounts::default(); model_count],
            read_at: at,
            ready: None,
            is_held: false,
            has_ended: false,
        }
    }

    /// Takes a reading; one from before the latest changes nothing. By two addresses they may
    /// arrive in the wrong order, dated a little wrong.
    pub(super) fn record(&mut self, at: Timestamp, counted: &Counted) {
        if at < self.read_at || fell(&self.raw, &counted.models) {
            return;
        }
        let (newest_at, newest) = match self.points.back() {
            Some(point) => (point.at, point.models.clone()),
            None => return,
        };
        let span = at.since(newest_at);
        let grow = |(model, totals): (usize, &Totals)| {
            let after = counted.models.get(model).copied().unwrap_or_default();
            match self.raw.get(model) {
                // What happened while nobody saw it is as it was held.
                _ if self.is_held => totals.grown(&self.rates(model), span),
                Some(before) => {
                    let mut totals = *totals;
                    totals.add_growth(before, &after);
                    totals
                }
                None => *totals,
            }
        };
        let models = newest.iter().enumerate().map(grow).collect();
        self.is_held = false;
        // Whoever answers has not ended, whatever it looked like.
        self.has_ended = false;
        self.read_at = at;
        self.ready = counted.ready;
        self.raw.clone_from(&counted.models);
        self.raw.resize(newest.len(), ModelCounts::default());
        if at >= newest_at {
            self.push(Point { at, models });
        } else if let Some(point) = self.points.back_mut() {
            point.models = models;
        }
    }

    /// Ends the part at `at`: its instance runs no longer. Until then it went on as it was seen.
    pub(super) fn end(&mut self, at: Timestamp) {
        self.hold_until(at);
        self.has_ended = true;
    }

    /// Lets the part go on at its latest rates until `at`, if it was not read that late.
    pub(super) fn hold_until(&mut self, at: Timestamp) {
        if self.has_ended {
            return;
        }
        let Some(newest) = self.points.back().filter(|newest| newest.at < at) else {
            return;
        };
        let span = at.since(newest.at);
        let models = newest.models.iter().enumerate();
        let models = models
            .map(|(model, totals)| totals.grown(&self.rates(model), span))
            .collect();
        self.is_held = true;
        self.push(Point { at, models });
    }

    /// Returns the totals of a model at a moment; those of the newest point after it.
    pub(super) fn at(&self, at: Timestamp, model: usize) -> Totals {
        let after = self.points.partition_point(|point| point.at <= at);
        let earlier = after
            .checked_sub(1)
            .and_then(|before| self.points.get(before));
        let totals = |point: &Point| point.models.get(model).copied().unwrap_or_default();
        match (earlier, self.points.get(after)) {
            (Some(earlier), Some(later)) => {
                let whole = later.at.since(earlier.at).as_secs_f64();
                let part = at.since(earlier.at).as_secs_f64();
                totals(earlier).between(&totals(later), part / whole)
            }
            (Some(only), None) | (None, Some(only)) => totals(only),
            (None, None) => Totals::default(),
        }
    }

    pub(super) fn newest(&self, model: usize) -> Totals {
        let newest = self.points.back();
        newest
            .and_then(|point| point.models.get(model).copied())
            .unwrap_or_default()
    }

    pub(super) fn level(&self, model: usize) -> ModelCounts {
        self.raw.get(model).copied().unwrap_or_default()
    }

    pub(super) fn in_flight(&self) -> f64 {
        self.raw.iter().map(|raw| raw.executing + raw.queued).sum()
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the moment that the part is known or held until.
    pub(super) fn newest_at(&self) -> Timestamp {
        self.points.back().map_or(self.read_at, |newest| newest.at)
    }

    pub(super) const fn read_at(&self) -> Timestamp {
        self.read_at
    }

    pub(super) const fn ready(&self) -> Option<Replicas> {
        self.ready
    }

    /// Returns the mean growth per second over the readings that are kept; of a single one, the
    /// levels it told.
    fn rates(&self, model: usize) -> [f64; COUNT] {
        let mut rates = [0.0; COUNT];
        if let (Some(first), Some(last)) = (self.points.front(), self.points.back())
            && let (Some(from), Some(to)) = (first.models.get(model), last.models.get(model))
            && first.at < last.at
        {
            let seconds = last.at.since(first.at).as_secs_f64();
            for (rate, (from, to)) in rates.iter_mut().zip(from.0.iter().zip(to.0)) {
                *rate = (to - from) / seconds;
            }
            return rates;
        }
        let level = self.level(model);
        rates[IN_FLIGHT] = level.executing + level.queued;
        rates[EXECUTING] = level.executing;
        rates[QUEUED] = level.queued;
        rates
    }

    fn push(&mut self, point: Point) {
        let before_newest = self.points.len().checked_sub(2);
        let is_close = before_newest
            .and_then(|index| self.points.get(index))
            .is_some_and(|before| point.at.since(before.at) < APART);
        if is_close
            || self
                .points
                .back()
                .is_some_and(|newest| newest.at == point.at)
        {
            self.points.pop_back();
        } else if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }
}

/// Tells whether one of the counters fell, which those of one run never do.
fn fell(before: &[ModelCounts], after: &[ModelCounts]) -> bool {
    let totals = |counts: &ModelCounts| Totals::of(counts).0;
    before.iter().zip(after).any(|(before, after)| {
        let mut pairs = totals(before).into_iter().zip(totals(after));
        pairs.any(|(before, after)| after < before)
    })
}
