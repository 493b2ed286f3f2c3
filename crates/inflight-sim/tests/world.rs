//! What the modelled fleet does, seen from outside, on scenarios small enough to reason about.

use inflight_sim::check::oracle::Kept;
use inflight_sim::scenario::parse;
use inflight_sim::{Outcome, Policy, run};

/// A fleet of one-slot replicas that serve a request in a second.
fn scenario(replicas: &str, fleet: &str, load: &str, rest: &str) -> String {
    format!(
        "name: small\nabout: A small fleet.\nduration: 1000s\nfleet:\n  replicas: {replicas}\n  \
         start: {{ delay: 10s }}\n{fleet}models:\n  - {{ name: only, slots: 1, service: {{ \
         constant: 1s }}, slo: 100ms }}\nload:\n{load}{rest}"
    )
}

fn outcome(text: &str, policy: Option<Policy>) -> Outcome {
    let scenario = parse(text, &|_| Err("no file".to_owned()))
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let outcome = match policy {
        None => run(&scenario, Kept::control(), 1),
        Some(policy) => policy
            .outcome(&scenario, 1)
            .unwrap_or_else(|error| panic!("{error}")),
    };
    assert_eq!(outcome.broken_identity(), None);
    outcome
}

const LATE: &str = "  binding: { late: { queue: 3, wait: 5s, cold_wait: 60s } }\n";
const LEAST: &str = "  binding: { least_request: { queue: 3 } }\n";

#[test]
fn a_replica_serves_what_fits_and_refuses_what_its_queue_does_not_hold() {
    let load = "  - burst: { at: 1s, requests: 10 }\n";
    for fleet in [LEAST, LATE] {
        let text = scenario("{ start: 2, min: 2, max: 2 }", fleet, load, "");
        let outcome = outcome(&text, None);
        let queues = if fleet == LEAST { 2 } else { 1 };
        assert_eq!(outcome.served, 2 + 3 * queues, "{fleet}");
        assert_eq!(outcome.refused, 10 - outcome.served);
        assert_eq!(outcome.within_slo, 2, "only those that found a slot");
    }
}

#[test]
fn a_late_request_is_refused_after_its_wait_and_one_bound_on_arrival_never() {
    let load = "  - burst: { at: 1s, requests: 8 }\n";
    let late = "  binding: { late: { queue: 100, wait: 5s, cold_wait: 60s } }\n";
    let text = scenario("{ start: 1, min: 1, max: 1 }", late, load, "");
    // At the fifth second the wait of those left ends just as a slot is free: whoever ends, ends
    // first.
    let outcome_late = outcome(&text, None);
    assert!((5..=6).contains(&outcome_late.served), "{outcome_late:?}");
    let early = "  binding: { least_of_two: { queue: 100 } }\n";
    let text = scenario("{ start: 1, min: 1, max: 1 }", early, load, "");
    assert_eq!(outcome(&text, None).served, 8);
}

#[test]
fn late_binding_gives_what_waits_to_whichever_replica_is_free_first() {
    let faults =
        "faults:\n  - { at: 0s, what: { slow: { replicas: 1, span: 1000s, factor: 0.1 } } }\n";
    let load = "  - burst: { at: 1s, requests: 6 }\n";
    let late = "  binding: { late: { queue: 100, wait: 60s, cold_wait: 60s } }\n";
    let early = "  binding: { least_request: { queue: 100 } }\n";
    let end = |fleet| {
        let text = scenario("{ start: 2, min: 2, max: 2 }", fleet, load, faults);
        outcome(&text, None).end
    };
    assert!((end(late) - 11.0).abs() < 1e-6, "{}", end(late));
    assert!((end(early) - 31.0).abs() < 1e-6, "{}", end(early));
}

#[test]
fn a_crash_fails_what_is_executed_and_moves_what_waits() {
    let faults = "faults:\n  - { at: 1500ms, what: { crash: { replicas: 1 } } }\n";
    let load = "  - burst: { at: 1s, requests: 6 }\n";
    for fleet in [
        "",
        "  binding: { late: { queue: 100, wait: 60s, cold_wait: 60s } }\n",
    ] {
        let text = scenario("{ start: 2, min: 2, max: 2 }", fleet, load, faults);
        let outcome = outcome(&text, None);
        assert_eq!((outcome.failed, outcome.served), (1, 5), "{fleet}");
    }
}

#[test]
fn replicas_that_do_not_answer_finish_what_they_have_and_get_nothing() {
    let faults = "faults:\n  - { at: 1500ms, what: { unhealthy: { replicas: 1, span: 5s } } }\n";
    let load = "  - burst: { at: 1s, requests: 2 }\n  - burst: { at: 2s, requests: 3 }\n  - burst: { at: 9s, requests: 2 }\n";
    let text = scenario("{ start: 2, min: 2, max: 2 }", "", load, faults);
    let outcome = outcome(&text, None);
    assert_eq!(outcome.served, 7);
    assert_eq!(outcome.within_slo, 2 + 1 + 2);
}

#[test]
fn a_fleet_grows_from_zero_on_its_first_request_and_returns_to_zero() {
    let late = "  binding: { late: { queue: 100, wait: 60s, cold_wait: 60s } }\n";
    let load = "  - burst: { at: 101s, requests: 1 }\n  - burst: { at: 990s, requests: 1 }\n";
    let text = scenario("{ start: 0, min: 0, max: 4 }", late, load, "");
    let outcome = outcome(&text, Some(Policy::Staffing));
    let woken = outcome.sizes.iter().find(|size| size.desired > 0);
    assert_eq!(woken.map(|size| size.at), Some(101.0));
    let idle = outcome
        .sizes
        .iter()
        .find(|size| size.at > 110.0 && size.desired == 0);
    assert!(
        idle.is_some_and(|size| size.at < 300.0),
        "{:?}",
        outcome.sizes
    );
    assert_eq!(outcome.served, 1);
    assert_eq!(
        outcome.unfinished, 1,
        "the second one's replica starts until 1000 s"
    );
}

#[test]
fn replicas_count_from_being_asked_for_until_they_are_gone() {
    let text = scenario(
        "{ start: 3, min: 3, max: 3 }",
        "",
        "  - steps: { points: [{ at: 0s, rate: 0.1 }] }\n",
        "",
    );
    let outcome = outcome(&text, None);
    assert!((outcome.replica_seconds - 3000.0).abs() < 1e-6);
    assert!((outcome.end - 1000.0).abs() < 1e-9);
}

#[test]
fn what_is_recorded_over_time_adds_up_to_what_came_of_the_run() {
    let load = "  - steps: { points: [{ at: 0s, rate: 1 }, { at: 300s, rate: 8 }] }\n";
    let text = scenario("{ start: 1, min: 1, max: 30 }", LATE, load, "");
    let scenario = parse(&text, &|_| Err("no file".to_owned())).unwrap_or_else(|e| panic!("{e}"));
    for policy in [Policy::Staffing, Policy::Knative, Policy::Clairvoyant] {
        let expected = outcome(&text, Some(policy));
        let seen = policy
            .timeline(&scenario, 1)
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(seen.arrivals.len(), 300);
        let sum = |values: &[f64]| values.iter().sum::<f64>() * seen.width;
        assert!((sum(&seen.arrivals) - expected.arrivals as f64).abs() < 1e-3);
        assert!((sum(&seen.in_flight) - expected.in_flight_area as f64 / 1e9).abs() < 1e-3);
        let moved: u32 = seen
            .changes
            .iter()
            .map(|one| one.to.abs_diff(one.from))
            .sum();
        assert_eq!(u64::from(moved), expected.changes);
        let has_reasons = seen.changes.iter().all(|one| one.reason.is_some());
        assert_eq!(has_reasons, policy == Policy::Staffing);
        assert!(seen.wanted.iter().max() > Some(&5) && seen.p99.iter().flatten().count() > 250);
    }
}
