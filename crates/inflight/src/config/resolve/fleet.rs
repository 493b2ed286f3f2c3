//! One fleet: its models, its gateway, and whether its parts can work together.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use inflight_core::{Replicas, Slots};

use super::{check_distinct, peers, scaling, target};
use crate::config::error::{Located, Problems};
use crate::config::raw;
use crate::config::setting::Or;
use crate::config::{
    Endpoints, FleetConfig, GatewaySettings, LimitSettings, ModelConfig, Surroundings,
    TimeoutSettings, Upstream,
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
    let models = resolve_models(raw, problems);
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
    let endpoints = resolve_endpoints(raw, problems);
    let scaling = raw
        .scaling
        .as_ref()
        .and_then(|scaling| scaling::resolve_scaling(&scaling.value, sizes, problems));
    let admission = raw
        .admission
        .as_ref()
        .and_then(|admission| scaling::resolve_admission(admission, scaling.as_ref(), problems));
    let queue = raw
        .queue
        .as_ref()
        .and_then(|queue| scaling::resolve_queue(&queue.value));
    let sizes = sizes?;
    let (admission, session, first_calls) = admission?;
    Some(FleetConfig {
        name: raw.name.as_ref()?.value.clone(),
        models: models?,
        replicas_min: Replicas::new(sizes.min),
        replicas_max: Replicas::new(sizes.max),
        gateway,
        peers,
        endpoints: endpoints?,
        target: target?,
        scaling: scaling?,
        admission,
        session,
        first_calls,
        queue: queue?,
    })
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

fn resolve_models(raw: &raw::Fleet, problems: &mut Problems) -> Option<Vec<ModelConfig>> {
    let models = raw.models.as_ref()?;
    let fleet_slots = raw.slots.as_ref();
    let every_model_has_slots =
        !models.value.is_empty() && models.value.iter().all(|model| model.slots.is_some());
    if fleet_slots.is_none() && !every_model_has_slots {
        let what = "is missing: how many requests one replica executes at the same time";
        let place = raw.name.as_ref().map_or(&models.place, |name| &name.place);
        let mut place = place.clone();
        place.key = models.place.key.replace(".models", ".slots");
        // A value that was wrong has been reported where it stands.
        if !problems
            .errors
            .iter()
            .any(|problem| problem.place.key.starts_with(&place.key))
        {
            problems.refuse(&place, what, "a whole number, 1 to 100000");
        }
    }
    check_distinct(
        models.value.iter().filter_map(|model| model.name.as_ref()),
        "name of a model",
        problems,
    );
    check_distinct(
        models.value.iter().filter_map(|model| model.path.as_ref()),
        "path of a model",
        problems,
    );
    if models.value.is_empty() {
        let name = raw.name.as_ref()?.value.clone();
        let slots = Slots::new(fleet_slots?.value)?;
        return Some(vec![ModelConfig {
            name,
            path: "/".to_owned(),
            slots,
        }]);
    }
    let resolved = models.value.iter().map(|model| {
        Some(ModelConfig {
            name: model.name.as_ref()?.value.clone(),
            path: model.path.as_ref()?.value.clone(),
            slots: Slots::new(model.slots.as_ref().or(fleet_slots)?.value)?,
        })
    });
    resolved.collect()
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
    Some(GatewaySettings {
        listen,
        upstream,
        timeouts: timeouts?,
        limits: limits?,
        ignore_paths,
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

fn resolve_endpoints(raw: &raw::Fleet, problems: &mut Problems) -> Option<Endpoints> {
    let (endpoints, target) = (raw.endpoints.as_ref()?, raw.target.as_ref()?);
    if raw.source.as_ref()?.value.gateway.is_none() {
        if let Or::Value(keys) = &endpoints.value {
            let place = keys
                .r#static
                .as_ref()
                .map_or(&endpoints.place, |list| &list.place);
            problems.refuse(
                place,
                "no request is sent from here without a `gateway`; how many replicas are ready is \
                 what the peers see",
                "`endpoints: target`, which is the default",
            );
        }
        return Some(Endpoints::Elsewhere);
    }
    match (&endpoints.value, &target.value) {
        (Or::Word(_), Or::Value(_)) => Some(Endpoints::Target),
        (Or::Word(_), Or::Word(_)) => {
            problems.refuse(
                &endpoints.place,
                "`target` gives no addresses while nothing is started: requests would have \
                 nowhere to go",
                "`static` addresses, or a target with `process`",
            );
            None
        }
        (Or::Value(keys), Or::Value(_)) => {
            let place = keys
                .r#static
                .as_ref()
                .map_or(&endpoints.place, |list| &list.place);
            problems.refuse(
                place,
                "fixed addresses do not go with target `process`: what it starts would get no \
                 request",
                "`endpoints: target`, or `target: advise`",
            );
            None
        }
        (Or::Value(keys), Or::Word(_)) => {
            resolve_static(keys.r#static.as_ref()?, problems).map(Endpoints::Static)
        }
    }
}

fn resolve_static(
    addresses: &Located<Vec<SocketAddr>>,
    problems: &mut Problems,
) -> Option<Vec<SocketAddr>> {
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = addresses
        .value
        .iter()
        .filter(|address| !seen.insert(**address))
        .collect();
    for address in &twice {
        problems.error(&addresses.place, format!("{address} is there twice"));
    }
    twice.is_empty().then(|| addresses.value.clone())
}
