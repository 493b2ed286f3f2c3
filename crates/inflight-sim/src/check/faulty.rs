//! Runs in which things break at random, then no longer: the fleet must settle, and no request
//! may be lost or counted twice, whatever happened.
//!
//! In the manner of deterministic simulation testing (TigerBeetle's VOPR): a seed says all.

use std::fmt;

use inflight_core::Slots;

use crate::law::Law;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::random::{Purpose, Random};
use crate::scenario::{
    Binding, Closed, Fleet, FleetFault, FleetFaultAt, Job, Load, Model, OpenLoad, Point, Rates,
    ReadingFault, ReadingFaultFrom, Scenario, Service, Speed, Start,
};

/// When things stop breaking, and the load becomes calm. *Units*: seconds.
const CALM: f64 = 900.0;
/// When the fleet must have settled: after every down window, and after what waited is gone.
const SETTLED: f64 = 2400.0;
const END: f64 = 2700.0;
/// Requests per second once it is calm.
const CALM_RATE: f64 = 3.0;

/// A run with faults, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct FaultyRun {
    /// What says it all.
    pub seed: u64,
    /// What was run.
    pub scenario: Scenario,
    /// What sized it.
    pub policy: Policy,
    /// What came of it.
    pub outcome: Outcome,
    /// What does not hold; empty when all is well.
    pub broken: Vec<String>,
}

/// Runs what a seed says.
///
/// # Panics
///
/// If the random scenario cannot be configured, which is a fault of this module.
#[must_use]
pub fn faulty_run(seed: u64) -> FaultyRun {
    let mut random = Random::new(seed, Purpose::Faults);
    let scenario = scenario(&mut random);
    // The occupancy rule swings under an open load by its nature (theory of the rule); it need
    // not settle.
    let policies = [
        Policy::Staffing,
        Policy::StaffingLatency,
        Policy::Concurrency,
    ];
    let policy = policies[random.below(3) as usize];
    let outcome = policy
        .outcome(&scenario, seed)
        .expect("a random scenario has sizes in order");
    let broken = judge(&scenario, policy, &outcome);
    FaultyRun {
        seed,
        scenario,
        policy,
        outcome,
        broken,
    }
}

fn scenario(random: &mut Random) -> Scenario {
    let max = u32::try_from(random.integer(3, 20)).unwrap_or(3);
    let min = random.below(2);
    let models = (0..=random.below(2)).map(|place| model(random, place));
    let models: Vec<Model> = models.collect();
    let binding = binding(random);
    // Nothing wakes a fleet that holds requests at the proxy only; the gate does.
    let is_late = matches!(binding, Binding::Late { .. });
    let min = if is_late { min } else { 1 };
    Scenario {
        name: "random faults".to_owned(),
        about: "Faults first, then calm.".to_owned(),
        duration: END,
        fleet: Fleet {
            replicas_start: min + random.below(max - min + 1),
            replicas_min: min,
            replicas_max: max,
            start: Start {
                delay: random.between(1.0, 60.0),
                spread: random.between(0.0, 0.5),
                never: 0.0,
            },
            speed: Speed {
                slow_share: random.between(0.0, 0.3),
                slow: 0.7,
                warm_up: random.between(0.0, 20.0),
                warming: 0.5,
            },
            binding,
            wire: random.chance(0.5).then_some(Law::TwoHalves { mean: 0.01 }),
        },
        loads: loads(random),
        models,
        faults: (0..random.below(8)).map(|_| fault(random)).collect(),
        readings: (0..random.below(4)).map(|_| reading(random)).collect(),
    }
}

fn model(random: &mut Random, place: u32) -> Model {
    let mean = random.between(0.01, 0.4);
    let law = match random.below(4) {
        0 => Law::Constant { mean },
        1 => Law::Exponential { mean },
        2 => Law::Lognormal { mean, sigma: 1.0 },
        _ => Law::Bimodal {
            short: mean / 2.0,
            long: 2.0 * mean,
            long_share: 0.2,
        },
    };
    Model {
        name: format!("model {place}"),
        slots: Slots::new(1 + random.below(8)).unwrap_or(Slots::ONE),
        service: Service::Each(law),
        slo: 1.0,
        share: 1.0,
    }
}

fn binding(random: &mut Random) -> Binding {
    let queue = u32::try_from(random.integer(10, 2000)).unwrap_or(10);
    match random.below(3) {
        0 => Binding::LeastOfTwo { queue },
        1 => Binding::LeastRequest { queue },
        _ => Binding::Late {
            queue,
            wait: random.between(1.0, 60.0),
            cold_wait: 300.0,
            admission: random.chance(0.5).then_some(3.0),
        },
    }
}

/// A calm load all the time, and until it is calm whatever else comes.
fn loads(random: &mut Random) -> Vec<Load> {
    let calm = Point {
        at: 0.0,
        rate: CALM_RATE,
    };
    let open = |points| {
        Load::Open(OpenLoad {
            rates: Rates::Steps(points),
            model: None,
        })
    };
    let mut loads = vec![open(vec![calm])];
    if random.chance(0.7) {
        let mut points = Vec::new();
        let mut at = 0.0;
        while at < CALM {
            points.push(Point {
                at,
                rate: random.between(0.0, 60.0),
            });
            at += random.between(5.0, 300.0);
        }
        points.push(Point {
            at: CALM.max(at),
            rate: 0.0,
        });
        loads.push(open(points));
    }
    if random.chance(0.5) {
        loads.push(Load::Closed(Closed {
            at: random.between(0.0, 300.0),
            jobs: 1 + random.below(30),
            every: random.between(0.0, 5.0),
            job: Job {
                streams: 1 + random.below(3),
                requests: None,
                think: random.between(0.0, 1.0),
                until: CALM,
                model: None,
            },
        }));
    }
    loads
}

fn fault(random: &mut Random) -> FleetFaultAt {
    let at = random.between(10.0, CALM - 300.0);
    let replicas = 1 + random.below(4);
    let span = random.between(5.0, 290.0);
    FleetFaultAt {
        at,
        fault: match random.below(4) {
            0 => FleetFault::Crash { replicas },
            1 => FleetFault::Unhealthy { replicas, span },
            2 => FleetFault::Slow {
                replicas,
                span,
                factor: random.between(0.05, 0.9),
            },
            // Those that never get ready stay for as long as they are asked for: nobody ends them.
            _ => FleetFault::Crash { replicas: 20 },
        },
    }
}

fn reading(random: &mut Random) -> ReadingFaultFrom {
    ReadingFaultFrom {
        from: random.between(10.0, CALM - 300.0),
        span: random.between(5.0, 290.0),
        fault: match random.below(4) {
            0 => ReadingFault::Delay {
                by: random.between(1.0, 60.0),
            },
            1 => ReadingFault::Drop,
            2 => ReadingFault::Freeze,
            _ => ReadingFault::Corrupt,
        },
    }
}

fn judge(scenario: &Scenario, policy: Policy, outcome: &Outcome) -> Vec<String> {
    let mut broken: Vec<String> = outcome.broken_identity().into_iter().collect();
    let busy = CALM_RATE * scenario.service_mean() / 0.5;
    // A fifth of the slots would do; what waits at the end is a breath of the load.
    let unfinished = crate::units::float(outcome.unfinished);
    if unfinished > 20.0 + 10.0 * busy {
        broken.push(format!(
            "{unfinished} requests are in flight after the calm"
        ));
    }
    // So many times the busy slots and their square root, at the fewest slots of a model. By
    // `concurrency` the most of any six seconds is kept for a whole down window.
    let times = if policy == Policy::Concurrency {
        4.0
    } else {
        2.5
    };
    let slots = scenario.models.iter().map(|model| model.slots.as_f64());
    let slots = slots.fold(f64::INFINITY, f64::min);
    let most = 2 + crate::units::replicas_ceil(times * (busy + busy.sqrt()) / slots);
    // The mean: one burst of the calm load that is answered is no unrest.
    let mean = mean_size(outcome);
    if mean > f64::from(most) {
        broken.push(format!(
            "{mean:.1} replicas for the calm, {most} are plenty"
        ));
    }
    let fleet = &scenario.fleet;
    for size in &outcome.sizes {
        if size.desired > fleet.replicas_max || size.desired < fleet.replicas_min {
            broken.push(format!("{} replicas asked for", size.desired));
        }
    }
    broken
}

/// The mean size asked for once the fleet must have settled.
fn mean_size(outcome: &Outcome) -> f64 {
    let ends = outcome.sizes.iter().skip(1).map(|size| size.at);
    let sizes = outcome.sizes.iter().zip(ends.chain([END]));
    let area = sizes
        .map(|(size, end)| f64::from(size.desired) * (end.max(SETTLED) - size.at.max(SETTLED)));
    area.sum::<f64>() / (END - SETTLED)
}

impl fmt::Display for FaultyRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} ({})", self.seed, self.policy.name())?;
        for broken in &self.broken {
            write!(f, ": {broken}")?;
        }
        Ok(())
    }
}
