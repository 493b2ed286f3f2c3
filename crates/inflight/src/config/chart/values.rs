//! The values that scaling depends on, with the chart's defaults: of its first version with the
//! occupancy ratio, and of the later one that names its servers `inferenceServer`.

use std::time::Duration;

use crate::config::document::{Node, Value, join};
use crate::config::error::{Located, Place, Problem};
use crate::config::setting::shown;

/// What the chart is told.
#[derive(Debug)]
pub(super) struct Values {
    /// Where the servers are set: `triton` or `inferenceServer`.
    pub(super) servers: &'static str,
    /// The name of the cluster in the Envoy configuration that the chart writes.
    pub(super) cluster: &'static str,
    /// A query of the user's own.
    pub(super) metric: Option<Located<String>>,
    pub(super) threshold: Located<f64>,
    pub(super) admission: Located<f64>,
    pub(super) window: Located<Duration>,
    /// Whether new clients are refused above `admission`.
    pub(super) gate: Located<bool>,
    pub(super) envoy: Located<bool>,
    /// Whether Envoy's configuration is the user's own.
    pub(super) envoy_external: Located<bool>,
    pub(super) keda: Keda,
    pub(super) prometheus: Prometheus,
    pub(super) from_zero: Located<bool>,
    pub(super) ready_timeout: Located<f64>,
    pub(super) hold_minimum: Located<f64>,
    /// Keys that earlier charts read, and these do not.
    pub(super) moved: Vec<(Place, &'static str)>,
}

/// What the chart's ScaledObject is made of.
#[derive(Debug)]
pub(super) struct Keda {
    pub(super) enabled: Located<bool>,
    pub(super) minimum: Located<f64>,
    pub(super) maximum: Located<f64>,
    pub(super) zero_idle: Located<bool>,
    pub(super) metric_type: Located<String>,
    pub(super) up: Steps,
}

/// How the autoscaler grows.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) window: f64,
    pub(super) every: f64,
    pub(super) replicas: f64,
}

/// Who is asked for the metric.
#[derive(Debug)]
pub(super) enum Prometheus {
    /// The chart's own.
    Own {
        /// How often it scrapes.
        interval: Located<Duration>,
    },
    /// Another one.
    External,
    /// Nobody.
    Nobody {
        /// Where to say who.
        place: Place,
    },
}

impl Values {
    /// Takes out of a values file what scaling depends on; what cannot be read as what it should
    /// be is a fix, and its default holds.
    pub(super) fn read(root: &Node, fixes: &mut Vec<Problem>) -> Self {
        let mut file = File { root, fixes };
        let is_later = file.find("inferenceServer").is_some();
        let metric = Some(file.text("serverLoadMetric", ""))
            .filter(|query| query.given && !query.value.trim().is_empty());
        let metric_type = match (&metric, is_later) {
            (Some(_), true) => "Value",
            (_, _) => "AverageValue",
        };
        let prometheus = if file.flag("prometheus.external.enabled", false).value {
            Prometheus::External
        } else if file.flag("prometheus.enabled", false).value {
            Prometheus::Own {
                interval: file.span("prometheus.server.global.scrape_interval", "5s"),
            }
        } else {
            Prometheus::Nobody {
                place: file.place("prometheus.enabled"),
            }
        };
        Self {
            servers: if is_later {
                "inferenceServer"
            } else {
                "triton"
            },
            cluster: if is_later {
                "inference_server_grpc_service"
            } else {
                "triton_grpc_service"
            },
            metric,
            threshold: file.number("serverLoadThreshold", if is_later { 1.5 } else { 2.0 }),
            admission: file.number("serverAdmissionThreshold", 3.0),
            window: file.span(
                "serverLoadRateInterval",
                if is_later { "30s" } else { "1m" },
            ),
            gate: file.flag("envoy.rate_limiter.prometheus_based.enabled", false),
            envoy: file.flag("envoy.enabled", true),
            envoy_external: file.flag("envoy.external_config.load_from_configmap", false),
            keda: Keda {
                enabled: file.flag("keda.enabled", false),
                minimum: file.number("keda.minReplicaCount", 1.0),
                maximum: file.number("keda.maxReplicaCount", if is_later { 10.0 } else { 2.0 }),
                zero_idle: file.flag("keda.zeroIdleReplicas", false),
                metric_type: file.text("keda.metricType", metric_type),
                up: Steps {
                    window: (file.number(
                        "keda.scaleUp.stabilizationWindowSeconds",
                        if is_later { 0.0 } else { 60.0 },
                    ))
                    .value,
                    every: (file.number(
                        "keda.scaleUp.periodSeconds",
                        if is_later { 15.0 } else { 60.0 },
                    ))
                    .value,
                    replicas: (file
                        .number("keda.scaleUp.stepsize", if is_later { 2.0 } else { 1.0 }))
                    .value,
                },
            },
            prometheus,
            from_zero: file.flag("scaleFromZero.enabled", false),
            ready_timeout: file.number("scaleFromZero.readyTimeoutSeconds", 300.0),
            hold_minimum: file.number("scaleFromZero.holdMinReplicasSeconds", 300.0),
            moved: [
                ("prometheus.serverLoadMetric", "serverLoadMetric"),
                ("prometheus.serverLoadThreshold", "serverLoadThreshold"),
                ("prometheus.url", "prometheus.external.url"),
                ("autoscaler", "keda"),
            ]
            .into_iter()
            .filter_map(|(old, new)| Some((file.find(old)?.place.clone(), new)))
            .collect(),
        }
    }
}

/// A values file while it is read.
struct File<'a> {
    root: &'a Node,
    fixes: &'a mut Vec<Problem>,
}

impl<'a> File<'a> {
    fn find(&self, path: &str) -> Option<&'a Node> {
        let node = path.split('.').try_fold(self.root, |node, name| {
            let Value::Mapping(entries) = &node.value else {
                return None;
            };
            let entry = entries.iter().rev().find(|entry| entry.key == name)?;
            Some(&entry.node)
        })?;
        (!matches!(node.value, Value::Null)).then_some(node)
    }

    /// Returns where a key stands, or would: at the innermost of its sections that is there.
    fn place(&self, path: &str) -> Place {
        if let Some(node) = self.find(path) {
            return node.place.clone();
        }
        let parent = path.rsplit_once('.').map(|(parent, _)| parent);
        Place {
            key: join("", path),
            ..parent.map_or_else(Place::default, |parent| self.place(parent))
        }
    }

    fn take<T>(
        &mut self,
        path: &str,
        default: T,
        kind: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Located<T> {
        let place = self.place(path);
        let Some(node) = self.find(path) else {
            return Located {
                value: default,
                place,
                given: false,
            };
        };
        match read(&node.value) {
            Some(value) => Located {
                value,
                place,
                given: true,
            },
            None => {
                self.fix(&place, format!("{} is not {kind}", shown(node)));
                Located {
                    value: default,
                    place,
                    given: false,
                }
            }
        }
    }

    fn flag(&mut self, path: &str, default: bool) -> Located<bool> {
        self.take(path, default, "`true` or `false`", |value| match value {
            Value::Bool(value) => Some(*value),
            Value::Null
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Mapping(_) => None,
        })
    }

    fn text(&mut self, path: &str, default: &str) -> Located<String> {
        self.take(path, default.to_owned(), "a text", |value| match value {
            Value::Text(text) => Some(text.clone()),
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::List(_)
            | Value::Mapping(_) => None,
        })
    }

    fn number(&mut self, path: &str, default: f64) -> Located<f64> {
        let number = self.take(path, default, "a number", |value| match value {
            Value::Integer(value) => value.to_string().parse().ok(),
            Value::Float(value) => Some(*value).filter(|value| value.is_finite()),
            Value::Text(text) => {
                let value: Option<f64> = text.trim().parse().ok();
                value.filter(|value| value.is_finite())
            }
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Mapping(_) => None,
        });
        let is_text = |node: &Node| matches!(node.value, Value::Text(_));
        if number.given && self.find(path).is_some_and(is_text) {
            let what = format!(
                "is a text: write {} without quotes; `--set` makes texts of fractions, \
                 `--set-json` and files do not",
                number.value
            );
            self.fix(&number.place, what);
        }
        number
    }

    fn span(&mut self, path: &str, default: &str) -> Located<Duration> {
        let default = prometheus_span(default).unwrap_or_default();
        self.take(
            path,
            default,
            "a duration as Prometheus writes it",
            |value| match value {
                Value::Text(text) => prometheus_span(text),
                Value::Null
                | Value::Bool(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::List(_)
                | Value::Mapping(_) => None,
            },
        )
    }

    fn fix(&mut self, place: &Place, what: String) {
        self.fixes.push(Problem {
            place: place.clone(),
            what,
            allowed: None,
        });
    }
}

/// Reads a duration as Prometheus writes it: `90s`, `1m30s`; at most a year.
pub(super) fn prometheus_span(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .filter(|at| *at > 0)?;
        let (number, unit) = rest.split_at(digits);
        let letters = unit
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(unit.len());
        let (unit, after) = unit.split_at(letters);
        let millis: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        let part = number.parse::<u64>().ok()?.checked_mul(millis)?;
        total = total.checked_add(Duration::from_millis(part))?;
        rest = after;
    }
    let is_sane = !total.is_zero() && total <= Duration::from_secs(366 * 86_400);
    is_sane.then_some(total)
}
