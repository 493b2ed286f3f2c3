//! What of a fleet's settings stays as it is while the fleet runs.

use super::Told;

/// Why a change is refused that would make the fleet another.
const CANNOT_CHANGE: &str = "cannot change from or to `process` while the fleet runs: its replicas \
    would belong to nobody; restart inflight, or give the fleet another name";

/// Why a change is refused that would leave nobody knowing how large the fleet is.
const KEDA_CANNOT_CHANGE: &str = "cannot change from or to `keda` while the fleet runs: whoever \
    sizes it then would not know how large it is; restart inflight, or give the fleet another name";

/// Why a change is refused of what becomes of the replicas at our end.
const ON_EXIT_CANNOT_CHANGE: &str = "cannot change while the fleet runs: its replicas were started \
    to end with us, or not to; restart inflight, or give the fleet another name";

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
pub(super) fn check(told: &Told, before: &Told) -> anyhow::Result<()> {
    if told.process.is_some() != before.process.is_some() {
        anyhow::bail!("`target` {CANNOT_CHANGE}");
    }
    if told.external.is_some() != before.external.is_some() {
        anyhow::bail!("`target` {KEDA_CANNOT_CHANGE}");
    }
    if told.keeps() != before.keeps() {
        anyhow::bail!("`target.process.on_exit` {ON_EXIT_CANNOT_CHANGE}");
    }
    let published = |told: &Told| told.publish.as_ref().map(|told| told.publish.clone());
    if published(told) != published(before) {
        anyhow::bail!("`target.process.publish` {PUBLISH_CANNOT_CHANGE}");
    }
    if told.health.is_some() != before.health.is_some() {
        anyhow::bail!("`health` {HEALTH_CANNOT_CHANGE}");
    }
    if told.gateway.is_some() != before.gateway.is_some()
        || told.peers != before.peers
        || told.measured.is_some() != before.measured.is_some()
        || told.queried.is_some() != before.queried.is_some()
    {
        anyhow::bail!("`source` {SOURCE_CANNOT_CHANGE}");
    }
    if told.ext_authz.is_some() != before.ext_authz.is_some() {
        anyhow::bail!("`gate` {GATE_CANNOT_CHANGE}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::ModelRows;
    use super::*;
    use crate::config::{Config, Surroundings};

    fn told(source: &str) -> Told {
        let text = format!(
            "version: 1\nfleets:\n  - name: hello\n    replicas: {{ min: 0, max: 20 }}\n    \
             source: {{ {source} }}\n    scaling: {{ policy: metric, target: 10 }}\n"
        );
        let path = Path::new("inflight.yaml");
        let config = Config::from_text(path, &text, &Surroundings::Elsewhere).unwrap();
        Told::new(&config.fleets[0], &ModelRows::default()).unwrap()
    }

    #[test]
    fn queries_may_change_while_the_fleet_runs() {
        let before = told("prometheus: { url: 'http://127.0.0.1:9090', query: a }");
        for source in [
            "prometheus: { url: 'http://127.0.0.1:9090', query: b }",
            "prometheus: { url: 'http://127.0.0.1:9091', query: a }",
            "prometheus: { url: 'http://127.0.0.1:9090', query: a, every: 20s }",
        ] {
            let after = told(source);
            assert!(after.measures_otherwise(&before), "{source}");
            check(&after, &before).unwrap();
        }
        assert!(!before.measures_otherwise(&before.clone()));
    }
}
