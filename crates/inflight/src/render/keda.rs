//! `render keda`: the object by which KEDA sizes a fleet's deployment, asking us or Prometheus.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use super::promql::{Consumer, Number, Queries};
use super::selector::{Label, Selector};
use super::terms::Second;
use super::yaml::{block, quoted};
use super::{RenderError, Rendered};
use crate::config::{
    FleetConfig, MeasuredSettings, MetricKind, PolicySettings, StepSettings, Target,
};

/// How often KEDA asks, and the period of the autoscaler behind it.
const PERIOD: Duration = Duration::from_secs(15);
/// The longest stabilization window that the autoscaler takes.
const WINDOW_MAX: Duration = Duration::from_secs(3600);
/// The longest period of a step.
const STEP_PERIOD_MAX: Duration = Duration::from_secs(1800);
/// The stabilization window of a fleet whose own follows the time that replicas take to start: the
/// longest that it gets.
const DOWN_WINDOW_AUTO: Duration = Duration::from_secs(300);

/// Where things are in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The object's name; that of the workload where there is none.
    pub name: Option<String>,
    /// The namespace of the object and the workload.
    pub namespace: String,
    /// What is sized; a deployment with the fleet's name where there is none.
    pub workload: Option<Workload>,
    /// Where Prometheus is, as KEDA sees it.
    pub prometheus: Option<String>,
    /// Where we are, as KEDA sees it: HOST:PORT.
    pub scaler: Option<String>,
}

/// Something with a scale in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    api_version: String,
    kind: String,
    name: String,
}

/// Why a text names no workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not NAME, KIND/NAME or APIVERSION/KIND/NAME, such as StatefulSet/triton")]
pub struct WorkloadError;

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (before, name) = text.rsplit_once('/').unwrap_or(("Deployment", text));
        let (api_version, kind) = before.rsplit_once('/').unwrap_or(("apps/v1", before));
        let is_kind = !kind.is_empty() && kind.chars().all(|c| c.is_ascii_alphanumeric());
        let is_version = |part: &str| part.split('.').all(is_label) && !part.is_empty();
        if !is_kind || !is_object_name(name) || !api_version.split('/').all(is_version) {
            return Err(WorkloadError);
        }
        Ok(Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Tells whether Kubernetes takes a text for an object's name.
#[must_use]
pub fn is_object_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.chars().all(|c| is_end(c) || c == '-')
        && text.starts_with(is_end)
        && text.ends_with(is_end)
}

/// Makes an object's name of a fleet's.
fn object_name(fleet: &str) -> String {
    let lower = fleet.to_ascii_lowercase().replace(['_', '.'], "-");
    lower.trim_end_matches('-').to_owned()
}

/// Who decides the size that KEDA brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decides {
    /// The autoscaler, from a number: it waits before it shrinks a fleet.
    Autoscaler,
    /// Our policy: the number is the size.
    Policy,
}

/// Returns the objects of fleets.
///
/// *Errors*: one of their queries is none.
pub fn keda(
    fleets: &[&FleetConfig],
    selector: &Selector,
    places: &Places,
) -> Result<Rendered, RenderError> {
    let mut rendered = Rendered::default();
    for fleet in fleets {
        if !rendered.text.is_empty() {
            rendered.text.push_str("---\n");
        }
        let mut object = Object {
            fleet,
            places,
            out: &mut rendered,
        };
        object.write(selector)?;
    }
    Ok(rendered)
}

struct Object<'a> {
    fleet: &'a FleetConfig,
    places: &'a Places,
    out: &'a mut Rendered,
}

/// One reason for a size.
struct Trigger {
    /// Its lines, below `- type`.
    kind: &'static str,
    metric_type: MetricKind,
    metadata: Vec<(&'static str, String)>,
}

impl Object<'_> {
    fn write(&mut self, selector: &Selector) -> Result<(), RenderError> {
        let (decides, triggers) = match &self.fleet.target {
            Target::Keda { listen } => {
                let address = self.scaler(listen.port(), listen.ip().is_loopback());
                let decides = match self.fleet.scaling.policy {
                    PolicySettings::Occupancy { .. } => Decides::Autoscaler,
                    PolicySettings::Staffing { .. }
                    | PolicySettings::Concurrency { .. }
                    | PolicySettings::Metric { .. } => Decides::Policy,
                };
                (decides, vec![ours(address, &self.fleet.name)])
            }
            Target::Advise | Target::Process(_) => self.by_prometheus(selector)?,
        };
        self.head();
        self.behavior(decides);
        self.triggers(&triggers);
        Ok(())
    }

    /// Returns the triggers that ask Prometheus.
    fn by_prometheus(
        &mut self,
        selector: &Selector,
    ) -> Result<(Decides, Vec<Trigger>), RenderError> {
        let server = self.prometheus();
        let asks = |query: &str, target: f64, kind: MetricKind| {
            asks_prometheus(&server, query, target, kind)
        };
        Ok(match self.fleet.scaling.policy {
            PolicySettings::Staffing { .. } | PolicySettings::Concurrency { .. } => {
                let labels = [
                    Label::is("fleet", &self.fleet.name),
                    Label::is("state", "desired"),
                ];
                let desired = Selector::default().of("inflight_replicas", &labels);
                let query = format!("max({desired})");
                let trigger = asks(&query, 1.0, MetricKind::AverageValue);
                (Decides::Policy, vec![trigger])
            }
            PolicySettings::Occupancy { .. } | PolicySettings::Metric { .. } => {
                let number = Number::of(self.fleet, selector)?;
                self.out.warnings.extend(number.warnings(self.fleet));
                let mut triggers = vec![asks(
                    number.query(Consumer::Scaler),
                    number.target,
                    number.kind,
                )];
                if let Queries::Rule(terms, _) = &number.queries
                    && let Some(Second { query, target }) = &terms.second
                {
                    triggers.push(asks(query, *target, MetricKind::AverageValue));
                }
                (Decides::Autoscaler, triggers)
            }
        })
    }

    fn head(&mut self) {
        let workload = self.places.workload.clone().unwrap_or_else(|| Workload {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: object_name(&self.fleet.name),
        });
        let name = self.places.name.as_ref().unwrap_or(&workload.name);
        let (min, max) = (self.fleet.replicas_min, self.fleet.replicas_max);
        let idle = self.fleet.scaling.idle_grace.as_secs();
        let text = format!(
            "# Fleet {}, by `inflight render keda`.\n\
             apiVersion: keda.sh/v1alpha1\n\
             kind: ScaledObject\n\
             metadata:\n\
             \x20 name: {}\n\
             \x20 namespace: {}\n\
             spec:\n\
             \x20 scaleTargetRef:\n\
             \x20   apiVersion: {}\n\
             \x20   kind: {}\n\
             \x20   name: {}\n\
             \x20 pollingInterval: {}\n\
             \x20 # To zero, where the minimum is zero, after this time without load.\n\
             \x20 cooldownPeriod: {idle}\n\
             \x20 minReplicaCount: {min}\n\
             \x20 maxReplicaCount: {max}\n",
            self.fleet.name,
            quoted(name),
            quoted(&self.places.namespace),
            quoted(&workload.api_version),
            quoted(&workload.kind),
            quoted(&workload.name),
            PERIOD.as_secs(),
        );
        self.out.text.push_str(&text);
        self.fallback();
    }

    /// What KEDA does when a trigger has no answer: nothing for `unknown.hold`, and then upward only.
    fn fallback(&mut self) {
        let scaling = &self.fleet.scaling;
        let failures = scaling.unknown_hold.as_secs().div_ceil(PERIOD.as_secs());
        let least = self.fleet.replicas_min;
        let replicas = scaling.unknown_fallback.unwrap_or(least).max(least);
        let text = format!(
            "  # When the load is unknown: keep the size, and from so many failures on no less than \
             these.\n  # `behavior` needs KEDA 2.17.\n  fallback:\n    failureThreshold: {}\n    \
             replicas: {replicas}\n    behavior: currentReplicasIfHigher\n",
            failures.max(1)
        );
        self.out.text.push_str(&text);
    }

    fn behavior(&mut self, decides: Decides) {
        let scaling = &self.fleet.scaling;
        let (down_window, tolerance, says) = match decides {
            Decides::Autoscaler => {
                let window = scaling.down_window.unwrap_or(DOWN_WINDOW_AUTO);
                let tolerance = (scaling.tolerance > 0.0).then_some(scaling.tolerance);
                (
                    window,
                    tolerance,
                    "up at once, down to the largest of the window",
                )
            }
            Decides::Policy => (
                Duration::ZERO,
                Some(0.0),
                "what is asked for is the size, so that the autoscaler adds nothing of its own",
            ),
        };
        let down_window = self.at_most(down_window, WINDOW_MAX, "scaling.down_window");
        let up = self.policy(scaling.step_up, "scaling.step.up");
        let down = self.policy(scaling.step_down, "scaling.step.down");
        let mut text =
            format!("  advanced:\n    horizontalPodAutoscalerConfig:\n      behavior:  # {says}\n");
        if tolerance.is_some() {
            text.push_str(
                "        # `tolerance` needs Kubernetes 1.33 with HPAConfigurableTolerance, or a later one \
                 that has it on.\n",
            );
        }
        for (direction, window, policy) in [
            ("scaleUp", 0, up),
            ("scaleDown", down_window.as_secs(), down),
        ] {
            text.push_str(&format!(
                "        {direction}:\n          stabilizationWindowSeconds: {window}\n{policy}"
            ));
            if let Some(tolerance) = tolerance {
                let tolerance = quoted(&tolerance.to_string());
                text.push_str(&format!("          tolerance: {tolerance}\n"));
            }
        }
        self.out.text.push_str(&text);
    }

    /// Returns the limit on steps; without one as many as there may be, in one.
    fn policy(&mut self, step: Option<StepSettings>, key: &str) -> String {
        let (replicas, every) = step.map_or((self.fleet.replicas_max, PERIOD), |step| {
            (step.replicas, step.every)
        });
        let every = self.at_most(every, STEP_PERIOD_MAX, key);
        format!(
            "          policies: [{{ type: Pods, value: {replicas}, periodSeconds: {} }}]\n",
            every.as_secs().max(1)
        )
    }

    fn at_most(&mut self, span: Duration, most: Duration, key: &str) -> Duration {
        if span > most {
            self.out.warnings.push(format!(
                "fleet {}: `{key}` is {span:?}, and Kubernetes takes at most {most:?}, which is \
                 printed",
                self.fleet.name
            ));
        }
        span.min(most)
    }

    fn triggers(&mut self, triggers: &[Trigger]) {
        let out = &mut self.out.text;
        out.push_str("  triggers:\n");
        for trigger in triggers {
            let metric_type = match trigger.metric_type {
                MetricKind::AverageValue => "AverageValue",
                MetricKind::Value => "Value",
            };
            // A `String` takes whatever is written.
            write!(
                out,
                "    - type: {}\n      metricType: {metric_type}\n      metadata:\n",
                trigger.kind
            )
            .ok();
            for (key, value) in &trigger.metadata {
                writeln!(out, "        {key}: {}", block(value, 8)).ok();
            }
        }
        if triggers
            .iter()
            .any(|trigger| trigger.metric_type == MetricKind::Value)
        {
            self.out.warnings.push(format!(
                "fleet {}: not every version of KEDA takes `fallback` with metricType Value",
                self.fleet.name
            ));
        }
    }

    fn scaler(&mut self, port: u16, is_loopback: bool) -> String {
        if let Some(address) = &self.places.scaler {
            return address.clone();
        }
        let address = format!("inflight.{}:{port}", self.places.namespace);
        let but = if is_loopback {
            ", and `target.keda.listen` is a loopback address, which KEDA does not reach"
        } else {
            ""
        };
        self.out.warnings.push(format!(
            "fleet {}: KEDA is told to ask {address}; --scaler says where we are{but}",
            self.fleet.name
        ));
        address
    }

    fn prometheus(&mut self) -> String {
        if let Some(address) = &self.places.prometheus {
            return address.clone();
        }
        if let Some(MeasuredSettings::Prometheus(settings)) = &self.fleet.measured {
            let path = settings.url.path.trim_end_matches('/');
            return format!("http://{}{path}", settings.url.authority);
        }
        let address = "http://prometheus:9090".to_owned();
        self.out.warnings.push(format!(
            "fleet {}: KEDA is told to ask {address}; --prometheus says where it is",
            self.fleet.name
        ));
        address
    }
}

fn ours(address: String, fleet: &str) -> Trigger {
    Trigger {
        kind: "external-push",
        metric_type: MetricKind::AverageValue,
        metadata: vec![("scalerAddress", address), ("fleet", fleet.to_owned())],
    }
}

fn asks_prometheus(server: &str, query: &str, target: f64, kind: MetricKind) -> Trigger {
    Trigger {
        kind: "prometheus",
        metric_type: kind,
        metadata: vec![
            ("serverAddress", server.to_owned()),
            ("threshold", target.to_string()),
            ("activationThreshold", "0".to_owned()),
            ("ignoreNullValues", "false".to_owned()),
            ("query", query.to_owned()),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_named_as_people_do() {
        let named = |text: &str| {
            let workload: Workload = text.parse().unwrap();
            [workload.api_version, workload.kind, workload.name]
        };
        assert_eq!(named("triton"), ["apps/v1", "Deployment", "triton"]);
        assert_eq!(named("StatefulSet/t.a"), ["apps/v1", "StatefulSet", "t.a"]);
        assert_eq!(
            named("argoproj.io/v1alpha1/Rollout/x"),
            ["argoproj.io/v1alpha1", "Rollout", "x"]
        );
        for text in ["", "A", "a/b/", "/a", "Kind/-a", "a b", "x\ny", "Kind/a/"] {
            assert_eq!(text.parse::<Workload>(), Err(WorkloadError), "{text}");
        }
        assert_eq!(object_name("My_Fleet.9-"), "my-fleet-9");
    }
}
