//! inflight sizes a request-serving fleet by what is in flight.
//!
//! The binary's parts; `cli` is the door, everything that decides is in `inflight-core`.

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connections;
pub mod control;
pub mod endpoints;
pub mod fleet;
pub mod gates;
pub mod gateway;
pub mod lines;
pub mod ports;
pub mod probe;
pub mod publish;
pub mod render;
pub mod replay;
pub mod retry;
pub mod runtime;
pub mod serve;
pub mod sources;
pub mod story;
pub mod targets;
pub mod telemetry;
