//! The gate that proxies ask: whether anything can be judged, and what does not go with it.

use crate::config::error::{Located, Problems};
use crate::config::raw;
use crate::config::setting::{Off, Or};
use crate::config::{ExtAuthzSettings, GateMode, OnFailure, SessionBy};

/// Returns the gate, `Some(None)` where there is none, and reports what cannot work.
pub(super) fn resolve_gate(
    raw: &raw::Fleet,
    problems: &mut Problems,
) -> Option<Option<ExtAuthzSettings>> {
    let Some(gate) = &raw.gate else {
        return Some(None);
    };
    let Some(keys) = &gate.value.ext_authz else {
        if !problems.is_reported(&gate.place.key) {
            problems.refuse(&gate.place, "asks nobody", "`ext_authz`");
        }
        return None;
    };
    let source = raw.source.as_ref().map(|source| &source.value);
    if source.is_some_and(|source| source.envoy.is_none()) {
        problems.refuse(
            &keys.place,
            "has nothing to judge by: it needs what Envoy tells of the fleet",
            "source `envoy`, or no `gate`",
        );
    }
    let keys = &keys.value;
    let mode = match keys.mode.as_ref()?.value.0 {
        raw::Mode::NewSessions => GateMode::NewSessions,
        raw::Mode::EveryRequest => GateMode::EveryRequest,
    };
    check_admission(raw, mode, problems);
    Some(Some(ExtAuthzSettings {
        listen: keys.listen.clone()?,
        mode,
        first_calls: keys.first_calls.as_ref()?.value.clone(),
        ready_timeout: keys.ready_timeout.as_ref()?.value,
        hold_min: keys.hold_min.as_ref()?.value,
        on_failure: match keys.on_failure.as_ref()?.value.0 {
            raw::Failure::Closed => OnFailure::Closed,
            raw::Failure::Open => OnFailure::Open,
        },
    }))
}

/// Reports keys of `admission` that say something else than those of the gate.
fn check_admission(raw: &raw::Fleet, mode: GateMode, problems: &mut Problems) {
    let admission = raw.admission.as_ref().map(|admission| &admission.value);
    match admission {
        Some(Or::Value(keys)) => {
            if let Some(calls) = (keys.first_calls.as_ref()).filter(|it| !it.value.is_empty()) {
                problems.refuse(
                    &calls.place,
                    "is of the gateway",
                    "`gate.ext_authz.first_calls`",
                );
            }
        }
        Some(Or::Word(Off)) if mode == GateMode::EveryRequest => {
            if let Some(place) = raw.admission.as_ref().map(|admission| &admission.place) {
                problems.warn(place, "is off: `gate.ext_authz.mode` judges nobody");
            }
        }
        Some(Or::Word(Off)) | None => {}
    }
}

/// Reports a session that nobody here can know.
pub(super) fn check_session(
    raw: &Located<Or<Off, raw::Admission>>,
    session: &SessionBy,
    has_gate: bool,
    problems: &mut Problems,
) {
    if let (SessionBy::Certificate, false, Or::Value(keys)) = (session, has_gate, &raw.value)
        && let Some(key) = &keys.session
    {
        problems.refuse(
            &key.place,
            "is known to a proxy that ends TLS, and none asks here",
            "`address` or a header, or a `gate`",
        );
    }
}
