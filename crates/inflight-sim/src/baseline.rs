//! Other people's public rules, written from their documentation and sources, to compare with.
//!
//! Each module names its source. None of them knows the scenario's truth except [`clairvoyant`]
//! and, where a module says so, one number that its users would configure.

pub mod clairvoyant;
pub mod hpa;
pub mod keda;
pub mod kpa;
pub mod ray;
pub mod rps;
mod window;

use window::Window;
