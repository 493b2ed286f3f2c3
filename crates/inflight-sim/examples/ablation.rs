//! What each part of `staffing` is worth: `cargo run --release -p inflight-sim --example ablation`.
//!
//! The 17 scenarios of `docs/simulator.md`, seeds 11 to 17. For the rule as it is and for the rule
//! without each of its parts it prints replica-minutes over the clairvoyant's (geometric mean of the
//! scenarios' medians), mean violations and changes of the size.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use inflight_core::scaling::staffing::Batching;
use inflight_core::scaling::{
    Bounds, DownWindow, Policy as Core, Scaler, ScalingConfig, StaffingConfig,
};
use inflight_core::{Replicas, Slots, Timestamp};
use inflight_sim::scenario::{Scenario, Service, parse};
use inflight_sim::{Control, CoreControl, Observer, Outcome, Policy, Report, Row, Style, run};

const SEEDS: std::ops::RangeInclusive<u64> = 11..=17;

const SCENARIOS: [&str; 17] = [
    "batch",
    "c8wire",
    "closed15free",
    "closed30cap5",
    "diurnal",
    "flash120",
    "heavytail",
    "hetero-fail",
    "ho-burst",
    "ho-closedwaves",
    "ho-ramp",
    "lowload-c8",
    "mix25x",
    "mmpp",
    "step",
    "stream60",
    "trace",
];

type Change = fn(&mut StaffingConfig);

/// The parts that can be switched off; without all of them a plain offered load with its margin.
const CHANGES: [(&str, Change); 7] = [
    ("as it is", |_| {}),
    ("without backlog", |config| config.parts.backlog = false),
    ("without trend", |config| config.parts.trend = false),
    ("without closed loop", |config| {
        config.parts.closed_loop = false;
    }),
    ("without cap", |config| config.parts.cap = false),
    ("without returns", |config| config.parts.returns = false),
    ("without returns, down window 4 D", |config| {
        config.parts.returns = false;
        *config = config.clone().with_down_factor(4);
    }),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout();
    let scenarios: Vec<Scenario> = SCENARIOS.iter().map(read).collect::<Result<_, _>>()?;
    let mut least = Vec::new();
    for scenario in &scenarios {
        let outcomes = SEEDS.map(|seed| Policy::Clairvoyant.outcome(scenario, seed));
        least.push(row(scenario, outcomes.collect::<Result<_, _>>()?)?);
    }
    for (profile, config) in [
        ("balanced", StaffingConfig::balanced()),
        ("latency", StaffingConfig::latency()),
    ] {
        for (name, change) in CHANGES {
            let mut config = config.clone();
            change(&mut config);
            let (mut over, mut violations, mut changes) = (0.0, 0.0, 0.0);
            for (scenario, least) in scenarios.iter().zip(&least) {
                let outcomes = SEEDS.map(|seed| outcome(scenario, config.clone(), seed));
                let row = row(scenario, outcomes.collect::<Result<_, _>>()?)?;
                over += (row.replica_minutes / least.replica_minutes).ln();
                violations += row.violations;
                changes += row.changes;
            }
            let count = 17.0;
            writeln!(
                out,
                "{profile} {name}: {:.2} of the clairvoyant, {:.1} % violations, {:.0} changes",
                (over / count).exp(),
                violations / count,
                changes / count,
            )?;
        }
    }
    Ok(())
}

fn read(name: &&str) -> Result<Scenario, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let text = fs::read_to_string(folder.join(format!("{name}.yaml")))?;
    Ok(parse(&text, &|_| Err("no trace".to_owned()))?)
}

/// The medians; under any policy's name.
fn row(scenario: &Scenario, outcomes: Vec<Outcome>) -> Result<Row, &'static str> {
    let report = Report::new(scenario, &[(Policy::Staffing, outcomes)]);
    report.rows.into_iter().next().ok_or("no row")
}

fn outcome(
    scenario: &Scenario,
    config: StaffingConfig,
    seed: u64,
) -> Result<Outcome, Box<dyn Error>> {
    let batching = scenario.models.iter().map(|model| match model.service {
        Service::Each(_) => Ok(None),
        Service::Batches {
            batch,
            each,
            largest,
        } => Batching::new(batch, each, f64::from(largest)).map(Some),
    });
    let config = config.with_batching(batching.collect::<Result<_, _>>()?);
    let fleet = &scenario.fleet;
    let bounds = Bounds::new(
        Replicas::new(fleet.replicas_min),
        Replicas::new(fleet.replicas_max),
    )?;
    let scaling = ScalingConfig {
        slots: scenario.models.iter().map(|model| model.slots).collect(),
        down_window: DownWindow::Auto,
        ..ScalingConfig::new(Core::Staffing(config), bounds, Slots::ONE)
    };
    let size = Replicas::new(fleet.replicas_start);
    let scaler = Scaler::new(scaling, Timestamp::ORIGIN, size);
    let observer = Observer::new(Style::Exact, scenario.readings.clone());
    let control = CoreControl::new(scaler, observer, Duration::from_secs(2));
    Ok(run(scenario, Control::Core(Box::new(control)), seed))
}
