//! The settings of each part of one fleet, from those of the fleet.

use std::path::{Path, PathBuf};

use crate::config::{FleetConfig, PrometheusSettings, Target};
use crate::endpoints::{self, HealthSettings};
use crate::fleet::External;
use crate::gates::ext_authz::ExtAuthzConfig;
use crate::gateway::{GatewayConfig, SessionBy};
use crate::ports::FleetSettings;
use crate::publish;
use crate::runtime::model_rows::ModelRows;
use crate::runtime::wiring;
use crate::sources::{MeasuredConfig, PeersConfig};
use crate::targets::process::ProcessConfig;

/// The settings of a fleet's parts.
#[derive(Clone)]
pub(super) struct PartSettings {
    pub(super) rows: ModelRows,
    pub(super) control: FleetSettings,
    /// `None` where the load is measured elsewhere only.
    pub(super) gateway: Option<GatewayConfig>,
    pub(super) peers: Option<PeersConfig>,
    /// How the questions of Envoys are read, where some ask.
    pub(super) ext_authz: Option<ExtAuthzConfig>,
    /// What measures it beside gateways.
    pub(super) measured: Option<MeasuredConfig>,
    /// What is asked queries about it.
    pub(super) queried: Option<PrometheusSettings>,
    pub(super) process: Option<ProcessConfig>,
    /// Who else is told of the replicas that it starts.
    pub(super) publish: Option<publish::Settings>,
    /// What an autoscaler outside is told.
    pub(super) external: Option<External>,
    /// Where the replicas are that nobody here starts.
    pub(super) endpoints: Option<endpoints::Settings>,
    pub(super) health: Option<HealthSettings>,
}

impl PartSettings {
    pub(super) fn new(config: &FleetConfig, rows: &ModelRows) -> anyhow::Result<Self> {
        let rows = rows.with(&config.models)?;
        Ok(Self {
            control: wiring::settings(config, &rows)?,
            gateway: (config.gateway.as_ref())
                .map(|settings| wiring::gateway(config, settings, &rows)),
            peers: wiring::peers(config),
            ext_authz: wiring::ext_authz(config),
            measured: wiring::measured(config),
            queried: wiring::queried(config),
            publish: wiring::publish(config),
            process: match &config.target {
                Target::Process(settings) => Some(wiring::process(config, settings)?),
                Target::Advise | Target::Keda { .. } => None,
            },
            external: wiring::external(config),
            endpoints: wiring::endpoints(config),
            health: wiring::health(config),
            rows,
        })
    }

    /// Whether the replicas stay when we end.
    pub(super) fn keeps(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.settings().keeps)
    }

    /// The files that tell others of the replicas.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let publish = self.publish.iter();
        let files = publish.flat_map(|settings| settings.publish.files());
        files.map(Path::to_owned).collect()
    }

    /// Whether others are asked about the load than before, or otherwise.
    pub(super) fn measures_otherwise(&self, before: &Self) -> bool {
        self.measured != before.measured || self.queried != before.queried
    }

    /// Whether sessions are known in another way than before.
    pub(super) fn forgets_sessions(&self, before: &Self) -> bool {
        let of_gateway = |settings: &Self| settings.gateway.as_ref().map(|it| it.session.clone());
        let of_gate = |settings: &Self| settings.ext_authz.as_ref().map(|it| it.session.clone());
        of_gateway(self) != of_gateway(before) || of_gate(self) != of_gate(before)
    }

    /// Whether sessions end with us: those of connections have other connections with a later
    /// process of ours.
    pub(super) fn has_sessions_of_connections(&self) -> bool {
        let gateway = self.gateway.as_ref();
        gateway.is_some_and(|gateway| gateway.session == SessionBy::Address)
    }
}
