//! What the chart does with its values, what inflight would do otherwise, and what to fix.

use std::time::Duration;

use super::values::{Prometheus, Values};
use crate::config::error::{Located, Place, Problem};

/// The threshold that the chart had before it scaled by the occupancy ratio, in milliseconds.
const OLD_THRESHOLD: f64 = 100.0;
/// Above this no threshold of the ratio makes sense, and one in other units does.
const THRESHOLD_MAX: f64 = 20.0;
/// A request may wait as long as it is served.
const THRESHOLD: f64 = 2.0;
/// What the ratio reads on an idle fleet: transit between proxy and server counts as in flight.
const FLOOR: f64 = 1.3;
/// Scrapes in a window from which a rate is steady.
const SCRAPES: u32 = 4;
/// How often Envoy merges its histograms unless told otherwise.
const STATS_FLUSH: Duration = Duration::from_secs(5);

/// Says what the chart does with these values.
pub(super) fn does(values: &Values) -> Vec<String> {
    let keda = &values.keda;
    let mut said = Vec::new();
    if !keda.enabled.value {
        said.push(format!(
            "nothing scales (keda.enabled is false): there are as many servers as {}.replicas says",
            values.servers
        ));
    } else {
        let (size, kind) = (sizes(values), &keda.metric_type.value);
        let threshold = values.threshold.value;
        said.push(match &values.metric {
            Some(_) => format!(
                "KEDA keeps {size} replicas by your own query (serverLoadMetric), {kind}, \
                 threshold {threshold}"
            ),
            None => format!(
                "KEDA keeps {size} replicas: the replicas that the load of the last {:?} needs, \
                 divided by {threshold} (serverLoadThreshold), {kind}",
                values.window.value
            ),
        });
        if let Some(seconds) = growth(values) {
            said.push(format!(
                "from {} to {} replicas takes at least {seconds} s (keda.scaleUp)",
                keda.minimum.value.max(1.0),
                keda.maximum.value
            ));
        }
    }
    said.push(if values.gate.value {
        format!(
            "new clients are refused while the number{} is above {} (serverAdmissionThreshold)",
            if values.metric.is_some() {
                ""
            } else {
                " per healthy replica"
            },
            values.admission.value
        )
    } else {
        "new clients are never refused (envoy.rate_limiter.prometheus_based is off)".to_owned()
    });
    said
}

/// Says what would be otherwise with inflight.
pub(super) fn changes(values: &Values) -> Vec<String> {
    if !values.keda.enabled.value && !values.gate.value {
        return vec![
            "`target: advise` shows what size the load needs, and changes nothing".to_owned(),
        ];
    }
    let mut said = Vec::new();
    if values.metric.is_some() {
        said.push(
            "source `prometheus` with `query` and policy `metric` take your query as it is, for \
             the scaler and the gate alike; or drop it: source `envoy` with backend `triton` \
             needs no query"
                .to_owned(),
        );
    } else if !values.envoy.value {
        said.push(
            "source `gateway` stands where Envoy would and counts exactly what is in flight"
                .to_owned(),
        );
    } else {
        let threshold = if values.threshold.value < THRESHOLD_MAX {
            values.threshold.value
        } else {
            THRESHOLD
        };
        said.push(format!(
            "the same rule, policy `occupancy` with threshold {threshold} over {:?}, from source \
             `envoy` with cluster `{}` and backend `triton`",
            values.window.value, values.cluster
        ));
        said.push(
            "what is in flight comes from Envoy's live gauges: the query counts a request only \
             when it has ended and Envoy has flushed, so that it lags and reads too little while \
             a backlog grows"
                .to_owned(),
        );
    }
    if values.keda.enabled.value {
        said.push(format!(
            "missing numbers keep the size; the chart's trigger reads an empty answer as no load \
             and goes to {} (ignoreNullValues: \"true\")",
            values.keda.minimum.value
        ));
    }
    if values.gate.value {
        said.push(
            "an unreachable Prometheus leaves the gate as it is; the chart's filter refuses \
             everybody then"
                .to_owned(),
        );
    }
    said.push(
        "what Envoy's circuit breaker refuses (1024 in flight per Envoy by default) counts as \
         demand, and `models` names those that clients call, so that ensembles count once"
            .to_owned(),
    );
    said
}

/// Adds what is wrong or worth a look.
pub(super) fn add_fixes(values: &Values, fixes: &mut Vec<Problem>) {
    let mut fix = |place: &Place, what: String| {
        fixes.push(Problem {
            place: place.clone(),
            what,
            allowed: None,
        });
    };
    for (old, new) in &values.moved {
        fix(
            old,
            format!("is not read by this chart any more: it is `{new}` there"),
        );
    }
    match &values.metric {
        Some(metric) => custom_metric(values, metric, &mut fix),
        None => default_metric(values, &mut fix),
    }
    window(values, &mut fix);
    from_zero(values, &mut fix);
    let (keda, gate) = (&values.keda, &values.gate);
    if keda.minimum.value > keda.maximum.value {
        let what = format!(
            "{} is more than keda.maxReplicaCount, {}",
            keda.minimum.value, keda.maximum.value
        );
        fix(&keda.minimum.place, what);
    }
    if let Prometheus::Nobody { place } = &values.prometheus
        && (keda.enabled.value || gate.value)
    {
        fix(
            place,
            "nobody is asked for the metric, and KEDA gets the address `https://:9090`: set \
             prometheus.enabled or prometheus.external"
                .to_owned(),
        );
    }
}

fn default_metric(values: &Values, fix: &mut impl FnMut(&Place, String)) {
    let (threshold, admission) = (&values.threshold, &values.admission);
    if threshold.value <= 0.0 {
        fix(
            &threshold.place,
            format!("{} divides by nothing", threshold.value),
        );
    } else if threshold.value >= THRESHOLD_MAX {
        let what = if threshold.value == OLD_THRESHOLD {
            "100 is the default of the former metric, in milliseconds; the present one counts \
             replicas, and this pins the fleet at keda.minReplicaCount"
        } else {
            "is this in milliseconds? The metric counts replicas, and this pins the fleet at \
             keda.minReplicaCount"
        };
        fix(&threshold.place, format!("{what}: drop the line"));
    } else if threshold.value <= FLOOR {
        let what = format!(
            "{} is no more than what an idle fleet reads (1.2 to 1.3, the way from proxy to \
             server): the fleet would be larger than the load needs; 1.5 to 2 is usual",
            threshold.value
        );
        fix(&threshold.place, what);
    }
    if values.gate.value && admission.value <= threshold.value && threshold.value < THRESHOLD_MAX {
        let what = format!(
            "{} is not above serverLoadThreshold, {}: the scaler settles there, and the gate \
             would refuse in normal operation",
            admission.value, threshold.value
        );
        fix(&admission.place, what);
    }
    let metric_type = &values.keda.metric_type;
    if metric_type.value != "AverageValue" {
        let what = format!(
            "{:?} multiplies by the number of replicas once more, and the default metric is a \
             total of the fleet: drop the line",
            metric_type.value
        );
        fix(&metric_type.place, what);
    }
    if !values.envoy.value {
        fix(
            &values.envoy.place,
            "without Envoy the default metric is empty, which KEDA reads as no load: set \
             serverLoadMetric, or size by another source"
                .to_owned(),
        );
    }
    if values.envoy_external.value {
        let what = format!(
            "in a configuration of your own the default metric needs the cluster name `{}`; \
             inflight takes any (`cluster`)",
            values.cluster
        );
        fix(&values.envoy_external.place, what);
    }
}

fn custom_metric(values: &Values, metric: &Located<String>, fix: &mut impl FnMut(&Place, String)) {
    if values.keda.enabled.value && !values.threshold.given {
        let what = format!(
            "serverLoadThreshold is not set, and its default {} is in replicas: set it in the \
             units of this query",
            values.threshold.value
        );
        fix(&metric.place, what);
    }
    if values.gate.value && !values.admission.given {
        fix(
            &metric.place,
            "serverAdmissionThreshold is not set, and the gate compares this query with its \
             default 3: set it in the units of this query, or everybody is refused"
                .to_owned(),
        );
    }
    if is_queue_latency(&metric.value) {
        fix(
            &metric.place,
            "this is the queue latency per batch: it falls to nothing once the fleet is large \
             enough, and means something else for every mixture of models; drop it with its \
             thresholds, and the default metric counts replicas"
                .to_owned(),
        );
    }
}

/// Returns whether a query is the metric that the chart scaled by before the occupancy ratio.
fn is_queue_latency(query: &str) -> bool {
    query.contains("nv_inference_queue_duration_us")
        && !query.contains("nv_inference_request_duration_us")
}

fn window(values: &Values, fix: &mut impl FnMut(&Place, String)) {
    if values.metric.is_some() {
        return;
    }
    let window = &values.window;
    if window.value < STATS_FLUSH * SCRAPES {
        let what = format!(
            "{:?} holds fewer than {SCRAPES} of Envoy's stats flushes, one in {STATS_FLUSH:?} by \
             default: at least {:?}, or set `stats_flush_interval`",
            window.value,
            STATS_FLUSH * SCRAPES
        );
        fix(&window.place, what);
    }
    match &values.prometheus {
        Prometheus::Own { interval } if window.value < interval.value * SCRAPES => {
            let what = format!(
                "{:?} holds fewer than {SCRAPES} scrapes, one in {:?}: at least {:?}",
                window.value,
                interval.value,
                interval.value * SCRAPES
            );
            fix(&window.place, what);
        }
        Prometheus::External => {
            let what = format!(
                "{:?} is right where your Prometheus scrapes at least every {:?}, which is not \
                 in this file",
                window.value,
                window.value / SCRAPES
            );
            fix(&window.place, what);
        }
        Prometheus::Own { .. } | Prometheus::Nobody { .. } => {}
    }
}

fn from_zero(values: &Values, fix: &mut impl FnMut(&Place, String)) {
    let (keda, from_zero) = (&values.keda, &values.from_zero);
    let silent = "nothing wakes the fleet: with no server the metric is silent, which reads as \
                  no load. Set scaleFromZero.enabled";
    if keda.enabled.value && keda.zero_idle.value {
        fix(&keda.zero_idle.place, format!("{silent} instead"));
    } else if keda.enabled.value && keda.minimum.value < 1.0 && !from_zero.value {
        let ours = "inflight's scaler wakes it on what waits in Envoy";
        fix(&keda.minimum.place, format!("{silent}; {ours}"));
    }
    if !from_zero.value {
        return;
    }
    for needed in [&keda.enabled, &values.envoy] {
        if !needed.value {
            let what = format!("needs `{}: true`", needed.place.key);
            fix(&from_zero.place, what);
        }
    }
    if values.hold_minimum.value < values.ready_timeout.value {
        let what = format!(
            "{} is less than readyTimeoutSeconds, {}: KEDA may stop a server that is still \
             waking",
            values.hold_minimum.value, values.ready_timeout.value
        );
        fix(&values.hold_minimum.place, what);
    }
}

fn sizes(values: &Values) -> String {
    let (minimum, maximum) = (values.keda.minimum.value, values.keda.maximum.value);
    if values.keda.zero_idle.value {
        format!("0, or {minimum} to {maximum}")
    } else {
        format!("{minimum} to {maximum}")
    }
}

/// Returns the seconds in which the autoscaler may go from its minimum to its maximum, at least.
fn growth(values: &Values) -> Option<f64> {
    let (keda, up) = (&values.keda, &values.keda.up);
    let missing = keda.maximum.value - keda.minimum.value.max(1.0);
    let steps = (missing / up.replicas).ceil();
    (missing > 0.0 && up.replicas > 0.0)
        .then_some(up.window + (steps - 1.0) * up.every)
        .filter(|seconds| seconds.is_finite() && *seconds > 0.0)
}
