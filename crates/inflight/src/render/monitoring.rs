//! `render prometheus`: what to scrape, and rules that record the terms and tell people.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::promql::{Number, Queries};
use super::selector::{Label, Selector, text_of};
use super::terms::{span, window};
use super::yaml::{block, quoted};
use super::{RenderError, Rendered};
use crate::config::{
    Config, FleetConfig, MeasuredSettings, PageUrl, PagesSettings, ServerKind, ServersSettings,
};

/// The longest interval between scrapes; a window of a rate has four at least.
const SCRAPE_EVERY_MAX: Duration = Duration::from_secs(15);
const SCRAPES_IN_WINDOW: u32 = 4;
/// The file that the scrape configuration expects the rules in.
const RULES_FILE: &str = "inflight.rules.yaml";
/// Metric pages where a file names the server alone.
const METRICS_PATH: &str = "/metrics";
const ENVOY_PATH: &str = "/stats/prometheus";

/// Pages of one kind and path.
#[derive(Debug, Default)]
struct Job {
    targets: Vec<String>,
    names: Vec<(String, String)>,
    /// Files that somebody writes targets to.
    files: Vec<String>,
    every: Option<Duration>,
}

/// Returns a configuration of Prometheus that scrapes what the fleets are measured by, and us.
#[must_use]
pub fn scrape(config: &Config) -> Rendered {
    let mut jobs: BTreeMap<(&'static str, String), Job> = BTreeMap::new();
    let mut rendered = Rendered::default();
    let ours = Job {
        targets: vec![reachable(config.admin.listen.value).to_string()],
        ..Job::default()
    };
    jobs.insert(("inflight", METRICS_PATH.to_owned()), ours);
    for fleet in &config.fleets {
        let every = (window(fleet) / SCRAPES_IN_WINDOW).min(SCRAPE_EVERY_MAX);
        let mut pages =
            |kind, pages: &PagesSettings, path| add(&mut jobs, kind, pages, path, every);
        match &fleet.measured {
            Some(MeasuredSettings::Envoy(envoy)) => {
                pages("envoy", &envoy.admin, ENVOY_PATH);
                let servers = &envoy.backend;
                pages(kind(&servers.kind), &servers.metrics, METRICS_PATH);
                rendered
                    .warnings
                    .extend(add_file(&mut jobs, fleet, servers, every));
            }
            Some(MeasuredSettings::Vllm(servers)) => {
                pages(kind(&servers.kind), &servers.metrics, METRICS_PATH);
                rendered
                    .warnings
                    .extend(add_file(&mut jobs, fleet, servers, every));
            }
            Some(MeasuredSettings::Prometheus(_)) | None => {}
        }
        if let Some(peers) = &fleet.peers {
            let job = jobs
                .entry(("inflight", METRICS_PATH.to_owned()))
                .or_default();
            for peer in &peers.listed {
                add_once(&mut job.targets, peer.clone());
            }
            for (host, port) in peers.dns.iter().filter_map(|name| name.rsplit_once(':')) {
                add_once(&mut job.names, (host.to_owned(), port.to_owned()));
            }
        }
    }
    if config.admin.listen.value.ip().is_loopback() {
        rendered.warnings.push(format!(
            "`admin.listen` is {}: a Prometheus elsewhere does not reach it",
            config.admin.listen.value
        ));
    }
    rendered.text = format!(
        "# What the fleets are measured by, by `inflight render prometheus`. Leave out what another\n\
         # job scrapes: series that are there twice are counted twice.\n\
         # The rules: `inflight render prometheus --rules > {RULES_FILE}`.\n\
         global:\n  scrape_interval: {every}\n  evaluation_interval: {every}\n\
         rule_files: [{RULES_FILE}]\nscrape_configs:\n",
        every = span(SCRAPE_EVERY_MAX),
    );
    for ((kind, path), job) in &jobs {
        rendered.text.push_str(&job.text(kind, path));
    }
    rendered
}

fn add(
    jobs: &mut BTreeMap<(&'static str, String), Job>,
    kind: &'static str,
    pages: &PagesSettings,
    default_path: &str,
    every: Duration,
) {
    let path = |page: &PageUrl| {
        if page.path == "/" {
            default_path.to_owned()
        } else {
            page.path.clone()
        }
    };
    let mut take = |page: &PageUrl, take: &dyn Fn(&mut Job)| {
        let job = jobs.entry((kind, path(page))).or_default();
        job.every = Some(job.every.map_or(every, |before| before.min(every)));
        take(job);
    };
    for page in &pages.listed {
        take(page, &|job| {
            add_once(&mut job.targets, page.authority.clone())
        });
    }
    if let Some(page) = &pages.dns
        && let Some((host, port)) = page.authority.rsplit_once(':')
    {
        let name = (host.to_owned(), port.to_owned());
        take(page, &|job| add_once(&mut job.names, name.clone()));
    }
}

/// Adds the file that tells of the replicas that our target starts; says what is missing where it is
/// not written.
fn add_file(
    jobs: &mut BTreeMap<(&'static str, String), Job>,
    fleet: &FleetConfig,
    servers: &ServersSettings,
    every: Duration,
) -> Option<String> {
    let port = servers.metrics.port.as_ref()?;
    let targets = (fleet.publish())
        .and_then(|publish| publish.prometheus.as_ref())
        .filter(|targets| targets.port.as_ref() == Some(port));
    let Some(targets) = targets else {
        return Some(format!(
            "fleet {}: its replicas are not scraped: `target.process.publish.prometheus: {{ file: …, \
             port: {port} }}` tells a Prometheus where they are",
            fleet.name
        ));
    };
    let kind = kind(&servers.kind);
    let job = jobs.entry((kind, METRICS_PATH.to_owned())).or_default();
    job.every = Some(job.every.map_or(every, |before| before.min(every)));
    add_once(&mut job.files, targets.file.display().to_string());
    None
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// An address that means this machine, for one that means all of it.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let mut address = listen;
    if listen.ip().is_unspecified() {
        address.set_ip([127, 0, 0, 1].into());
    }
    address
}

fn kind(kind: &ServerKind) -> &'static str {
    match kind {
        ServerKind::Triton { .. } => "triton",
        ServerKind::Vllm { .. } => "vllm",
        ServerKind::Custom(_) => "servers",
    }
}

impl Job {
    fn text(&self, kind: &str, path: &str) -> String {
        let (path, parameters) = path.split_once('?').unwrap_or((path, ""));
        let default = match kind {
            "envoy" => ENVOY_PATH,
            _ => METRICS_PATH,
        };
        // Pages of one kind at several paths are several jobs, whose names must differ.
        let name = if path == default && parameters.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind} {path} {parameters}").trim_end().to_owned()
        };
        let mut text = format!("  - job_name: {}\n", quoted(&name));
        if let Some(every) = self.every {
            text.push_str(&format!("    scrape_interval: {}\n", span(every)));
        }
        text.push_str(&format!("    metrics_path: {}\n", quoted(path)));
        if !parameters.is_empty() {
            text.push_str("    params:\n");
            for (key, values) in values_of(parameters) {
                let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
                text.push_str(&format!(
                    "      {}: [{}]\n",
                    quoted(&key),
                    values.join(", ")
                ));
            }
        }
        // By whichever way targets are found; the alerts tell them apart by it.
        text.push_str(&format!(
            "    relabel_configs: [{{ target_label: kind, replacement: {kind} }}]\n"
        ));
        if !self.targets.is_empty() {
            let targets: Vec<String> = self.targets.iter().map(|one| quoted(one)).collect();
            text.push_str(&format!(
                "    static_configs:\n      - targets: [{}]\n",
                targets.join(", ")
            ));
        }
        if !self.names.is_empty() {
            text.push_str("    dns_sd_configs:\n");
            for (host, port) in &self.names {
                text.push_str(&format!(
                    "      - {{ names: [{}], type: A, port: {port} }}\n",
                    quoted(host)
                ));
            }
        }
        if !self.files.is_empty() {
            let files: Vec<String> = self.files.iter().map(|one| quoted(one)).collect();
            text.push_str(&format!(
                "    file_sd_configs:\n      - files: [{}]\n",
                files.join(", ")
            ));
        }
        text
    }
}

/// Takes the parameters of an address apart, each with its values; Prometheus spells them again.
fn values_of(parameters: &str) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in parameters.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        values.entry(decoded(key)).or_default().push(decoded(value));
    }
    values
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let code = match (first, after) {
            (b'%', [high, low, left @ ..]) => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let code = digit(*high)
                    .zip(digit(*low))
                    .map(|(high, low)| high * 16 + low);
                code.and_then(|code| u8::try_from(code).ok())
                    .map(|code| (code, left))
            }
            _ => None,
        };
        match code {
            Some((code, left)) => {
                bytes.push(code);
                rest = left;
            }
            None => bytes.push(if first == b'+' { b' ' } else { first }),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns rules that record each fleet's terms, and rules that tell people.
///
/// *Errors*: one of the fleets' queries is none.
pub fn rules(config: &Config, selector: &Selector) -> Result<Rendered, RenderError> {
    let mut rendered = Rendered {
        text: "# Rules by `inflight render prometheus --rules`.\ngroups:\n".to_owned(),
        warnings: Vec::new(),
    };
    for fleet in &config.fleets {
        let number = Number::of(fleet, selector)?;
        rendered.warnings.extend(number.warnings(fleet));
        let name = quoted(&format!("inflight fleet {}", fleet.name));
        rendered
            .text
            .push_str(&format!("  - name: {name}\n    rules:\n"));
        record(fleet, &number, &mut rendered.text);
        alerts_of(fleet, &number, selector, &mut rendered.text);
    }
    rendered.text.push_str("  - name: inflight\n    rules:\n");
    for alert in ALERTS {
        alert_text(alert, "", &mut rendered.text);
    }
    Ok(rendered)
}

fn record(fleet: &FleetConfig, number: &Number, out: &mut String) {
    let recorded = match &number.queries {
        Queries::Rule(_, formula) => vec![
            ("inflight:in_flight", &formula.in_flight),
            ("inflight:executing", &formula.executing),
            ("inflight:replicas", &formula.replicas),
            ("inflight:required", &formula.required),
            ("inflight:inflation", &formula.inflation),
        ],
        Queries::Own(query) => vec![("inflight:metric", query)],
    };
    for (name, query) in recorded {
        out.push_str(&format!(
            "      - record: {name}\n        labels: {{ fleet: {} }}\n        expr: {}\n",
            quoted(&fleet.name),
            block(query, 8)
        ));
    }
}

/// A rule that tells people.
struct Alert<'a> {
    name: &'a str,
    expr: &'a str,
    wait: &'a str,
    severity: &'a str,
    summary: &'a str,
}

/// What is told of all fleets at once.
const ALERTS: &[Alert<'static>] = &[
    Alert {
        name: "InflightDown",
        expr: "up{kind=\"inflight\"} == 0 or absent(up{kind=\"inflight\"})",
        wait: "1m",
        severity: "critical",
        summary: "inflight is not scraped: nobody sizes its fleets, and a gateway may be gone",
    },
    Alert {
        name: "InflightLoadUnknown",
        expr: "inflight_replicas{state=\"desired\"} unless on (fleet, instance) \
               inflight_observation_age_seconds",
        wait: "2m",
        severity: "critical",
        summary: "fleet {{ $labels.fleet }}: the load is unknown, its size is held",
    },
    Alert {
        name: "InflightSourceFailing",
        expr: "inflight_unreachable_peers > 0",
        wait: "2m",
        severity: "warning",
        summary: "fleet {{ $labels.fleet }}: {{ $value }} of those who measure it do not answer",
    },
    Alert {
        name: "InflightScrapeFailing",
        expr: "up{kind=~\"envoy|triton|vllm|servers\"} == 0",
        wait: "2m",
        severity: "warning",
        summary: "{{ $labels.kind }} at {{ $labels.instance }} is not scraped: the load may read too \
                  low",
    },
    Alert {
        name: "InflightReplicasNotReady",
        expr: "max by (fleet) (inflight_replicas{state=\"desired\"}) > max by (fleet) \
               (inflight_replicas{state=\"ready\"})",
        wait: "15m",
        severity: "warning",
        summary: "fleet {{ $labels.fleet }}: replicas were asked for and do not get ready",
    },
    Alert {
        name: "InflightReplicasCrash",
        expr: "increase(inflight_replica_crashes_total[15m]) > 3",
        wait: "0s",
        severity: "warning",
        summary: "fleet {{ $labels.fleet }}: replicas end by themselves",
    },
    Alert {
        name: "InflightConfigurationRefused",
        expr: "inflight_configuration_refused == 1",
        wait: "5m",
        severity: "warning",
        summary: "the configuration file of {{ $labels.instance }} is refused, a former one is in \
                  force",
    },
];

fn alerts_of(fleet: &FleetConfig, number: &Number, selector: &Selector, out: &mut String) {
    let name = text_of(&fleet.name);
    let labels = format!("fleet: {}, ", quoted(&fleet.name));
    let unknown = match &number.queries {
        Queries::Rule(..) => format!("absent(inflight:required{{fleet={name}}})"),
        Queries::Own(_) => format!("absent(inflight:metric{{fleet={name}}})"),
    };
    let alert = Alert {
        name: "InflightQueryEmpty",
        expr: &unknown,
        wait: "2m",
        severity: "critical",
        summary: "fleet {{ $labels.fleet }}: its query has no answer, so that its size is held",
    };
    alert_text(&alert, &labels, out);
    if let (Queries::Rule(..), Some(admission)) = (&number.queries, fleet.admission) {
        let expr = format!(
            "inflight:replicas{{fleet={name}}} >= {} and on (fleet) inflight:inflation{{fleet={name}}} \
             > {}",
            fleet.replicas_max, admission.threshold
        );
        let alert = Alert {
            name: "InflightFleetFull",
            expr: &expr,
            wait: "5m",
            severity: "warning",
            summary: "fleet {{ $labels.fleet }} is at its maximum, and requests wait longer than its \
                      gate allows",
        };
        alert_text(&alert, &labels, out);
    }
    if let Some(MeasuredSettings::Envoy(envoy)) = &fleet.measured {
        let cluster = [Label::is("envoy_cluster_name", &envoy.cluster)];
        let refused = ["pending_overflow", "active_overflow"].map(|stat| {
            let stat = format!("envoy_cluster_upstream_rq_{stat}");
            format!("sum(rate({}[5m])) > 0", selector.of(&stat, &cluster))
        });
        let alert = Alert {
            name: "InflightEnvoyRefuses",
            expr: &refused.join(" or "),
            wait: "1m",
            severity: "warning",
            summary: "fleet {{ $labels.fleet }}: Envoy's circuit breaker refuses requests, which the \
                      queries do not see; raise its max_requests",
        };
        alert_text(&alert, &labels, out);
    }
}

fn alert_text(alert: &Alert<'_>, labels: &str, out: &mut String) {
    let Alert {
        name,
        expr,
        wait,
        severity,
        summary,
    } = alert;
    out.push_str(&format!(
        "      - alert: {name}\n        expr: {}\n        for: {wait}\n        labels: {{ \
         {labels}severity: {severity} }}\n        annotations: {{ summary: {} }}\n",
        quoted(expr),
        quoted(summary)
    ));
}

/// Returns the expressions of all alerts, for tests.
#[cfg(test)]
pub(super) fn expressions() -> impl Iterator<Item = &'static str> {
    ALERTS.iter().map(|alert| alert.expr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_they_were_meant() {
        let values = values_of("filter=a%7Cb+c&usedonly&x=1&x=%zz");
        assert_eq!(values["filter"], ["a|b c"]);
        assert_eq!(values["usedonly"], [""]);
        assert_eq!(values["x"], ["1", "%zz"]);
    }
}
