//! The keys of one fleet that say how it decides: scaling, admission, queue.

use std::time::Duration;

use inflight_core::Bytes;

use super::{
    Absent, DAY, HOUR, Items, KeyDoc, Keys, Located, MINUTE, MS, Node, Problems, SECOND,
    SectionDoc, Setting, absent, doc_text, document, key_name, mapping_of, range, section,
};
use crate::config::setting::{
    Address, Auto, Certificate, Choice, HEADER, Nothing, OneOf, Or, URL_PATH, Unlimited,
};

section! {
    /// How the number of replicas is decided. Some keys belong to one policy and are errors under
    /// another.
    Scaling {
        /// The rule. `staffing` sizes for the offered load with a margin and clears backlogs;
        /// `occupancy` divides what is in flight by what is executed; `concurrency` divides what
        /// is in flight by what replicas take; `metric` takes the answer of `prometheus.query`.
        policy: OneOf<Rule> = ["`staffing`; `occupancy` where others count; `metric` with `prometheus.query`"];
        /// Policy `staffing`: how much spare capacity to keep. `latency` keeps more.
        profile: OneOf<Profile> = ["`balanced`"];
        /// Policy `occupancy`: the inflation to aim for. With 2 a request may wait as long as it
        /// is served.
        threshold: f64 = ["2"], 0.1..=100.0;
        /// Policies `occupancy` and `concurrency`: the span that is averaged over. Queries average
        /// by themselves, so that with source `prometheus` the newest answer counts.
        window: Duration = ["60s; 1s with source `prometheus`"], SECOND..=HOUR;
        /// Policy `metric`, required there: how much of the number one replica is for
        /// (`average_value`), or what the number shall be at any size (`value`).
        target: f64 = unset, 0.001..=1e15;
        /// Policy `metric`: what the number is, in the words of Kubernetes' autoscaler: a total of
        /// the fleet, or one that does not grow with it.
        kind: OneOf<MetricKind> = ["`average_value`"];
        /// Policy `concurrency`: the part of a replica's slots to fill.
        utilization: f64 = ["1"], 0.05..=1.0;
        /// Policy `concurrency`: what counts as in flight over the window, its mean, or the
        /// average of the bucket's maxima (`peak`, which counts the gaps between short requests).
        measure: OneOf<Measured> = ["`mean`"];
        /// A fleet shrinks only to the largest size that was wanted in this span. `auto` follows
        /// the time replicas take to start, between 60 s and 300 s.
        down_window: Or<Auto, Duration> = "auto", Duration::ZERO..=DAY;
        /// Wishes that differ from the present size by no more than this part are ignored.
        tolerance: f64 = "0", 0.0..=0.9;
        /// How many replicas to add or remove at most in a span.
        step: Step = "{}";
        /// When to stop the last replica; only with `replicas.min: 0`.
        idle: Idle = "{}";
        /// What to do while the load is unknown.
        unknown: Unknown = "{}";
        /// The span within which requests count as concurrent for peaks.
        bucket: Duration = "100ms", MS..=MINUTE;
    }
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Rule {
    Staffing,
    Occupancy,
    Concurrency,
    Metric,
}

impl Choice for Rule {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("staffing", Self::Staffing),
        ("occupancy", Self::Occupancy),
        ("concurrency", Self::Concurrency),
        ("metric", Self::Metric),
    ];
}

/// What the number of the `metric` policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum MetricKind {
    AverageValue,
    Value,
}

impl Choice for MetricKind {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("average_value", Self::AverageValue),
        ("value", Self::Value),
    ];
}

/// The profiles of the staffing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Profile {
    Balanced,
    Latency,
}

impl Choice for Profile {
    const WORDS: &'static [(&'static str, Self)] =
        &[("balanced", Self::Balanced), ("latency", Self::Latency)];
}

/// What the concurrency rule measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Measured {
    Mean,
    Peak,
}

impl Choice for Measured {
    const WORDS: &'static [(&'static str, Self)] = &[("mean", Self::Mean), ("peak", Self::Peak)];
}

section! {
    /// Limits on single steps.
    Step {
        /// On the way up.
        up: Or<Unlimited, StepLimit> = "unlimited";
        /// On the way down.
        down: Or<Unlimited, StepLimit> = "unlimited";
    }
}

section! {
    /// At most so many replicas in a span.
    StepLimit {
        /// How many replicas.
        replicas: u32 = required, 1..=100_000;
        /// In which span.
        every: Duration = required, SECOND..=DAY;
    }
}

section! {
    /// When a fleet without requests is stopped altogether.
    Idle {
        /// How long nothing must have been in flight.
        grace: Duration = "60s", Duration::ZERO..=DAY;
    }
}

section! {
    /// What to do while the load is unknown: missing or stale readings are never taken for zero.
    Unknown {
        /// How long to keep the present size.
        hold: Duration = "120s", Duration::ZERO..=DAY;
        /// The size to go to afterwards, upward only. Within `replicas.min` and `replicas.max`.
        fallback: Or<Nothing, u32> = "none", 0..=100_000;
    }
}

section! {
    /// The gate that refuses new sessions, with 429 or `RESOURCE_EXHAUSTED`, while requests wait
    /// too long. A session under way is never refused, so retries cannot fill the fleet.
    Admission {
        /// The inflation above which new sessions are refused. With 3 a request waits twice as
        /// long as it is served.
        threshold: f64 = "3", 1.0..=1000.0;
        /// The inflation below which they are let in again.
        reopen: f64 = ["0.8 × `threshold`"], 0.5..=1000.0;
        /// When the gate may close: `at_max` only while the fleet cannot grow, or `always`.
        when: OneOf<WhenClosed> = "at_max";
        /// What a session is known by: the client's `address` and port, a header, or, with a `gate`,
        /// the client's `certificate` as Envoy tells it. Behind another proxy all clients have its
        /// address: then take one of the others.
        session: Or<Address, Or<Certificate, SessionHeader>> = "address";
        /// Paths that begin a session, each the whole path: a call there counts as new.
        first_calls: Vec<String> = "[]", Items { count: 0..=100, each: URL_PATH };
    }
}

/// When the gate may close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum WhenClosed {
    AtMax,
    Always,
}

impl Choice for WhenClosed {
    const WORDS: &'static [(&'static str, Self)] =
        &[("at_max", Self::AtMax), ("always", Self::Always)];
}

section! {
    /// A session known by a header.
    SessionHeader {
        /// The header's name. A request without it is known by its connection.
        header: String = required, HEADER;
    }
}

section! {
    /// The bounds of the queue that holds requests until a slot is free. A request beyond them is
    /// refused.
    Queue {
        /// How many requests may wait.
        requests: u32 = "1000", 1..=1_000_000;
        /// How many bytes of their bodies may be held.
        bytes: Bytes = "64MB", 0..=64_000_000_000;
        /// How long one may wait.
        wait: Duration = "30s", MS..=HOUR;
        /// How long one may wait while no replica is ready.
        cold_wait: Duration = "5m", MS..=DAY;
    }
}
