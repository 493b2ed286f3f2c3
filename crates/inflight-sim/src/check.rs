//! How the simulator and the rules are checked: closed-form results as oracles, and runs in which
//! things break at random and which must then settle.

mod faulty;
pub mod oracle;

pub use faulty::{FaultyRun, faulty_run};
