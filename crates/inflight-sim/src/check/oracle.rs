//! Closed-form results that simple runs must agree with, and a rule that keeps a size.

use std::time::Duration;

use crate::control::{Control, Rule};
use crate::readings::Readings;

/// Keeps the size as it is.
#[derive(Clone, Copy, Debug)]
pub struct Kept;

impl Kept {
    /// Builds what sizes a run that is to keep its size.
    #[must_use]
    pub fn control() -> Control {
        Control::Rule(Box::new(Self))
    }
}

impl Rule for Kept {
    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn on_tick(&mut self, _: f64, _: &Readings) -> Option<u32> {
        None
    }
}

/// Returns the mean wait in a queue with Poisson arrivals and so many exponential servers
/// (Erlang, "Solution of some Problems in the Theory of Probabilities", 1917: the formula C).
#[must_use]
pub fn erlang_c_wait(servers: u32, arrivals: f64, service: f64) -> f64 {
    let offered = arrivals * service;
    // The formula B by its recursion, and C from it.
    let blocked = (1..=servers).fold(1.0, |blocked, server| {
        offered * blocked / (f64::from(server) + offered * blocked)
    });
    let servers = f64::from(servers);
    let waits = blocked / (1.0 - offered / servers * (1.0 - blocked));
    waits * service / (servers - offered)
}

/// Returns the bounds of the throughput of clients that wait for their answers and think between
/// (Denning and Buzen, "The Operational Analysis of Queueing Network Models", 1978).
#[must_use]
pub fn closed_loop_bounds(clients: f64, servers: f64, service: f64, think: f64) -> (f64, f64) {
    let most = (servers / service).min(clients / (service + think));
    // At worst everybody waits for everybody else of the same server.
    let least = clients / (clients / servers * service + service + think);
    (least, most)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::scenario::{Scenario, parse};
    use crate::units::{area_seconds, float};
    use crate::{Outcome, run};

    fn scenario(slots: u32, service: &str, load: &str, seconds: u32) -> Scenario {
        let text = format!(
            "name: oracle\nabout: A queue.\nduration: {seconds}s\nfleet:\n  replicas: {{ start: 1, \
             min: 1, max: 1 }}\n  start: {{ delay: 1s }}\n  binding: {{ least_request: {{ \
             queue: 10000000 }} }}\nmodels:\n  - {{ name: only, slots: \
             {slots}, service: {{ {service} }}, slo: 1s }}\nload:\n  - {load}\n"
        );
        parse(&text, &|_| Err("no file".to_owned())).unwrap()
    }

    fn outcome(slots: u32, service: &str, load: &str, seconds: u32, seed: u64) -> Outcome {
        let scenario = scenario(slots, service, load, seconds);
        let outcome = run(&scenario, Kept::control(), seed);
        assert_eq!(outcome.broken_identity(), None);
        outcome
    }

    fn steps(rate: f64) -> String {
        format!("steps: {{ points: [{{ at: 0s, rate: {rate} }}] }}")
    }

    #[track_caller]
    fn near(simulated: f64, exact: f64, share: f64) {
        let error = (simulated / exact - 1.0).abs();
        assert!(error < share, "{simulated} is not {exact}");
    }

    #[test]
    fn waits_of_a_queue_with_many_servers_are_by_erlangs_formula() {
        for (slots, rate) in [(1, 7.0), (2, 16.0), (8, 70.0), (16, 140.0)] {
            let outcome = outcome(slots, "exponential: 100ms", &steps(rate), 40_000, 7);
            let wait = area_seconds(outcome.sojourn_area) / float(outcome.arrivals) - 0.1;
            near(wait, erlang_c_wait(slots, rate, 0.1), 0.05);
        }
    }

    #[test]
    fn with_a_slot_for_everybody_the_occupancy_is_arrivals_times_service() {
        for service in [
            "exponential: 500ms",
            "constant: 500ms",
            "lognormal: { mean: 500ms, sigma: 1 }",
            "bimodal: { short: 100ms, long: 4100ms, long_share: 0.1 }",
        ] {
            let outcome = outcome(1000, service, &steps(40.0), 5000, 3);
            near(
                area_seconds(outcome.in_flight_area) / outcome.end,
                20.0,
                0.02,
            );
        }
    }

    #[test]
    fn the_throughput_of_a_closed_loop_is_within_its_bounds() {
        for (clients, slots) in [(1, 1), (4, 2), (20, 4)] {
            let load = format!("closed: {{ jobs: {clients}, think: 300ms }}");
            let outcome = outcome(slots, "exponential: 100ms", &load, 4000, 5);
            let throughput = float(outcome.served) / outcome.end;
            let (clients, slots) = (f64::from(clients), f64::from(slots));
            let (least, most) = closed_loop_bounds(clients, slots, 0.1, 0.3);
            let within = throughput > 0.98 * least && throughput < 1.02 * most;
            assert!(within, "{least} ≤ {throughput} ≤ {most}");
        }
    }

    #[test]
    fn a_batch_takes_its_time_and_that_of_each_request_in_it() {
        let batches = "batches: { batch: 20ms, each: 1ms, largest: 32 }";
        let outcome = outcome(32, batches, "closed: { jobs: 320 }", 1000, 1);
        near(float(outcome.served) / outcome.end, 32.0 / 0.052, 0.01);
    }

    /// Remembers the growth of two estimators of what is in flight between its last two looks.
    #[derive(Debug)]
    struct Estimators {
        seen: (f64, f64),
        ratio: Arc<AtomicU64>,
    }

    impl Rule for Estimators {
        fn every(&self) -> Duration {
            Duration::from_secs(60)
        }

        fn on_tick(&mut self, _: f64, fleet: &Readings) -> Option<u32> {
            let exact = fleet.models[0].in_flight_seconds;
            let completed = fleet.models[0].sojourn_seconds;
            let ratio = (completed - self.seen.1) / (exact - self.seen.0);
            self.seen = (exact, completed);
            self.ratio.store(ratio.to_bits(), Ordering::Relaxed);
            None
        }
    }

    #[test]
    fn a_counter_that_moves_at_completion_reads_one_over_the_overload_of_a_growing_backlog() {
        for overload in [1.5, 2.0, 5.0, 10.0] {
            let scenario = scenario(1, "constant: 10ms", &steps(100.0 * overload), 1800);
            let ratio = Arc::new(AtomicU64::new(0));
            let rule = Estimators {
                seen: (0.0, 0.0),
                ratio: Arc::clone(&ratio),
            };
            let outcome = run(&scenario, Control::Rule(Box::new(rule)), 1);
            assert_eq!(outcome.refused, 0, "the queue holds the backlog");
            let read = f64::from_bits(ratio.load(Ordering::Relaxed));
            near(read, 1.0 / overload, 0.03);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let load = steps(30.0);
        let run = |seed| outcome(4, "exponential: 100ms", &load, 100, seed);
        assert_eq!(run(9), run(9));
        assert_ne!(run(9), run(10));
    }
}
