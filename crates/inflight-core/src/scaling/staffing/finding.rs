//! What the `staffing` policy found, for the reason of a decision.

use std::fmt;

use super::parts::Staffed;
use crate::decision::Counted;
use crate::ids::ModelIndex;
use crate::units::Replicas;

/// The model that needs most replicas, and what they are made up of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StaffingFinding {
    /// The model; `None` in a fleet of one.
    pub model: Option<ModelIndex>,
    /// Its arrivals. *Units*: requests per second.
    pub arrivals: f64,
    /// Its mean service time. *Units*: seconds.
    pub service: Option<f64>,
    /// The slots it needs.
    pub staffed: Staffed,
    /// The slots that one replica has for it.
    pub slots: f64,
    /// The size wished for.
    pub want: Replicas,
}

impl fmt::Display for StaffingFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Staffed {
            offered,
            margin,
            backlog,
            lead,
            closed_loop,
            cap,
            want,
            ..
        } = self.staffed;
        if let Some(ModelIndex(model)) = self.model {
            write!(f, "model {model}: ")?;
        }
        write!(f, "{:.1} requests/s", self.arrivals)?;
        match self.service {
            Some(service) => write!(f, " of {service:.3} s")?,
            None => f.write_str(" of unknown service time")?,
        }
        if lead.is_some_and(|lead| lead >= offered) {
            write!(f, " are growing and will keep {offered:.1} slots busy")?;
        } else {
            write!(f, " keep {offered:.1} slots busy")?;
        }
        write!(f, ", {margin:.1} to spare")?;
        if backlog > 0.0 {
            write!(f, ", {backlog:.1} for what waits")?;
        }
        if let Some(slots) = closed_loop {
            write!(
                f,
                ", but {slots:.1} for clients that send as fast as they are answered"
            )?;
        }
        if let Some(cap) = cap {
            write!(
                f,
                ", but no more than the {cap:.1} that were in flight at once"
            )?;
        }
        write!(
            f,
            ": {want:.1} slots, {} of {}",
            Counted(self.want),
            self.slots
        )
    }
}
