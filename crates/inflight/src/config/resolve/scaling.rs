//! How a fleet decides: policy, limits on steps, the gate, the queue.

use std::time::Duration;

use inflight_core::Replicas;

use super::fleet::Sizes;
use crate::config::error::{Located, Place, Problems};
use crate::config::raw;
use crate::config::setting::{Address, Auto, Nothing, Off, Or, Unlimited};
use crate::config::{
    AdmissionSettings, CloseWhen, Measure, PolicySettings, QueueSettings, ScalingSettings,
    SessionBy, StaffingProfile, StepSettings,
};

/// The inflation that `occupancy` aims for: a request may wait as long as it is served.
const OCCUPANCY_THRESHOLD: f64 = 2.0;
/// The span that `occupancy` and `concurrency` average over.
const WINDOW: Duration = Duration::from_secs(60);
/// The part of the slots that `concurrency` fills.
const UTILIZATION: f64 = 1.0;
/// The part of the gate's threshold at which it opens again.
const REOPEN: f64 = 0.8;

pub(super) fn resolve_scaling(
    raw: &raw::Scaling,
    sizes: Option<Sizes>,
    problems: &mut Problems,
) -> Option<ScalingSettings> {
    let policy = raw
        .policy
        .as_ref()
        .map(|policy| resolve_policy(policy.value.0, raw, problems));
    let step = raw.step.as_ref().map(|step| &step.value);
    let unknown = raw.unknown.as_ref().map(|unknown| &unknown.value);
    let fallback = unknown
        .and_then(|unknown| unknown.fallback.as_ref())
        .map(|fallback| resolve_fallback(fallback, sizes, problems));
    Some(ScalingSettings {
        policy: policy?,
        down_window: match raw.down_window.as_ref()?.value {
            Or::Word(Auto) => None,
            Or::Value(span) => Some(span),
        },
        tolerance: raw.tolerance.as_ref()?.value,
        step_up: resolve_step(step?.up.as_ref()?)?,
        step_down: resolve_step(step?.down.as_ref()?)?,
        idle_grace: raw.idle.as_ref()?.value.grace.as_ref()?.value,
        unknown_hold: unknown?.hold.as_ref()?.value,
        unknown_fallback: fallback?,
        bucket: raw.bucket.as_ref()?.value,
    })
}

/// Builds the policy and reports the keys of other policies.
fn resolve_policy(rule: raw::Rule, raw: &raw::Scaling, problems: &mut Problems) -> PolicySettings {
    let (name, policy) = match rule {
        raw::Rule::Staffing => (
            "staffing",
            PolicySettings::Staffing {
                profile: profile(raw),
            },
        ),
        raw::Rule::Occupancy => {
            let threshold = raw
                .threshold
                .as_ref()
                .map_or(OCCUPANCY_THRESHOLD, |key| key.value);
            (
                "occupancy",
                PolicySettings::Occupancy {
                    threshold,
                    window: window(raw),
                },
            )
        }
        raw::Rule::Concurrency => {
            let utilization = raw
                .utilization
                .as_ref()
                .map_or(UTILIZATION, |key| key.value);
            let measure = measure(raw, problems);
            let policy = PolicySettings::Concurrency {
                utilization,
                measure,
                window: window(raw),
            };
            ("concurrency", policy)
        }
    };
    let owned: [(Option<&Place>, &[&str]); 5] = [
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
    policy
}

fn profile(raw: &raw::Scaling) -> StaffingProfile {
    match raw.profile.as_ref().map(|key| key.value.0) {
        None | Some(raw::Profile::Balanced) => StaffingProfile::Balanced,
        Some(raw::Profile::Latency) => StaffingProfile::Latency,
    }
}

fn window(raw: &raw::Scaling) -> Duration {
    raw.window.as_ref().map_or(WINDOW, |key| key.value)
}

fn measure(raw: &raw::Scaling, problems: &mut Problems) -> Measure {
    let Some(key) = &raw.measure else {
        return Measure::Mean;
    };
    match key.value.0 {
        raw::Measured::Mean => Measure::Mean,
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

fn resolve_step(raw: &Located<Or<Unlimited, raw::StepLimit>>) -> Option<Option<StepSettings>> {
    match &raw.value {
        Or::Word(Unlimited) => Some(None),
        Or::Value(limit) => Some(Some(StepSettings {
            replicas: Replicas::new(limit.replicas.as_ref()?.value),
            every: limit.every.as_ref()?.value,
        })),
    }
}

fn resolve_fallback(
    raw: &Located<Or<Nothing, u32>>,
    sizes: Option<Sizes>,
    problems: &mut Problems,
) -> Option<Replicas> {
    let Or::Value(size) = raw.value else {
        return None;
    };
    if let Some(Sizes { min, max }) = sizes
        && !(min..=max).contains(&size)
    {
        let what = format!("{size} is outside `replicas`");
        problems.refuse(
            &raw.place,
            what,
            format!("`none`, or a whole number, {min} to {max}"),
        );
    }
    Some(Replicas::new(size))
}

/// The gate, how sessions are known, and which calls begin one.
type Admission = (Option<AdmissionSettings>, SessionBy, Vec<String>);

pub(super) fn resolve_admission(
    raw: &Located<Or<Off, raw::Admission>>,
    scaling: Option<&ScalingSettings>,
    problems: &mut Problems,
) -> Option<Admission> {
    let keys = match &raw.value {
        Or::Word(Off) => return Some((None, SessionBy::Address, Vec::new())),
        Or::Value(keys) => keys,
    };
    let session = match &keys.session.as_ref()?.value {
        Or::Word(Address) => SessionBy::Address,
        Or::Value(by) => {
            let name = by.header.as_ref()?.value.as_bytes();
            SessionBy::Header(http::HeaderName::from_bytes(name).ok()?)
        }
    };
    let threshold = keys.threshold.as_ref()?;
    let reopen = keys
        .reopen
        .as_ref()
        .map_or(threshold.value * REOPEN, |key| key.value);
    if let Some(key) = keys
        .reopen
        .as_ref()
        .filter(|key| key.value > threshold.value)
    {
        let what = format!(
            "{} is more than `threshold`, {}",
            key.value, threshold.value
        );
        problems.refuse(
            &key.place,
            what,
            format!("a number, 0.5 to {}", threshold.value),
        );
    }
    if let Some(PolicySettings::Occupancy { threshold: aim, .. }) = scaling.map(|s| s.policy)
        && threshold.value <= aim
    {
        let what = format!(
            "{} is not above `scaling.threshold`, {aim}: new sessions are refused at the load \
             that the fleet is sized for",
            threshold.value
        );
        problems.warn(&threshold.place, what);
    }
    let when = match keys.when.as_ref()?.value.0 {
        raw::WhenClosed::AtMax => CloseWhen::AtMax,
        raw::WhenClosed::Always => CloseWhen::Always,
    };
    let gate = AdmissionSettings {
        threshold: threshold.value,
        reopen,
        when,
    };
    Some((
        Some(gate),
        session,
        keys.first_calls.as_ref()?.value.clone(),
    ))
}

pub(super) fn resolve_queue(raw: &raw::Queue) -> Option<QueueSettings> {
    Some(QueueSettings {
        requests: raw.requests.as_ref()?.value,
        bytes: raw.bytes.as_ref()?.value,
        wait: raw.wait.as_ref()?.value,
        cold_wait: raw.cold_wait.as_ref()?.value,
    })
}
