//! What the scaler decided, from what, and why.

use crate::ids::ReplicaId;
use crate::time::Timestamp;
use crate::units::Replicas;

/// How many replicas a fleet shall have, with the inputs and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When it was made.
    pub at: Timestamp,
    /// The size asked for before.
    pub current: Replicas,
    /// What the policy wished for, before any limit; unknown input wishes for nothing.
    pub wanted: Option<Replicas>,
    /// The size granted.
    pub desired: Replicas,
    /// The replicas that shall go, first to go first. Draining ones are not named again.
    pub drain: Vec<ReplicaId>,
    /// Whether the fleet cannot grow: `desired` is the maximum, or nothing became ready for twice
    /// the start delay although more was asked for.
    pub at_max: bool,
    /// What the policy looked at, in its own order.
    pub inputs: Vec<Input>,
    /// Why, as one sentence for an operator.
    pub reason: String,
}

/// One number that a decision was made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Its name, a metric-like word such as `offered_slots`.
    pub name: &'static str,
    /// Its value; `None` is unknown.
    pub value: Option<f64>,
}

impl Decision {
    /// Tells whether the size changes.
    #[must_use]
    pub fn changes_size(&self) -> bool {
        self.desired != self.current
    }
}
