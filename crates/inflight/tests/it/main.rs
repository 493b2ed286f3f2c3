//! The one integration binary: each module tests one part of the product from outside.

mod api;
mod gateway_cases;
mod gateway_faults;
mod gateway_leaving;
mod gateway_streams;
mod gateway_world;
mod tidy;
