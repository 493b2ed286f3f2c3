//! The policies that can be compared, by name: the core's under several profiles, and the
//! baselines.

use std::time::Duration;

use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, ConfigError, DownWindow, Measure, OccupancyConfig, Policy as Core,
    Scaler, ScalingConfig, StaffingConfig, staffing,
};
use inflight_core::{Replicas, Timestamp};

use crate::baseline::clairvoyant::{Clairvoyant, MARGINS};
use crate::baseline::hpa::{Behavior, Utilization};
use crate::baseline::keda::{Keda, Number};
use crate::baseline::kpa::{CountedAt, Knative, KpaConfig};
use crate::baseline::ray::Ray;
use crate::baseline::rps::Rps;
use crate::control::{Control, CoreControl, Rule};
use crate::observer::{Observer, Style};
use crate::outcome::Outcome;
use crate::scenario::{Model, Scenario, Service};
use crate::timeline::Timeline;
use crate::world::{record, run};

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// The core's `staffing`, profile `balanced`.
    Staffing,
    /// The core's `staffing`, profile `latency`.
    StaffingLatency,
    /// The core's `occupancy` as it is by default: 60 s, each 15 s, from completion counters.
    Occupancy,
    /// The core's `occupancy` on exact counts: 30 s, each 2 s, down after 120 s.
    OccupancyExact,
    /// The same with a threshold of 1.5.
    OccupancyExactLow,
    /// The core's `concurrency` with 70 % of the slots.
    Concurrency,
    /// Queue latency by KEDA and a cautious HPA.
    QueueLatency,
    /// The occupancy ratio by KEDA and a cautious HPA.
    OccupancyHpa,
    /// The occupancy ratio by KEDA and a faster HPA.
    OccupancyKeda,
    /// Knative, counted in the replica.
    Knative,
    /// Knative, counted at the proxy.
    KnativeProxy,
    /// Knative, counted in the replica, with a scale-down delay of 120 s.
    KnativeDelay,
    /// An HPA on 70 % utilization.
    HpaUtilization,
    /// An HPA on requests per second.
    Rps,
    /// Ray Serve.
    Ray,
    /// What knows the load ahead; the best of its margins for each seed.
    Clairvoyant,
}

/// All policies, with their names, in the order of the tables.
pub const POLICIES: [(Policy, &str); 16] = [
    (Policy::Staffing, "staffing"),
    (Policy::StaffingLatency, "staffing-latency"),
    (Policy::Occupancy, "occupancy"),
    (Policy::OccupancyExact, "occupancy-exact"),
    (Policy::OccupancyExactLow, "occupancy-exact-1.5"),
    (Policy::Concurrency, "concurrency"),
    (Policy::QueueLatency, "queue-latency"),
    (Policy::OccupancyHpa, "occupancy-hpa"),
    (Policy::OccupancyKeda, "occupancy-keda"),
    (Policy::Knative, "knative"),
    (Policy::KnativeProxy, "knative-proxy"),
    (Policy::KnativeDelay, "knative-delay"),
    (Policy::HpaUtilization, "hpa-utilization"),
    (Policy::Rps, "rps"),
    (Policy::Ray, "ray"),
    (Policy::Clairvoyant, "clairvoyant"),
];

impl Policy {
    /// Returns the policy of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let found = POLICIES.iter().find(|(_, other)| *other == name);
        found.map(|&(policy, _)| policy)
    }

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = POLICIES.iter().find(|(policy, _)| *policy == self);
        found.map_or("", |&(_, name)| name)
    }

    /// Builds what sizes a run. `margin` is of the clairvoyant only.
    ///
    /// # Errors
    ///
    /// The scenario's fleet cannot be configured.
    pub fn control(
        self,
        scenario: &Scenario,
        seed: u64,
        margin: f64,
    ) -> Result<Control, ConfigError> {
        let slots: Vec<f64> = scenario.models.iter().map(|m| m.slots.as_f64()).collect();
        let replicas = scenario.fleet.replicas_start;
        let rule = |rule: Box<dyn Rule>| Ok(Control::Rule(rule));
        let knative = |at, down_delay| {
            let config = |&slots: &f64| KpaConfig {
                down_delay,
                ..KpaConfig::for_slots(slots)
            };
            let configs: Vec<KpaConfig> = slots.iter().map(config).collect();
            rule(Box::new(Knative::new(&configs, at, replicas)))
        };
        let ratio = Number::Occupancy { target: 2.0 };
        match self {
            Self::Staffing => staffed(scenario, StaffingConfig::balanced()),
            Self::StaffingLatency => staffed(scenario, StaffingConfig::latency()),
            Self::Occupancy => {
                let config = OccupancyConfig::new(2.0, Duration::from_secs(60))?;
                let flush = Duration::from_secs(5);
                let style = Style::Completions { flush };
                let scaling = scaling(scenario, Core::Occupancy(config))?;
                Ok(core(scenario, scaling, style))
            }
            Self::OccupancyExact => exact_occupancy(scenario, 2.0),
            Self::OccupancyExactLow => exact_occupancy(scenario, 1.5),
            Self::Concurrency => {
                let (stable, burst) = (Duration::from_secs(60), Duration::from_secs(6));
                let config = ConcurrencyConfig::new(0.7, Measure::Mean, stable, burst)?;
                let scaling = scaling(scenario, Core::Concurrency(config))?;
                Ok(core(scenario, scaling, Style::Exact))
            }
            Self::QueueLatency => {
                let number = Number::QueueLatency { target: 100.0 };
                rule(Box::new(Keda::new(number, 30.0, Behavior::ONE_BY_ONE)))
            }
            Self::OccupancyHpa => rule(Box::new(Keda::new(ratio, 30.0, Behavior::ONE_BY_ONE))),
            Self::OccupancyKeda => rule(Box::new(Keda::new(ratio, 30.0, Behavior::FASTER))),
            Self::Knative => knative(CountedAt::Replica, 0.0),
            Self::KnativeProxy => knative(CountedAt::Proxy, 0.0),
            Self::KnativeDelay => knative(CountedAt::Replica, 120.0),
            Self::HpaUtilization => rule(Box::new(Utilization::new(0.7, &slots))),
            Self::Rps => rule(Box::new(Rps::new(&requests_per_second(scenario)))),
            Self::Ray => rule(Box::new(Ray::new(&slots))),
            Self::Clairvoyant => rule(Box::new(Clairvoyant::new(scenario, seed, margin))),
        }
    }
}

impl Policy {
    /// Runs a scenario with a seed; the clairvoyant with each of its margins, of which the best
    /// counts.
    ///
    /// # Errors
    ///
    /// The scenario's fleet cannot be configured.
    pub fn outcome(self, scenario: &Scenario, seed: u64) -> Result<Outcome, ConfigError> {
        self.best(scenario, seed).map(|(_, outcome)| outcome)
    }

    /// Runs the same twice and returns what the run looked like over time.
    ///
    /// # Errors
    ///
    /// The scenario's fleet cannot be configured.
    pub fn timeline(self, scenario: &Scenario, seed: u64) -> Result<Timeline, ConfigError> {
        let (margin, outcome) = self.best(scenario, seed)?;
        let control = self.control(scenario, seed, margin)?;
        Ok(record(scenario, control, seed, outcome.end))
    }

    /// Returns what came of the best margin, with that margin.
    fn best(self, scenario: &Scenario, seed: u64) -> Result<(f64, Outcome), ConfigError> {
        let run_with = |margin| {
            self.control(scenario, seed, margin)
                .map(|control| (margin, run(scenario, control, seed)))
        };
        if self != Self::Clairvoyant {
            return run_with(0.0);
        }
        let mut best = run_with(MARGINS[0])?;
        for margin in &MARGINS[1..] {
            let other = run_with(*margin)?;
            if is_better(&other.1, &best.1) {
                best = other;
            }
        }
        Ok(best)
    }
}

/// Fewer replica-minutes where both violate the SLO at most once in a hundred times, else fewer
/// violations.
fn is_better(one: &Outcome, other: &Outcome) -> bool {
    let is_good = |outcome: &Outcome| outcome.violation_share() <= 0.01;
    match (is_good(one), is_good(other)) {
        (true, true) => one.replica_seconds < other.replica_seconds,
        (false, false) => one.violation_share() < other.violation_share(),
        (good, _) => good,
    }
}

/// 70 % of what a replica can serve of each model.
fn requests_per_second(scenario: &Scenario) -> Vec<f64> {
    let models = scenario.models.iter().enumerate();
    let target =
        |(place, model): (usize, &Model)| 0.7 * model.servers() / scenario.service_mean_of(place);
    models.map(target).collect()
}

fn staffed(scenario: &Scenario, config: StaffingConfig) -> Result<Control, ConfigError> {
    let config = batching(scenario, config)?;
    let scaling = scaling(scenario, Core::Staffing(config))?;
    Ok(core(scenario, scaling, Style::Exact))
}

/// Tells `staffing` which models of a scenario serve batches.
pub(crate) fn batching(
    scenario: &Scenario,
    config: StaffingConfig,
) -> Result<StaffingConfig, ConfigError> {
    let batching = scenario.models.iter().map(|model| match model.service {
        Service::Each(_) => Ok(None),
        Service::Batches {
            batch,
            each,
            largest,
        } => staffing::Batching::new(batch, each, f64::from(largest)).map(Some),
    });
    Ok(config.with_batching(batching.collect::<Result<_, _>>()?))
}

fn exact_occupancy(scenario: &Scenario, threshold: f64) -> Result<Control, ConfigError> {
    let config = OccupancyConfig::new(threshold, Duration::from_secs(30))?;
    let scaling = ScalingConfig {
        down_window: DownWindow::Fixed(Duration::from_secs(120)),
        ..scaling(scenario, Core::Occupancy(config))?
    };
    let tick = Duration::from_secs(2);
    let scaler = Scaler::new(scaling, Timestamp::ORIGIN, start_size(scenario));
    let observer = Observer::new(Style::Exact, scenario.readings.clone());
    Ok(Control::Core(Box::new(CoreControl::new(
        scaler, observer, tick,
    ))))
}

pub(crate) fn scaling(scenario: &Scenario, policy: Core) -> Result<ScalingConfig, ConfigError> {
    let fleet = &scenario.fleet;
    let bounds = Bounds::new(
        Replicas::new(fleet.replicas_min),
        Replicas::new(fleet.replicas_max),
    )?;
    let slots = scenario.models.iter().map(|model| model.slots);
    Ok(ScalingConfig {
        slots: slots.collect(),
        ..ScalingConfig::new(policy, bounds, inflight_core::Slots::ONE)
    })
}

/// Puts the core before a scenario's fleet.
pub(crate) fn core(scenario: &Scenario, scaling: ScalingConfig, style: Style) -> Control {
    let tick = scaling.policy.tick();
    let scaler = Scaler::new(scaling, Timestamp::ORIGIN, start_size(scenario));
    let observer = Observer::new(style, scenario.readings.clone());
    Control::Core(Box::new(CoreControl::new(scaler, observer, tick)))
}

fn start_size(scenario: &Scenario) -> Replicas {
    Replicas::new(scenario.fleet.replicas_start)
}
