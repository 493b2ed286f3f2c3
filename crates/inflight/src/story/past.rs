//! What a scaler knows, as it is written: at a start that goes on from it, where the journal is to
//! be read from its middle, and in the snapshot for the next process.
//!
//! Points in time are nanoseconds of the writer's clock. Fields that are missing are empty, so that
//! one can be added without another version.

use std::time::Duration;

use inflight_core::load::{PastLoad, PastModel, PastSeries};
use inflight_core::scaling::{Held, Hold, PastScaler};
use inflight_core::{Replicas, Timestamp};
use serde::{Deserialize, Serialize};

use super::mapping::{missing_of, missing_to};
use super::wire::Missing;

/// A point in time and a number.
type Point = (u64, f64);

/// All that a scaler knows, with its models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    models: Vec<KnownModel>,
    #[serde(flatten)]
    scaler: KnownScaler,
}

/// What was observed of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownModel {
    in_flight: Series,
    executing: Series,
    queued: Series,
    arrivals: Series,
    completions: Series,
    service_seconds: Series,
    in_flight_max: Vec<Point>,
    levels: [Option<Point>; 3],
    is_from_outside: bool,
}

/// What was observed and decided of the whole fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownScaler {
    ready: Series,
    peak: Series,
    filled: Series,
    partial_at: Option<u64>,
    start_delay_nanos: Vec<u64>,
    busy_at: u64,
    targets: Vec<(u64, u32)>,
    returns: Vec<(u64, u64)>,
    sizes: Vec<(u64, u32)>,
    unknown_since: Option<u64>,
    started: u64,
    found: u32,
    is_to_be_found: bool,
    settled: u32,
    desired: u32,
    held: Option<KnownHold>,
    burst: Option<(u64, u32)>,
    stalled_since: Option<u64>,
    ready_seen: Option<u32>,
}

/// A hold: of a size, or else of the size that there is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct KnownHold {
    size: Option<u32>,
    until: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Series {
    points: Vec<Point>,
    cumulative: Option<f64>,
    level: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_of_means: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<(Missing, Option<u64>)>,
}

impl From<&PastScaler> for Known {
    fn from(past: &PastScaler) -> Self {
        Self {
            models: past.load.models.iter().map(KnownModel::from).collect(),
            scaler: KnownScaler::from(past),
        }
    }
}

impl From<Known> for PastScaler {
    fn from(known: Known) -> Self {
        let models = known.models.into_iter().map(PastModel::from).collect();
        let mut past = Self::from(known.scaler);
        past.load.models = models;
        past
    }
}

impl From<&PastModel> for KnownModel {
    fn from(past: &PastModel) -> Self {
        Self {
            in_flight: Series::from(&past.in_flight),
            executing: Series::from(&past.executing),
            queued: Series::from(&past.queued),
            arrivals: Series::from(&past.arrivals),
            completions: Series::from(&past.completions),
            service_seconds: Series::from(&past.service_seconds),
            in_flight_max: past.in_flight_max.iter().map(point_to).collect(),
            levels: past.levels.map(|level| level.as_ref().map(point_to)),
            is_from_outside: past.is_from_outside,
        }
    }
}

impl From<KnownModel> for PastModel {
    fn from(known: KnownModel) -> Self {
        Self {
            in_flight: known.in_flight.into(),
            executing: known.executing.into(),
            queued: known.queued.into(),
            arrivals: known.arrivals.into(),
            completions: known.completions.into(),
            service_seconds: known.service_seconds.into(),
            in_flight_max: known.in_flight_max.into_iter().map(point_from).collect(),
            levels: known.levels.map(|level| level.map(point_from)),
            is_from_outside: known.is_from_outside,
        }
    }
}

/// The models are written beside it.
impl From<&PastScaler> for KnownScaler {
    fn from(past: &PastScaler) -> Self {
        let size = |&(at, size): &(Timestamp, Replicas)| (at.as_nanos(), size.get());
        Self {
            ready: Series::from(&past.load.ready),
            peak: Series::from(&past.load.peak),
            filled: Series::from(&past.load.filled),
            partial_at: past.load.partial_at.map(Timestamp::as_nanos),
            start_delay_nanos: past.start_delays.iter().copied().map(nanos).collect(),
            busy_at: past.busy_at.as_nanos(),
            targets: past.targets.iter().map(size).collect(),
            returns: (past.returns.iter())
                .map(|&(at, away)| (at.as_nanos(), nanos(away)))
                .collect(),
            sizes: past.sizes.iter().map(size).collect(),
            unknown_since: past.unknown_since.map(Timestamp::as_nanos),
            started: past.started.as_nanos(),
            found: past.found.get(),
            is_to_be_found: past.is_to_be_found,
            settled: past.settled.get(),
            desired: past.desired.get(),
            held: past.held.map(|held| KnownHold {
                size: match held.hold {
                    Hold::Pause => None,
                    Hold::Size(size) => Some(size.get()),
                },
                until: held.until.as_nanos(),
            }),
            burst: past.burst.as_ref().map(size),
            stalled_since: past.stalled_since.map(Timestamp::as_nanos),
            ready_seen: past.ready.map(Replicas::get),
        }
    }
}

impl From<KnownScaler> for PastScaler {
    fn from(known: KnownScaler) -> Self {
        let size = |(at, size)| (Timestamp::from_nanos(at), Replicas::new(size));
        let delays = known.start_delay_nanos.into_iter();
        Self {
            load: PastLoad {
                models: Vec::new(),
                ready: known.ready.into(),
                peak: known.peak.into(),
                filled: known.filled.into(),
                partial_at: known.partial_at.map(Timestamp::from_nanos),
            },
            start_delays: delays.map(Duration::from_nanos).collect(),
            busy_at: Timestamp::from_nanos(known.busy_at),
            targets: known.targets.into_iter().map(size).collect(),
            returns: (known.returns.into_iter())
                .map(|(at, away)| (Timestamp::from_nanos(at), Duration::from_nanos(away)))
                .collect(),
            sizes: known.sizes.into_iter().map(size).collect(),
            unknown_since: known.unknown_since.map(Timestamp::from_nanos),
            started: Timestamp::from_nanos(known.started),
            found: Replicas::new(known.found),
            is_to_be_found: known.is_to_be_found,
            settled: Replicas::new(known.settled),
            desired: Replicas::new(known.desired),
            held: known.held.map(|held| Held {
                hold: (held.size).map_or(Hold::Pause, |size| Hold::Size(Replicas::new(size))),
                until: Timestamp::from_nanos(held.until),
            }),
            burst: known.burst.map(size),
            stalled_since: known.stalled_since.map(Timestamp::from_nanos),
            ready: known.ready_seen.map(Replicas::new),
        }
    }
}

impl From<&PastSeries> for Series {
    fn from(past: &PastSeries) -> Self {
        Self {
            points: past.points.iter().map(point_to).collect(),
            cumulative: past.cumulative,
            level: past.level,
            is_of_means: past.is_of_means,
            missing: past.missing.map(missing_to),
        }
    }
}

impl From<Series> for PastSeries {
    fn from(series: Series) -> Self {
        Self {
            points: series.points.into_iter().map(point_from).collect(),
            cumulative: series.cumulative,
            level: series.level,
            is_of_means: series.is_of_means,
            missing: (series.missing).map(|(missing, age)| missing_of(missing, age)),
        }
    }
}

fn point_to(&(at, value): &(Timestamp, f64)) -> Point {
    (at.as_nanos(), value)
}

fn point_from((at, value): Point) -> (Timestamp, f64) {
    (Timestamp::from_nanos(at), value)
}

/// 2^64 ns are 584 years; longer spans are that long.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
