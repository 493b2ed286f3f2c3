//! What is allowed and worth a look where others measure a fleet: spans too short for how the
//! numbers move, sources that are silent at zero, queries of another kind than their policy takes.

use std::time::Duration;

use crate::config::error::{Located, Place, Problems};
use crate::config::query::Query;
use crate::config::raw;
use crate::config::{
    EnvoyEstimator, FleetConfig, MeasuredSettings, MetricKind, PolicySettings, Target,
};

/// Readings in a window from which a rate is steady.
const READINGS: u32 = 4;
/// How often Envoy merges its histograms unless told otherwise.
const STATS_FLUSH: Duration = Duration::from_secs(5);
/// How the names of metrics begin that servers tell of themselves, and are gone with them.
const SERVERS: [&str; 6] = [
    "nv_",
    "vllm:",
    "sglang:",
    "tgi_",
    "ts_",
    "ray_serve_replica_",
];

/// Warns of what a measured fleet's keys may bring about.
pub(super) fn warn_of_measuring(raw: &raw::Fleet, fleet: &FleetConfig, problems: &mut Problems) {
    let (Some(measured), Some(source)) = (&fleet.measured, &raw.source) else {
        return;
    };
    let places = Places::of(raw, source);
    match measured {
        MeasuredSettings::Envoy(envoy) => {
            warn_of_window(fleet, envoy.every, &places, problems);
            if envoy.estimator == EnvoyEstimator::TimeSum {
                warn_of_flush(fleet, &places, problems);
            }
        }
        MeasuredSettings::Vllm(servers) => {
            warn_of_window(fleet, servers.every, &places, problems);
            warn_of_silence(fleet, &places, "vLLM servers", problems);
        }
        MeasuredSettings::Prometheus(_) => {
            if let Some(keys) = &source.value.prometheus {
                warn_of_queries(&keys.value, fleet, &places, problems);
            }
        }
    }
}

/// Where keys stand that a warning may name.
struct Places {
    window: Place,
    minimum: Place,
    kind: Place,
}

impl Places {
    /// Finds them; a key that is not there is named at its fleet's source.
    fn of(raw: &raw::Fleet, source: &Located<raw::Source>) -> Self {
        let scaling = raw.scaling.as_ref().map(|scaling| &scaling.value);
        let fleet = source.place.key.trim_end_matches(".source");
        let or_source = |place: Option<&Place>, key: &str| {
            place.cloned().unwrap_or_else(|| Place {
                key: format!("{fleet}.{key}"),
                ..source.place.clone()
            })
        };
        let window = scaling.and_then(|keys| keys.window.as_ref());
        let kind = scaling.and_then(|keys| keys.kind.as_ref());
        let bounds = raw.replicas.as_ref().map(|bounds| &bounds.value);
        let minimum = bounds.and_then(|bounds| bounds.min.as_ref());
        Self {
            window: or_source(window.map(|key| &key.place), "scaling.window"),
            minimum: or_source(minimum.map(|key| &key.place), "replicas.min"),
            kind: or_source(kind.map(|key| &key.place), "scaling.kind"),
        }
    }
}

fn window_of(fleet: &FleetConfig) -> Option<Duration> {
    match fleet.scaling.policy {
        PolicySettings::Occupancy { window, .. } | PolicySettings::Concurrency { window, .. } => {
            Some(window)
        }
        PolicySettings::Staffing { .. } | PolicySettings::Metric { .. } => None,
    }
}

fn warn_of_window(fleet: &FleetConfig, every: Duration, places: &Places, problems: &mut Problems) {
    if let Some(window) = window_of(fleet).filter(|window| *window < every * READINGS) {
        let what = format!(
            "{window:?} holds fewer than {READINGS} readings, one every {every:?}: at least {:?}, \
             or read more often (`every`)",
            every * READINGS
        );
        problems.warn(&places.window, what);
    }
}

fn warn_of_flush(fleet: &FleetConfig, places: &Places, problems: &mut Problems) {
    let least = STATS_FLUSH * READINGS;
    if let Some(window) = window_of(fleet).filter(|window| *window < least) {
        let what = format!(
            "{window:?} with `estimator: time_sum`: Envoy moves that sum only with its stats \
             flush, every {STATS_FLUSH:?} by default, so that the rate comes in steps: at least \
             {least:?}, a shorter `stats_flush_interval` in Envoy, or `estimator: gauges`"
        );
        problems.warn(&places.window, what);
    }
}

fn warn_of_silence(fleet: &FleetConfig, places: &Places, who: &str, problems: &mut Problems) {
    if fleet.replicas_min.get() > 0 || matches!(fleet.target, Target::Advise) {
        return;
    }
    let what = format!(
        "0 with numbers that only the {who} tell: with none of them running nothing is known of \
         requests that wait, and nothing wakes the fleet; `min: 1`, or a source that counts \
         before the servers (`gateway` or `envoy`)"
    );
    problems.warn(&places.minimum, what);
}

fn warn_of_queries(
    keys: &raw::Prometheus,
    fleet: &FleetConfig,
    places: &Places,
    problems: &mut Problems,
) {
    let given = [
        &keys.in_flight,
        &keys.executing,
        &keys.replicas,
        &keys.query,
    ];
    for key in given.into_iter().flatten() {
        let query = match Query::read(&key.value) {
            Ok(query) => query,
            Err(error) => {
                problems.warn(
                    &key.place,
                    format!("is no PromQL that we can read: {error}"),
                );
                continue;
            }
        };
        for read in query.reads() {
            if read.span.is_none() && read.name.ends_with("_total") {
                let what = format!(
                    "{} is a counter by its name, and is taken as it is: is `rate(…)` missing?",
                    read.name
                );
                problems.warn(&key.place, what);
            }
            let is_histogram = read.name.contains("upstream_rq_time");
            let least = STATS_FLUSH * READINGS;
            if let Some(span) = read.span.filter(|span| is_histogram && *span < least) {
                let what = format!(
                    "{}[{span:?}]: Envoy moves it only with its stats flush, every \
                     {STATS_FLUSH:?} by default: at least {least:?}",
                    read.name
                );
                problems.warn(&key.place, what);
            }
        }
        if key.place.key.ends_with(".query") {
            warn_of_kind(&query, fleet, places, problems);
        }
    }
    let load = keys.in_flight.as_ref().or(keys.query.as_ref());
    let load = load.and_then(|key| Query::read(&key.value).ok());
    let is_of_servers = |name: &str| SERVERS.iter().any(|prefix| name.starts_with(prefix));
    let reads = load.as_ref().map(Query::reads).unwrap_or_default();
    if !reads.is_empty() && reads.iter().all(|read| is_of_servers(read.name)) {
        warn_of_silence(fleet, places, "servers", problems);
    }
}

/// Asks whether a number is of the kind that the policy takes it for.
fn warn_of_kind(query: &Query, fleet: &FleetConfig, places: &Places, problems: &mut Problems) {
    let PolicySettings::Metric { kind, .. } = fleet.scaling.policy else {
        return;
    };
    let what = match (kind, query.is_total()) {
        (MetricKind::AverageValue, Some(false)) => {
            "is `average_value`, and by its form the query does not grow with the fleet (a ratio, \
             a mean, a latency): it would be divided by the replicas once more. Is it \
             `kind: value`?"
        }
        (MetricKind::Value, Some(true)) => {
            "is `value`, and by its form the query is a total of the fleet: it would be multiplied \
             by the replicas once more. Is it `kind: average_value`?"
        }
        (MetricKind::AverageValue | MetricKind::Value, _) => return,
    };
    problems.warn(&places.kind, what);
}
