//! How a fleet decides: policy, limits on steps, the gate, the queue.

use inflight_core::Replicas;

use super::fleet::Sizes;
use super::policy;
use crate::config::error::{Located, Problems};
use crate::config::raw;
use crate::config::setting::{Address, Auto, Certificate, Nothing, Off, Or, Unlimited};
use crate::config::{
    AdmissionSettings, CloseWhen, PolicySettings, QueueSettings, ScalingSettings, SessionBy,
    StepSettings,
};

/// The part of the gate's threshold at which it opens again.
const REOPEN: f64 = 0.8;

pub(super) fn resolve_scaling(
    raw: &raw::Scaling,
    source: Option<&Located<raw::Source>>,
    sizes: Option<Sizes>,
    problems: &mut Problems,
) -> Option<ScalingSettings> {
    let policy = source.and_then(|source| policy::resolve_policy(raw, source, problems));
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
        Or::Value(Or::Word(Certificate)) => SessionBy::Certificate,
        Or::Value(Or::Value(by)) => {
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
