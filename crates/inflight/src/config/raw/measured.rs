//! The keys of sources that are asked over the network: proxies, servers, a monitoring system.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    Absent, Items, KeyDoc, Keys, Located, Node, Problems, SectionDoc, Setting, absent, doc_text,
    document, key_name, mapping_of, range, section,
};
use crate::config::setting::{ARGUMENT, Choice, METRIC, Off, OneOf, Or, PAGE, PORT_NAME, QUERY};

section! {
    /// Envoy in front of the fleet. It tells what is in flight, how many replicas are healthy and
    /// what its circuit breaker refused; the servers behind it tell what they execute.
    Envoy {
        /// The admin interfaces of the Envoys, each `http://HOST:PORT`.
        admin: Vec<String> = "[]", Items { count: 0..=100, each: PAGE };
        /// The same as a DNS name: each address of it is an Envoy. It is resolved again every 5 s.
        dns: String = unset, PAGE;
        /// The cluster's name in Envoy.
        cluster: String = required, ARGUMENT;
        /// How the number in flight is got. `gauges` are live; `time_sum` is the rate of the time
        /// that completed requests took, as in PromQL: it lags by the length of a request and by
        /// Envoy's stats flush, and reads too little while a backlog grows.
        estimator: OneOf<Estimator> = "gauges";
        /// What serves behind it.
        backend: Backend = required;
        /// How often each page is read, the servers' too.
        every: Duration = "1s", Duration::from_millis(100)..=Duration::from_secs(10);
        /// How long an answer may take, connecting included.
        timeout: Duration = "2s", Duration::from_millis(10)..=Duration::from_secs(10);
    }
}

/// How the number in flight is got from a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Estimator {
    Gauges,
    TimeSum,
}

impl Choice for Estimator {
    const WORDS: &'static [(&'static str, Self)] =
        &[("gauges", Self::Gauges), ("time_sum", Self::TimeSum)];
}

section! {
    /// What serves behind a proxy. One of these.
    Backend {
        /// NVIDIA Triton.
        triton: Triton = unset;
        /// vLLM.
        vllm: Vllm = unset;
        /// Another server, by the names of its metrics.
        custom: Custom = unset;
    }
}

section! {
    /// Triton's metric pages. What it executes is known from counters that move when requests
    /// complete; what waits in it is a live gauge.
    Triton {
        /// Their pages, each `http://HOST:PORT/metrics`.
        metrics: Vec<String> = "[]", Items { count: 0..=1_000, each: PAGE };
        /// The same as a DNS name: each address of it is a server. It is resolved again every 5 s.
        dns: String = unset, PAGE;
        /// Instead of both: `/metrics` at this port of each replica that target `process` runs, one of
        /// its `ports`.
        port: String = unset, PORT_NAME;
        /// The models that clients call. Where ensembles or models that call others run, name
        /// those alone: what they call is counted in them. Empty: all models.
        models: Vec<String> = "[]", Items { count: 0..=1_000, each: ARGUMENT };
    }
}

section! {
    /// vLLM's metric pages: running and waiting requests, live.
    Vllm {
        /// Their pages, each `http://HOST:PORT/metrics`.
        metrics: Vec<String> = "[]", Items { count: 0..=1_000, each: PAGE };
        /// The same as a DNS name: each address of it is a server. It is resolved again every 5 s.
        dns: String = unset, PAGE;
        /// Instead of both: `/metrics` at this port of each replica that target `process` runs, one of
        /// its `ports`.
        port: String = unset, PORT_NAME;
        /// The model's name there (label `model_name`). Unset: all that it serves.
        model: String = unset, ARGUMENT;
        /// How full the key-value cache may be, as a second reason to grow: the fleet is as large
        /// as the larger of the two wishes.
        cache_target: Or<Off, f64> = "off", 0.1..=1.0;
    }
}

section! {
    /// A server by the names of its metrics, or by a preset that names them.
    Custom {
        /// Their pages, each `http://HOST:PORT/metrics`.
        metrics: Vec<String> = "[]", Items { count: 0..=1_000, each: PAGE };
        /// The same as a DNS name: each address of it is a server. It is resolved again every 5 s.
        dns: String = unset, PAGE;
        /// Instead of both: `/metrics` at this port of each replica that target `process` runs, one of
        /// its `ports`.
        port: String = unset, PORT_NAME;
        /// The names of a known server.
        preset: OneOf<Preset> = unset;
        /// The gauge of requests being worked on. Either this or `executing_time`.
        executing: String = unset, METRIC;
        /// The counter of the time that requests took in the server.
        executing_time: String = unset, METRIC;
        /// The counter of the part of it that they waited, which is taken off.
        waiting_time: String = unset, METRIC;
        /// The unit of both counters.
        unit: OneOf<Unit> = ["`s`"];
        /// The gauge of requests that wait in the server.
        queued: String = unset, METRIC;
        /// Labels that a sample must have to count, each with its whole value.
        labels: BTreeMap<String, String> = "{}";
    }
}

/// Servers whose metrics are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Preset {
    Torchserve,
    RayServe,
    Tgi,
    Sglang,
}

impl Choice for Preset {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("torchserve", Self::Torchserve),
        ("ray_serve", Self::RayServe),
        ("tgi", Self::Tgi),
        ("sglang", Self::Sglang),
    ];
}

/// Units of counters of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
}

impl Choice for Unit {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("s", Self::Seconds),
        ("ms", Self::Milliseconds),
        ("us", Self::Microseconds),
    ];
}

section! {
    /// A Prometheus that is asked for the terms of the occupancy rule, or for one number of your
    /// own. An empty answer, one with several rows, NaN and infinity are unknown, never zero.
    Prometheus {
        /// Where its API is, `http://HOST:PORT`, with a path where it has one.
        url: String = required, PAGE;
        /// Requests in flight.
        in_flight: String = unset, QUERY;
        /// Requests executing.
        executing: String = unset, QUERY;
        /// Healthy replicas.
        replicas: String = unset, QUERY;
        /// Instead of these, for policy `metric`: the number, taken as it is.
        query: String = unset, QUERY;
        /// How often.
        every: Duration = "5s", Duration::from_secs(1)..=Duration::from_secs(60);
        /// How long an answer may take, connecting included.
        timeout: Duration = "5s", Duration::from_millis(10)..=Duration::from_secs(30);
    }
}
