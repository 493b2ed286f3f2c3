//! From a fleet's settings to what each part takes; nothing is decided or checked here.

use std::time::Duration;

use anyhow::Context as _;
use inflight_core::ModelIndex;
use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, GateConfig, HealthConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, DownWindow, Measure, OccupancyConfig, Policy, ScalingConfig,
    StaffingConfig, StepLimit, Tolerance,
};

use crate::config::{
    self, AdmissionSettings, CloseWhen, FleetConfig, PolicySettings, StaffingProfile, StepSettings,
};
use crate::endpoints::{self, Comings, Family, HealthSettings};
use crate::gateway::{GatewayConfig, Limits, ModelRoute, SessionBy, Timeouts, UpstreamProtocol};
use crate::probe::Probe;
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

/// Returns what a fleet's gate takes.
pub(super) fn gate(fleet: &FleetConfig) -> GateConfig {
    let queue = fleet.queue;
    let settings = fleet.admission.unwrap_or(ADMISSION_OFF);
    let admission = AdmissionConfig {
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
    };
    GateConfig {
        models: fleet
            .models
            .iter()
            .map(|model| ModelConfig { slots: model.slots })
            .collect(),
        queue: QueueBounds {
            requests: queue.requests,
            bytes: queue.bytes,
            wait: queue.wait,
            cold_wait: queue.cold_wait,
        },
        admission,
        bucket: fleet.scaling.bucket,
    }
}

/// Returns what a fleet's gateway takes.
pub(super) fn gateway(fleet: &FleetConfig) -> GatewayConfig {
    let settings = &fleet.gateway;
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
        models: (fleet.models.iter().enumerate())
            .map(|(index, model)| ModelRoute {
                prefix: model.path.clone(),
                headers: model.headers.clone(),
                model: ModelIndex(index),
            })
            .collect(),
        session: match &fleet.session {
            config::SessionBy::Address => SessionBy::Address,
            config::SessionBy::Header(name) => SessionBy::Header(name.clone()),
        },
        first_calls: fleet.first_calls.clone(),
        cancellable: true,
    }
}

/// Returns what a fleet's scaler takes.
pub(super) fn scaling(fleet: &FleetConfig) -> anyhow::Result<ScalingConfig> {
    let settings = &fleet.scaling;
    let policy = match settings.policy {
        PolicySettings::Staffing {
            profile: StaffingProfile::Balanced,
        } => Policy::Staffing(StaffingConfig::balanced()),
        PolicySettings::Staffing {
            profile: StaffingProfile::Latency,
        } => Policy::Staffing(StaffingConfig::latency()),
        PolicySettings::Occupancy { threshold, window } => {
            Policy::Occupancy(OccupancyConfig::new(threshold, window)?)
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
        freshness: FRESHNESS,
        slots: fleet.models.iter().map(|model| model.slots).collect(),
    })
}

fn step(settings: Option<StepSettings>) -> StepLimit {
    settings.map_or(StepLimit::Unlimited, |step| StepLimit::Limited {
        replicas: step.replicas,
        every: step.every,
    })
}

/// Returns how a fleet's replicas are checked; `None`: they are not.
pub(super) fn health(fleet: &FleetConfig) -> Option<HealthSettings> {
    let settings = fleet.health.as_ref()?;
    Some(HealthSettings {
        probe: probe(&settings.probe),
        timeout: settings.timeout,
        proves: fleet.endpoints != config::Endpoints::Target,
        rules: HealthConfig {
            every: settings.every,
            unhealthy_after: settings.unhealthy_after,
            healthy_after: settings.healthy_after,
            give_up_after: settings.restart_after,
        },
    })
}

/// Returns where the endpoints are that nobody here starts.
pub(super) fn endpoints(fleet: &FleetConfig) -> Option<(endpoints::Source, Comings)> {
    let source = match &fleet.endpoints {
        config::Endpoints::Target => return None,
        config::Endpoints::Static(addresses) => endpoints::Source::Fixed(addresses.clone()),
        config::Endpoints::Dns {
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
            resolver: endpoints::system_resolver(),
        },
    };
    let comings = Comings {
        are_checked: fleet.health.is_some(),
        drain: fleet.gateway.timeouts.drain,
    };
    Some((source, comings))
}

/// Returns the names of a fleet's models; none where it has no named ones.
pub(super) fn model_names(fleet: &FleetConfig) -> Vec<String> {
    match fleet.models.as_slice() {
        [only] if only.name == fleet.name => Vec::new(),
        models => models.iter().map(|model| model.name.clone()).collect(),
    }
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

/// Returns what a fleet's process target takes.
pub(super) fn process(
    fleet: &FleetConfig,
    settings: &config::ProcessSettings,
) -> anyhow::Result<ProcessConfig> {
    let command = settings.command.value.clone();
    let mut process = ProcessSettings::new(fleet.name.clone(), command, fleet.replicas_max);
    process.env.clone_from(&settings.env);
    process.ready = probe(&settings.ready);
    process.ready_every = settings.ready_every;
    process.start_timeout = settings.ready_timeout;
    process.drain_timeout = settings.drain_timeout;
    process.stop_grace = settings.stop_grace;
    ProcessConfig::check(process)
        .map_err(|problems| {
            anyhow::anyhow!(
                "{}",
                problems
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("; ")
            )
        })
        .with_context(|| format!("fleet {}", fleet.name))
}
