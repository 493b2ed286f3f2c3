//! Other instances that count the same fleet, and what does not go with them.

use std::collections::BTreeSet;

use crate::config::PeersSettings;
use crate::config::error::Problems;
use crate::config::raw;
use crate::config::setting::Or;

/// Returns the peers if there are to be any, and reports what cannot be with what is measured.
pub(super) fn resolve_peers(raw: &raw::Fleet, problems: &mut Problems) -> Option<PeersSettings> {
    let source = raw.source.as_ref()?;
    let peers = source.value.inflight.as_ref()?;
    check_measure(raw, problems);
    if let Some(target) = &raw.target
        && let Or::Value(keys) = &target.value
        && keys.process.is_some()
        && source.value.gateway.is_some()
    {
        problems.warn(
            &peers.place,
            "a replica that is to go is stopped once it has no request of this gateway; those of \
             the peers are not waited for",
        );
    }
    resolve(&peers.value, raw, &peers.place.key, problems)
}

fn resolve(
    keys: &raw::Peers,
    fleet: &raw::Fleet,
    key: &str,
    problems: &mut Problems,
) -> Option<PeersSettings> {
    let listed = keys.peers.as_ref()?;
    let mut seen = BTreeSet::new();
    for address in listed.value.iter().filter(|address| !seen.insert(*address)) {
        problems.error(&listed.place, format!("{address} is there twice"));
    }
    let has_wrong_name = problems
        .errors
        .iter()
        .any(|problem| problem.place.key == format!("{key}.dns"));
    if listed.value.is_empty() && keys.dns.is_none() && !has_wrong_name {
        problems.refuse(&listed.place, "names nobody", "`peers`, `dns` or both");
    }
    Some(PeersSettings {
        listed: listed.value.clone(),
        dns: keys.dns.as_ref().map(|name| name.value.clone()),
        fleet: keys.fleet.as_ref().or(fleet.name.as_ref())?.value.clone(),
        every: keys.every.as_ref()?.value,
        timeout: keys.timeout.as_ref()?.value,
    })
}

/// Each gateway has its maxima at other moments, so that their sum is nobody's maximum.
fn check_measure(raw: &raw::Fleet, problems: &mut Problems) {
    let measure = raw
        .scaling
        .as_ref()
        .and_then(|scaling| scaling.value.measure.as_ref());
    if let Some(measure) = measure.filter(|measure| matches!(measure.value.0, raw::Measured::Peak))
    {
        problems.refuse(
            &measure.place,
            "`peak` does not go with source `inflight`: the maxima of several gateways are not of \
             the same moments and cannot be summed",
            "`mean`",
        );
    }
}
