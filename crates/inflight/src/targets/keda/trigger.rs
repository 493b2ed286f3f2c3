//! Which fleet a trigger is for, and what its metadata changes.
//!
//! KEDA sends a trigger's metadata whole, its own keys too; keys that are not ours are no error.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use inflight_proto::externalscaler::{GetMetricSpecResponse, MetricSpec};
use tonic::Status;

use crate::fleet::{Fleet, Roster};

/// The one metric that a fleet has. KEDA puts the trigger's number before it and takes it away
/// again; it is lower case, since a name that is not does not match its own lower-cased label.
pub(super) const METRIC: &str = "inflight";

/// Names the fleet, where several are asked for at one address.
pub(super) const FLEET: &str = "fleet";
/// Replaces the target of `occupancy`.
const THRESHOLD: &str = "threshold";
/// What KEDA has put a value of the environment under.
const FROM_ENV: &str = "FromEnv";

/// The range of targets: that of `scaling.threshold`. KEDA prints three decimals, so that a smaller
/// one would become zero.
const TARGET_MIN: f64 = 1e-3;
const TARGET_MAX: f64 = 1e6;

/// How much of a caller's text goes back to it in a message.
const SHOWN_MAX: usize = 64;

/// What a trigger asks of which fleet.
#[derive(Clone, Debug)]
pub(super) struct Trigger {
    pub(super) fleet: Arc<Fleet>,
    pub(super) target: f64,
}

/// Finds the fleet that a trigger names, or the only one that is asked for at this address.
///
/// # Errors
/// There is no such fleet, or the metadata does not say which.
pub(super) fn fleet_of(
    roster: &Roster,
    listen: SocketAddr,
    metadata: &HashMap<String, String>,
) -> Result<Arc<Fleet>, Status> {
    let members = roster.members();
    let is_here = |fleet: &Fleet| {
        let external = fleet.board().external;
        external.is_some_and(|own| own.listen == listen)
    };
    let mut fleets = members.iter().map(|member| &member.fleet);
    let name = get(metadata, FLEET);
    let found = match name {
        Some(name) => fleets.find(|fleet| fleet.name() == name && is_here(fleet)),
        None => {
            let mut fleets = fleets.filter(|fleet| is_here(fleet));
            let first = fleets.next();
            first.filter(|_| fleets.next().is_none())
        }
    };
    found.map(Arc::clone).ok_or_else(|| {
        let here = members.iter().filter(|member| is_here(&member.fleet));
        let names: Vec<_> = here.map(|member| member.fleet.name()).collect();
        let names = names.join(", ");
        match name {
            Some(name) => Status::not_found(format!(
                "metadata.fleet is {}, allowed is one of: {names}",
                shown(name)
            )),
            None if names.is_empty() => Status::not_found("no fleet is asked for here"),
            None => Status::invalid_argument(format!(
                "metadata.fleet is missing, allowed is one of: {names}"
            )),
        }
    })
}

impl Trigger {
    /// Reads what a trigger's metadata changes.
    ///
    /// # Errors
    /// A value is out of its range, or changes nothing under the fleet's policy.
    pub(super) fn new(
        fleet: Arc<Fleet>,
        metadata: &HashMap<String, String>,
    ) -> Result<Self, Status> {
        let (policy, configured) = {
            let board = fleet.board();
            let configured = board.external.map_or(1.0, |own| own.target);
            (board.policy, configured)
        };
        let target = match get(metadata, THRESHOLD) {
            Some(text) => threshold(text, policy)?,
            None => configured,
        };
        Ok(Self { fleet, target })
    }

    /// Returns the metric, and what one replica is to carry of it.
    pub(super) fn spec(&self) -> GetMetricSpecResponse {
        GetMetricSpecResponse {
            metric_specs: vec![MetricSpec {
                metric_name: METRIC.to_owned(),
                target_size: whole(self.target),
                target_size_float: self.target,
            }],
        }
    }
}

fn threshold(text: &str, policy: &str) -> Result<f64, Status> {
    let wrong = |why: String| {
        let text = shown(text);
        Status::invalid_argument(format!("metadata.threshold is {text}, {why}"))
    };
    if policy != "occupancy" {
        return Err(wrong(format!(
            "which means nothing under the policy {policy}, that decides the size itself: leave it out"
        )));
    }
    let target: Result<f64, _> = text.trim().parse();
    let allowed = TARGET_MIN..=TARGET_MAX;
    let target = target.ok().filter(|target| allowed.contains(target));
    target.ok_or_else(|| wrong(format!("allowed is {TARGET_MIN} to {TARGET_MAX}")))
}

/// Returns a value of ours, wherever KEDA took it from.
fn get<'a>(metadata: &'a HashMap<String, String>, key: &str) -> Option<&'a str> {
    let value = metadata.get(key);
    // One lookup for triggers that have nothing of the environment.
    let value = value.or_else(|| metadata.get(&format!("{key}{FROM_ENV}")));
    value.map(String::as_str)
}

/// Returns a caller's text as a message may have it.
pub(super) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_MAX).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// Returns the whole number for those that read no other, never below the value but by the noise of
/// its last bits. Zero stays zero.
pub(super) fn whole(value: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, which is what is wanted"
    )]
    let whole = (value * (1.0 - 1e-12)).ceil() as i64;
    whole
}
