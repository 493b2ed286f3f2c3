//! The rule of a fleet with what belongs to it alone, and whether its source can feed it.

use std::time::Duration;

use crate::config::error::{Located, Place, Problems};
use crate::config::raw;
use crate::config::setting::OneOf;
use crate::config::{Measure, MetricKind, PolicySettings, StaffingProfile};

/// The inflation that `occupancy` aims for: a request may wait as long as it is served.
const OCCUPANCY_THRESHOLD: f64 = 2.0;
/// The span that `occupancy` and `concurrency` average over.
const WINDOW: Duration = Duration::from_secs(60);
/// The same where the answers are averages already: the newest counts.
const WINDOW_OF_AVERAGES: Duration = Duration::from_secs(1);
/// The part of the slots that `concurrency` fills.
const UTILIZATION: f64 = 1.0;

/// Builds the policy, reports the keys of other policies and a source that cannot feed it.
pub(super) fn resolve_policy(
    raw: &raw::Scaling,
    source: &Located<raw::Source>,
    problems: &mut Problems,
) -> Option<PolicySettings> {
    let source = &source.value;
    let query = source
        .prometheus
        .as_ref()
        .and_then(|it| it.value.query.as_ref());
    let is_counted = source.gateway.is_some() || source.inflight.is_some();
    let rule = match &raw.policy {
        Some(rule) => rule.value.0,
        None if query.is_some() => raw::Rule::Metric,
        None if is_counted => raw::Rule::Staffing,
        None => raw::Rule::Occupancy,
    };
    let window = raw.window.as_ref().map_or(
        if source.prometheus.is_some() {
            WINDOW_OF_AVERAGES
        } else {
            WINDOW
        },
        |key| key.value,
    );
    let (name, policy) = match rule {
        raw::Rule::Staffing => (
            "staffing",
            Some(PolicySettings::Staffing {
                profile: profile(raw),
            }),
        ),
        raw::Rule::Occupancy => {
            let threshold = raw
                .threshold
                .as_ref()
                .map_or(OCCUPANCY_THRESHOLD, |key| key.value);
            let policy = PolicySettings::Occupancy { threshold, window };
            ("occupancy", Some(policy))
        }
        raw::Rule::Concurrency => {
            let utilization = raw
                .utilization
                .as_ref()
                .map_or(UTILIZATION, |key| key.value);
            let measure = measure(raw, is_counted, problems);
            let policy = PolicySettings::Concurrency {
                utilization,
                measure,
                window,
            };
            ("concurrency", Some(policy))
        }
        raw::Rule::Metric => {
            let replicas = (source.prometheus.as_ref())
                .and_then(|prometheus| prometheus.value.replicas.as_ref());
            ("metric", metric(raw, query, replicas.is_some(), problems))
        }
    };
    report_strays(raw, name, problems);
    if let Some(policy) = &raw.policy {
        check_source(
            policy,
            is_counted || tells_turnover(source),
            query,
            problems,
        );
    }
    policy
}

/// Reports keys of other policies.
fn report_strays(raw: &raw::Scaling, name: &str, problems: &mut Problems) {
    let owned: [(Option<&Place>, &[&str]); 7] = [
        (raw.profile.as_ref().map(|key| &key.place), &["staffing"]),
        (raw.threshold.as_ref().map(|key| &key.place), &["occupancy"]),
        (
            raw.window.as_ref().map(|key| &key.place),
            &["occupancy", "concurrency"],
        ),
        (
            raw.utilization.as_ref().map(|key| &key.place),
            &["concurrency"],
        ),
        (raw.measure.as_ref().map(|key| &key.place), &["concurrency"]),
        (raw.target.as_ref().map(|key| &key.place), &["metric"]),
        (raw.kind.as_ref().map(|key| &key.place), &["metric"]),
    ];
    for (place, owners) in owned {
        let Some(place) = place.filter(|_| !owners.contains(&name)) else {
            continue;
        };
        let owners = match owners {
            [one] => format!("policy `{one}`"),
            several => format!("policies `{}`", several.join("` and `")),
        };
        let what = format!("belongs to {owners}; this fleet's policy is `{name}`");
        problems.error(place, what);
    }
}

/// Whether a proxy counts what arrives, and the servers behind it what completes and how long it took.
fn tells_turnover(source: &raw::Source) -> bool {
    let backend = source
        .envoy
        .as_ref()
        .and_then(|envoy| envoy.value.backend.as_ref());
    backend.is_some_and(|backend| backend.value.triton.is_some())
}

/// Reports a policy that the source has no numbers for.
fn check_source(
    policy: &Located<OneOf<raw::Rule>>,
    tells_turnover: bool,
    query: Option<&Located<String>>,
    problems: &mut Problems,
) {
    let (what, allowed) = match (policy.value.0, query) {
        (raw::Rule::Metric, None) => (
            "`metric` needs a number of your own",
            "`metric` with source `prometheus` and its `query`, or another policy",
        ),
        (raw::Rule::Staffing | raw::Rule::Occupancy | raw::Rule::Concurrency, Some(_)) => (
            "`prometheus.query` gives one number, which only `metric` takes",
            "`metric`, or the terms `in_flight`, `executing` and `replicas` instead of `query`",
        ),
        (raw::Rule::Staffing, None) if !tells_turnover => (
            "`staffing` needs arrivals and completions counted, which this source cannot do",
            "`occupancy` or `concurrency`, or source `gateway`, `inflight`, or `envoy` before `triton`",
        ),
        _ => return,
    };
    problems.refuse(&policy.place, what, allowed);
}

fn metric(
    raw: &raw::Scaling,
    query: Option<&Located<String>>,
    knows_replicas: bool,
    problems: &mut Problems,
) -> Option<PolicySettings> {
    let Some(target) = &raw.target else {
        let place = raw.policy.as_ref().map(|policy| &policy.place);
        if let Some(place) = place.or(query.map(|query| &query.place)) {
            problems.refuse(
                place,
                "policy `metric` needs `scaling.target`: how much of the number one replica is for",
                "`scaling: { policy: metric, target: … }`",
            );
        }
        return None;
    };
    let kind = match raw.kind.as_ref().map(|kind| kind.value.0) {
        None | Some(raw::MetricKind::AverageValue) => MetricKind::AverageValue,
        Some(raw::MetricKind::Value) => MetricKind::Value,
    };
    if let Some(key) = &raw.kind
        && kind == MetricKind::Value
        && query.is_some()
        && !knows_replicas
    {
        problems.refuse(
            &key.place,
            "`value` multiplies the ready replicas, which this source does not know",
            "`source.prometheus.replicas`, a query that gives them, beside `query`",
        );
    }
    Some(PolicySettings::Metric {
        target: target.value,
        kind,
    })
}

fn profile(raw: &raw::Scaling) -> StaffingProfile {
    match raw.profile.as_ref().map(|key| key.value.0) {
        None | Some(raw::Profile::Balanced) => StaffingProfile::Balanced,
        Some(raw::Profile::Latency) => StaffingProfile::Latency,
    }
}

fn measure(raw: &raw::Scaling, is_counted: bool, problems: &mut Problems) -> Measure {
    let Some(key) = &raw.measure else {
        return Measure::Mean;
    };
    match key.value.0 {
        raw::Measured::Mean => Measure::Mean,
        raw::Measured::Peak if !is_counted => {
            problems.refuse(
                &key.place,
                "`peak` needs the largest number in flight of each `bucket`, which this source does \
                 not know",
                "`mean`, or source `gateway`",
            );
            Measure::Peak
        }
        raw::Measured::Peak => {
            problems.warn(
                &key.place,
                "`peak` counts all requests of one `bucket` that meet, and many short requests \
                 from many clients read several times what is in flight; `mean` is exact",
            );
            Measure::Peak
        }
    }
}
