//! The metrics: names, meanings, labels, and where each value is found in a reading.

use inflight_core::admission::ModelShare;
use prometheus_client::metrics::histogram::Histogram;

use super::Reading;
use crate::fleet::Timings;

/// The family of the version, without the `_info` that its type adds.
pub(super) const BUILD_INFO: &str = "inflight_build";

/// Metrics of one name.
pub(super) struct Family {
    /// The name, without the `_total` that a counter adds.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What it says, for an operator.
    pub(super) help: &'static str,
    /// The samples of one fleet; an unknown value has none.
    pub(super) samples: fn(&Reading) -> Vec<Sample>,
}

/// How values of a family move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only up.
    Counter,
    /// Up and down.
    Gauge,
}

/// One value of one fleet. Its label is a word of this program.
pub(super) struct Sample {
    pub(super) label: Option<(&'static str, &'static str)>,
    /// The row of the model that it is of.
    pub(super) model: Option<usize>,
    pub(super) value: Value,
}

/// A whole number or a fraction.
pub(super) enum Value {
    Count(u64),
    Number(f64),
}

/// Histograms of one name.
pub(super) struct HistogramFamily {
    pub(super) name: &'static str,
    /// What it says, for an operator.
    pub(super) help: &'static str,
    pub(super) histogram: fn(&Timings) -> &Histogram,
}

impl Family {
    /// Returns the name as a query spells it.
    pub(super) fn full_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge => self.name.to_owned(),
        }
    }
}

/// Every counter and gauge, in the order of the page.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "inflight_request_seconds",
        kind: Kind::Counter,
        help: "Requests in flight, integrated over time: its rate over any window is the exact \
               mean number in flight",
        samples: |reading| plain(Value::Number(reading.load.in_flight_seconds)),
    },
    Family {
        name: "inflight_executing_seconds",
        kind: Kind::Counter,
        help: "Requests executing, integrated over time: its rate is the mean number of busy slots",
        samples: |reading| plain(Value::Number(reading.load.executing_seconds)),
    },
    Family {
        name: "inflight_queued_seconds",
        kind: Kind::Counter,
        help: "Requests queued, integrated over time: its rate is the mean number waiting for a slot",
        samples: |reading| plain(Value::Number(reading.load.queued_seconds)),
    },
    Family {
        name: "inflight_peak_seconds",
        kind: Kind::Counter,
        help: "The most requests in flight in each bucket of time (100 ms unless configured), \
               integrated over time: its rate is the mean of the peaks; never sum it over gateways",
        samples: |reading| plain(Value::Number(reading.load.peak_seconds)),
    },
    Family {
        name: "inflight_requests",
        kind: Kind::Gauge,
        help: "Requests in flight at this moment, by state; the sum over the states is all of them",
        samples: |reading| {
            let load = &reading.load;
            by(
                "state",
                [("executing", load.executing), ("queued", load.queued)],
            )
        },
    },
    Family {
        name: "inflight_replicas",
        kind: Kind::Gauge,
        help: "Replicas by state, and under state=\"desired\" the size decided last (absent before \
               the first decision)",
        samples: replicas,
    },
    Family {
        name: "inflight_requests",
        kind: Kind::Counter,
        help: "Requests that were let in and have ended, by how they ended",
        samples: |reading| {
            let load = &reading.load;
            let outcomes = [
                ("completed", load.completed),
                ("client_gone", load.client_gone),
                ("upstream_failed", load.upstream_failed),
                ("timed_out", load.timed_out),
            ];
            by("outcome", outcomes)
        },
    },
    Family {
        name: "inflight_refused",
        kind: Kind::Counter,
        help: "Requests that were refused, on arrival or after waiting, by reason",
        samples: |reading| {
            let refused = reading.load.refused.iter();
            by(
                "reason",
                refused.map(|(reason, count)| (reason.name(), count)),
            )
        },
    },
    Family {
        name: "inflight_decisions",
        kind: Kind::Counter,
        help: "Decisions about the size, by what they did to it; one that stops growing means \
               that nobody decides",
        samples: |reading| {
            let made = reading.decisions;
            by(
                "direction",
                [("up", made.up), ("down", made.down), ("hold", made.hold)],
            )
        },
    },
    Family {
        name: "inflight_observation_age_seconds",
        kind: Kind::Gauge,
        help: "How long ago the load was observed that the last decision was made from; absent \
               before the first",
        samples: |reading| {
            let label = Some(("source", reading.source));
            reading
                .observation_age
                .map(|age| Sample {
                    label,
                    model: None,
                    value: Value::Number(age),
                })
                .into_iter()
                .collect()
        },
    },
    Family {
        name: "inflight_inflation",
        kind: Kind::Gauge,
        help: "In flight / max(executing, replicas), over 10 s: 1 = nobody waits, 2 = requests \
               wait as long as they are served; absent while unknown",
        samples: |reading| {
            reading
                .estimate
                .inflation
                .map(Value::Number)
                .map(plain)
                .unwrap_or_default()
        },
    },
    Family {
        name: "inflight_admission_open",
        kind: Kind::Gauge,
        help: "1 while new sessions are let in, 0 while they are refused",
        samples: |reading| plain(Value::Count(u64::from(reading.load.admission_open))),
    },
    Family {
        name: "inflight_sessions",
        kind: Kind::Gauge,
        help: "Sessions that are remembered; the oldest is forgotten beyond 100000",
        samples: |reading| plain(Value::Count(widened(reading.load.sessions))),
    },
    Family {
        name: "inflight_queue_bytes",
        kind: Kind::Gauge,
        help: "Bytes of request bodies held for requests that wait",
        samples: |reading| plain(Value::Count(reading.load.queued_bytes.0)),
    },
    Family {
        name: "inflight_replica_crashes",
        kind: Kind::Counter,
        help: "Replicas that ended although nobody asked them to, or were unhealthy for too long",
        samples: |reading| plain(Value::Count(reading.crashes)),
    },
    Family {
        name: "inflight_endpoints_age_seconds",
        kind: Kind::Gauge,
        help: "How long ago the name of the endpoints was last resolved; while it is not, the last \
               known addresses stay (absent before the first answer, and without a name)",
        samples: |reading| {
            let age = reading.endpoints_age.map(Value::Number);
            age.map(plain).unwrap_or_default()
        },
    },
    Family {
        name: "inflight_model_requests",
        kind: Kind::Gauge,
        help: "Requests of one model in flight at this moment, by state (absent without named \
               models)",
        samples: |reading| {
            let executing = by_model(reading, Some("executing"), |it| Value::Count(it.executing));
            let queued = by_model(reading, Some("queued"), |it| Value::Count(it.queued));
            executing.chain(queued).collect()
        },
    },
    Family {
        name: "inflight_model_arrivals",
        kind: Kind::Counter,
        help: "Requests of one model that were let in",
        samples: |reading| by_model(reading, None, |it| Value::Count(it.arrivals)).collect(),
    },
    Family {
        name: "inflight_model_request_seconds",
        kind: Kind::Counter,
        help: "Requests of one model in flight, integrated over time",
        samples: |reading| {
            by_model(reading, None, |it| Value::Number(it.in_flight_seconds)).collect()
        },
    },
    Family {
        name: "inflight_model_executing_seconds",
        kind: Kind::Counter,
        help: "Requests of one model executing, integrated over time",
        samples: |reading| {
            by_model(reading, None, |it| Value::Number(it.executing_seconds)).collect()
        },
    },
];

/// Every histogram.
pub(super) const HISTOGRAMS: &[HistogramFamily] = &[
    HistogramFamily {
        name: "inflight_request_duration_seconds",
        help: "From a request's arrival to its end, queued time included",
        histogram: |timings| &timings.request,
    },
    HistogramFamily {
        name: "inflight_wait_duration_seconds",
        help: "From a request's arrival to its first slot, of requests that got one",
        histogram: |timings| &timings.wait,
    },
];

fn replicas(reading: &Reading) -> Vec<Sample> {
    let counts = reading.replicas;
    let states = [
        ("ready", counts.ready),
        ("starting", counts.starting),
        ("draining", counts.draining),
        ("unhealthy", counts.unhealthy),
    ];
    let desired = reading.desired.map(|desired| ("desired", desired));
    by(
        "state",
        desired
            .into_iter()
            .chain(states)
            .map(|(state, count)| (state, u64::from(count))),
    )
}

/// Returns a sample for each model that has a name.
fn by_model(
    reading: &Reading,
    state: Option<&'static str>,
    value: fn(&ModelShare) -> Value,
) -> impl Iterator<Item = Sample> {
    let shares = reading.load.models.iter().take(reading.models.len());
    shares.enumerate().map(move |(row, share)| Sample {
        label: state.map(|state| ("state", state)),
        model: Some(row),
        value: value(share),
    })
}

fn plain(value: Value) -> Vec<Sample> {
    vec![Sample {
        label: None,
        model: None,
        value,
    }]
}

fn by(key: &'static str, values: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<Sample> {
    let sample = |(word, count)| Sample {
        label: Some((key, word)),
        model: None,
        value: Value::Count(count),
    };
    values.into_iter().map(sample).collect()
}

fn widened(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
