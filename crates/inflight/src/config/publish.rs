//! Settings of the files that tell other systems which replicas there are.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{FleetConfig, PageUrl, Target};

/// Who is told of the replicas that a target of ours starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishSettings {
    /// Envoys on this machine.
    pub envoy: Option<EnvoyFile>,
    /// A Prometheus.
    pub prometheus: Option<PrometheusFile>,
}

impl PublishSettings {
    /// Returns the files that are written.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let envoy = self.envoy.as_ref().map(|it| it.file.as_path());
        let prometheus = self.prometheus.as_ref().map(|it| it.file.as_path());
        envoy.into_iter().chain(prometheus)
    }
}

impl FleetConfig {
    /// Returns who is told of the replicas; `None` where we start none.
    #[must_use]
    pub fn publish(&self) -> Option<&PublishSettings> {
        match &self.target {
            Target::Process(process) => Some(&process.publish),
            Target::Advise | Target::Keda { .. } => None,
        }
    }

    /// Returns the file by which we tell Envoys the replicas that we start.
    #[must_use]
    pub fn endpoints_file(&self) -> Option<&EnvoyFile> {
        self.publish()?.envoy.as_ref()
    }
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
