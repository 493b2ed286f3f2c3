//! The admin API: what is going on, for people, probes and Prometheus.
//!
//! It reads and never decides. Every answer is made from one reading of each fleet it names; the
//! API keeps nothing between two requests, so a fleet that is gone leaves nothing behind.

mod failure;
mod fleets;
mod health;
mod listener;
mod mapping;
pub mod metrics;
pub mod wire;

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::routing::get;
use inflight_core::load::InstanceId;

pub use listener::{AdminListener, ListenError};

use crate::clock::Clock;
use crate::fleet::{Member, Roster};
use failure::Failure;

/// What the admin API shows.
#[derive(Clone)]
pub struct Api {
    /// The fleets, which may change at any time.
    pub roster: Arc<Roster>,
    /// The clock that the fleets' timestamps are of; it starts with this process.
    pub clock: Clock,
    /// This run of this instance, by which others tell its counters apart.
    pub instance: InstanceId,
}

impl Api {
    /// Builds the routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics::page))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/api/v1/fleets", get(fleets::list))
            .route("/api/v1/fleets/{name}", get(fleets::one))
            .route("/api/v1/fleets/{name}/decisions", get(fleets::decisions))
            .fallback(unknown_path)
            .with_state(Arc::new(self))
    }

    fn member(&self, name: &str) -> Result<Member, Failure> {
        let members = self.roster.members();
        let found = members.iter().find(|member| member.fleet.name() == name);
        found.cloned().ok_or_else(|| {
            let known: Vec<_> = members.iter().map(|member| member.fleet.name()).collect();
            Failure::not_found(format!(
                "no fleet {name:?}; the fleets are: {}",
                known.join(", ")
            ))
        })
    }
}

async fn unknown_path(uri: Uri) -> Failure {
    Failure::not_found(format!("no page {:?}", uri.path()))
}
