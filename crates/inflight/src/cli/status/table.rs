//! Fleets as a table for a terminal. An unknown value is a dash.

use crate::api::wire::{Admission, Crash, Fleet};

const UNKNOWN: &str = "-";
const GAP: &str = "  ";

const HEADINGS: [&str; 11] = [
    "FLEET",
    "POLICY",
    "READY",
    "DESIRED",
    "RANGE",
    "IN FLIGHT",
    "QUEUED",
    "ARRIVALS",
    "SERVICE",
    "INFLATION",
    "ADMISSION",
];

/// Renders one row for each fleet, and below it why each has its size.
pub(super) fn render(fleets: &[Fleet]) -> String {
    let rows: Vec<_> = fleets.iter().map(row).collect();
    let mut widths = HEADINGS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = line(&HEADINGS.map(str::to_owned), &widths);
    for row in &rows {
        text.push_str(&line(row, &widths));
    }
    text.push('\n');
    for fleet in fleets {
        text.push_str(&why(fleet));
    }
    text
}

fn row(fleet: &Fleet) -> [String; HEADINGS.len()] {
    let (replicas, load) = (&fleet.replicas, &fleet.load);
    [
        fleet.name.clone(),
        fleet.policy.clone(),
        shown(replicas.ready, |ready| ready.to_string()),
        shown(replicas.desired, |desired| desired.to_string()),
        format!("{}-{}", replicas.min, replicas.max),
        shown(load.in_flight, number),
        shown(load.queued, number),
        shown(load.arrivals_per_second, |rate| format!("{rate:.1}/s")),
        shown(load.service_seconds, seconds),
        shown(load.inflation, |inflation| format!("{inflation:.2}")),
        shown(fleet.admission, |gate| admission(&gate)),
    ]
}

fn admission(gate: &Admission) -> String {
    let state = match gate {
        gate if gate.load_unknown => "unknown",
        gate if gate.open => "open",
        _ => "closed",
    };
    match gate.held {
        0 => state.to_owned(),
        held => format!("{state}, {held} wait"),
    }
}

/// Renders a fleet as one line, for a file that grows.
pub(super) fn one_line(fleet: &Fleet) -> String {
    let cells = row(fleet);
    let named = HEADINGS.iter().zip(&cells).skip(2);
    let told: Vec<_> = named
        .map(|(heading, cell)| format!("{} {cell}", heading.to_lowercase()))
        .collect();
    let held = held(fleet).map_or(String::new(), |held| format!(", {held}"));
    format!("{}: {}{held}\n", fleet.name, told.join(", "))
}

fn held(fleet: &Fleet) -> Option<String> {
    let hold = fleet.hold.as_ref()?;
    let what = hold.replicas.map_or_else(
        || "paused by hand".to_owned(),
        |size| format!("set to {size} by hand"),
    );
    Some(format!("{what} until {}", hold.until))
}

fn why(fleet: &Fleet) -> String {
    let (name, replicas) = (&fleet.name, &fleet.replicas);
    let held = held(fleet).map_or(String::new(), |held| format!("{name}: {held}\n"));
    // Who has what it wants need not hear of old crashes.
    let lacks = replicas.ready < replicas.desired;
    let crash = fleet.last_crash.as_ref().filter(|_| lacks);
    let crash = crash.map_or(String::new(), |crash| {
        format!("{name}: {}\n", crashed(crash))
    });
    let unwritten = (fleet.unwritten.iter())
        .map(|(file, why)| format!("{name}: {file} cannot be written: {why}\n"));
    held + &reason(fleet) + &crash + &unwritten.collect::<String>()
}

/// Says what the last crash was.
pub(in crate::cli) fn crashed(crash: &Crash) -> String {
    let Crash { at, replica, why } = crash;
    format!("replica {replica} crashed at {at}: {why}")
}

fn reason(fleet: &Fleet) -> String {
    match &fleet.decision {
        Some(decision) => format!("{}: {} ({})\n", fleet.name, decision.reason, decision.at),
        None => format!("{}: no decision was made\n", fleet.name),
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let padded: Vec<_> = cells
        .iter()
        .zip(widths)
        .map(|(cell, &width)| format!("{cell:width$}"))
        .collect();
    format!("{}\n", padded.join(GAP).trim_end())
}

pub(in crate::cli) fn shown<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), show)
}

/// Whole numbers without a fraction, others with one digit.
fn number(value: f64) -> String {
    if value.fract().abs() < f64::EPSILON {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn seconds(value: f64) -> String {
    if value < 1.0 {
        format!("{:.0} ms", value * 1e3)
    } else {
        format!("{value:.1} s")
    }
}
