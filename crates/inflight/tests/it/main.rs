//! The one integration binary: each module tests one part of the product from outside.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its fixtures too"
)]

mod api;
mod fleet;
mod gateway_cases;
mod gateway_faults;
mod gateway_leaving;
mod gateway_protocols;
mod gateway_streams;
mod gateway_upgrades;
mod gateway_world;
mod keda;
mod process_target;
mod product;
mod serve;
mod tidy;
