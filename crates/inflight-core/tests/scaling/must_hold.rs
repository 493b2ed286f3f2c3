//! What the `staffing` policy must do, each a run of a fleet in virtual time.

use std::time::Duration;

use inflight_core::scaling::{Bounds, Policy, ScalingConfig, StaffingConfig};
use inflight_core::{Replicas, Slots};

use crate::driver::fleet::{Action, Record, Service, Setup, run};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn staffing(slots: u32, min: u32, max: u32) -> Setup {
    let bounds = Bounds::new(Replicas::new(min), Replicas::new(max)).unwrap();
    let policy = Policy::Staffing(StaffingConfig::balanced());
    Setup {
        config: ScalingConfig::new(policy, bounds, Slots::new(slots).unwrap()),
        replicas: min,
        service: Service::Constant(10 * MILLISECOND),
        think: Duration::ZERO,
        start_delay: Some(10 * SECOND),
        tick: 2 * SECOND,
        seed: 1,
    }
}

fn desired(records: &[Record], from: f64) -> impl Iterator<Item = u32> {
    let later = records.iter().filter(move |record| record.second >= from);
    later.map(|record| record.decision.desired.get())
}

fn always(records: &[Record], from: f64, size: u32) {
    for record in records.iter().filter(|record| record.second >= from) {
        assert_eq!(record.decision.desired.get(), size, "{record}");
    }
}

#[test]
fn one_sequential_client_after_ten_idle_minutes_keeps_one_replica() {
    for service in [MILLISECOND, 10 * MILLISECOND, 100 * MILLISECOND, SECOND] {
        let setup = Setup {
            service: Service::Constant(service),
            ..staffing(1, 1, 10)
        };
        let records = run(&setup, &[(600.0, Action::Clients(1))], 2400.0);
        always(&records, 0.0, 1);
    }
}

#[test]
fn twelve_closed_loop_clients_on_two_slots_go_to_six_replicas_and_stay() {
    for (service, seconds) in [(10, 180.0), (100, 900.0), (1000, 3600.0)] {
        let service = service * MILLISECOND;
        for law in [Service::Constant(service), Service::Exponential(service)] {
            let setup = Setup {
                service: law,
                ..staffing(2, 1, 20)
            };
            let records = run(&setup, &[(10.0, Action::Clients(12))], seconds);
            assert!(desired(&records, 0.0).all(|size| size <= 6), "{law:?}");
            always(&records, 120.0, 6);
        }
    }
}

#[test]
fn eight_clients_that_become_one_leave_one_replica_after_the_memory_and_the_window() {
    let actions = [(10.0, Action::Clients(8)), (400.0, Action::Clients(1))];
    let service = Service::Constant(100 * MILLISECOND);
    let records = run(
        &Setup {
            service,
            ..staffing(1, 1, 20)
        },
        &actions,
        1200.0,
    );
    always(&records[190..200], 0.0, 8);
    let window = 60.0;
    always(&records, 400.0 + 300.0 + window + 4.0, 1);
}

#[test]
fn long_requests_held_at_zero_replicas_are_answered_by_as_many_replicas_within_four_seconds() {
    let setup = Setup {
        service: Service::Constant(20 * SECOND),
        ..staffing(1, 0, 64)
    };
    for begin in [60.0, 61.0, 61.9] {
        let records = run(&setup, &[(begin, Action::Burst(200))], 70.0);
        assert!(
            desired(&records, begin + 4.0).all(|size| size == 64),
            "{begin}"
        );
        always(&records[..30], 0.0, 0);
    }
}

#[test]
fn a_fleet_that_grew_does_not_shrink_within_the_window() {
    for seed in 1..=20 {
        let service = Service::Exponential(200 * MILLISECOND);
        let setup = Setup {
            service,
            seed,
            replicas: 2,
            ..staffing(2, 2, 20)
        };
        let actions = [(100.0, Action::Rate(18.0)), (130.0, Action::Rate(4.0))];
        let records = run(&setup, &actions, 900.0);
        let grown = records
            .iter()
            .rev()
            .find(|record| record.decision.desired > record.decision.current);
        let grown = grown.unwrap();
        let shrunk = records
            .iter()
            .find(|record| record.decision.desired < record.decision.current);
        let waited = shrunk.unwrap().second - grown.second;
        assert!(waited >= 60.0, "seed {seed}: shrank after {waited} s");
    }
}

#[test]
fn replicas_that_never_get_ready_are_not_asked_for_without_end() {
    let setup = Setup {
        start_delay: None,
        ..staffing(1, 1, 64)
    };
    let records = run(&setup, &[(10.0, Action::Clients(8))], 3600.0);
    assert!(desired(&records, 0.0).all(|size| size <= 4));
    always(&records, 120.0, 4);
}

#[test]
fn a_sequential_client_that_pauses_keeps_one_replica() {
    for pause in [10.0, 30.0, 50.0, 100.0] {
        let mut actions = Vec::new();
        for round in 0..10 {
            let begin = 20.0 + f64::from(round) * (pause + 97.3);
            actions.push((begin, Action::Clients(1)));
            actions.push((begin + 97.3, Action::Clients(0)));
        }
        for service in [30 * MILLISECOND, 300 * MILLISECOND] {
            let setup = Setup {
                service: Service::Constant(service),
                ..staffing(1, 1, 10)
            };
            always(&run(&setup, &actions, 2000.0), 0.0, 1);
        }
    }
}

#[test]
fn constant_clients_never_get_more_slots_than_they_are() {
    for clients in [1_usize, 2, 3, 9, 17] {
        for slots in [1, 2, 8] {
            let service = Service::Exponential(50 * MILLISECOND);
            let setup = Setup {
                service,
                think: 5 * MILLISECOND,
                ..staffing(slots, 1, 64)
            };
            let records = run(&setup, &[(3.0, Action::Clients(clients))], 400.0);
            let most = u32::try_from(clients).unwrap().div_ceil(slots);
            assert!(
                desired(&records, 0.0).all(|size| size <= most),
                "{clients} clients on {slots} slots"
            );
        }
    }
}

#[test]
fn lost_replicas_are_replaced_and_no_more_than_those() {
    let service = Service::Exponential(200 * MILLISECOND);
    let setup = Setup {
        service,
        replicas: 6,
        ..staffing(2, 1, 20)
    };
    let actions = [(0.0, Action::Rate(30.0)), (600.0, Action::Break(2))];
    let records = run(&setup, &actions, 600.0);
    let before = records[records.len() - 2].decision.desired;
    let after = &records.last().unwrap().decision;
    assert_eq!(after.desired, before.plus(Replicas::new(2)), "{after}");
    assert!(
        after
            .reason
            .to_string()
            .contains("2 more for the unhealthy"),
        "{after}"
    );
}

#[test]
fn an_idle_fleet_goes_to_zero_after_the_grace_and_wakes_at_once() {
    let setup = Setup {
        replicas: 1,
        ..staffing(1, 0, 8)
    };
    let actions = [
        (10.0, Action::Clients(4)),
        (100.0, Action::Clients(0)),
        (500.0, Action::Clients(1)),
    ];
    let records = run(&setup, &actions, 520.0);
    assert!(desired(&records[..80], 0.0).all(|size| size > 0));
    always(&records[81..250], 0.0, 0);
    assert!(desired(&records, 502.0).all(|size| size == 1));
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    let service = Service::Exponential(100 * MILLISECOND);
    let setup = Setup {
        service,
        seed: 7,
        ..staffing(2, 1, 16)
    };
    let actions = [(5.0, Action::Rate(60.0)), (200.0, Action::Rate(5.0))];
    let decisions = || -> Vec<String> {
        let records = run(&setup, &actions, 400.0);
        records
            .iter()
            .map(|record| record.decision.to_string())
            .collect()
    };
    assert_eq!(decisions(), decisions());
}
