//! From a fleet's settings to what each part takes; nothing is decided or checked here.

use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, CheckConfig, CheckMode, GateConfig, HealthConfig, ModelConfig,
    OnUnknown, QueueBounds, When,
};
use inflight_core::load::Patience;
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, DownWindow, Measure, MetricConfig, MetricKind, OccupancyConfig,
    Policy, ScalingConfig, StaffingConfig, StepLimit, Tolerance,
};

use super::model_rows::ModelRows;
use crate::config::{
    self, AdmissionSettings, CloseWhen, Endpoints, FleetConfig, GateMode, GatewaySettings,
    MeasuredSettings, OnFailure, PolicySettings, PrometheusSettings, ServerKind, StaffingProfile,
    StepSettings, Target,
};
use crate::endpoints::{self, Comings, Family, HealthSettings};
use crate::fleet::External;
use crate::gates::ext_authz::{self, ExtAuthzConfig};
use crate::gateway::{GatewayConfig, Limits, ModelRoute, SessionBy, Timeouts, UpstreamProtocol};
use crate::ports::FleetSettings;
use crate::probe::Probe;
use crate::publish;
use crate::sources::{MeasuredConfig, PeersConfig};
use crate::story::journal::JournalConfig;
use crate::targets::process::{ProcessConfig, ProcessSettings};

/// What the gate is given when it is switched off and reads it nowhere.
const ADMISSION_OFF: AdmissionSettings = AdmissionSettings {
    threshold: 3.0,
    reopen: 2.4,
    when: CloseWhen::AtMax,
};
/// Sessions that are remembered; the oldest is dropped beyond it.
const SESSIONS_MAX: usize = 100_000;
/// How long after its last request a session counts as new again.
const SESSION_IDLE: Duration = Duration::from_secs(60);
/// The burst window as a part of the stable one; Knative's `panic-window-percentage`, 10 %.
const BURST_PART: u32 = 10;
const BURST_WINDOW_MIN: Duration = Duration::from_secs(1);
/// How old a reading may be: many ticks, so that a slow moment of ours is no unknown load.
const FRESHNESS: Duration = Duration::from_secs(30);
/// The longest drain that a target takes.
const DRAIN_BY_OTHERS: Duration = Duration::from_secs(86_400);
/// Answers to queries that may be missed before the last one is late, or stale.
const LATE_ANSWERS: u32 = 3;

/// Returns what a fleet's gate takes.
fn gate(fleet: &FleetConfig, rows: &ModelRows) -> GateConfig {
    let queue = fleet.queue;
    GateConfig {
        models: (rows.slots().into_iter())
            .map(|slots| ModelConfig { slots })
            .collect(),
        queue: QueueBounds {
            requests: queue.requests,
            bytes: queue.bytes,
            wait: queue.wait,
            cold_wait: queue.cold_wait,
        },
        admission: admission(fleet),
        bucket: fleet.scaling.bucket,
    }
}

fn admission(fleet: &FleetConfig) -> AdmissionConfig {
    let settings = fleet.admission.unwrap_or(ADMISSION_OFF);
    AdmissionConfig {
        threshold: settings.threshold,
        reopen: settings.reopen,
        when: match settings.when {
            CloseWhen::AtMax => When::AtMax,
            CloseWhen::Always => When::Always,
        },
        scope: match fleet.admission {
            Some(_) => AdmissionScope::NewSessions,
            None => AdmissionScope::Off,
        },
        sessions_max: SESSIONS_MAX,
        session_idle: SESSION_IDLE,
    }
}

/// Returns how proxies that ask are answered, where some do.
fn checks(fleet: &FleetConfig) -> Option<CheckConfig> {
    let settings = fleet.ext_authz.as_ref()?;
    Some(CheckConfig {
        admission: admission(fleet),
        mode: match settings.mode {
            GateMode::NewSessions => CheckMode::NewSessions,
            GateMode::EveryRequest => CheckMode::EveryRequest,
        },
        on_unknown: match settings.on_failure {
            OnFailure::Closed => OnUnknown::Refuse,
            OnFailure::Open => OnUnknown::LetIn,
        },
        held_max: usize::try_from(fleet.queue.requests).unwrap_or(usize::MAX),
        ready_timeout: settings.ready_timeout,
        hold_min: settings.hold_min,
    })
}

/// Returns how Envoys' questions are read, where some ask.
pub(super) fn ext_authz(fleet: &FleetConfig) -> Option<ExtAuthzConfig> {
    let settings = fleet.ext_authz.as_ref()?;
    Some(ExtAuthzConfig {
        listen: settings.listen.value,
        first_calls: settings.first_calls.clone(),
        session: match &fleet.session {
            config::SessionBy::Address => ext_authz::SessionBy::Address,
            config::SessionBy::Header(name) => ext_authz::SessionBy::Header(name.clone()),
            config::SessionBy::Certificate => ext_authz::SessionBy::Certificate,
        },
    })
}

/// Returns what the journal takes.
pub(super) fn journal(settings: &config::JournalSettings) -> JournalConfig {
    JournalConfig {
        file: settings.file.clone(),
        max_size: settings.max_size.0,
    }
}

/// Returns what a fleet's gateway takes.
pub(super) fn gateway(
    fleet: &FleetConfig,
    settings: &GatewaySettings,
    rows: &ModelRows,
) -> GatewayConfig {
    let (timeouts, limits) = (settings.timeouts, settings.limits);
    GatewayConfig {
        listen: settings.listen.value,
        upstream: match settings.upstream {
            config::Upstream::Auto => UpstreamProtocol::Auto,
            config::Upstream::Http1 => UpstreamProtocol::Http1,
            config::Upstream::Http2 => UpstreamProtocol::Http2,
        },
        timeouts: Timeouts {
            head: timeouts.head,
            connect: timeouts.connect,
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            drain: timeouts.drain,
        },
        limits: Limits {
            head_bytes: usize::try_from(limits.head.0).unwrap_or(usize::MAX),
            headers: usize::try_from(limits.headers).unwrap_or(usize::MAX),
            connections: usize::try_from(limits.connections).unwrap_or(usize::MAX),
        },
        ignore_paths: settings.ignore_paths.clone(),
        deadline_header: settings.deadline_header.clone(),
        trusted_proxies: settings.trusted_proxies.clone(),
        models: (fleet.models.iter())
            .map(|model| ModelRoute {
                prefix: model.path.clone(),
                headers: model.headers.clone(),
                model: rows.row_of(&model.name),
            })
            .collect(),
        session: match &fleet.session {
            // A certificate is known to a gate alone, which the configuration sees to.
            config::SessionBy::Address | config::SessionBy::Certificate => SessionBy::Address,
            config::SessionBy::Header(name) => SessionBy::Header(name.clone()),
        },
        first_calls: fleet.first_calls.clone(),
        cancellable: settings.cancellable,
    }
}

/// Returns which peers a fleet's source asks, if it has any.
pub(super) fn peers(fleet: &FleetConfig) -> Option<PeersConfig> {
    let settings = fleet.peers.clone()?;
    Some(PeersConfig {
        listed: settings.listed,
        dns: settings.dns,
        fleet: settings.fleet,
        models: fleet.models.iter().map(|row| row.name.clone()).collect(),
        every: settings.every,
        timeout: settings.timeout,
    })
}

/// Returns what measures a fleet beside gateways, if anything does.
pub(super) fn measured(fleet: &FleetConfig) -> Option<MeasuredConfig> {
    match fleet.measured.clone() {
        None | Some(MeasuredSettings::Prometheus(_)) => None,
        Some(MeasuredSettings::Envoy(envoy)) => Some(MeasuredConfig {
            servers: envoy.backend.clone(),
            envoy: Some(envoy),
        }),
        Some(MeasuredSettings::Vllm(servers)) => Some(MeasuredConfig {
            envoy: None,
            servers,
        }),
    }
}

/// Returns what is asked queries about a fleet, if anything is.
pub(super) fn queried(fleet: &FleetConfig) -> Option<PrometheusSettings> {
    match fleet.measured.clone()? {
        MeasuredSettings::Prometheus(settings) => Some(settings),
        MeasuredSettings::Envoy(_) | MeasuredSettings::Vllm(_) => None,
    }
}

/// Returns how long what is asked queries may be silent.
pub(super) fn patience(settings: &PrometheusSettings) -> Patience {
    let late = settings.every * LATE_ANSWERS;
    Patience {
        late: late.min(FRESHNESS).max(settings.every + settings.timeout),
        stale: FRESHNESS.max(late),
    }
}

/// Returns how old a reading may be.
fn freshness(fleet: &FleetConfig) -> Duration {
    queried(fleet).map_or(FRESHNESS, |settings| patience(&settings).stale)
}

/// Returns what a fleet's control loop keeps.
pub(super) fn settings(fleet: &FleetConfig, rows: &ModelRows) -> anyhow::Result<FleetSettings> {
    Ok(FleetSettings {
        gate: gate(fleet, rows),
        checks: checks(fleet),
        scaling: scaling(fleet, rows)?,
    })
}

/// Returns how a fleet would be sized that was started with this configuration.
///
/// # Errors
/// A setting is impossible.
pub fn sizing(fleet: &FleetConfig) -> anyhow::Result<ScalingConfig> {
    scaling(fleet, &ModelRows::default().with(&fleet.models)?)
}

fn scaling(fleet: &FleetConfig, rows: &ModelRows) -> anyhow::Result<ScalingConfig> {
    let settings = &fleet.scaling;
    let policy = match settings.policy {
        PolicySettings::Staffing {
            profile: StaffingProfile::Balanced,
        } => Policy::Staffing(StaffingConfig::balanced()),
        PolicySettings::Staffing {
            profile: StaffingProfile::Latency,
        } => Policy::Staffing(StaffingConfig::latency()),
        PolicySettings::Occupancy { threshold, window } => {
            let config = OccupancyConfig::new(threshold, window)?;
            Policy::Occupancy(match cache_target(fleet) {
                Some(target) => config.with_filled_target(target)?,
                None => config,
            })
        }
        PolicySettings::Concurrency {
            utilization,
            measure,
            window,
        } => {
            let measure = match measure {
                config::Measure::Mean => Measure::Mean,
                config::Measure::Peak => Measure::Peak,
            };
            let burst = (window / BURST_PART).max(BURST_WINDOW_MIN);
            Policy::Concurrency(ConcurrencyConfig::new(utilization, measure, window, burst)?)
        }
        PolicySettings::Metric { target, kind } => {
            let kind = match kind {
                config::MetricKind::AverageValue => MetricKind::AverageValue,
                config::MetricKind::Value => MetricKind::Value,
            };
            Policy::Metric(MetricConfig::new(target, kind)?)
        }
    };
    Ok(ScalingConfig {
        policy,
        bounds: Bounds::new(fleet.replicas_min, fleet.replicas_max)?,
        down_window: settings
            .down_window
            .map_or(DownWindow::Auto, DownWindow::Fixed),
        tolerance: Tolerance::new(settings.tolerance)?,
        step_up: step(settings.step_up),
        step_down: step(settings.step_down),
        idle_grace: settings.idle_grace,
        unknown_hold: settings.unknown_hold,
        unknown_fallback: settings.unknown_fallback,
        is_sized_elsewhere: matches!(fleet.target, Target::Keda { .. }),
        freshness: freshness(fleet),
        slots: rows.slots(),
    })
}

/// Returns how full the memory for requests may be of servers that tell it.
fn cache_target(fleet: &FleetConfig) -> Option<f64> {
    let servers = match fleet.measured.as_ref()? {
        MeasuredSettings::Envoy(envoy) => &envoy.backend,
        MeasuredSettings::Vllm(servers) => servers,
        MeasuredSettings::Prometheus(_) => return None,
    };
    match servers.kind {
        ServerKind::Vllm { cache_target, .. } => cache_target,
        ServerKind::Triton { .. } | ServerKind::Custom(_) => None,
    }
}

fn step(settings: Option<StepSettings>) -> StepLimit {
    settings.map_or(StepLimit::Unlimited, |step| StepLimit::Limited {
        replicas: step.replicas,
        every: step.every,
    })
}

/// Returns what an autoscaler outside is told, if one changes the fleet.
pub(super) fn external(fleet: &FleetConfig) -> Option<External> {
    let Target::Keda { listen } = fleet.target else {
        return None;
    };
    let target = match fleet.scaling.policy {
        PolicySettings::Occupancy { threshold, .. } => threshold,
        PolicySettings::Staffing { .. }
        | PolicySettings::Concurrency { .. }
        | PolicySettings::Metric { .. } => 1.0,
    };
    Some(External {
        listen,
        target,
        hold: fleet.scaling.unknown_hold,
    })
}

/// Returns how a fleet's replicas are checked; `None`: they are not.
pub(super) fn health(fleet: &FleetConfig) -> Option<HealthSettings> {
    let settings = fleet.health.as_ref()?;
    Some(HealthSettings {
        probe: probe(&settings.probe),
        timeout: settings.timeout,
        proves: fleet.endpoints != Endpoints::Target,
        rules: HealthConfig {
            every: settings.every,
            unhealthy_after: settings.unhealthy_after,
            healthy_after: settings.healthy_after,
            give_up_after: settings.restart_after,
        },
    })
}

/// Returns where the endpoints are that nobody here starts.
pub(super) fn endpoints(fleet: &FleetConfig) -> Option<endpoints::Settings> {
    let gateway = fleet.gateway.as_ref()?;
    let source = match &fleet.endpoints {
        Endpoints::Target | Endpoints::Elsewhere => return None,
        Endpoints::Static(addresses) => endpoints::Source::Fixed(addresses.clone()),
        Endpoints::Dns {
            name,
            every,
            family,
        } => endpoints::Source::Name {
            name: name.clone(),
            every: *every,
            family: match family {
                config::IpFamily::Any => Family::Any,
                config::IpFamily::Ipv4 => Family::Ipv4,
                config::IpFamily::Ipv6 => Family::Ipv6,
            },
        },
    };
    let comings = Comings {
        are_checked: fleet.health.is_some(),
        drain: gateway.timeouts.drain,
    };
    Some(endpoints::Settings { source, comings })
}

fn probe(settings: &config::Probe) -> Probe {
    match settings {
        config::Probe::Http { path } => Probe::Http { path: path.clone() },
        config::Probe::Grpc { service } => Probe::Grpc {
            service: service.clone(),
        },
        config::Probe::Tcp => Probe::Tcp,
    }
}

/// Returns who else is told of the replicas that our target starts, if anybody is.
pub(super) fn publish(fleet: &FleetConfig) -> Option<publish::Settings> {
    let Target::Process(process) = &fleet.target else {
        return None;
    };
    let settings = publish::Settings {
        publish: process.publish.clone(),
        drain: process.drain_timeout,
    };
    let tells = settings.publish.envoy.is_some() || settings.publish.prometheus.is_some();
    tells.then_some(settings)
}

/// Returns what a fleet's process target takes.
pub(super) fn process(
    fleet: &FleetConfig,
    settings: &config::ProcessSettings,
) -> anyhow::Result<ProcessConfig> {
    let command = settings.command.value.clone();
    let mut process = ProcessSettings::new(fleet.name.clone(), command, fleet.replicas_max);
    process.env.clone_from(&settings.env);
    process.ports.clone_from(&settings.ports);
    process.ready = probe(&settings.ready);
    process.ready_every = settings.ready_every;
    process.start_timeout = settings.ready_timeout;
    process.drain_timeout = match settings.publish.envoy {
        // Whoever tells Envoy of the replicas says when one is drained, or was for too long.
        Some(_) => DRAIN_BY_OTHERS,
        None => settings.drain_timeout,
    };
    process.stop_grace = settings.stop_grace;
    process.keeps = settings.keeps;
    process.orphan_grace = settings.orphan_grace;
    ProcessConfig::check(process).map_err(|problems| {
        anyhow::anyhow!(
            "{}",
            problems
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, Surroundings};

    /// How such a gateway behaves is a test of the gateway, of the same name.
    #[test]
    fn b05_a_replica_that_cannot_be_cancelled_is_one_to_the_gateway() {
        for (key, is_cancellable) in [
            ("", true),
            (", cancellable: true", true),
            (", cancellable: false", false),
        ] {
            let text = format!(
                "version: 1\nfleets: [{{ name: a, slots: 1, replicas: {{ max: 1 }}, \
                 source: {{ gateway: {{ listen: 127.0.0.1:1{key} }} }}, \
                 endpoints: {{ static: ['127.0.0.1:2'] }} }}]\n"
            );
            let path = Path::new("inflight.yaml");
            let config = Config::from_text(path, &text, &Surroundings::Elsewhere).unwrap();
            let fleet = &config.fleets[0];
            let rows = ModelRows::default().with(&fleet.models).unwrap();
            let settings = fleet.gateway.as_ref().unwrap();
            let gateway = gateway(fleet, settings, &rows);
            assert_eq!(gateway.cancellable, is_cancellable, "{key}");
        }
    }
}
