//! Running totals and maxima over time, in bounded memory.
//!
//! A [`Series`] answers means over windows, a [`Maxima`] the largest value within one. Neither
//! knows what it counts; freshness is judged by the caller from [`Series::newest`].

use std::collections::VecDeque;
use std::time::Duration;

use super::freshness::Missing;
use crate::time::Timestamp;

/// A horizon is kept in at most this many points ([`POINTS_MAX`] in all); readings that come closer
/// together replace the newest. At the default horizon of 300 s that is a point each 1.2 s, under
/// the tick of 2 s.
const POINTS: u32 = 256;

/// One before the horizon, and the newest two may crowd.
const POINTS_MAX: usize = POINTS as usize + 3;

/// No total grows past this, and no maximum, so that differences of totals stay finite.
const TOTAL_MAX: f64 = 1e300;

/// No mean is larger than this: far more than any fleet serves, and small enough that products of
/// a few means stay finite.
pub(super) const MEAN_MAX: f64 = 1e18;

/// A running total: what was counted or integrated since the first reading.
///
/// Between two readings the total is taken to grow linearly; before the first it is zero, so that
/// the time before the first reading counts as no load.
#[derive(Clone, Debug)]
pub(super) struct Series {
    points: VecDeque<Point>,
    horizon: Duration,
    /// The source's own value at the newest point, where it offers a cumulative one.
    cumulative: Option<f64>,
    /// The level at the newest point, where the source offers one.
    level: Option<f64>,
    /// Whether levels are means of the time before them.
    is_of_means: bool,
}

/// A running total as it leaves one process for another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastSeries {
    /// The total at points in time, oldest first.
    pub points: Vec<(Timestamp, f64)>,
    /// The source's own cumulative value at the newest point.
    pub cumulative: Option<f64>,
    /// The level at the newest point.
    pub level: Option<f64>,
    /// Whether levels are means of the time before them.
    pub is_of_means: bool,
    /// Why the latest reading was missing, if it was.
    pub missing: Option<Missing>,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at: Timestamp,
    value: f64,
}

impl Series {
    pub(super) const fn new(horizon: Duration) -> Self {
        Self {
            points: VecDeque::new(),
            horizon,
            cumulative: None,
            level: None,
            is_of_means: false,
        }
    }

    /// Returns all that is needed to go on elsewhere.
    pub(super) fn export(&self) -> PastSeries {
        PastSeries {
            points: export(&self.points),
            cumulative: self.cumulative,
            level: self.level,
            is_of_means: self.is_of_means,
            missing: None,
        }
    }

    /// Goes on from what was exported, as far as that makes sense.
    pub(super) fn restore(&mut self, now: Timestamp, past: &PastSeries) {
        let is_number = |value: &f64| value.is_finite() && *value >= 0.0;
        self.points = restore(now, &past.points);
        self.cumulative = past.cumulative.filter(is_number);
        self.level = past.level.filter(is_number);
        self.is_of_means = past.is_of_means;
    }

    /// Changes how far back the series reaches.
    pub(super) fn set_horizon(&mut self, horizon: Duration) {
        self.horizon = horizon;
    }

    /// Takes a reading and returns by how much the total grew; readings older than the newest are
    /// ignored.
    ///
    /// With a cumulative value at both ends the growth is their difference, or the whole value
    /// when it fell, since its source then restarted from zero. Else the previous level is held.
    pub(super) fn record(
        &mut self,
        at: Timestamp,
        cumulative: Option<f64>,
        level: Option<f64>,
    ) -> f64 {
        let Some(newest) = self.points.back().copied() else {
            self.points.push_back(Point { at, value: 0.0 });
            self.cumulative = cumulative;
            self.level = level;
            return 0.0;
        };
        if at < newest.at {
            return 0.0;
        }
        let growth = match (self.cumulative, cumulative) {
            (Some(before), Some(after)) if after >= before => after - before,
            (Some(_), Some(after)) => after,
            (None, _) | (_, None) => self.level.unwrap_or(0.0) * at.since(newest.at).as_secs_f64(),
        };
        self.cumulative = cumulative;
        self.level = level;
        let value = (newest.value + growth).min(TOTAL_MAX);
        push(&mut self.points, self.horizon, Point { at, value });
        growth
    }

    /// Takes a level that is itself the mean of the time up to `at`: it stands for all of the time
    /// since the newest reading, and the first one for the time before it.
    pub(super) fn record_mean(&mut self, at: Timestamp, mean: f64) -> f64 {
        let newest = self.points.back().copied();
        if newest.is_some_and(|newest| at <= newest.at) {
            return 0.0;
        }
        self.is_of_means = true;
        self.cumulative = None;
        self.level = Some(mean);
        let Some(newest) = newest else {
            self.points.push_back(Point { at, value: 0.0 });
            return 0.0;
        };
        let growth = mean * at.since(newest.at).as_secs_f64();
        let value = (newest.value + growth).min(TOTAL_MAX);
        push(&mut self.points, self.horizon, Point { at, value });
        growth
    }

    /// Returns when the newest reading was true.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.points.back().map(|point| point.at)
    }

    /// Returns how far back the readings reach from the newest.
    pub(super) fn span(&self) -> Duration {
        match (self.points.front(), self.points.back()) {
            (Some(first), Some(newest)) => newest.at.since(first.at),
            (None, _) | (_, None) => Duration::ZERO,
        }
    }

    /// Returns the mean growth per second over the window that ends at the newest reading.
    pub(super) fn mean(&self, window: Duration) -> f64 {
        self.mean_between(window, Duration::ZERO)
    }

    /// Returns the mean growth per second between two points before the newest reading.
    pub(super) fn mean_between(&self, from_ago: Duration, to_ago: Duration) -> f64 {
        if self.is_of_means && to_ago.is_zero() {
            return self.mean_of_means(from_ago);
        }
        let seconds = from_ago.saturating_sub(to_ago).as_secs_f64();
        if seconds > 0.0 {
            (self.growth(from_ago, to_ago) / seconds).min(MEAN_MAX)
        } else {
            0.0
        }
    }

    /// Returns the mean over the window, or over as much of it as was read.
    fn mean_of_means(&self, window: Duration) -> f64 {
        let (Some(first), Some(newest)) = (self.points.front(), self.points.back()) else {
            return 0.0;
        };
        let window = window.min(newest.at.since(first.at));
        if window.is_zero() {
            return self.level.unwrap_or(0.0).min(MEAN_MAX);
        }
        (self.growth(window, Duration::ZERO) / window.as_secs_f64()).min(MEAN_MAX)
    }

    /// Returns by how much the total grew between two points before the newest reading.
    pub(super) fn growth(&self, from_ago: Duration, to_ago: Duration) -> f64 {
        let Some(newest) = self.newest() else {
            return 0.0;
        };
        (self.total_at(newest - to_ago) - self.total_at(newest - from_ago)).max(0.0)
    }

    fn total_at(&self, at: Timestamp) -> f64 {
        if let Some(newest) = self.points.back()
            && newest.at <= at
        {
            return newest.value;
        }
        let after = self.points.partition_point(|point| point.at <= at);
        let earlier = after
            .checked_sub(1)
            .and_then(|index| self.points.get(index));
        match (earlier, self.points.get(after)) {
            (Some(earlier), Some(later)) => {
                let whole = later.at.since(earlier.at).as_secs_f64();
                let part = at.since(earlier.at).as_secs_f64();
                earlier.value + (later.value - earlier.value) * (part / whole)
            }
            (Some(only), None) | (None, Some(only)) => only.value,
            (None, None) => 0.0,
        }
    }
}

/// The largest values of the stretches between readings.
#[derive(Clone, Debug)]
pub(super) struct Maxima {
    points: VecDeque<Point>,
    horizon: Duration,
}

impl Maxima {
    pub(super) fn new(horizon: Duration) -> Self {
        Self {
            points: VecDeque::new(),
            horizon,
        }
    }

    /// Returns all that is needed to go on elsewhere.
    pub(super) fn export(&self) -> Vec<(Timestamp, f64)> {
        export(&self.points)
    }

    /// Goes on from what was exported, as far as that makes sense.
    pub(super) fn restore(&mut self, now: Timestamp, past: &[(Timestamp, f64)]) {
        self.points = restore(now, past);
    }

    /// Changes how far back the maxima reach.
    pub(super) fn set_horizon(&mut self, horizon: Duration) {
        self.horizon = horizon;
    }

    /// Takes the largest value since the previous reading.
    pub(super) fn record(&mut self, at: Timestamp, largest: f64) {
        let largest = largest.min(TOTAL_MAX);
        let mut value = largest;
        if let Some(newest) = self.points.back_mut() {
            if at <= newest.at {
                newest.value = newest.value.max(largest);
                return;
            }
            if is_crowded(&self.points, self.horizon)
                && let Some(replaced) = self.points.back()
            {
                value = value.max(replaced.value);
            }
        }
        push(&mut self.points, self.horizon, Point { at, value });
    }

    /// Returns when the newest reading was true.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.points.back().map(|point| point.at)
    }

    /// Returns the largest value of the readings after `from_ago` and up to `to_ago` before the
    /// newest one; `None` without any.
    pub(super) fn largest(&self, from_ago: Duration, to_ago: Duration) -> Option<f64> {
        let newest = self.newest()?;
        let (from, to) = (newest - from_ago, newest - to_ago);
        let within = |point: &&Point| point.at > from;
        let recent = self.points.iter().rev().skip_while(|point| point.at > to);
        recent
            .take_while(within)
            .map(|point| point.value)
            .reduce(f64::max)
    }
}

fn export(points: &VecDeque<Point>) -> Vec<(Timestamp, f64)> {
    points.iter().map(|point| (point.at, point.value)).collect()
}

/// Takes the newest points that are in order, past, and numbers.
fn restore(now: Timestamp, past: &[(Timestamp, f64)]) -> VecDeque<Point> {
    let most = past.len().saturating_sub(POINTS_MAX);
    let mut points: VecDeque<Point> = VecDeque::new();
    for &(at, value) in past.iter().skip(most) {
        let follows = points.back().is_none_or(|newest| newest.at < at);
        if follows && at <= now && value.is_finite() && (0.0..=TOTAL_MAX).contains(&value) {
            points.push_back(Point { at, value });
        }
    }
    points
}

/// Tells whether the newest point is so close to the one before that the next may replace it.
fn is_crowded(points: &VecDeque<Point>, horizon: Duration) -> bool {
    let before = points
        .len()
        .checked_sub(2)
        .and_then(|index| points.get(index));
    match (before, points.back()) {
        (Some(before), Some(newest)) => newest.at.since(before.at) < horizon / POINTS,
        (None, _) | (_, None) => false,
    }
}

/// Appends a point, replacing the newest where they crowd, and forgets what no window reaches.
fn push(points: &mut VecDeque<Point>, horizon: Duration, point: Point) {
    let replaces = points.back().is_some_and(|newest| newest.at >= point.at);
    if replaces || is_crowded(points, horizon) {
        points.pop_back();
    }
    points.push_back(point);
    let start = point.at - horizon;
    // One point at or before the start stays: a window that begins there interpolates from it.
    while points.get(1).is_some_and(|second| second.at <= start) {
        points.pop_front();
    }
    invariant!("a series is bounded", points.len() <= POINTS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: f64) -> Timestamp {
        Timestamp::ORIGIN + Duration::from_secs_f64(seconds)
    }

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn time_before_the_first_reading_counts_as_no_load() {
        let mut series = Series::new(60 * SECOND);
        series.record(at(100.0), Some(500.0), None);
        series.record(at(102.0), Some(520.0), None);
        close(series.mean(2 * SECOND), 10.0);
        close(series.mean(10 * SECOND), 2.0);
    }

    #[test]
    fn a_window_that_starts_between_readings_interpolates() {
        let mut series = Series::new(60 * SECOND);
        for (second, total) in [(0.0, 0.0), (10.0, 100.0), (20.0, 100.0)] {
            series.record(at(second), Some(total), None);
        }
        close(series.mean(15 * SECOND), 50.0 / 15.0);
        close(series.mean_between(20 * SECOND, 10 * SECOND), 10.0);
    }

    #[test]
    fn a_counter_that_falls_restarted_from_zero() {
        let mut series = Series::new(60 * SECOND);
        for (second, total) in [(0.0, 50.0), (10.0, 60.0), (20.0, 3.0), (30.0, 4.0)] {
            series.record(at(second), Some(total), None);
        }
        close(series.growth(30 * SECOND, Duration::ZERO), 10.0 + 3.0 + 1.0);
    }

    #[test]
    fn a_level_without_an_integral_is_held() {
        let mut series = Series::new(60 * SECOND);
        series.record(at(0.0), None, Some(4.0));
        series.record(at(5.0), None, Some(0.0));
        series.record(at(10.0), None, Some(0.0));
        close(series.mean(10 * SECOND), 2.0);
    }

    #[test]
    fn a_reading_given_twice_adds_nothing() {
        let mut series = Series::new(60 * SECOND);
        series.record(at(0.0), Some(0.0), None);
        series.record(at(10.0), Some(50.0), None);
        series.record(at(10.0), Some(50.0), None);
        series.record(at(4.0), Some(20.0), None);
        close(series.mean(10 * SECOND), 5.0);
    }

    #[test]
    fn memory_is_bounded_and_the_mean_right_at_any_reading_rate() {
        let mut series = Series::new(30 * SECOND);
        let mut maxima = Maxima::new(30 * SECOND);
        for reading in 0..100_000_u32 {
            let second = f64::from(reading) / 1000.0;
            series.record(at(second), Some(7.0 * second), None);
            maxima.record(at(second), f64::from(reading % 1000));
        }
        assert!(series.points.len() <= 259 && maxima.points.len() <= 259);
        close(series.mean(30 * SECOND), 7.0);
        assert_eq!(maxima.largest(2 * SECOND, Duration::ZERO), Some(999.0));
    }

    #[test]
    fn maxima_are_of_their_window_only() {
        let mut maxima = Maxima::new(120 * SECOND);
        for (second, largest) in [(10.0, 9.0), (60.0, 2.0), (70.0, 3.0), (120.0, 1.0)] {
            maxima.record(at(second), largest);
        }
        assert_eq!(maxima.largest(60 * SECOND, Duration::ZERO), Some(3.0));
        assert_eq!(maxima.largest(120 * SECOND, 60 * SECOND), Some(9.0));
        assert_eq!(maxima.largest(SECOND, Duration::ZERO), Some(1.0));
    }
}
