//! The configuration: the YAML file, judged as a whole, as validated types.
//!
//! What cannot work is not built: whoever holds a [`Config`] need not check it again. The parts of
//! the shell take their own settings from it; none of them reads the file.

mod chart;
mod document;
mod envoy;
mod error;
mod gate;
mod measured;
mod publish;
mod query;
mod raw;
mod reference;
mod resolve;
mod section;
mod setting;
mod suggest;
mod surroundings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use inflight_core::{Bytes, Replicas, Slots};

pub use chart::{ChartAdvice, chart_advice};
pub use envoy::envoy_advice;
pub use error::{ConfigError, Located, Place, Problem};
pub use gate::{ExtAuthzSettings, GateMode, OnFailure, SessionBy};
pub use measured::{
    CustomExecuting, CustomSettings, EnvoyEstimator, EnvoySettings, MeasuredSettings, PageUrl,
    PagesSettings, PrometheusSettings, Queries, ServerKind, ServersSettings,
};
pub use publish::{EnvoyFile, PrometheusFile, PublishSettings};
pub use query::{QueryError, query_spans, read_query};
pub use reference::reference_page;
pub use setting::Network;
pub use surroundings::{NoSecret, Surroundings, read_secret};

/// Reads a duration as the file spells it (`90s`, `1.5h`) within a range.
///
/// # Errors
/// What is wrong with it, to follow the text in a message.
pub fn span_of(text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, &'static str> {
    setting::span_of(text, range)
}

/// Everything a configuration file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// What people and monitoring talk to.
    pub admin: AdminConfig,
    /// The folder of what outlives us; there if a fleet's replicas do.
    pub state_dir: Option<PathBuf>,
    /// Where what happens is written down; `None` writes nothing.
    pub journal: Option<JournalSettings>,
    /// The fleets in the order of the file; never empty, names distinct.
    pub fleets: Vec<FleetConfig>,
    /// What is allowed and yet worth a look, in the order of the file.
    pub warnings: Vec<Problem>,
}

impl Config {
    /// Reads and judges a file, in the surroundings that it will run in.
    ///
    /// *Errors*: the file cannot be read, or anything in it is wrong; then all that is.
    pub fn load(path: &Path, surroundings: &Surroundings) -> Result<Self, ConfigError> {
        Self::from_text(path, &Self::read(path)?, surroundings)
    }

    /// Reads a file and judges nothing.
    ///
    /// *Errors*: the file cannot be read.
    pub fn read(path: &Path) -> Result<String, ConfigError> {
        document::read(path).map_err(|error| ConfigError::Unreadable {
            path: path.to_owned(),
            error,
        })
    }

    /// Judges a text; `path` is only named in messages.
    ///
    /// *Errors*: anything in it is wrong; then all that is.
    pub fn from_text(
        path: &Path,
        text: &str,
        surroundings: &Surroundings,
    ) -> Result<Self, ConfigError> {
        resolve::resolve(text, surroundings).map_err(|problems| ConfigError::Invalid {
            path: path.to_owned(),
            text: text.to_owned(),
            problems,
        })
    }
}

/// Settings of the page, the API and the metrics.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Where to listen.
    pub listen: Located<SocketAddr>,
    /// A file with the token of those who may change things.
    pub token_file: Option<PathBuf>,
}

/// Settings of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// The file.
    pub file: PathBuf,
    /// The most that it and its predecessor take together.
    pub max_size: Bytes,
}

/// Settings of one fleet.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// Its name, fit to be a metric label.
    pub name: String,
    /// Its models; never empty. A fleet without named models has one row, named as the fleet.
    pub models: Vec<ModelConfig>,
    /// The fewest replicas; at most `replicas_max`.
    pub replicas_min: Replicas,
    /// The most replicas; at least one.
    pub replicas_max: Replicas,
    /// The gateway, which measures the load that comes in here.
    pub gateway: Option<GatewaySettings>,
    /// The instances that measure the load that comes in there.
    pub peers: Option<PeersSettings>,
    /// What else measures the load; there if and only if neither a gateway nor peers are.
    pub measured: Option<MeasuredSettings>,
    /// Where requests go.
    pub endpoints: Endpoints,
    /// How replicas are checked; `None`: they are not.
    pub health: Option<HealthSettings>,
    /// What changes the fleet.
    pub target: Target,
    /// How its size is decided.
    pub scaling: ScalingSettings,
    /// The gate before new sessions; `None` when it is switched off.
    pub admission: Option<AdmissionSettings>,
    /// How a session is known.
    pub session: SessionBy,
    /// Paths, compared as a whole, that begin a new session.
    pub first_calls: Vec<String>,
    /// The bounds of the hold queue.
    pub queue: QueueSettings,
    /// The gate that Envoys ask; there only where they measure the fleet.
    pub ext_authz: Option<ExtAuthzSettings>,
}

/// One model of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// Its name, fit to be a metric label.
    pub name: String,
    /// The beginning of its requests' paths, in whole segments.
    pub path: String,
    /// Headers that its requests carry, with their values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Requests one replica executes at the same time.
    pub slots: Slots,
}

/// Settings of a gateway.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Where clients connect.
    pub listen: Located<SocketAddr>,
    /// What is spoken with replicas.
    pub upstream: Upstream,
    /// Time limits.
    pub timeouts: TimeoutSettings,
    /// Limits on clients.
    pub limits: LimitSettings,
    /// Paths, compared as a whole, that are neither counted nor held.
    pub ignore_paths: Vec<String>,
    /// The header that says how long a client waits.
    pub deadline_header: Option<HeaderName>,
    /// Proxies whose word about their clients is believed.
    pub trusted_proxies: Vec<Network>,
    /// Whether a replica stops working on a request whose client left.
    pub cancellable: bool,
}

/// Which other instances count the same fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersSettings {
    /// Their admin addresses, host and port, all different.
    pub listed: Vec<String>,
    /// A name, with its port, each address of which is one; at least this or a listed one is there.
    pub dns: Option<String>,
    /// The fleet's name there.
    pub fleet: String,
    /// How often each is asked.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// What is spoken with replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// HTTP/2 for gRPC and HTTP/2 clients, else HTTP/1.1.
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 without TLS only.
    Http2,
}

/// Time limits of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeoutSettings {
    /// A request's head.
    pub head: Duration,
    /// Connecting to a replica.
    pub connect: Duration,
    /// From the request to the first byte of its answer.
    pub first_byte: Duration,
    /// A connection on which nothing moves.
    pub idle: Duration,
    /// Requests of a replica, or of all of inflight, that is to stop.
    pub drain: Duration,
}

/// Limits of a gateway on its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// A request's head.
    pub head: Bytes,
    /// A request's headers.
    pub headers: u32,
    /// Open connections.
    pub connections: u32,
}

/// Where a fleet's requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoints {
    /// To what the target starts.
    Target,
    /// Nowhere from here: no requests come in.
    Elsewhere,
    /// To fixed addresses; never empty, all different.
    Static(Vec<SocketAddr>),
    /// To the addresses of a name.
    Dns {
        /// The name and the port.
        name: String,
        /// From one answer to the next question.
        every: Duration,
        /// Which of its addresses count.
        family: IpFamily,
    },
}

/// Which addresses of a name count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    /// All.
    Any,
    /// Those of IPv4.
    Ipv4,
    /// Those of IPv6.
    Ipv6,
}

/// How replicas are checked that were ready, or that somebody else starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// What they are asked.
    pub probe: Probe,
    /// From one answer to the next question.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Checks failed in a row until one is unhealthy.
    pub unhealthy_after: NonZeroU32,
    /// Checks passed in a row until it is healthy again.
    pub healthy_after: NonZeroU32,
    /// How long a process may be unhealthy before it is replaced; `None`: for ever.
    pub restart_after: Option<Duration>,
}

/// What changes the fleet.
#[derive(Clone, Debug)]
pub enum Target {
    /// Nothing: decisions are told, not carried out.
    Advise,
    /// Processes on this machine.
    Process(Box<ProcessSettings>),
    /// KEDA's autoscaler, which asks at this address.
    Keda {
        /// Where to listen; other fleets may name the same address.
        listen: SocketAddr,
    },
}

/// How replicas are started as processes.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The program and its arguments; never empty. May hold `{port}`, `{port.NAME}` and
    /// `{replica}`.
    pub command: Located<Vec<String>>,
    /// Variables added to our own environment. Values may hold the same.
    pub env: BTreeMap<String, String>,
    /// Names of further ports, all different.
    pub ports: Vec<String>,
    /// How to tell that a replica is ready.
    pub ready: Probe,
    /// How often to ask.
    pub ready_every: Duration,
    /// How long a start may take.
    pub ready_timeout: Duration,
    /// From SIGTERM to SIGKILL.
    pub stop_grace: Duration,
    /// How long a draining replica may keep its requests.
    pub drain_timeout: Duration,
    /// Whether replicas stay when we end.
    pub keeps: bool,
    /// How long they then wait for the next inflight.
    pub orphan_grace: Duration,
    /// Who else is told of them; without a gateway at least an Envoy is.
    pub publish: PublishSettings,
}

/// How a replica is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A GET is answered with 200 to 299.
    Http {
        /// The path to ask.
        path: String,
    },
    /// The gRPC health service says SERVING.
    Grpc {
        /// The service to ask for.
        service: String,
    },
    /// The port takes connections.
    Tcp,
}

/// How a fleet's size is decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingSettings {
    /// The rule, with what belongs to it alone.
    pub policy: PolicySettings,
    /// The span whose largest wish a fleet shrinks to; `None` follows the start time.
    pub down_window: Option<Duration>,
    /// The part of the present size by which a wish may differ and be ignored; 0 to 0.9.
    pub tolerance: f64,
    /// The limit on steps up.
    pub step_up: Option<StepSettings>,
    /// The limit on steps down.
    pub step_down: Option<StepSettings>,
    /// How long nothing must have been in flight before the last replica stops.
    pub idle_grace: Duration,
    /// How long the size is kept while the load is unknown.
    pub unknown_hold: Duration,
    /// The size to go to afterwards, upward only; within the fleet's bounds.
    pub unknown_fallback: Option<Replicas>,
    /// The span within which requests count as concurrent for peaks.
    pub bucket: Duration,
}

/// A policy with what belongs to it alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicySettings {
    /// Offered slots, a margin, and the backlog.
    Staffing {
        /// How much spare capacity.
        profile: StaffingProfile,
    },
    /// In flight divided by executing.
    Occupancy {
        /// The inflation to aim for.
        threshold: f64,
        /// The span that is averaged over.
        window: Duration,
    },
    /// In flight divided by what replicas take.
    Concurrency {
        /// The part of the slots to fill; above 0, at most 1.
        utilization: f64,
        /// What counts as in flight.
        measure: Measure,
        /// The span that is averaged over.
        window: Duration,
    },
    /// A number from outside.
    Metric {
        /// How much of it one replica is for, or what it shall be.
        target: f64,
        /// Which of the two.
        kind: MetricKind,
    },
}

impl PolicySettings {
    /// Returns the policy's name, as in the file.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Staffing { .. } => "staffing",
            Self::Occupancy { .. } => "occupancy",
            Self::Concurrency { .. } => "concurrency",
            Self::Metric { .. } => "metric",
        }
    }
}

/// What the number of the metric policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A total of the fleet.
    AverageValue,
    /// One that does not grow with the fleet.
    Value,
}

/// How much spare capacity the staffing policy keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaffingProfile {
    /// For cost and latency alike.
    Balanced,
    /// For latency before cost.
    Latency,
}

/// What the concurrency policy takes for in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The exact mean.
    Mean,
    /// The average of bucket maxima.
    Peak,
}

/// At most so many replicas in a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSettings {
    /// How many; at least one.
    pub replicas: Replicas,
    /// In which span.
    pub every: Duration,
}

/// Settings of the gate before new sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionSettings {
    /// The inflation above which it closes.
    pub threshold: f64,
    /// The inflation below which it opens; at most `threshold`.
    pub reopen: f64,
    /// When it may close.
    pub when: CloseWhen,
}

/// When the gate may close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseWhen {
    /// Only while the fleet cannot grow.
    AtMax,
    /// At any size.
    Always,
}

/// The bounds of the hold queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Requests that wait; at least one.
    pub requests: u32,
    /// Bytes of their bodies.
    pub bytes: Bytes,
    /// How long one waits.
    pub wait: Duration,
    /// How long one waits while no replica is ready.
    pub cold_wait: Duration,
}
