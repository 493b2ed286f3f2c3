//! Where numbers about a fleet come from that its own gateway does not know: systems that are asked
//! over the network.
//!
//! A source reads and writes down what it read, with the moment, in `fleet`; it decides nothing.
//! Each system that is asked has a task of its own, so that one that hangs, sends without end or
//! answers nonsense takes nobody else's numbers away.

pub mod fetch;
mod page;
pub mod peers;
pub mod text_format;

pub use peers::{PeerSource, PeersConfig};
