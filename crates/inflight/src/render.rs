//! Prints configuration for other systems from ours: queries, KEDA's objects, what Prometheus, Grafana
//! and Envoy read.
//!
//! Everything here is a function from settings to text. Nothing is asked or written, and no query
//! leaves that the parser of the query language did not take.

mod address;
mod dashboard;
mod envoy;
mod expression;
mod formula;
mod keda;
mod lua;
mod monitoring;
mod promql;
mod selector;
mod template;
mod terms;
mod yaml;

pub use address::{Address, AddressError, Server};
pub use dashboard::grafana;
pub use envoy::{EnvoyPlaces, Protocol, envoy};
pub use keda::{Places, Workload, WorkloadError, is_object_name, keda};
pub use lua::{LuaPlaces, lua};
pub use monitoring::{rules, scrape};
pub use promql::{Consumer, promql, query};
pub use selector::{Selector, SelectorError};

use crate::config::QueryError;

/// What is printed, and what is worth a look before it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// For the other system.
    pub text: String,
    /// For people, a line each.
    pub warnings: Vec<String>,
}

/// Why there is nothing to print.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A query that the language does not have, be it the user's own or one made of odd names.
    #[error("fleet {fleet}: {what} is no query: {error}")]
    Query {
        /// Whose.
        fleet: String,
        /// Which.
        what: &'static str,
        /// Why not.
        error: QueryError,
    },
    /// A filter that is to refuse, for a fleet that does not.
    #[error("fleet {0}: `admission` is off, so that nobody is refused")]
    NobodyRefused(String),
    /// A configuration of an Envoy that requests do not pass.
    #[error("fleet {0}: its requests come in at gateways of ours, not at an Envoy")]
    NoEnvoy(String),
}

#[cfg(test)]
mod tests;
