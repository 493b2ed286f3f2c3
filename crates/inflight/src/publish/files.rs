//! What other systems read about the replicas, and how it gets to where they read it.
//!
//! A file is written beside its place and renamed over it: nobody reads half of one, and Envoy does
//! not notice a file that is written in place.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::book::{Health, Listed};
use crate::config::{EnvoyFile, PrometheusFile};

/// The type of what Envoy reads, by which it knows what it is.
const ASSIGNMENT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// Returns the endpoints of a cluster as Envoy's EDS reads them, a `DiscoveryResponse`.
///
/// Without a replica the list is there and empty. A name that Envoy does not know would not be an
/// error to it: it empties the cluster.
pub(super) fn endpoints(file: &EnvoyFile, replicas: &[Listed]) -> Value {
    let endpoint = |replica: &Listed| {
        let health = match replica.health {
            Health::Healthy => "HEALTHY",
            Health::Unhealthy => "UNHEALTHY",
            Health::Draining => "DRAINING",
        };
        json!({
            "endpoint": {"address": {"socket_address": {
                "address": replica.address.ip().to_string(),
                "port_value": replica.address.port(),
            }}},
            "health_status": health,
        })
    };
    let all: Vec<Value> = replicas.iter().map(endpoint).collect();
    json!({"resources": [{
        "@type": ASSIGNMENT,
        "cluster_name": file.cluster,
        "endpoints": [{"lb_endpoints": all}],
    }]})
}

/// Returns the replicas as Prometheus' `file_sd_configs` read scrape targets. One without the port
/// that is scraped has none.
pub(super) fn targets(file: &PrometheusFile, fleet: &str, replicas: &[Listed]) -> Value {
    let target = |replica: &Listed| {
        let mut address = replica.address;
        if let Some(name) = &file.port {
            address.set_port(*replica.ports.get(name)?);
        }
        Some(json!({
            "targets": [address.to_string()],
            "labels": {"fleet": fleet, "replica": replica.index.to_string()},
        }))
    };
    replicas.iter().filter_map(target).collect()
}

/// Puts a file in place of what is there.
///
/// # Errors
/// It cannot be written; what was there stays.
pub(super) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    beside(file, content, |next| fs::rename(next, file))
}

/// Looks whether a file has the content that it was given, and puts it in place of what is there if
/// it has not. Tells whether it did: somebody else removed or changed it.
///
/// # Errors
/// It cannot be written.
pub(super) fn restore(file: &Path, content: &[u8]) -> io::Result<bool> {
    if fs::read(file).is_ok_and(|found| found == content) {
        return Ok(false);
    }
    replace(file, content)?;
    Ok(true)
}

/// Puts a file where there is none, and tells whether it could be replaced.
///
/// # Errors
/// It cannot be written.
pub(super) fn ensure(file: &Path, content: &[u8]) -> io::Result<()> {
    beside(file, content, |next| {
        if file.exists() {
            fs::remove_file(next)
        } else {
            fs::rename(next, file)
        }
    })
}

fn beside(
    file: &Path,
    content: &[u8],
    then: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // Its predecessor may be writing as well; no reader takes it for a file of its own.
    let next = file.with_file_name(format!(".{name}.{}.next", std::process::id()));
    let written = fs::write(&next, content).and_then(|()| then(&next));
    if written.is_err() {
        // It may not be there.
        fs::remove_file(&next).ok();
    }
    written
}
