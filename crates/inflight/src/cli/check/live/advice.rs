//! What others' own configurations say that makes their numbers late or few: asked of Envoy's
//! admin interface and of Prometheus. What is not answered is no advice: the sources say why.

use serde::Deserialize;

use crate::cli::AdminAddress;
use crate::cli::client;
use crate::config::{
    EnvoySettings, FleetConfig, MeasuredSettings, PageUrl, PrometheusSettings, Queries, query_spans,
};
use crate::sources::{query_number, query_target};

/// Samples in a window from which a rate is steady.
const SAMPLES: f64 = 4.0;

/// Asks what measures a fleet, and returns what is worth a look.
pub(super) async fn advice(fleet: &FleetConfig) -> Vec<String> {
    match &fleet.measured {
        Some(MeasuredSettings::Envoy(envoy)) => of_envoy(envoy).await,
        Some(MeasuredSettings::Prometheus(prometheus)) => of_prometheus(prometheus).await,
        Some(MeasuredSettings::Vllm(_)) | None => Vec::new(),
    }
}

/// What `/config_dump` answers, as far as it is asked for.
#[derive(Debug, Deserialize)]
struct Dump {
    #[serde(default)]
    configs: Vec<DumpedCluster>,
}

#[derive(Debug, Deserialize)]
struct DumpedCluster {
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
struct Cluster {
    name: String,
    #[serde(default)]
    health_checks: Vec<HealthCheck>,
}

#[derive(Debug, Deserialize)]
struct HealthCheck {
    no_traffic_interval: Option<String>,
}

async fn of_envoy(envoy: &EnvoySettings) -> Vec<String> {
    let Some(admin) = envoy.admin.listed.first().and_then(address) else {
        return Vec::new();
    };
    for resource in ["static_clusters", "dynamic_active_clusters"] {
        let path =
            format!("/config_dump?resource={resource}&mask=cluster.name,cluster.health_checks");
        let Ok(text) = client::get(&admin, &path).await else {
            continue;
        };
        let dump: Dump = serde_json::from_str(&text).unwrap_or(Dump { configs: vec![] });
        let mut clusters = dump.configs.into_iter().map(|dumped| dumped.cluster);
        if let Some(cluster) = clusters.find(|cluster| cluster.name == envoy.cluster) {
            return of_cluster(&cluster).into_iter().collect();
        }
    }
    Vec::new()
}

fn of_cluster(cluster: &Cluster) -> Option<String> {
    if cluster.health_checks.is_empty() {
        return Some(format!(
            "cluster {} has no `health_checks`: Envoy counts replicas as healthy that are gone",
            cluster.name
        ));
    }
    let is_default = |check: &HealthCheck| check.no_traffic_interval.is_none();
    (cluster.health_checks.iter().any(is_default)).then(|| {
        format!(
            "cluster {} has `no_traffic_interval` at its default: without traffic Envoy checks \
             a replica every 60 s only, so that one that starts or ends is counted a minute late; \
             set it to the `interval`",
            cluster.name
        )
    })
}

async fn of_prometheus(prometheus: &PrometheusSettings) -> Vec<String> {
    let Some(api) = address(&prometheus.url) else {
        return Vec::new();
    };
    let queries = match &prometheus.queries {
        Queries::Terms {
            in_flight,
            executing,
            replicas,
        } => vec![in_flight, executing, replicas],
        Queries::Metric { query, replicas } => std::iter::once(query).chain(replicas).collect(),
    };
    let mut spans: Vec<String> = queries.into_iter().flat_map(|it| query_spans(it)).collect();
    spans.sort();
    spans.dedup();
    let mut said = Vec::new();
    for span in spans {
        let question = format!("min(count_over_time({span}))");
        let target = query_target(&prometheus.url.path, &question);
        let answer = client::get(&api, &target).await.ok();
        let samples = answer.and_then(|text| query_number(&text));
        if let Some(samples) = samples.filter(|samples| *samples < SAMPLES) {
            said.push(format!(
                "{span} holds {samples} samples: a rate is steady from {SAMPLES} on; a longer \
                 span, or a shorter `scrape_interval`"
            ));
        }
    }
    said
}

fn address(page: &PageUrl) -> Option<AdminAddress> {
    format!("http://{}", page.authority).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_dump(text: &str) -> Option<String> {
        let mut dump: Dump = serde_json::from_str(text).unwrap();
        of_cluster(&dump.configs.remove(0).cluster)
    }

    #[test]
    fn a_cluster_that_is_checked_once_a_minute_is_named() {
        let dump = |checks: &str| {
            of_dump(&format!(
                r#"{{"configs":[{{"@type":"x","cluster":{{"@type":"y","name":"c"{checks}}}}}]}}"#
            ))
        };
        let checked = r#","health_checks":[{"interval":"1s","no_traffic_interval":"1s"}]"#;
        assert_eq!(dump(checked), None);
        let seldom = r#","health_checks":[{"interval":"1s"}]"#;
        assert!(dump(seldom).unwrap().contains("no_traffic_interval"));
        assert!(dump("").unwrap().contains("no `health_checks`"));
    }
}
