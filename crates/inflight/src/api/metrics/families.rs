//! The metrics: names, meanings, labels, and where each value is found in a reading.

use inflight_core::load::ModelCounts;
use prometheus_client::metrics::histogram::Histogram;

use super::Reading;
use crate::fleet::{Asked, Timings};
use crate::ports::HoldKind;

/// The family of the instance, without the `_info` that its type adds.
pub(super) const INSTANCE_INFO: &str = "inflight_instance";
/// The family of how long the instance has run.
pub(super) const UPTIME: &str = "inflight_uptime_seconds";
/// The family of the version, without the `_info` that its type adds.
pub(super) const BUILD_INFO: &str = "inflight_build";

/// How often the configuration was read again, without the `_total` of a counter.
pub(super) const CONFIGURATION_RELOADS: &str = "inflight_configuration_reloads";

/// Whether the configuration file is refused.
pub(super) const CONFIGURATION_REFUSED: &str = "inflight_configuration_refused";

/// The lines of the journal that were lost, without the `_total` that its type adds.
pub(super) const JOURNAL_LOST: &str = "inflight_journal_lost_lines";

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
    /// A model, by the name that the configuration gives it.
    pub(super) model: Option<String>,
    pub(super) label: Option<(&'static str, &'static str)>,
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
    /// Tells whether a fleet has the family: some are of what passes our gateway, some of what is
    /// asked about at a gate.
    pub(super) fn is_of(&self, reading: &Reading) -> bool {
        reading.has_gateway
            || WITHOUT_GATEWAY.contains(&self.name)
            || (reading.checks.is_some() && OF_ADMISSION.contains(&self.name))
    }

    /// Returns the name as a query spells it.
    pub(super) fn full_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge => self.name.to_owned(),
        }
    }
}

/// The families that a fleet without a gateway of ours has as well.
const WITHOUT_GATEWAY: &[&str] = &[
    "inflight_replicas",
    "inflight_decisions",
    "inflight_observation_age_seconds",
    "inflight_unreachable_peers",
    "inflight_inflation",
    "inflight_replica_crashes",
    "inflight_unwritten_files",
    "inflight_keda_calls",
    "inflight_keda_unanswered",
];

/// The families of a gate before new sessions, wherever it is.
const OF_ADMISSION: &[&str] = &[
    "inflight_refused",
    "inflight_admission_open",
    "inflight_sessions",
    "inflight_checks",
    "inflight_held_calls",
    "inflight_load_unknown",
];

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
            let checks = reading.checks.as_ref();
            let refused = checks.map_or(&reading.load.refused, |checks| &checks.counts.refused);
            let refused = refused.iter();
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
        help: "How long ago the load was observed that is decided on, by source; absent before \
               the first decision and while it is unknown",
        samples: |reading| {
            let gateway = reading.gateway_age.map(|age| ("gateway", age));
            let peers = reading.peers_ages.iter();
            let ages = gateway.into_iter();
            let ages = ages.chain(peers.map(|&(kind, age)| (kind.name(), age)));
            let samples = ages.map(|(source, age)| Sample {
                model: None,
                label: Some(("source", source)),
                value: Value::Number(age.as_secs_f64()),
            });
            samples.collect()
        },
    },
    Family {
        name: "inflight_keda_calls",
        kind: Kind::Counter,
        help: "Calls of KEDA about the fleet, by what it called; when GetMetrics stops growing, \
               nobody asks",
        samples: |reading| {
            let asked = reading.asked.iter();
            by("call", asked.flat_map(Asked::questions))
        },
    },
    Family {
        name: "inflight_keda_unanswered",
        kind: Kind::Counter,
        help: "Calls of KEDA about the fleet that were answered with an error, by reason",
        samples: |reading| {
            let asked = reading.asked.iter();
            by("reason", asked.flat_map(Asked::unanswered))
        },
    },
    Family {
        name: "inflight_unreachable_peers",
        kind: Kind::Gauge,
        help: "Others who are asked about this fleet, instances, proxies and servers, and did not \
               answer in time; what they said last is held for 30 s, or for three times `every` of \
               source prometheus where that is longer",
        samples: |reading| {
            let unreachable = reading
                .unreachable_peers
                .map(|count| plain(Value::Count(widened(count))));
            unreachable.unwrap_or_default()
        },
    },
    Family {
        name: "inflight_model_requests",
        kind: Kind::Gauge,
        help: "Requests in flight at this moment, by model and state",
        samples: |reading| by_model_and_state(reading, |row| (row.executing, row.queued)),
    },
    Family {
        name: "inflight_model_seconds",
        kind: Kind::Counter,
        help: "Requests in flight by model and state, integrated over time: its rate is the exact \
               mean",
        samples: |reading| {
            by_model_and_state(reading, |row| (row.executing_seconds, row.queued_seconds))
        },
    },
    Family {
        name: "inflight_model_arrivals",
        kind: Kind::Counter,
        help: "Requests that were let in, by model",
        samples: |reading| by_model(reading, |row| row.arrivals),
    },
    Family {
        name: "inflight_model_completions",
        kind: Kind::Counter,
        help: "Requests that ended after a replica had worked on them, by model",
        samples: |reading| by_model(reading, |row| row.completions),
    },
    Family {
        name: "inflight_model_service_seconds",
        kind: Kind::Counter,
        help: "Time that replicas worked on the completed requests, by model",
        samples: |reading| by_model(reading, |row| row.service_seconds),
    },
    Family {
        name: "inflight_inflation",
        kind: Kind::Gauge,
        help: "In flight / max(executing, replicas), over 10 s, as the admission gate judges it: \
               1 = nobody waits, 2 = requests wait as long as they are served; absent while unknown",
        samples: |reading| {
            reading
                .load
                .inflation
                .map(Value::Number)
                .map(plain)
                .unwrap_or_default()
        },
    },
    Family {
        name: "inflight_held",
        kind: Kind::Gauge,
        help: "1 while a person holds the size, by kind: pause keeps it as it is, size sets it",
        samples: |reading| {
            let held = |kind| u64::from(reading.held == Some(kind));
            let kinds = [HoldKind::Pause, HoldKind::Size];
            by("kind", kinds.map(|kind| (kind.name(), held(kind))))
        },
    },
    Family {
        name: "inflight_admission_open",
        kind: Kind::Gauge,
        help: "1 while new sessions are let in, 0 while they are refused",
        samples: |reading| {
            let checks = reading.checks.as_ref();
            let is_open = checks.map_or(reading.load.admission_open, |checks| checks.is_open);
            plain(Value::Count(u64::from(is_open)))
        },
    },
    Family {
        name: "inflight_checks",
        kind: Kind::Counter,
        help: "Calls that a proxy asked about, by the answer: let in as part of a running session, \
               as a new one, or since the load is unknown; refused; or gone while they waited",
        samples: |reading| {
            let counts = reading.checks.map(|checks| checks.counts);
            let outcomes = counts.map(|counts| {
                [
                    ("running", counts.running),
                    ("new", counts.new),
                    ("load_unknown", counts.unknown),
                    ("refused", counts.refused.total()),
                    ("left", counts.left),
                ]
            });
            by("outcome", outcomes.into_iter().flatten())
        },
    },
    Family {
        name: "inflight_held_calls",
        kind: Kind::Gauge,
        help: "Calls that wait at the gate of a proxy for a first replica",
        samples: |reading| {
            let held = reading.checks.map(|checks| widened(checks.held));
            held.map(|held| plain(Value::Count(held)))
                .unwrap_or_default()
        },
    },
    Family {
        name: "inflight_load_unknown",
        kind: Kind::Gauge,
        help: "1 while the load has been unknown for so long that the gate of a proxy goes by \
               on_failure, else 0",
        samples: |reading| {
            let is_blind = reading.checks.map(|checks| u64::from(checks.is_blind));
            is_blind
                .map(|blind| plain(Value::Count(blind)))
                .unwrap_or_default()
        },
    },
    Family {
        name: "inflight_sessions",
        kind: Kind::Gauge,
        help: "Sessions that are remembered; the oldest is forgotten beyond 100000",
        samples: |reading| {
            let checks = reading.checks.as_ref();
            let sessions = checks.map_or(reading.load.sessions, |checks| checks.sessions);
            plain(Value::Count(widened(sessions)))
        },
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
        name: "inflight_unwritten_files",
        kind: Kind::Gauge,
        help: "Files that tell others of the replicas and cannot be written (absent where none is \
               configured)",
        samples: |reading| {
            let count = reading.unwritten_files.map(Value::Count);
            count.map(plain).unwrap_or_default()
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
    if !reading.knows_replicas {
        let seen = [("desired", reading.desired), ("ready", reading.peers_ready)];
        let known = seen.into_iter();
        return by(
            "state",
            known.filter_map(|(state, count)| Some((state, u64::from(count?)))),
        );
    }
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

fn plain(value: Value) -> Vec<Sample> {
    vec![Sample {
        model: None,
        label: None,
        value,
    }]
}

fn by(key: &'static str, values: impl IntoIterator<Item = (&'static str, u64)>) -> Vec<Sample> {
    let sample = |(word, count)| Sample {
        model: None,
        label: Some((key, word)),
        value: Value::Count(count),
    };
    values.into_iter().map(sample).collect()
}

fn by_model(reading: &Reading, value: fn(&ModelCounts) -> f64) -> Vec<Sample> {
    let rows = reading.models.iter().zip(&reading.load.models);
    rows.map(|(name, row)| Sample {
        model: Some(name.clone()),
        label: None,
        value: Value::Number(value(row)),
    })
    .collect()
}

fn by_model_and_state(reading: &Reading, value: fn(&ModelCounts) -> (f64, f64)) -> Vec<Sample> {
    let rows = reading.models.iter().zip(&reading.load.models);
    rows.flat_map(|(name, row)| {
        let (executing, queued) = value(row);
        [("executing", executing), ("queued", queued)].map(|(state, value)| Sample {
            model: Some(name.clone()),
            label: Some(("state", state)),
            value: Value::Number(value),
        })
    })
    .collect()
}

fn widened(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
