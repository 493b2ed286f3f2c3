//! inflight sizes a request-serving fleet by what is in flight.
//!
//! The binary's parts; `cli` is the door, everything that decides is in `inflight-core`.

pub mod cli;
pub mod clock;
pub mod ports;
pub mod serve;
pub mod targets;
