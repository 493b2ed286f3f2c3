//! What of a fleet's settings stays as it is while the fleet runs.

use std::path::Path;

use super::PartSettings;
use crate::config::{PageUrl, PrometheusFile};

/// Why a change is refused that would make the fleet another.
const CANNOT_CHANGE: &str = "cannot change from or to `process` while the fleet runs: its replicas \
    would belong to nobody; restart inflight, or give the fleet another name";

/// Why a change is refused that would leave nobody knowing how large the fleet is.
const KEDA_CANNOT_CHANGE: &str = "cannot change from or to `keda` while the fleet runs: whoever \
    sizes it then would not know how large it is; restart inflight, or give the fleet another name";

/// Why a change is refused of what becomes of the replicas at our end.
const ON_EXIT_CANNOT_CHANGE: &str = "cannot change while the fleet runs: its replicas were started \
    to end with us, or not to; restart inflight, or give the fleet another name";

/// Why a change is refused of the Envoys that are told of the replicas.
const ENVOYS_CANNOT_CHANGE: &str = "`cluster` and `admin` of `source.envoy`, or of \
    `target.process.publish.envoy` where they stand there, cannot change while these Envoys are told \
    of replicas that run: whether one still has requests at a replica would be nobody's to say; \
    restart inflight, or give the fleet another name";

/// Why a change is refused of who is told of the replicas.
const PUBLISH_CANNOT_CHANGE: &str = "cannot change while the fleet runs: whoever reads the former \
    file would not learn of it; restart inflight, or give the fleet another name";

/// Why a change is refused that would leave replicas to nobody's judgement, or to a new one's.
const HEALTH_CANNOT_CHANGE: &str = "cannot be switched on or off while the fleet runs: restart \
    inflight, or give the fleet another name";

/// Why a change is refused of whether Envoys ask.
const GATE_CANNOT_CHANGE: &str = "cannot come or go while the fleet runs: Envoys would ask nobody; \
    restart inflight, or give the fleet another name";

/// Why a change is refused of who measures the load.
const SOURCE_CANNOT_CHANGE: &str = "cannot gain or lose its `gateway`, nor change from or to another \
    kind of source, nor `inflight` or the models that are read by it, while the fleet runs: restart \
    inflight, or give the fleet another name";

/// Judges a change from the settings of `before`.
///
/// # Errors
/// Something would change that cannot; says what to do instead.
pub(super) fn check(settings: &PartSettings, before: &PartSettings) -> anyhow::Result<()> {
    if settings.process.is_some() != before.process.is_some() {
        anyhow::bail!("`target` {CANNOT_CHANGE}");
    }
    if settings.external.is_some() != before.external.is_some() {
        anyhow::bail!("`target` {KEDA_CANNOT_CHANGE}");
    }
    if settings.keeps() != before.keeps() {
        anyhow::bail!("`target.process.on_exit` {ON_EXIT_CANNOT_CHANGE}");
    }
    if files(settings) != files(before) {
        anyhow::bail!("`target.process.publish` {PUBLISH_CANNOT_CHANGE}");
    }
    if envoys(settings) != envoys(before) {
        anyhow::bail!("{ENVOYS_CANNOT_CHANGE}");
    }
    if settings.health.is_some() != before.health.is_some() {
        anyhow::bail!("`health` {HEALTH_CANNOT_CHANGE}");
    }
    if settings.gateway.is_some() != before.gateway.is_some()
        || settings.peers != before.peers
        || settings.measured.is_some() != before.measured.is_some()
        || settings.queried.is_some() != before.queried.is_some()
    {
        anyhow::bail!("`source` {SOURCE_CANNOT_CHANGE}");
    }
    if settings.ext_authz.is_some() != before.ext_authz.is_some() {
        anyhow::bail!("`gate` {GATE_CANNOT_CHANGE}");
    }
    Ok(())
}

/// Returns the files that are written, and what of replicas stands in them.
fn files(settings: &PartSettings) -> Option<(Option<&Path>, Option<&PrometheusFile>)> {
    let publish = &settings.publish.as_ref()?.publish;
    let envoy = publish.envoy.as_ref().map(|it| it.file.as_path());
    Some((envoy, publish.prometheus.as_ref()))
}

/// Returns the Envoys that are told of replicas, and of which cluster these are; how often they are
/// asked may change.
fn envoys(settings: &PartSettings) -> Option<(&str, &[PageUrl])> {
    let envoy = settings.publish.as_ref()?.publish.envoy.as_ref()?;
    Some((&envoy.cluster, &envoy.admin))
}

#[cfg(test)]
mod tests {
    use super::super::ModelRows;
    use super::*;
    use crate::config::{Config, Surroundings};

    fn settings(source: &str) -> PartSettings {
        of(&format!(
            "  - name: hello\n    replicas: {{ min: 0, max: 20 }}\n    \
             source: {{ {source} }}\n    scaling: {{ policy: metric, target: 10 }}\n"
        ))
    }

    fn of(fleet: &str) -> PartSettings {
        let text = format!("version: 1\nfleets:\n{fleet}");
        let path = Path::new("inflight.yaml");
        let config = Config::from_text(path, &text, &Surroundings::Elsewhere).unwrap();
        PartSettings::new(&config.fleets[0], &ModelRows::default()).unwrap()
    }

    #[test]
    fn queries_may_change_while_the_fleet_runs() {
        let before = settings("prometheus: { url: 'http://127.0.0.1:9090', query: a }");
        for source in [
            "prometheus: { url: 'http://127.0.0.1:9090', query: b }",
            "prometheus: { url: 'http://127.0.0.1:9091', query: a }",
            "prometheus: { url: 'http://127.0.0.1:9090', query: a, every: 20s }",
        ] {
            let after = settings(source);
            assert!(after.measures_otherwise(&before), "{source}");
            check(&after, &before).unwrap();
        }
        assert!(!before.measures_otherwise(&before.clone()));
    }

    #[test]
    fn how_often_envoys_are_asked_may_change_and_what_cannot_is_named_where_it_stands() {
        let settings = |envoy: &str, publish: &str| {
            of(&format!(
                "  - name: told\n    slots: 1\n    replicas: {{ max: 2 }}\n    source: {{ envoy: {{ \
                 {envoy}, backend: {{ triton: {{ port: m }} }} }} }}\n    target: {{ process: {{ \
                 command: [server, '{{port}}', '{{port.m}}'], ports: [m], publish: {{ {publish} }} }} }}\n"
            ))
        };
        let file = "envoy: { file: /run/e.json }";
        let before = settings("admin: ['http://a:1'], cluster: c", file);
        let after = "admin: ['http://a:1'], cluster: c, every: 3s, timeout: 1s";
        check(&settings(after, file), &before).unwrap();
        let why = |envoy: &str, publish: &str| {
            let refused = check(&settings(envoy, publish), &before);
            refused.unwrap_err().to_string()
        };
        for envoy in [
            "admin: ['http://b:1'], cluster: c",
            "admin: ['http://a:1'], cluster: d",
        ] {
            let said = why(envoy, file);
            assert!(
                said.starts_with("`cluster` and `admin` of `source.envoy`"),
                "{said}"
            );
        }
        let said = why(
            "admin: ['http://a:1'], cluster: c",
            "envoy: { file: /run/f.json }",
        );
        assert!(said.starts_with("`target.process.publish` "), "{said}");
    }
}
