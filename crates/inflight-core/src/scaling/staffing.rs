//! The `staffing` policy: the slots that the load would keep busy if nobody waited, a margin by
//! the square-root rule, and slots for what waits already.
//!
//! Each part of the formula is a function of its own in [`parts`] with a switch in [`Parts`];
//! [`size`] puts them together for one model, and the largest model sizes the fleet. Slots are
//! taken as independent of each other. Lost replicas and the down window are not its business.

mod finding;
mod load;
pub mod parts;

use std::time::Duration;

use super::error::{self, ConfigError};
use super::sizing::{Assessment, Finding, Situation, Sizing};
use crate::decision::Input;
use crate::ids::ModelIndex;
use crate::units::Replicas;

pub use finding::StaffingFinding;
pub use load::{Fleet, Load, Trend};
pub use parts::{Batching, Staffed, size};

/// Settings of the `staffing` policy.
///
/// The constants come from a prototype's search over 14 synthetic scenarios and were checked on
/// three more (`docs/policies.md`).
#[derive(Clone, Debug, PartialEq)]
pub struct StaffingConfig {
    pub(super) margin: f64,
    pub(super) down_factor: u32,
    pub(super) utilization_ceiling: f64,
    pub(super) batching: Vec<Option<Batching>>,
    /// Which parts of the formula are in force.
    pub parts: Parts,
}

/// The parts of the formula that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Slots for what waits.
    pub backlog: bool,
    /// Slots ahead of a load that grows.
    pub trend: bool,
    /// Slots for clients that send as fast as they are answered.
    pub closed_loop: bool,
    /// Never more slots than there were requests at once.
    pub cap: bool,
    /// A longer down window where sizes are needed again and again.
    pub returns: bool,
}

impl StaffingConfig {
    /// The short window.
    pub const FAST: Duration = Duration::from_secs(6);
    /// The long window.
    pub const SLOW: Duration = Duration::from_secs(30);
    /// The window of the service time and of the largest number in flight.
    pub const MEMORY: Duration = Duration::from_secs(300);
    /// Each of the two windows that the trend compares.
    pub const TREND: Duration = Duration::from_secs(60);

    /// Few replicas and short waits: margin 1, down window 1 start delay.
    #[must_use]
    pub fn balanced() -> Self {
        Self {
            margin: 1.0,
            down_factor: 1,
            utilization_ceiling: 0.75,
            batching: Vec::new(),
            parts: Parts {
                backlog: true,
                trend: true,
                closed_loop: true,
                cap: true,
                returns: true,
            },
        }
    }

    /// More replicas and shorter waits: margin 1.5, down window 2 start delays.
    #[must_use]
    pub fn latency() -> Self {
        Self {
            margin: 1.5,
            down_factor: 2,
            ..Self::balanced()
        }
    }

    /// Changes the margin, in square roots of the offered slots.
    ///
    /// # Errors
    ///
    /// `margin` is not from 0 to 10.
    pub fn with_margin(self, margin: f64) -> Result<Self, ConfigError> {
        Ok(Self {
            margin: error::number("scaling.margin", margin, 0.0, 10.0)?,
            ..self
        })
    }

    /// Changes the share of the slots that the load may keep busy.
    ///
    /// # Errors
    ///
    /// `ceiling` is not from 0.1 to 1.
    pub fn with_utilization_ceiling(self, ceiling: f64) -> Result<Self, ConfigError> {
        let utilization_ceiling = error::number("scaling.utilization_ceiling", ceiling, 0.1, 1.0)?;
        Ok(Self {
            utilization_ceiling,
            ..self
        })
    }

    /// Changes the down window, in start delays.
    #[must_use]
    pub fn with_down_factor(self, down_factor: u32) -> Self {
        Self {
            down_factor,
            ..self
        }
    }

    /// Says of each model, in their order, whether and how its requests are served in batches.
    #[must_use]
    pub fn with_batching(self, batching: Vec<Option<Batching>>) -> Self {
        Self { batching, ..self }
    }

    /// Returns of each model whether and how its requests are served in batches.
    #[must_use]
    pub fn batching(&self) -> &[Option<Batching>] {
        &self.batching
    }

    /// Returns the margin, in square roots of the offered slots.
    #[must_use]
    pub const fn margin(&self) -> f64 {
        self.margin
    }

    /// Returns the down window in start delays.
    #[must_use]
    pub const fn down_factor(&self) -> u32 {
        self.down_factor
    }

    /// Returns the share of the slots that the load may keep busy.
    #[must_use]
    pub const fn utilization_ceiling(&self) -> f64 {
        self.utilization_ceiling
    }

    pub(super) fn assess(&self, situation: &Situation<'_>) -> Assessment {
        let mut largest: Option<Sized> = None;
        let mut whole = Sizing::flat(Replicas::ZERO, None);
        for (index, &slots) in situation.slots.iter().enumerate() {
            let model = ModelIndex(index);
            let load = match Load::gather(situation, model) {
                Ok(load) => load,
                Err(unknown) => {
                    return Assessment::unknown(load::inputs_of_unknown(situation, model), unknown);
                }
            };
            let batching = self.batching.get(index).copied().flatten();
            // A batching model's slots are its batches: one at a time on each replica.
            let slots = if batching.is_some() {
                1.0
            } else {
                slots.as_f64()
            };
            let fleet = Fleet::gather(situation, slots);
            let staffed = size(self, &load, &fleet, batching);
            let sized = Sized {
                model,
                load,
                staffed,
                slots,
            };
            whole.want = whole.want.max(sized.replicas(staffed.want));
            whole.trigger = whole.trigger.max(sized.replicas(staffed.trigger));
            whole.down = whole.down.max(sized.replicas(staffed.down));
            whole.lasting = whole.lasting.max(sized.replicas(staffed.lasting));
            if largest
                .as_ref()
                .is_none_or(|largest| sized.need() > largest.need())
            {
                largest = Some(sized);
            }
        }
        let Some(largest) = largest else {
            return Assessment {
                inputs: Vec::new(),
                finding: Finding::Staffing(StaffingFinding::default()),
                sizing: Some(whole),
            };
        };
        let current = situation.current.as_f64();
        whole.ratio = (current > 0.0).then(|| largest.need() / current);
        Assessment {
            inputs: largest.inputs(),
            finding: Finding::Staffing(largest.finding(situation.slots.len(), whole.want)),
            sizing: Some(whole),
        }
    }
}

/// One model's load and the slots it needs.
struct Sized {
    model: ModelIndex,
    load: Load,
    staffed: Staffed,
    slots: f64,
}

impl Sized {
    /// Returns the replicas needed, not rounded.
    fn need(&self) -> f64 {
        self.staffed.want / self.slots
    }

    fn replicas(&self, slots: f64) -> Replicas {
        let least = if self.load.any {
            Replicas::ONE
        } else {
            Replicas::ZERO
        };
        parts::replicas_for(slots, self.slots).max(least)
    }

    fn inputs(&self) -> Vec<Input> {
        let Self { load, staffed, .. } = self;
        let input = |name, value| Input { name, value };
        vec![
            input("arrivals_per_second", Some(load.arrivals)),
            input("service_seconds", load.service),
            input("executing", Some(load.executing)),
            input("queued", Some(load.queued_fast)),
            input("in_flight_max", load.peak),
            input("offered_slots", Some(staffed.offered)),
            input("margin_slots", Some(staffed.margin)),
            input("backlog_slots", Some(staffed.backlog)),
            input("want_slots", Some(staffed.want)),
        ]
    }

    fn finding(&self, model_count: usize, want: Replicas) -> StaffingFinding {
        StaffingFinding {
            model: (model_count > 1).then_some(self.model),
            arrivals: self.load.arrivals,
            service: self.load.service,
            staffed: self.staffed,
            slots: self.slots,
            want,
        }
    }
}
