//! A fleet in virtual time, driven by the very same core as production.
//!
//! Hours of load pass in milliseconds, and a seed gives the same run on every machine. Sizes come
//! from the core's `Scaler`, late binding from its `Gate`; no rule is written twice. Other
//! people's public rules are beside it as baselines. Does no IO, reads no clock and starts no
//! thread: files, seeds and processors are the caller's.
#![warn(missing_docs)]

pub mod baseline;
pub mod check;
mod control;
mod engine;
mod histogram;
mod law;
mod observer;
mod outcome;
mod policy;
mod random;
mod readings;
mod replica;
mod report;
pub mod scenario;
pub mod sweep;
mod timeline;
mod units;
mod workload;
mod world;

pub use control::{Control, CoreControl, Rule};
pub use histogram::Histogram;
pub use law::Law;
pub use observer::{Observer, Style};
pub use outcome::{Outcome, SizeAt};
pub use policy::{POLICIES, Policy};
pub use random::{Purpose, Random};
pub use readings::{ModelReading, Readings};
pub use report::{Report, Row};
pub use timeline::{Change, Timeline};
pub use world::run;
