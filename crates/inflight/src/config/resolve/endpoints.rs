//! Where the requests of a fleet go, and how its replicas are checked.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use super::target;
use crate::config::error::{Located, Place, Problems};
use crate::config::raw;
use crate::config::setting::Or;
use crate::config::{Endpoints, HealthSettings, IpFamily, Probe, Target};

/// How often a name is resolved unless the file says it.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);

/// A replica that hangs for longer than this before it is noticed is worth a warning: requests
/// keep going there.
const NOTICED_LATE: Duration = Duration::from_secs(120);

pub(super) fn resolve_endpoints(raw: &raw::Fleet, problems: &mut Problems) -> Option<Endpoints> {
    let (endpoints, target) = (raw.endpoints.as_ref()?, raw.target.as_ref()?);
    let starts_some = matches!(&target.value, Or::Value(keys) if keys.keda.is_none());
    if raw.source.as_ref()?.value.gateway.is_none() {
        if let Or::Value(keys) = &endpoints.value {
            problems.refuse(
                place_of_keys(keys, &endpoints.place),
                "no request is sent from here without a `gateway`; how many replicas are ready is \
                 what the source sees",
                "`endpoints: target`, which is the default",
            );
        }
        return Some(match starts_some {
            true => Endpoints::Target,
            false => Endpoints::Elsewhere,
        });
    }
    match (&endpoints.value, starts_some) {
        (Or::Word(_), true) => Some(Endpoints::Target),
        (Or::Word(_), false) => {
            problems.refuse(
                &endpoints.place,
                "`target` gives no addresses while nothing is started: requests would have \
                 nowhere to go",
                "`static` addresses or a `dns` name, or a target with `process`",
            );
            None
        }
        (Or::Value(keys), true) => {
            problems.refuse(
                place_of_keys(keys, &endpoints.place),
                "other addresses do not go with target `process`: what it starts would get no \
                 request",
                "`endpoints: target`, or `target: advise`",
            );
            None
        }
        (Or::Value(keys), false) => resolve_keys(keys, &endpoints.place, problems),
    }
}

/// Returns where addresses are given, for an error that is about them all.
fn place_of_keys<'a>(keys: &'a raw::EndpointsKeys, whole: &'a Place) -> &'a Place {
    let fixed = keys.r#static.as_ref().map(|list| &list.place);
    let named = keys.dns.as_ref().map(|name| &name.place);
    fixed.or(named).unwrap_or(whole)
}

fn resolve_static(
    addresses: &Located<Vec<SocketAddr>>,
    problems: &mut Problems,
) -> Option<Vec<SocketAddr>> {
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = addresses
        .value
        .iter()
        .filter(|address| !seen.insert(**address))
        .collect();
    for address in &twice {
        problems.error(&addresses.place, format!("{address} is there twice"));
    }
    twice.is_empty().then(|| addresses.value.clone())
}

fn resolve_keys(
    keys: &raw::EndpointsKeys,
    place: &Place,
    problems: &mut Problems,
) -> Option<Endpoints> {
    let of_name = [
        keys.every.as_ref().map(|every| &every.place),
        keys.family.as_ref().map(|family| &family.place),
    ];
    if keys.dns.is_none() {
        for stray in of_name.into_iter().flatten() {
            problems.error(stray, "belongs to `dns`");
        }
    }
    match (&keys.r#static, &keys.dns) {
        (Some(_), Some(name)) => {
            let what = "does not go with `static`";
            problems.refuse(&name.place, what, "either `static` or `dns`");
            None
        }
        (Some(addresses), None) => resolve_static(addresses, problems).map(Endpoints::Static),
        (None, Some(name)) => Some(Endpoints::Dns {
            name: name.value.clone(),
            every: keys
                .every
                .as_ref()
                .map_or(RESOLVE_EVERY, |every| every.value),
            family: match keys.family.as_ref().map(|family| family.value.0) {
                Some(raw::IpFamily::Ipv4) => IpFamily::Ipv4,
                Some(raw::IpFamily::Ipv6) => IpFamily::Ipv6,
                Some(raw::IpFamily::Any) | None => IpFamily::Any,
            },
        }),
        (None, None) => {
            // A value that was wrong has been reported where it stands.
            let inside = format!("{}.", place.key);
            let is_reported =
                |problem: &crate::config::Problem| problem.place.key.starts_with(&inside);
            if !problems.errors.iter().any(is_reported) {
                problems.refuse(place, "says no address", "`static` or `dns`");
            }
            None
        }
    }
}

/// Returns how replicas are checked, `Some(None)` when they are not.
pub(super) fn resolve_health(
    raw: &raw::Fleet,
    target: Option<&Target>,
    problems: &mut Problems,
) -> Option<Option<HealthSettings>> {
    let health = match &raw.health.as_ref()?.value {
        Or::Word(_) => return Some(None),
        Or::Value(health) => health,
    };
    let (path, grpc, tcp) = (&health.path, &health.grpc, &health.tcp);
    let probe = target::resolve_probe(path.as_ref(), grpc.as_ref(), tcp.as_ref(), problems)?;
    let of_target = match target? {
        Target::Process(process) => Some(&process.ready),
        Target::Advise | Target::Keda { .. } => None,
    };
    let restart = health.restart_after.as_ref()?;
    if restart.given && of_target.is_none() {
        let what = "has no effect: without target `process` somebody else restarts replicas";
        problems.warn(&restart.place, what);
    }
    let (every, timeout) = (health.every.as_ref()?, health.timeout.as_ref()?);
    let failures = health.unhealthy_after.as_ref()?.value;
    let noticed = every
        .value
        .saturating_add(timeout.value)
        .saturating_mul(failures);
    if noticed > NOTICED_LATE {
        let what = format!(
            "with `timeout` and `unhealthy_after`, a replica that hangs gets requests for up to \
             {} s",
            noticed.as_secs()
        );
        problems.warn(&every.place, what);
    }
    Some(Some(HealthSettings {
        probe: probe.or_else(|| of_target.cloned()).unwrap_or(Probe::Tcp),
        every: every.value,
        timeout: timeout.value,
        unhealthy_after: NonZeroU32::new(failures)?,
        healthy_after: NonZeroU32::new(health.healthy_after.as_ref()?.value)?,
        restart_after: match (&restart.value, of_target) {
            (Or::Value(after), Some(_)) => Some(*after),
            (Or::Word(_), _) | (_, None) => None,
        },
    }))
}
