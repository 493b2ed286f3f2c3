//! Decides how many replicas a fleet needs and which requests it takes.
//!
//! Two state machines, because they run at different rates: [`admission::Gate`] runs once per
//! request, [`scaling::Scaler`] once per tick. Between them pass only [`load::Observation`] (up)
//! and [`Decision`] (down). Every method takes `now`; nothing here reads a clock, a file, the
//! environment or a random number, spawns a thread or knows a socket, so the same code runs in
//! production, in a simulation and in a replay, and gives the same answers in each.
#![warn(missing_docs)]

#[macro_use]
mod invariant;

pub mod admission;
mod decision;
mod ids;
pub mod load;
pub mod scaling;
mod time;
mod units;

pub use decision::{Decision, Input, Limit, Reason};
pub use ids::{ModelIndex, ReplicaId, SessionKey, Ticket};
pub use time::Timestamp;
pub use units::{Bytes, Occupancy, Replicas, Slots};
