//! One fleet's shared state.

use std::sync::Arc;
use std::thread;

use inflight::clock::Clock;
use inflight_core::ReplicaId;
use inflight_core::load::ReplicaState;

use crate::api::instance::{NOWHERE, arrival, fleet_named};

#[test]
fn a_reading_is_dated_at_the_moment_of_its_totals() {
    let fleet = fleet_named("hello", Clock::start());
    fleet.set_endpoint(ReplicaId(1), NOWHERE, ReplicaState::Ready);
    let permit = fleet.arrive(arrival()).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            // Others at the lock: what is read before it is taken is early by the wait for it.
            scope.spawn(|| (0..50_000).for_each(|_| drop(fleet.load())));
        }
        for _ in 0..5_000 {
            let (read_at, observation) = fleet.observe();
            let total = observation.models[0].in_flight.integral.known().unwrap();
            let lasted = read_at.since(permit.arrived()).as_secs_f64();
            assert!((total - lasted).abs() < 1e-8, "{total} is not {lasted}");
        }
    });
}

/// A panic unwinds through whatever owns the permit; the gateway relies on nothing else.
#[test]
fn b07_a_panic_gives_count_and_slot_back() {
    let fleet = fleet_named("hello", Clock::start());
    fleet.set_endpoint(ReplicaId(1), NOWHERE, ReplicaState::Ready);
    for _ in 0..100 {
        let fleet = Arc::clone(&fleet);
        let panicked = thread::spawn(move || {
            let _permit = fleet.arrive(arrival()).unwrap();
            assert_eq!(fleet.load().in_flight, 0, "this is the panic");
        });
        assert!(panicked.join().is_err());
    }
    let load = fleet.load();
    assert_eq!((load.in_flight, load.queued, load.executing), (0, 0, 0));
    assert_eq!(load.arrivals, 100);
    let next = fleet.arrive(arrival()).unwrap();
    assert_eq!(fleet.load().executing, 1);
    drop(next);
}
