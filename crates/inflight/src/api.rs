//! The admin API: what is going on, for people, probes and Prometheus, and the orders of people.
//!
//! It reads and never decides: an order goes to the fleet's control loop, which carries it out.
//! Every answer is made from one reading of each fleet it names; the API keeps nothing between two
//! requests, so a fleet that is gone leaves nothing behind.

mod access;
mod events;
mod failure;
mod fleets;
mod health;
mod holds;
mod listener;
mod mapping;
pub mod metrics;
mod moving;
mod openapi;
mod query;
pub mod wire;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::routing::{MethodRouter, get, put};
use inflight_core::load::InstanceId;
use tokio::sync::Semaphore;

pub use access::Access;
pub use listener::{AdminListener, ListenError};

use crate::clock::Clock;
use crate::fleet::{Fleet, Member, Roster};
use crate::story::Story;
use failure::Failure;

/// What the admin API shows.
#[derive(Clone)]
pub struct Api {
    /// The fleets, which may change at any time.
    pub roster: Arc<Roster>,
    /// The clock that the fleets' timestamps are of; it starts with this process.
    pub clock: Clock,
    /// What happens to them.
    pub story: Story,
    /// Who may ask and order.
    pub access: Access,
    /// This run of this instance, by which others tell its counters apart.
    pub instance: InstanceId,
}

/// Reads a fleet once and shows it, as its page does.
#[must_use]
pub fn fleet(fleet: &Fleet, clock: Clock) -> wire::Fleet {
    mapping::fleet(fleet, clock)
}

/// What the handlers share.
struct Shared {
    api: Api,
    /// Places for those who listen to events.
    listeners: Arc<Semaphore>,
}

impl Api {
    /// Builds the routes.
    pub fn router(self) -> Router {
        let shared = Arc::new(Shared {
            api: self,
            listeners: Arc::new(Semaphore::new(events::LISTENERS_MAX)),
        });
        let mut router = Router::new();
        for (path, methods) in routes() {
            router = router.route(path, methods);
        }
        router
            .fallback(unknown_path)
            .method_not_allowed_fallback(unknown_method)
            .layer(middleware::from_fn_with_state(
                Arc::clone(&shared),
                access::guard,
            ))
            .with_state(shared)
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

/// Every path with what answers there; the OpenAPI document has the same.
fn routes() -> [(&'static str, MethodRouter<Arc<Shared>>); 10] {
    [
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/metrics", get(metrics::page)),
        ("/api/openapi.json", get(openapi::page)),
        ("/api/v1/fleets", get(fleets::list)),
        ("/api/v1/fleets/{name}", get(fleets::one)),
        ("/api/v1/fleets/{name}/decisions", get(fleets::decisions)),
        (
            "/api/v1/fleets/{name}/pause",
            put(holds::pause).delete(holds::end_pause),
        ),
        (
            "/api/v1/fleets/{name}/size",
            put(holds::size).delete(holds::end_size),
        ),
        ("/api/v1/events", get(events::listen)),
    ]
}

async fn unknown_path(uri: Uri) -> Failure {
    Failure::not_found(format!(
        "no page {:?}; /api/openapi.json lists what there is",
        uri.path()
    ))
}

async fn unknown_method(method: Method, uri: Uri) -> Failure {
    Failure::method_not_allowed(format!(
        "{method} is nothing that {:?} knows; the header `allow` says what is",
        uri.path()
    ))
}
