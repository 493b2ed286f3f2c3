//! The gate that Envoys ask, of one fleet that runs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use inflight_core::admission::CheckGate;
use tokio::sync::watch;
use tracing::info;

use super::PartSettings;
use crate::clock::Clock;
use crate::config::FleetConfig;
use crate::fleet::{Checks, Fleet};
use crate::gates::ext_authz::{ExtAuthz, ExtAuthzConfig};
use crate::runtime::handover::{SocketKind, Sockets};
use crate::runtime::part::Part;
use crate::runtime::snapshot::PastFleet;

/// A gate, with a copy of its listening socket for a successor.
pub(super) struct BoundGate {
    gate: ExtAuthz,
    listener: OwnedFd,
}

pub(super) struct RunningGate {
    pub(super) address: SocketAddr,
    /// A copy of the listening socket, for a successor.
    pub(super) listener: OwnedFd,
    pub(super) settings: watch::Sender<ExtAuthzConfig>,
    pub(super) part: Part,
}

impl BoundGate {
    /// Binds the gate of a fleet that has one.
    ///
    /// # Errors
    /// The address cannot be listened on; names the line that says it.
    pub(super) fn bind(
        settings: &PartSettings,
        config: &FleetConfig,
        sockets: &mut Sockets,
    ) -> anyhow::Result<Option<Self>> {
        let (Some(gate), Some(configured)) = (&settings.ext_authz, &config.ext_authz) else {
            return Ok(None);
        };
        let listen = configured.listen.value;
        let gate = match sockets.take_listener(SocketKind::Gate, &config.name, listen) {
            Some(listener) => ExtAuthz::adopt(gate.clone(), listener),
            None => ExtAuthz::bind(gate.clone()),
        };
        let gate = gate.with_context(|| {
            let line = configured.listen.place.line;
            format!(
                "fleet {}, line {line}: gate.ext_authz.listen: cannot listen on {listen}",
                config.name
            )
        })?;
        Ok(Some(Self {
            listener: gate.listener()?,
            gate,
        }))
    }

    pub(super) fn start(self, fleet: &Arc<Fleet>) -> RunningGate {
        let Self { gate, listener } = self;
        let address = gate.local_addr();
        info!(fleet = fleet.name(), listen = %address, "Envoys may ask");
        let fleet = Arc::clone(fleet);
        RunningGate {
            address,
            listener,
            settings: gate.settings(),
            part: Part::start("a gate", |stop| {
                // A dropped sender means that we are ending anyway.
                gate.serve(fleet, async { stop.await.unwrap_or_default() })
            }),
        }
    }
}

/// Builds what is asked, of what an earlier process of ours knew.
pub(super) fn checks(
    settings: &PartSettings,
    past: Option<&PastFleet>,
    clock: Clock,
) -> Option<Checks> {
    let now = clock.now();
    let mut gate = CheckGate::new(settings.control.checks.clone()?, now);
    let past = past.and_then(|past| past.checks.as_ref());
    match past {
        Some(past) => gate.restore(now, past),
        None => gate.on_restart(now),
    }
    Some(Checks::new(clock, gate))
}
