//! What changes the number of replicas.
//!
//! Each target takes [`TargetCommand`](crate::ports::TargetCommand)s and tells
//! [`TargetEvent`](crate::ports::TargetEvent)s; it decides no size and never imports a source.

pub mod keda;
pub mod process;
