//! The one integration binary: each module tests one part of the product from outside.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its fixtures too"
)]

mod api;
mod endpoints;
mod ext_authz;
mod fleet;
mod gateway_cases;
mod gateway_drain;
mod gateway_faults;
mod gateway_framing;
mod gateway_leaving;
mod gateway_protocols;
mod gateway_replicas;
mod gateway_stalls;
mod gateway_streams;
mod gateway_upgrades;
mod gateway_world;
mod journal;
mod judges;
mod keda;
mod measured;
mod process_target;
mod product;
mod queries;
mod reload;
mod render;
mod render_envoy;
mod serve;
mod simulate;
mod sources;
mod tidy;
