//! How fast the simulator is on one core: `cargo run --release -p inflight-sim --example speed`.
//!
//! Request events are arrivals and ends, two a request. Prints the best of five runs of each load.

use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use inflight_sim::Policy;
use inflight_sim::scenario::parse;

/// A day of 50 requests a second; many short requests; a closed loop; late binding.
const LOADS: [(&str, &str, &str, &str); 4] = [
    (
        "a day at 50/s",
        "86400s",
        "",
        "steps: { points: [{ at: 0s, rate: 50 }] }",
    ),
    (
        "1000/s",
        "3600s",
        "",
        "steps: { points: [{ at: 0s, rate: 1000 }] }",
    ),
    (
        "200 clients",
        "1800s",
        "",
        "closed: { jobs: 200, think: 100ms }",
    ),
    (
        "1000/s, late",
        "3600s",
        "  binding: { late: { queue: 20000, wait: 30s, cold_wait: 300s } }\n",
        "steps: { points: [{ at: 0s, rate: 1000 }] }",
    ),
];

#[expect(
    clippy::disallowed_methods,
    reason = "this measures the simulator from outside"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout();
    for (name, duration, binding, load) in LOADS {
        let text = format!(
            "name: speed\nabout: Speed.\nduration: {duration}\nfleet:\n  replicas: {{ start: 20, \
             min: 1, max: 100 }}\n  start: {{ delay: 30s }}\n{binding}models:\n  - {{ name: only, \
             slots: 8, service: {{ exponential: 100ms }}, slo: 200ms }}\nload:\n  - {load}\n"
        );
        let scenario = parse(&text, &|_| Err("no file".to_owned()))?;
        let mut best = (f64::INFINITY, 0.0);
        for seed in 1..=5 {
            let started = Instant::now();
            let outcome = Policy::Staffing.outcome(&scenario, seed)?;
            let took = started.elapsed().as_secs_f64();
            let requests = outcome.within_slo_per_minute().unwrap_or(0.0) * outcome.replica_seconds
                / 60.0
                / (1.0 - outcome.violation_share());
            if took < best.0 {
                best = (took, requests);
            }
        }
        let (took, requests) = best;
        writeln!(
            out,
            "{name}: {requests:.0} requests in {took:.2} s, {:.1} million request events a second",
            2.0 * requests / took / 1e6
        )?;
    }
    Ok(())
}
