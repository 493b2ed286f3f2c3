//! What a fleet's rule is made of, as queries: requests in flight, requests executing, replicas.

use std::time::Duration;

use super::selector::{Label, Selector};
use crate::config::{
    CustomExecuting, EnvoyEstimator, FleetConfig, MeasuredSettings, PolicySettings, Queries,
    ServerKind, ServersSettings,
};

/// The span of a policy that averages over none.
const WINDOW: Duration = Duration::from_secs(60);

/// What a fleet's number is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// The terms of the occupancy rule.
    Terms(Box<Terms>),
    /// The user's own number.
    Own(String),
}

/// The terms of the occupancy rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Requests in flight: the sum of these.
    pub(super) in_flight: Vec<String>,
    /// Whether a part of them that has no series is none in flight, since a proxy has some only
    /// after the first request.
    pub(super) absent_is_none: bool,
    /// Requests executing.
    pub(super) executing: String,
    /// Healthy replicas at this moment.
    pub(super) replicas: String,
    /// Healthy replicas over the window, as what is executed.
    pub(super) replicas_mean: String,
    /// Whether there is an answer when there are no replicas.
    pub(super) knows_zero: bool,
    /// Who reports; `None` for queries of the user's own, which are taken as they are.
    pub(super) reported: Option<Reported>,
    /// A second reason to grow: what each replica is for so much of.
    pub(super) second: Option<Second>,
    /// What each of the three is, for people.
    pub(super) says: [String; 3],
}

/// Who reports what is in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    /// A series that each of them has.
    pub(super) series: String,
    pub(super) window: Duration,
    /// Whether a term is the rate of a counter.
    pub(super) has_rates: bool,
}

/// A total of the fleet that sizes it as well; the larger size wins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Second {
    pub(super) query: String,
    pub(super) target: f64,
}

impl Eq for Second {}

/// Returns what a fleet's number is made of.
pub(super) fn basis(fleet: &FleetConfig, selector: &Selector) -> Basis {
    let window = window(fleet);
    match &fleet.measured {
        None => Basis::Terms(Box::new(of_gateways(fleet, window, selector))),
        Some(MeasuredSettings::Envoy(envoy)) => {
            let proxy = Proxy {
                window,
                labels: [Label::is("envoy_cluster_name", &envoy.cluster)],
                selector,
            };
            Basis::Terms(Box::new(proxy.terms(envoy.estimator, &envoy.backend)))
        }
        Some(MeasuredSettings::Vllm(servers)) => {
            Basis::Terms(Box::new(of_servers(servers, window, selector)))
        }
        Some(MeasuredSettings::Prometheus(settings)) => match &settings.queries {
            Queries::Metric { query, .. } => Basis::Own(query.clone()),
            Queries::Terms {
                in_flight,
                executing,
                replicas,
            } => Basis::Terms(Box::new(Terms {
                in_flight: vec![in_flight.clone()],
                absent_is_none: false,
                executing: executing.clone(),
                replicas: replicas.clone(),
                replicas_mean: replicas.clone(),
                knows_zero: true,
                reported: None,
                second: None,
                says: ["in_flight", "executing", "replicas"]
                    .map(|key| format!("the query `{key}` of the configuration")),
            })),
        },
    }
}

/// Returns the window of a fleet's averages.
pub(super) fn window(fleet: &FleetConfig) -> Duration {
    match fleet.scaling.policy {
        PolicySettings::Occupancy { window, .. } | PolicySettings::Concurrency { window, .. } => {
            window
        }
        PolicySettings::Staffing { .. } | PolicySettings::Metric { .. } => WINDOW,
    }
}

/// Spells a span as Prometheus does.
pub(super) fn span(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    match (seconds, millis) {
        (_, 1..) => format!("{}ms", span.as_millis()),
        (seconds, 0) if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (seconds, 0) if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        (seconds, 0) => format!("{seconds}s"),
    }
}

/// What Envoy counts of one cluster, and the servers behind it.
struct Proxy<'a> {
    window: Duration,
    labels: [Label; 1],
    selector: &'a Selector,
}

impl Proxy<'_> {
    fn terms(&self, estimator: EnvoyEstimator, servers: &ServersSettings) -> Terms {
        let window = &span(self.window);
        let (in_flight, says) = match estimator {
            EnvoyEstimator::Gauges => {
                let gauges = ["upstream_rq_active", "upstream_rq_pending_active"];
                let means = gauges
                    .map(|gauge| format!("sum(avg_over_time({}[{window}]))", self.series(gauge)));
                let says = "Envoy's active and pending requests, live gauges, summed over Envoys";
                (means.to_vec(), says)
            }
            EnvoyEstimator::TimeSum => {
                let sum = self.series("upstream_rq_time_sum");
                let says = "the time that requests took at Envoy, in ms, summed over Envoys; it \
                            counts when they complete";
                (vec![format!("sum(rate({sum}[{window}])) / 1e3")], says)
            }
        };
        let healthy = self.series("membership_healthy");
        let (executing, executing_says) = executing(servers, window, self.selector);
        Terms {
            in_flight,
            absent_is_none: true,
            executing,
            replicas: format!("max({healthy})"),
            replicas_mean: format!("max(avg_over_time({healthy}[{window}]))"),
            knows_zero: true,
            reported: Some(Reported {
                series: healthy,
                window: self.window,
                has_rates: estimator == EnvoyEstimator::TimeSum || counts_time(servers),
            }),
            second: second(servers, window, self.selector),
            says: [
                says.to_owned(),
                executing_says,
                "healthy hosts of the cluster; all Envoys report the same ones, so the most any \
                 reports"
                    .to_owned(),
            ],
        }
    }

    fn series(&self, stat: &str) -> String {
        let name = format!("envoy_cluster_{stat}");
        self.selector.of(&name, &self.labels)
    }
}

/// What our own gateways count, and whoever scrapes them.
fn of_gateways(fleet: &FleetConfig, over: Duration, selector: &Selector) -> Terms {
    let window = span(over);
    let name = fleet
        .peers
        .as_ref()
        .map_or(&fleet.name, |peers| &peers.fleet);
    let labels = [Label::is("fleet", name)];
    let ready = [labels[0].clone(), Label::is("state", "ready")];
    let rate = |metric| format!("sum(rate({}[{window}]))", selector.of(metric, &labels));
    let ready = selector.of("inflight_replicas", &ready);
    Terms {
        in_flight: vec![rate("inflight_request_seconds_total")],
        absent_is_none: false,
        executing: rate("inflight_executing_seconds_total"),
        replicas: format!("max({ready})"),
        replicas_mean: format!("max(avg_over_time({ready}[{window}]))"),
        knows_zero: true,
        reported: Some(Reported {
            series: ready,
            window: over,
            has_rates: true,
        }),
        second: None,
        says: [
            "requests in flight, counted exactly, summed over gateways",
            "requests executing, counted exactly, summed over gateways",
            "ready replicas; all gateways see the same ones, so the most any sees",
        ]
        .map(str::to_owned),
    }
}

/// What vLLM servers say of themselves, without anything in front of them.
fn of_servers(servers: &ServersSettings, over: Duration, selector: &Selector) -> Terms {
    let window = &span(over);
    let (executing, executing_says) = executing(servers, window, selector);
    let labels = vllm_labels(servers);
    let running = selector.of("vllm:num_requests_running", &labels);
    let waiting = selector.of("vllm:num_requests_waiting", &labels);
    let replicas = format!("count(count by (instance) ({running}))");
    Terms {
        in_flight: vec![
            format!("sum(avg_over_time({running}[{window}]))"),
            format!("sum(avg_over_time({waiting}[{window}]))"),
        ],
        absent_is_none: false,
        executing,
        replicas_mean: replicas.clone(),
        replicas,
        knows_zero: false,
        reported: Some(Reported {
            series: running,
            window: over,
            has_rates: counts_time(servers),
        }),
        second: second(servers, window, selector),
        says: [
            "requests running and waiting in the servers, live gauges".to_owned(),
            executing_says,
            "servers that are scraped".to_owned(),
        ],
    }
}

/// Tells whether what the servers execute is the rate of a counter of time.
const fn counts_time(servers: &ServersSettings) -> bool {
    match &servers.kind {
        ServerKind::Triton { .. } => true,
        ServerKind::Vllm { .. } => false,
        ServerKind::Custom(custom) => matches!(custom.executing, CustomExecuting::Time { .. }),
    }
}

/// Returns what the servers execute, and how that is known.
fn executing(servers: &ServersSettings, window: &str, selector: &Selector) -> (String, String) {
    match &servers.kind {
        ServerKind::Triton { models } => {
            let label = (!models.is_empty()).then(|| Label::OneOf("model".into(), models.clone()));
            let label: Vec<Label> = label.into_iter().collect();
            let rate = |name: &str| {
                let series = selector.of(&format!("nv_inference_{name}_duration_us"), &label);
                format!("sum(rate({series}[{window}]))")
            };
            let (request, queue) = (rate("request"), rate("queue"));
            (
                format!("({request} - {queue}) / 1e6"),
                "the time that requests took in Triton less the time that they waited there, in µs"
                    .to_owned(),
            )
        }
        ServerKind::Vllm { .. } => {
            let running = selector.of("vllm:num_requests_running", &vllm_labels(servers));
            (
                format!("sum(avg_over_time({running}[{window}]))"),
                "requests running in vLLM, a live gauge".to_owned(),
            )
        }
        ServerKind::Custom(custom) => {
            let labels: Vec<Label> = (custom.labels.iter())
                .map(|(name, value)| Label::is(name, value))
                .collect();
            match &custom.executing {
                CustomExecuting::Gauge(gauge) => (
                    format!(
                        "sum(avg_over_time({}[{window}]))",
                        selector.of(gauge, &labels)
                    ),
                    "requests being worked on, a live gauge".to_owned(),
                ),
                CustomExecuting::Time {
                    total,
                    waiting,
                    per_second,
                } => {
                    let rate = |name: &String| {
                        format!("sum(rate({}[{window}]))", selector.of(name, &labels))
                    };
                    let total = rate(total);
                    let busy = match waiting {
                        Some(waiting) => format!("({total} - {})", rate(waiting)),
                        None => total,
                    };
                    (
                        match per_second {
                            1 => busy,
                            units => format!("{busy} / {units}"),
                        },
                        "the time that requests took in the servers, less what they waited"
                            .to_owned(),
                    )
                }
            }
        }
    }
}

fn vllm_labels(servers: &ServersSettings) -> Vec<Label> {
    match &servers.kind {
        ServerKind::Vllm {
            model: Some(model), ..
        } => vec![Label::is("model_name", model)],
        ServerKind::Vllm { model: None, .. }
        | ServerKind::Triton { .. }
        | ServerKind::Custom(_) => Vec::new(),
    }
}

/// Returns the key-value cache of vLLM as a reason to grow, where a target for it is set.
fn second(servers: &ServersSettings, window: &str, selector: &Selector) -> Option<Second> {
    let ServerKind::Vllm {
        cache_target: Some(target),
        ..
    } = &servers.kind
    else {
        return None;
    };
    let labels = vllm_labels(servers);
    // The second name is that of older versions.
    let used = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"].map(|name| {
        format!(
            "sum(avg_over_time({}[{window}]))",
            selector.of(name, &labels)
        )
    });
    Some(Second {
        query: used.join("\nor\n"),
        target: *target,
    })
}
