//! KEDA's external scaler: the fleet is sized by an autoscaler that asks us, over gRPC.
//!
//! Nothing is decided here and nothing is kept: every answer is made of the fleet's last decisions
//! at the moment it is asked for. What is unknown for longer than `scaling.unknown.hold` is
//! answered UNAVAILABLE, never zero, so that KEDA keeps the size or takes its own fallback.

mod listener;
mod reading;
mod service;
mod trigger;

pub use listener::KedaListener;
