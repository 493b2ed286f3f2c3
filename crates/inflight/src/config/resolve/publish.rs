//! Who else is told of the replicas that a target starts, and which of their ports are spoken of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::measured::page;
use crate::config::error::{Located, Place, Problems};
use crate::config::raw;
use crate::config::setting::Or;
use crate::config::{EnvoyFile, GatewaySettings, PrometheusFile, PublishSettings, Surroundings};

/// How often an Envoy is asked for its endpoints where its source does not say.
const EVERY: Duration = Duration::from_secs(1);
/// How long its answer may take then.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns who is told, and reports replicas that requests reach unseen.
pub(super) fn resolve_publish(
    raw: &raw::Process,
    target: &Place,
    fleet: &raw::Fleet,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Option<PublishSettings> {
    let publish = raw.publish.as_ref().map(|publish| &publish.value);
    let envoy = publish.and_then(|publish| publish.envoy.as_ref());
    let prometheus = publish.and_then(|publish| publish.prometheus.as_ref());
    if let Some(publish) = &raw.publish
        && envoy.is_none()
        && prometheus.is_none()
        && !problems.is_reported(&publish.place.key)
    {
        problems.refuse(
            &publish.place,
            "tells nobody",
            "`envoy`, `prometheus` or both",
        );
    }
    let has_gateway = fleet.source.as_ref()?.value.gateway.is_some();
    match envoy {
        Some(envoy) if has_gateway => problems.refuse(
            &envoy.place,
            "does not go with source `gateway`: what Envoy sends to the replicas would pass it by",
            "either a `gateway` or `publish.envoy`",
        ),
        None if !has_gateway && !problems.is_reported(&target.key) => problems.refuse(
            target,
            "processes need a `gateway` here, or an Envoy that is told of them: without one nobody \
             knows when a replica that is to go has no request left",
            "`advise`, `keda`, source `gateway`, or `publish.envoy` with its process",
        ),
        Some(_) | None => {}
    }
    for file in publish.into_iter().flat_map(files) {
        surroundings.check_folder_of(file, problems);
    }
    let port = prometheus.and_then(|prometheus| prometheus.value.port.as_ref());
    if let (Some(port), Some(ports)) = (port, &raw.ports) {
        check_port(port, &ports.value, problems);
    }
    Some(PublishSettings {
        envoy: match envoy {
            Some(envoy) => Some(resolve_envoy(envoy, fleet, problems)?),
            None => None,
        },
        prometheus: match prometheus {
            Some(prometheus) => Some(PrometheusFile {
                file: PathBuf::from(&prometheus.value.file.as_ref()?.value),
                port: port.map(|port| port.value.clone()),
            }),
            None => None,
        },
    })
}

fn resolve_envoy(
    raw: &Located<raw::PublishEnvoy>,
    fleet: &raw::Fleet,
    problems: &mut Problems,
) -> Option<EnvoyFile> {
    let (place, keys) = (&raw.place, &raw.value);
    let source = fleet.source.as_ref()?.value.envoy.as_ref();
    let source = source.map(|envoy| &envoy.value);
    let cluster = (keys.cluster.as_ref()).or_else(|| source?.cluster.as_ref());
    let listed = (source.filter(|source| source.dns.is_none()))
        .and_then(|source| source.admin.as_ref())
        .filter(|admin| !admin.value.is_empty());
    let admin = keys.admin.as_ref().or(listed);
    let needed = [
        ("cluster", cluster.is_none(), "the cluster's name in Envoy"),
        (
            "admin",
            admin.is_none(),
            "the admin interfaces of all Envoys that read the file, each http://HOST:PORT",
        ),
    ];
    for (key, is_missing, allowed) in needed {
        let key = format!("{}.{key}", place.key);
        if is_missing && !problems.is_reported(&key) {
            let place = Place {
                key,
                ..place.clone()
            };
            problems.refuse(
                &place,
                "is missing: source `envoy` does not list it",
                allowed,
            );
        }
    }
    Some(EnvoyFile {
        file: PathBuf::from(&keys.file.as_ref()?.value),
        cluster: cluster?.value.clone(),
        admin: (admin?.value.iter())
            .map(|url| page(url))
            .collect::<Option<_>>()?,
        every: (source.and_then(|source| source.every.as_ref())).map_or(EVERY, |it| it.value),
        timeout: (source.and_then(|source| source.timeout.as_ref())).map_or(TIMEOUT, |it| it.value),
    })
}

/// Reports pages that are to be at a port which no replica has.
pub(super) fn check_pages(raw: &raw::Fleet, problems: &mut Problems) {
    let Some(port) = page_port(raw) else { return };
    let ports = process(raw).map(|process| process.ports.as_ref());
    match ports {
        Some(Some(ports)) => check_port(port, &ports.value, problems),
        Some(None) => {}
        None => problems.refuse(
            &port.place,
            "is a port of replicas, and no target starts any here",
            "`metrics` or `dns`, or target `process` with `ports`",
        ),
    }
}

/// Tells whether a port is used by what reads pages or targets, rather than in the command.
pub(super) fn is_told_of(raw: &raw::Process, fleet: &raw::Fleet, name: &str) -> bool {
    let publish = raw.publish.as_ref();
    let prometheus = publish.and_then(|publish| publish.value.prometheus.as_ref());
    let scraped = prometheus.and_then(|prometheus| prometheus.value.port.as_ref());
    [page_port(fleet), scraped]
        .into_iter()
        .flatten()
        .any(|port| port.value == name)
}

fn check_port(port: &Located<String>, ports: &[String], problems: &mut Problems) {
    if !ports.contains(&port.value) {
        let what = format!("{:?} is none of the replicas' `ports`", port.value);
        let allowed = match ports {
            [] => "a name that stands in `target.process.ports`, which is empty".to_owned(),
            ports => format!("one of {}", ports.join(", ")),
        };
        problems.refuse(&port.place, what, allowed);
    }
}

/// Returns the port at which the source reads pages of our own replicas.
fn page_port(raw: &raw::Fleet) -> Option<&Located<String>> {
    let source = &raw.source.as_ref()?.value;
    if let Some(vllm) = &source.vllm {
        return vllm.value.port.as_ref();
    }
    let backend = &source.envoy.as_ref()?.value.backend.as_ref()?.value;
    let triton = backend
        .triton
        .as_ref()
        .and_then(|it| it.value.port.as_ref());
    let vllm = backend.vllm.as_ref().and_then(|it| it.value.port.as_ref());
    let custom = backend
        .custom
        .as_ref()
        .and_then(|it| it.value.port.as_ref());
    triton.or(vllm).or(custom)
}

fn process(raw: &raw::Fleet) -> Option<&raw::Process> {
    match &raw.target.as_ref()?.value {
        Or::Value(keys) => keys.process.as_ref().map(|process| &process.value),
        Or::Word(_) => None,
    }
}

fn files(publish: &raw::Publish) -> impl Iterator<Item = &Located<String>> {
    let envoy = publish.envoy.as_ref();
    let prometheus = publish.prometheus.as_ref();
    let envoy = envoy.and_then(|it| it.value.file.as_ref());
    let prometheus = prometheus.and_then(|it| it.value.file.as_ref());
    envoy.into_iter().chain(prometheus)
}

/// Reports each file that another system would find overwritten.
pub(super) fn check_files(file: &raw::File, problems: &mut Problems) {
    let mut seen: Vec<&Located<String>> = Vec::new();
    for fleet in file.fleets.iter().flat_map(|fleets| &fleets.value) {
        let publish = process(fleet).and_then(|process| process.publish.as_ref());
        for file in publish.into_iter().flat_map(|it| files(&it.value)) {
            let is_same = |other: &&&Located<String>| {
                // `//` and `/./` are no other file.
                let parts = |file: &'_ Located<String>| -> PathBuf {
                    Path::new(&file.value).components().collect()
                };
                parts(other) == parts(file)
            };
            match seen.iter().find(is_same) {
                Some(first) => {
                    let what = format!(
                        "{:?} is written for {} as well",
                        file.value, first.place.key
                    );
                    problems.refuse(&file.place, what, "a file of its own");
                }
                None => seen.push(file),
            }
        }
    }
}

/// How long a replica that is to stop keeps its requests where no gateway says it.
pub(super) const DRAIN: Duration = Duration::from_secs(60);

/// Returns how long a replica that is to stop may keep its requests.
pub(super) fn resolve_drain(
    raw: &raw::Process,
    fleet: &raw::Fleet,
    gateway: Option<&GatewaySettings>,
    problems: &mut Problems,
) -> Option<Duration> {
    if fleet.source.as_ref()?.value.gateway.is_none() {
        return Some(
            raw.drain_timeout
                .as_ref()
                .map_or(DRAIN, |drain| drain.value),
        );
    }
    if let Some(drain) = &raw.drain_timeout {
        problems.refuse(
            &drain.place,
            "is the gateway's to say",
            "`source.gateway.timeouts.drain`",
        );
    }
    Some(gateway?.timeouts.drain)
}
