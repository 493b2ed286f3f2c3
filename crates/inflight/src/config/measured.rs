//! Settings of the systems that measure a fleet which nobody here serves: proxies, servers, a
//! monitoring system.

use std::time::Duration;

/// What measures a fleet whose requests pass neither us nor a peer of ours.
#[derive(Clone, Debug, PartialEq)]
pub enum MeasuredSettings {
    /// Proxies count what is in flight and who is healthy; servers say what they execute.
    Envoy(EnvoySettings),
    /// Servers of the vLLM kind say all of it.
    Vllm(ServersSettings),
    /// Answers of queries.
    Prometheus(PrometheusSettings),
}

/// Where pages are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PagesSettings {
    /// Listed pages, all different.
    pub listed: Vec<PageUrl>,
    /// A page of each address that its host's name has.
    pub dns: Option<PageUrl>,
    /// The name of a port of each replica that our target starts, which has its page there. There
    /// is at least one of these three.
    pub port: Option<String>,
}

/// A page that is read over HTTP without TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageUrl {
    /// Host and port.
    pub authority: String,
    /// Path and query; `/` where the file gives none.
    pub path: String,
}

/// Envoy in front of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvoySettings {
    /// Their admin interfaces.
    pub admin: PagesSettings,
    /// The cluster's name there.
    pub cluster: String,
    /// How the number in flight is got.
    pub estimator: EnvoyEstimator,
    /// How often each page is read.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// What serves behind them.
    pub backend: ServersSettings,
}

/// How the number in flight is got from a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvoyEstimator {
    /// The live gauges of active and waiting requests.
    Gauges,
    /// The rate of the time that completed requests took.
    TimeSum,
}

/// Servers that are asked for what they execute.
#[derive(Clone, Debug, PartialEq)]
pub struct ServersSettings {
    /// Their metric pages.
    pub metrics: PagesSettings,
    /// How the pages are read.
    pub kind: ServerKind,
    /// How often each page is read.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// What a server's page says, and by which names.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerKind {
    /// Triton.
    Triton {
        /// The models that clients call; empty: all.
        models: Vec<String>,
    },
    /// vLLM.
    Vllm {
        /// The model's name there; `None`: all.
        model: Option<String>,
        /// The part of the key-value cache to fill; `None`: not looked at.
        cache_target: Option<f64>,
    },
    /// Named metrics.
    Custom(CustomSettings),
}

/// The metrics of a server that we do not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomSettings {
    /// How what is executed is told.
    pub executing: CustomExecuting,
    /// The gauge of requests that wait inside the server.
    pub queued: Option<String>,
    /// Labels that a sample must have to count.
    pub labels: Vec<(String, String)>,
}

/// How a server tells what it executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomExecuting {
    /// A gauge of requests.
    Gauge(String),
    /// Counters of time, in so many units a second: the first less the second.
    Time {
        /// Time in the server.
        total: String,
        /// Time of it spent waiting.
        waiting: Option<String>,
        /// Units in a second.
        per_second: u32,
    },
}

/// Queries to a Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusSettings {
    /// Where its API is, without `/api/v1`.
    pub url: PageUrl,
    /// What is asked.
    pub queries: Queries,
    /// How often.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// What a Prometheus is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queries {
    /// Each term of the occupancy rule.
    Terms {
        /// Requests in flight.
        in_flight: String,
        /// Requests executing.
        executing: String,
        /// Healthy replicas.
        replicas: String,
    },
    /// A number of the user's own, for the `metric` policy.
    Metric {
        /// The number.
        query: String,
        /// Healthy replicas, where the number is one that does not grow with the fleet.
        replicas: Option<String>,
    },
}
