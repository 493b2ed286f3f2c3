//! `render grafana`: a dashboard of what inflight itself exports, for any of its fleets.

use serde_json::{Value, json};

use super::Rendered;
use crate::config::Config;

/// What a fleet is chosen by in every query.
const FLEET: &str = "fleet=~\"$fleet\"";
/// The width and height of a panel, of 24 columns.
const WIDTH: usize = 12;
const HEIGHT: usize = 8;

/// One graph.
struct Panel {
    title: &'static str,
    /// What it says, for people.
    says: &'static str,
    unit: &'static str,
    /// Queries with what their lines are called. `FLEET` stands for the chosen fleets.
    lines: &'static [(&'static str, &'static str)],
    /// From where on values are yellow and red.
    thresholds: Option<[f64; 2]>,
}

const PANELS: &[Panel] = &[
    Panel {
        title: "Load",
        says: "Mean requests in flight, exactly: executing and queued. For fleets that others serve, \
               use the recorded terms below.",
        unit: "short",
        lines: &[
            (
                "sum by (fleet) (rate(inflight_executing_seconds_total{FLEET}[$__rate_interval]))",
                "{{fleet}} executing",
            ),
            (
                "sum by (fleet) (rate(inflight_queued_seconds_total{FLEET}[$__rate_interval]))",
                "{{fleet}} queued",
            ),
        ],
        thresholds: None,
    },
    Panel {
        title: "Replicas",
        says: "How many are wanted, and how many there are by state.",
        unit: "short",
        lines: &[(
            "max by (fleet, state) (inflight_replicas{FLEET})",
            "{{fleet}} {{state}}",
        )],
        thresholds: None,
    },
    Panel {
        title: "Inflation",
        says: "1: nobody waits. 2: requests wait as long as they are served. Red: new sessions are \
               refused while the fleet cannot grow.",
        unit: "short",
        lines: &[
            ("max by (fleet) (inflight_inflation{FLEET})", "{{fleet}}"),
            (
                "max by (fleet) (inflight:inflation{FLEET})",
                "{{fleet}} by the recorded query",
            ),
        ],
        thresholds: Some([2.0, 3.0]),
    },
    Panel {
        title: "The rule's terms, as recorded",
        says: "By `inflight render prometheus --rules`: in flight, executing, and the replicas at \
               which nobody would wait.",
        unit: "short",
        lines: &[
            ("inflight:in_flight{FLEET}", "{{fleet}} in flight"),
            ("inflight:executing{FLEET}", "{{fleet}} executing"),
            ("inflight:required{FLEET}", "{{fleet}} required"),
        ],
        thresholds: None,
    },
    Panel {
        title: "Decisions",
        says: "Decisions a minute, by what they did to the size. None at all: nobody decides.",
        unit: "short",
        lines: &[(
            "sum by (fleet, direction) (rate(inflight_decisions_total{FLEET}[$__rate_interval])) * 60",
            "{{fleet}} {{direction}}",
        )],
        thresholds: None,
    },
    Panel {
        title: "Refused",
        says: "Requests refused a second, by reason.",
        unit: "reqps",
        lines: &[(
            "sum by (fleet, reason) (rate(inflight_refused_total{FLEET}[$__rate_interval]))",
            "{{fleet}} {{reason}}",
        )],
        thresholds: None,
    },
    Panel {
        title: "Wait for a slot",
        says: "From a request's arrival to its first slot.",
        unit: "s",
        lines: &[
            (
                "histogram_quantile(0.5, sum by (fleet, le) \
                 (rate(inflight_wait_duration_seconds_bucket{FLEET}[$__rate_interval])))",
                "{{fleet}} p50",
            ),
            (
                "histogram_quantile(0.99, sum by (fleet, le) \
                 (rate(inflight_wait_duration_seconds_bucket{FLEET}[$__rate_interval])))",
                "{{fleet}} p99",
            ),
        ],
        thresholds: None,
    },
    Panel {
        title: "Request duration",
        says: "From a request's arrival to its end.",
        unit: "s",
        lines: &[
            (
                "histogram_quantile(0.5, sum by (fleet, le) \
                 (rate(inflight_request_duration_seconds_bucket{FLEET}[$__rate_interval])))",
                "{{fleet}} p50",
            ),
            (
                "histogram_quantile(0.99, sum by (fleet, le) \
                 (rate(inflight_request_duration_seconds_bucket{FLEET}[$__rate_interval])))",
                "{{fleet}} p99",
            ),
        ],
        thresholds: None,
    },
    Panel {
        title: "How requests ended",
        says: "Requests a second, by outcome.",
        unit: "reqps",
        lines: &[(
            "sum by (fleet, outcome) (rate(inflight_requests_total{FLEET}[$__rate_interval]))",
            "{{fleet}} {{outcome}}",
        )],
        thresholds: None,
    },
    Panel {
        title: "Age of what is decided on",
        says: "By source. A gap: the load is unknown, the size is held.",
        unit: "s",
        lines: &[
            (
                "max by (fleet, source) (inflight_observation_age_seconds{FLEET})",
                "{{fleet}} {{source}}",
            ),
            (
                "max by (fleet) (inflight_unreachable_peers{FLEET})",
                "{{fleet}} sources that do not answer",
            ),
        ],
        thresholds: Some([15.0, 30.0]),
    },
];

/// Returns the dashboard; its fleets are found by Grafana.
#[must_use]
pub fn grafana(config: &Config) -> Rendered {
    // Of several fleets the strictest gate.
    let gate = (config.fleets.iter())
        .filter_map(|fleet| Some(fleet.admission?.threshold))
        .reduce(f64::min);
    let panels = (PANELS.iter().enumerate()).map(|(place, panel)| panel.json(place, gate));
    let dashboard = json!({
        "title": "inflight",
        "uid": "inflight-fleets",
        "tags": ["inflight"],
        "schemaVersion": 39,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            {
                "name": "datasource",
                "label": "Prometheus",
                "type": "datasource",
                "query": "prometheus",
            },
            {
                "name": "fleet",
                "label": "Fleet",
                "type": "query",
                "datasource": { "type": "prometheus", "uid": "${datasource}" },
                "query": {
                    "query": "label_values(inflight_replicas, fleet)",
                    "refId": "fleet",
                },
                "includeAll": true,
                "multi": true,
                "current": { "text": "All", "value": "$__all" },
                "refresh": 2,
                "sort": 1,
            },
        ] },
        "panels": panels.collect::<Vec<_>>(),
    });
    Rendered {
        text: format!("{dashboard:#}\n"),
        warnings: Vec::new(),
    }
}

impl Panel {
    fn json(&self, place: usize, gate: Option<f64>) -> Value {
        let datasource = json!({ "type": "prometheus", "uid": "${datasource}" });
        let targets = self.lines.iter().zip('A'..).map(|((query, legend), id)| {
            json!({
                "datasource": datasource,
                "refId": id.to_string(),
                "expr": query.replace("FLEET", FLEET),
                "legendFormat": legend,
                "range": true,
            })
        });
        let mut defaults = json!({ "unit": self.unit, "min": 0 });
        if let Some([warning, critical]) = self.thresholds {
            let critical = match (self.title, gate) {
                ("Inflation", Some(gate)) => gate,
                _ => critical,
            };
            defaults["thresholds"] = json!({ "mode": "absolute", "steps": [
                { "color": "green", "value": null },
                { "color": "yellow", "value": warning.min(critical) },
                { "color": "red", "value": critical },
            ] });
            defaults["custom"] = json!({ "thresholdsStyle": { "mode": "line" } });
        }
        json!({
            "id": place + 1,
            "type": "timeseries",
            "title": self.title,
            "description": self.says,
            "datasource": datasource,
            "gridPos": {
                "x": place % 2 * WIDTH,
                "y": place / 2 * HEIGHT,
                "w": WIDTH,
                "h": HEIGHT,
            },
            "fieldConfig": { "defaults": defaults, "overrides": [] },
            "targets": targets.collect::<Vec<_>>(),
        })
    }
}

/// Returns the queries as Grafana asks them of a window, for tests.
#[cfg(test)]
pub(super) fn expressions() -> impl Iterator<Item = String> {
    let lines = PANELS.iter().flat_map(|panel| panel.lines);
    lines.map(|(query, _)| {
        query
            .replace("FLEET", FLEET)
            .replace("$__rate_interval", "1m")
    })
}
