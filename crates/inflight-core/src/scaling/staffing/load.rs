//! What the `staffing` policy looks at: one model's load over its windows, and the fleet.

use std::time::Duration;

use super::StaffingConfig;
use crate::decision::Input;
use crate::ids::ModelIndex;
use crate::load::{Quantity, Unknown};
use crate::scaling::sizing::Situation;

/// Fewer completions than this say nothing about the service time.
const COMPLETIONS_MIN: f64 = 5.0;

/// The load of one model. Means without another word are over [`StaffingConfig::SLOW`], `_fast`
/// ones over [`StaffingConfig::FAST`]. *Units*: requests, seconds, and requests per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Whether anything is in flight or arrived within the slow window.
    pub any: bool,
    /// Arrivals per second.
    pub arrivals: f64,
    /// Arrivals per second.
    pub arrivals_fast: f64,
    /// Completions per second; `None` where the source does not count them.
    pub completions: Option<f64>,
    /// Completions per second; `None` where the source does not count them.
    pub completions_fast: Option<f64>,
    /// Mean executing.
    pub executing: f64,
    /// Mean executing.
    pub executing_fast: f64,
    /// Executing at this moment.
    pub executing_now: Option<f64>,
    /// Mean queued.
    pub queued: f64,
    /// Mean queued.
    pub queued_fast: f64,
    /// Queued at this moment.
    pub queued_now: Option<f64>,
    /// Mean service time of what completed in [`StaffingConfig::MEMORY`].
    pub service: Option<f64>,
    /// What the trend is judged from.
    pub trend: Option<Trend>,
    /// The largest number in flight in [`StaffingConfig::MEMORY`], from sources that know it
    /// exactly.
    pub peak: Option<f64>,
}

/// Two windows of [`StaffingConfig::TREND`], the last one and the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trend {
    /// Arrivals per second of the last window.
    pub arrivals_last: f64,
    /// Arrivals per second of the window before.
    pub arrivals_before: f64,
    /// Largest number in flight of the last window.
    pub peak_last: f64,
    /// Largest number in flight of the window before.
    pub peak_before: f64,
    /// Mean queued of the window before.
    pub queued_before: f64,
}

/// The fleet as one model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// Slots of the ready replicas; `None` where nobody knows them.
    pub slots_ready: Option<f64>,
    /// How long a start takes. *Units*: seconds.
    pub start_delay: f64,
}

impl Load {
    pub(super) fn gather(situation: &Situation<'_>, model: ModelIndex) -> Result<Self, Unknown> {
        let Situation { now, history, .. } = *situation;
        let (fast, slow) = (StaffingConfig::FAST, StaffingConfig::SLOW);
        let mean = |quantity, window| history.mean(now, model, quantity, window);
        let arrivals = mean(Quantity::Arrivals, slow)?;
        let executing_now = history.level(now, model, Quantity::Executing);
        let queued_now = history.level(now, model, Quantity::Queued);
        let in_flight_now = history.level(now, model, Quantity::InFlight);
        let present = [executing_now, queued_now, in_flight_now];
        Ok(Self {
            any: arrivals > 0.0 || present.iter().flatten().any(|&level| level > 0.0),
            arrivals,
            arrivals_fast: mean(Quantity::Arrivals, fast)?,
            completions: mean(Quantity::Completions, slow).ok(),
            completions_fast: mean(Quantity::Completions, fast).ok(),
            executing: mean(Quantity::Executing, slow)?,
            executing_fast: mean(Quantity::Executing, fast)?,
            executing_now,
            queued: mean(Quantity::Queued, slow)?,
            queued_fast: mean(Quantity::Queued, fast)?,
            queued_now,
            service: history.service_seconds(now, model, StaffingConfig::MEMORY, COMPLETIONS_MIN),
            trend: Trend::gather(situation, model),
            peak: history.in_flight_max(now, model, StaffingConfig::MEMORY, Duration::ZERO),
        })
    }
}

impl Trend {
    fn gather(situation: &Situation<'_>, model: ModelIndex) -> Option<Self> {
        let Situation { now, history, .. } = *situation;
        let last = StaffingConfig::TREND;
        let before = 2 * last;
        let ago = |quantity, from, to| history.mean_between(now, model, quantity, from, to).ok();
        let zero = Duration::ZERO;
        Some(Self {
            arrivals_last: ago(Quantity::Arrivals, last, zero)?,
            arrivals_before: ago(Quantity::Arrivals, before, last)?,
            peak_last: history.in_flight_max(now, model, last, zero)?,
            peak_before: history.in_flight_max(now, model, before, last)?,
            queued_before: ago(Quantity::Queued, before, last)?,
        })
    }
}

impl Fleet {
    pub(super) fn gather(situation: &Situation<'_>, slots: f64) -> Self {
        let ready = situation.history.ready(situation.now).ok();
        Self {
            slots_ready: ready.map(|ready| slots * ready.as_f64()),
            start_delay: situation.start_delay.as_secs_f64(),
        }
    }
}

/// Names what is known of a model whose load is not.
pub(super) fn inputs_of_unknown(situation: &Situation<'_>, model: ModelIndex) -> Vec<Input> {
    let Situation { now, history, .. } = *situation;
    let mean = |quantity| {
        history
            .mean(now, model, quantity, StaffingConfig::SLOW)
            .ok()
    };
    vec![
        Input {
            name: "arrivals_per_second",
            value: mean(Quantity::Arrivals),
        },
        Input {
            name: "executing",
            value: mean(Quantity::Executing),
        },
        Input {
            name: "queued",
            value: mean(Quantity::Queued),
        },
    ]
}
