//! Systems that measure a fleet which nobody here serves: which one, where, and by which names.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::error::{Located, Place, Problems};
use crate::config::raw;
use crate::config::setting::Or;
use crate::config::{
    CustomExecuting, CustomSettings, EnvoyEstimator, EnvoySettings, MeasuredSettings, PageUrl,
    PagesSettings, PrometheusSettings, Queries, ServerKind, ServersSettings,
};

/// What a source may be.
const ONE_SOURCE: &str =
    "`gateway`, `inflight` or both; or one of `envoy`, `vllm` and `prometheus`";
/// How often servers are read that stand alone.
const EVERY: Duration = Duration::from_secs(1);
/// How long an answer of servers that stand alone may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns what measures the fleet beside gateways, `Some(None)` where only gateways do, and reports
/// a source that measures nothing or too much.
pub(super) fn resolve_measured(
    raw: &raw::Fleet,
    problems: &mut Problems,
) -> Option<Option<MeasuredSettings>> {
    let source = raw.source.as_ref()?;
    let keys = &source.value;
    let counted = [
        keys.gateway.as_ref().map(|key| &key.place),
        keys.inflight.as_ref().map(|key| &key.place),
    ];
    let measured = [
        keys.envoy.as_ref().map(|key| &key.place),
        keys.vllm.as_ref().map(|key| &key.place),
        keys.prometheus.as_ref().map(|key| &key.place),
    ];
    let first = counted.into_iter().chain(measured).flatten().next();
    let Some(first) = first else {
        if !problems.is_reported(&source.place.key) {
            problems.refuse(&source.place, "measures nothing", ONE_SOURCE);
        }
        return Some(None);
    };
    let mut has_stranger = false;
    for stray in measured.into_iter().flatten() {
        if stray.key != first.key {
            let what = format!(
                "does not go with {}: the load would be counted twice",
                first.key
            );
            problems.refuse(stray, what, ONE_SOURCE);
            has_stranger = true;
        }
    }
    let settings = if let Some(envoy) = &keys.envoy {
        MeasuredSettings::Envoy(resolve_envoy(envoy, problems)?)
    } else if let Some(vllm) = &keys.vllm {
        MeasuredSettings::Vllm(resolve_vllm(vllm, EVERY, TIMEOUT, problems)?)
    } else if let Some(prometheus) = &keys.prometheus {
        MeasuredSettings::Prometheus(resolve_prometheus(prometheus, problems)?)
    } else {
        return Some(None);
    };
    if let Some(models) = raw
        .models
        .as_ref()
        .filter(|models| !models.value.is_empty())
    {
        problems.refuse(
            &models.place,
            "are not told apart by this source: a number for each is what a fleet for each gives",
            "`models: []`, which is the default",
        );
    }
    (!has_stranger).then_some(Some(settings))
}

fn resolve_envoy(raw: &Located<raw::Envoy>, problems: &mut Problems) -> Option<EnvoySettings> {
    let (place, raw) = (&raw.place, &raw.value);
    let (every, timeout) = (raw.every.as_ref(), raw.timeout.as_ref());
    let admin = resolve_pages(
        raw.admin.as_ref(),
        raw.dns.as_ref(),
        "admin",
        place,
        problems,
    );
    let backend = raw
        .backend
        .as_ref()
        .and_then(|backend| resolve_backend(backend, every?.value, timeout?.value, problems));
    Some(EnvoySettings {
        admin: admin?,
        cluster: raw.cluster.as_ref()?.value.clone(),
        estimator: match raw.estimator.as_ref()?.value.0 {
            raw::Estimator::Gauges => EnvoyEstimator::Gauges,
            raw::Estimator::TimeSum => EnvoyEstimator::TimeSum,
        },
        every: every?.value,
        timeout: timeout?.value,
        backend: backend?,
    })
}

fn resolve_backend(
    raw: &Located<raw::Backend>,
    every: Duration,
    timeout: Duration,
    problems: &mut Problems,
) -> Option<ServersSettings> {
    let keys = &raw.value;
    let given: Vec<&Place> = [
        keys.triton.as_ref().map(|key| &key.place),
        keys.vllm.as_ref().map(|key| &key.place),
        keys.custom.as_ref().map(|key| &key.place),
    ]
    .into_iter()
    .flatten()
    .collect();
    match given.as_slice() {
        [] if !problems.is_reported(&raw.place.key) => {
            problems.refuse(
                &raw.place,
                "says nothing of what serves",
                "one of `triton`, `vllm` and `custom`",
            );
        }
        [first, second, ..] => {
            let what = format!("does not go with {}", first.key);
            problems.refuse(second, what, "one of `triton`, `vllm` and `custom`");
            return None;
        }
        [] | [_] => {}
    }
    if let Some(vllm) = &keys.vllm {
        return resolve_vllm(vllm, every, timeout, problems);
    }
    if let Some(triton) = &keys.triton {
        let (place, keys) = (&triton.place, &triton.value);
        let (dns, port) = (keys.dns.as_ref(), keys.port.as_ref());
        return Some(ServersSettings {
            metrics: resolve_servers(keys.metrics.as_ref(), dns, port, place, problems)?,
            kind: ServerKind::Triton {
                models: keys.models.as_ref()?.value.clone(),
            },
            every,
            timeout,
        });
    }
    let (place, keys) = (&keys.custom.as_ref()?.place, &keys.custom.as_ref()?.value);
    let (dns, port) = (keys.dns.as_ref(), keys.port.as_ref());
    let metrics = resolve_servers(keys.metrics.as_ref(), dns, port, place, problems);
    let custom = resolve_custom(place, keys, problems);
    Some(ServersSettings {
        metrics: metrics?,
        kind: ServerKind::Custom(custom?),
        every,
        timeout,
    })
}

fn resolve_vllm(
    raw: &Located<raw::Vllm>,
    every: Duration,
    timeout: Duration,
    problems: &mut Problems,
) -> Option<ServersSettings> {
    let (place, keys) = (&raw.place, &raw.value);
    let (dns, port) = (keys.dns.as_ref(), keys.port.as_ref());
    Some(ServersSettings {
        metrics: resolve_servers(keys.metrics.as_ref(), dns, port, place, problems)?,
        kind: ServerKind::Vllm {
            model: keys.model.as_ref().map(|model| model.value.clone()),
            cache_target: match keys.cache_target.as_ref()?.value {
                Or::Word(_) => None,
                Or::Value(target) => Some(target),
            },
        },
        every,
        timeout,
    })
}

fn resolve_custom(
    place: &Place,
    keys: &raw::Custom,
    problems: &mut Problems,
) -> Option<CustomSettings> {
    let queued = keys.queued.as_ref().map(|name| name.value.clone());
    let labels: Vec<_> = keys.labels.as_ref()?.value.clone().into_iter().collect();
    let named = [
        &keys.executing,
        &keys.executing_time,
        &keys.waiting_time,
        &keys.queued,
    ];
    if let Some(preset) = &keys.preset {
        if let Some(stray) = named.into_iter().flatten().next() {
            problems.refuse(
                &stray.place,
                "does not go with `preset`, which names the metrics",
                "either a preset or names",
            );
            return None;
        }
        return Some(CustomSettings {
            labels,
            ..of_preset(preset.value.0)
        });
    }
    let executing = match (&keys.executing, &keys.executing_time) {
        (Some(gauge), None) => CustomExecuting::Gauge(gauge.value.clone()),
        (None, Some(total)) => CustomExecuting::Time {
            total: total.value.clone(),
            waiting: keys.waiting_time.as_ref().map(|name| name.value.clone()),
            per_second: match keys.unit.as_ref().map(|unit| unit.value.0) {
                None | Some(raw::Unit::Seconds) => 1,
                Some(raw::Unit::Milliseconds) => 1_000,
                Some(raw::Unit::Microseconds) => 1_000_000,
            },
        },
        (given, _) => {
            let place = given.as_ref().map_or(place, |given| &given.place);
            if !problems.is_reported(&place.key) {
                problems.refuse(
                    place,
                    "tells in no way, or in two, what is executed",
                    "a `preset`, `executing` or `executing_time`",
                );
            }
            return None;
        }
    };
    Some(CustomSettings {
        executing,
        queued,
        labels,
    })
}

/// Returns the metrics of known servers.
fn of_preset(preset: raw::Preset) -> CustomSettings {
    let gauges = |executing: &str, queued: Option<&str>| CustomSettings {
        executing: CustomExecuting::Gauge(executing.to_owned()),
        queued: queued.map(str::to_owned),
        labels: Vec::new(),
    };
    match preset {
        raw::Preset::Torchserve => CustomSettings {
            executing: CustomExecuting::Time {
                total: "ts_inference_latency_microseconds".to_owned(),
                waiting: Some("ts_queue_latency_microseconds".to_owned()),
                per_second: 1_000_000,
            },
            queued: None,
            labels: Vec::new(),
        },
        raw::Preset::RayServe => gauges(
            "ray_serve_replica_processing_queries",
            Some("ray_serve_deployment_queued_queries"),
        ),
        raw::Preset::Tgi => gauges("tgi_batch_current_size", Some("tgi_queue_size")),
        raw::Preset::Sglang => gauges("sglang:num_running_reqs", Some("sglang:num_queue_reqs")),
    }
}

fn resolve_prometheus(
    raw: &Located<raw::Prometheus>,
    problems: &mut Problems,
) -> Option<PrometheusSettings> {
    let (place, keys) = (&raw.place, &raw.value);
    let queries = match (
        &keys.query,
        &keys.in_flight,
        &keys.executing,
        &keys.replicas,
    ) {
        (Some(query), None, None, replicas) => Queries::Metric {
            query: query.value.clone(),
            replicas: replicas.as_ref().map(|query| query.value.clone()),
        },
        (None, Some(in_flight), Some(executing), Some(replicas)) => Queries::Terms {
            in_flight: in_flight.value.clone(),
            executing: executing.value.clone(),
            replicas: replicas.value.clone(),
        },
        (query, ..) => {
            let place = query.as_ref().map_or(place, |query| &query.place);
            if !problems.is_reported(&place.key) {
                problems.refuse(
                    place,
                    "is neither all of the rule's terms nor one number",
                    "`in_flight`, `executing` and `replicas`, or `query` with or without `replicas`",
                );
            }
            return None;
        }
    };
    Some(PrometheusSettings {
        url: page(&keys.url.as_ref()?.value)?,
        queries,
        every: keys.every.as_ref()?.value,
        timeout: keys.timeout.as_ref()?.value,
    })
}

fn resolve_pages(
    listed: Option<&Located<Vec<String>>>,
    dns: Option<&Located<String>>,
    list_name: &str,
    place: &Place,
    problems: &mut Problems,
) -> Option<PagesSettings> {
    let listed = listed?;
    let mut seen = BTreeSet::new();
    for url in listed.value.iter().filter(|url| !seen.insert(*url)) {
        problems.error(&listed.place, format!("{url} is there twice"));
    }
    if listed.value.is_empty() && dns.is_none() {
        if !problems.is_reported(&format!("{}.dns", place.key)) {
            problems.refuse(
                &listed.place,
                "names nobody",
                format!("`{list_name}`, `dns` or both"),
            );
        }
        return None;
    }
    Some(PagesSettings {
        listed: listed
            .value
            .iter()
            .map(|url| page(url))
            .collect::<Option<_>>()?,
        dns: match dns {
            Some(url) => Some(page(&url.value)?),
            None => None,
        },
        port: None,
    })
}

/// Returns the pages of servers: listed, by a name, or those of the replicas that our target starts.
fn resolve_servers(
    listed: Option<&Located<Vec<String>>>,
    dns: Option<&Located<String>>,
    port: Option<&Located<String>>,
    place: &Place,
    problems: &mut Problems,
) -> Option<PagesSettings> {
    let Some(port) = port else {
        return resolve_pages(listed, dns, "metrics", place, problems);
    };
    let listed = listed.filter(|listed| !listed.value.is_empty());
    if listed.is_some() || dns.is_some() {
        problems.refuse(
            &port.place,
            "does not go with pages of others: one replica would be read as two",
            "either `port`, or `metrics` and `dns`",
        );
        return None;
    }
    Some(PagesSettings {
        listed: Vec::new(),
        dns: None,
        port: Some(port.value.clone()),
    })
}

/// Takes an address apart whose form was judged.
pub(super) fn page(url: &str) -> Option<PageUrl> {
    let uri: http::Uri = url.parse().ok()?;
    Some(PageUrl {
        authority: uri.authority()?.to_string(),
        path: uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned(),
    })
}
