//! One fleet: its size, its gateway, and whether its parts can work together.

use inflight_core::Replicas;

use super::{advice, endpoints, gate, measured, models, peers, publish, scaling, target};
use crate::config::error::Problems;
use crate::config::raw;
use crate::config::setting::{Nothing, Or};
use crate::config::{
    FleetConfig, GatewaySettings, LimitSettings, Surroundings, TimeoutSettings, Upstream,
};

/// The bounds of a fleet's size, as far as they are right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) min: u32,
    pub(super) max: u32,
}

pub(super) fn resolve_fleet(
    raw: &raw::Fleet,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Option<FleetConfig> {
    // Every part is judged before the first missing one ends the function.
    let measured = measured::resolve_measured(raw, problems);
    let models = models::resolve_models(raw, problems);
    let sizes = raw
        .replicas
        .as_ref()
        .and_then(|bounds| resolve_bounds(&bounds.value, problems));
    let gateway = raw
        .source
        .as_ref()
        .and_then(|source| resolve_gateway(&source.value, problems));
    let peers = peers::resolve_peers(raw, problems);
    let target = raw.target.as_ref().and_then(|target| {
        target::resolve_target(target, raw, gateway.as_ref(), surroundings, problems)
    });
    publish::check_pages(raw, problems);
    let endpoints = endpoints::resolve_endpoints(raw, problems);
    let health = endpoints::resolve_health(raw, target.as_ref(), problems);
    let scaling = raw.scaling.as_ref().and_then(|scaling| {
        scaling::resolve_scaling(&scaling.value, raw.source.as_ref(), sizes, problems)
    });
    let admission = raw
        .admission
        .as_ref()
        .and_then(|admission| scaling::resolve_admission(admission, scaling.as_ref(), problems));
    let queue = raw
        .queue
        .as_ref()
        .and_then(|queue| scaling::resolve_queue(&queue.value));
    let gate = gate::resolve_gate(raw, problems);
    if let (Some((_, session, _)), Some(keys)) = (&admission, &raw.admission) {
        gate::check_session(keys, session, raw.gate.is_some(), problems);
    }
    let sizes = sizes?;
    let (admission, session, first_calls) = admission?;
    let fleet = FleetConfig {
        name: raw.name.as_ref()?.value.clone(),
        models: models?,
        replicas_min: Replicas::new(sizes.min),
        replicas_max: Replicas::new(sizes.max),
        gateway,
        peers,
        measured: measured?,
        endpoints: endpoints?,
        health: health?,
        target: target?,
        scaling: scaling?,
        admission,
        session,
        first_calls,
        queue: queue?,
        ext_authz: gate?,
    };
    advice::warn_of_measuring(raw, &fleet, problems);
    Some(fleet)
}

fn resolve_bounds(raw: &raw::Bounds, problems: &mut Problems) -> Option<Sizes> {
    let (min, max) = (raw.min.as_ref()?, raw.max.as_ref()?);
    let sizes = Sizes {
        min: min.value,
        max: max.value,
    };
    if min.value <= max.value {
        return Some(sizes);
    }
    let what = format!("{} is more than `max`, {}", min.value, max.value);
    problems.refuse(
        &min.place,
        what,
        format!("a whole number, 0 to {}", max.value),
    );
    None
}

fn resolve_gateway(raw: &raw::Source, problems: &mut Problems) -> Option<GatewaySettings> {
    let raw = &raw.gateway.as_ref()?.value;
    let timeouts = raw
        .timeouts
        .as_ref()
        .and_then(|timeouts| resolve_timeouts(&timeouts.value));
    let limits = raw
        .limits
        .as_ref()
        .and_then(|limits| resolve_limits(&limits.value));
    let listen = raw.listen.clone()?;
    let ignore_paths = raw.ignore_paths.as_ref()?.value.clone();
    if ignore_paths.iter().any(|path| path == "/") {
        let place = &raw.ignore_paths.as_ref()?.place;
        problems.warn(
            place,
            "\"/\" means that path alone, not everything below it",
        );
    }
    let upstream = match raw.upstream.as_ref()?.value.0 {
        raw::Protocol::Auto => Upstream::Auto,
        raw::Protocol::Http1 => Upstream::Http1,
        raw::Protocol::Http2 => Upstream::Http2,
    };
    let deadline_header = match &raw.deadline_header.as_ref()?.value {
        Or::Word(Nothing) => None,
        Or::Value(name) => Some(http::HeaderName::from_bytes(name.as_bytes()).ok()?),
    };
    Some(GatewaySettings {
        listen,
        upstream,
        timeouts: timeouts?,
        limits: limits?,
        ignore_paths,
        deadline_header,
        trusted_proxies: raw.trusted_proxies.as_ref()?.value.clone(),
        cancellable: raw.cancellable.as_ref()?.value,
    })
}

fn resolve_timeouts(raw: &raw::Timeouts) -> Option<TimeoutSettings> {
    Some(TimeoutSettings {
        head: raw.head.as_ref()?.value,
        connect: raw.connect.as_ref()?.value,
        first_byte: raw.first_byte.as_ref()?.value,
        idle: raw.idle.as_ref()?.value,
        drain: raw.drain.as_ref()?.value,
    })
}

fn resolve_limits(raw: &raw::Limits) -> Option<LimitSettings> {
    Some(LimitSettings {
        head: raw.head.as_ref()?.value,
        headers: raw.headers.as_ref()?.value,
        connections: raw.connections.as_ref()?.value,
    })
}
