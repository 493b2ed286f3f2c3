//! Settings of the files that tell other systems which replicas there are.

use std::path::PathBuf;
use std::time::Duration;

use super::PageUrl;

/// Who is told of the replicas that a target of ours starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishSettings {
    /// Envoys on this machine.
    pub envoy: Option<EnvoyFile>,
    /// A Prometheus.
    pub prometheus: Option<PrometheusFile>,
}

/// A file that Envoys read endpoints from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyFile {
    /// The file.
    pub file: PathBuf,
    /// The cluster that the endpoints are of.
    pub cluster: String,
    /// The admin interfaces of all Envoys that read it; never empty.
    pub admin: Vec<PageUrl>,
    /// How often each is asked what it has at which endpoint.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// A file that a Prometheus reads scrape targets from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusFile {
    /// The file.
    pub file: PathBuf,
    /// The name of the port that is scraped; `None`: the replica's own.
    pub port: Option<String>,
}
