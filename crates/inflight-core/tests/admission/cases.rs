//! Faults of comparable systems, reported in public, that must come out right here. Each test
//! starts with the number of its case.

use std::time::Duration;

use inflight_core::admission::{
    Arrival, EndpointState, Gate, GateConfig, Outcome, Output, QueueBounds, Refusal, RefusalReason,
};
use inflight_core::load::ReplicaView;
use inflight_core::{Bytes, ModelIndex, ReplicaId, Ticket};

use super::{arrival, config, gate, ms, outputs, slots};

/// <https://github.com/ray-project/ray/issues/37943>
#[test]
fn b01_a_client_that_leaves_while_it_waits_is_no_longer_counted() {
    let mut gate = gate(1, 1);
    let tickets: Vec<_> = (0..20)
        .map(|_| gate.on_arrival(ms(0), arrival()).unwrap())
        .collect();
    assert_eq!(gate.load(ms(0)).queued, 19);
    for &ticket in &tickets[1..] {
        gate.on_end(ms(1000), ticket, Outcome::ClientGone);
    }
    let load = gate.load(ms(1000));
    assert_eq!((load.in_flight, load.executing, load.queued), (1, 1, 0));
    assert_eq!(outputs(&mut gate), []);
    let seconds = gate.load(ms(3000)).in_flight_seconds - load.in_flight_seconds;
    assert!(
        (seconds - 2.0).abs() < 1e-9,
        "demand is the one real request"
    );
    gate.on_end(ms(3000), tickets[0], Outcome::Completed);
    let next = gate.on_arrival(ms(3000), arrival()).unwrap();
    assert_eq!(
        gate.granted(next),
        Some(ReplicaId(0)),
        "no slot stays taken"
    );
}

/// <https://github.com/knative/serving/issues/14950>
#[test]
fn b05_a_slot_stays_taken_until_the_server_has_really_ended() {
    let queue = QueueBounds {
        requests: 3,
        ..config(&[1]).queue
    };
    let mut gate = Gate::new(
        GateConfig {
            queue,
            ..config(&[1])
        },
        ms(0),
    );
    gate.set_endpoint(ms(0), ReplicaId(0), EndpointState::Ready);
    let executing = gate.on_arrival(ms(0), arrival()).unwrap();
    let mut refused = 0;
    for retry in 1..=30 {
        match gate.on_arrival(ms(retry * 100), arrival()) {
            Ok(ticket) => assert_eq!(gate.granted(ticket), None),
            Err(refusal) => {
                refused += 1;
                assert_eq!(refusal.reason, RefusalReason::QueueFull);
                assert!(refusal.retry_after >= Some(Duration::from_secs(1)));
            }
        }
        assert_eq!(gate.load(ms(retry * 100)).executing, 1);
    }
    assert_eq!(refused, 27);
    gate.on_end(ms(10_000), executing, Outcome::ClientGone);
    assert_eq!(
        gate.load(ms(10_000)).executing,
        1,
        "the next one, and only it"
    );
}

/// <https://github.com/triton-inference-server/core/pull/286>
#[test]
fn b06_a_refused_request_appears_in_the_count_of_refusals_only() {
    let queue = QueueBounds {
        requests: 0,
        ..config(&[1]).queue
    };
    let mut gate = Gate::new(
        GateConfig {
            queue,
            ..config(&[1])
        },
        ms(0),
    );
    gate.set_endpoint(ms(0), ReplicaId(0), EndpointState::Ready);
    let executing = gate.on_arrival(ms(0), arrival()).unwrap();
    for _ in 0..136 {
        assert!(gate.on_arrival(ms(1), arrival()).is_err());
    }
    gate.on_end(ms(2), executing, Outcome::Completed);
    let load = gate.load(ms(2));
    assert_eq!(
        (load.in_flight, load.queued, load.arrivals, load.completed),
        (0, 0, 1, 1)
    );
    assert_eq!(load.refused.get(RefusalReason::QueueFull), 136);
}

/// <https://github.com/gluwa/creditcoin3/pull/1354>
#[test]
fn b07_the_slot_and_the_count_are_one_on_every_way_out() {
    let mut gate = gate(3, 2);
    let mut tickets: Vec<Ticket> = Vec::new();
    for number in 0..1000 {
        tickets.push(gate.on_arrival(ms(number), arrival()).unwrap());
        if number % 7 != 0 {
            let ticket = tickets.swap_remove(usize::try_from(number).unwrap() % tickets.len());
            let outcome = match number % 20 {
                0..6 => Outcome::ClientGone,
                6 => Outcome::UpstreamFailed,
                7 => Outcome::TimedOut,
                _ => Outcome::Completed,
            };
            gate.on_end(ms(number), ticket, outcome);
            gate.on_end(ms(number), ticket, outcome);
        }
        let load = gate.load(ms(number));
        let held = gate.endpoint_in_flight(ReplicaId(0)) + gate.endpoint_in_flight(ReplicaId(1));
        assert_eq!(load.executing, u64::from(held));
        assert_eq!(load.in_flight, tickets.len() as u64);
    }
    for ticket in tickets {
        gate.on_end(ms(1000), ticket, Outcome::ClientGone);
    }
    let load = gate.load(ms(1000));
    assert_eq!((load.in_flight, load.executing, load.queued), (0, 0, 0));
    assert_eq!(
        load.completed + load.client_gone + load.upstream_failed + load.timed_out,
        1000
    );
}

/// <https://github.com/palantir/dialogue/pull/897>
#[test]
fn b08_slots_may_change_at_any_time_and_are_never_passed() {
    let mut gate = gate(4, 1);
    let tickets: Vec<_> = (0..8)
        .map(|_| gate.on_arrival(ms(0), arrival()).unwrap())
        .collect();
    assert_eq!(gate.endpoint_in_flight(ReplicaId(0)), 4);
    gate.set_slots(ms(1), ModelIndex(0), slots(5));
    assert_eq!(gate.endpoint_in_flight(ReplicaId(0)), 5);
    gate.set_slots(ms(2), ModelIndex(0), slots(1));
    assert_eq!(
        gate.endpoint_in_flight(ReplicaId(0)),
        5,
        "nobody is cut off"
    );
    for (ended, &ticket) in tickets[..5].iter().enumerate() {
        gate.on_end(ms(3), ticket, Outcome::Completed);
        let expected = [4, 3, 2, 1, 1][ended];
        assert_eq!(gate.endpoint_in_flight(ReplicaId(0)), expected);
    }
}

/// <https://github.com/kedacore/http-add-on/issues/1492>
#[test]
fn b49_the_first_call_to_a_sleeping_fleet_is_held_counted_and_answered() {
    let mut gate = gate(1, 0);
    let ticket = gate.on_arrival(ms(0), arrival()).unwrap();
    let observation = gate.observe(ms(100));
    let in_flight = observation.models[0]
        .in_flight
        .now
        .known()
        .map(|level| level.get());
    assert_eq!(in_flight, Some(1.0));
    gate.set_endpoint(ms(20_000), ReplicaId(0), EndpointState::Starting);
    assert_eq!(outputs(&mut gate), []);
    gate.set_endpoint(ms(40_000), ReplicaId(0), EndpointState::Ready);
    assert_eq!(
        outputs(&mut gate),
        [Output::Granted {
            ticket,
            replica: ReplicaId(0)
        }]
    );
}

/// <https://github.com/kedacore/http-add-on/issues/1492>
#[test]
fn b49_a_held_call_is_refused_only_after_the_cold_wait_and_told_when_to_return() {
    let mut gate = gate(1, 0);
    let ticket = gate.on_arrival(ms(0), arrival()).unwrap();
    assert_eq!(gate.poll_timeout(), Some(ms(300_000)));
    gate.on_timeout(ms(299_999));
    assert_eq!(outputs(&mut gate), []);
    assert_eq!(gate.poll_timeout(), Some(ms(300_000)));
    gate.on_timeout(ms(300_000));
    let reason = RefusalReason::ColdWaitExpired;
    assert!(reason.is_no_capacity());
    let refusal = Refusal {
        reason,
        retry_after: Some(Duration::from_secs(5)),
    };
    assert_eq!(outputs(&mut gate), [Output::Refused { ticket, refusal }]);
}

/// <https://github.com/kedacore/http-add-on/issues/1732>
#[test]
fn b51_a_fleet_that_never_gets_ready_holds_no_more_than_its_bounds() {
    let queue = QueueBounds {
        requests: 1000,
        bytes: Bytes(40_000_000),
        ..config(&[1]).queue
    };
    let mut gate = Gate::new(
        GateConfig {
            queue,
            ..config(&[1])
        },
        ms(0),
    );
    let mut refused = 0;
    for number in 0..5000 {
        match gate.on_arrival(ms(number), arrival()) {
            Ok(ticket) => {
                let held = gate.on_held_bytes(ms(number), ticket, Bytes(65_536));
                assert_eq!(held, number < 610, "{number}");
            }
            Err(refusal) => {
                refused += 1;
                assert_eq!(refusal.reason, RefusalReason::NoReplica);
                assert!(refusal.reason.is_no_capacity() && refusal.retry_after.is_some());
            }
        }
    }
    let load = gate.load(ms(5000));
    assert_eq!((load.queued, refused), (1000, 4000));
    assert_eq!(load.queued_bytes, Bytes(610 * 65_536));
}

/// <https://github.com/knative/serving/issues/14200>
#[test]
fn b53_ready_replicas_stay_at_their_limit_while_others_come_and_go() {
    let mut gate = gate(2, 10);
    let mut tickets = Vec::new();
    for number in 0..200 {
        tickets.push(gate.on_arrival(ms(number), arrival()).unwrap());
    }
    for number in 0..600_u64 {
        let now = ms(200 + number);
        let flapping = ReplicaId(10 + number % 90);
        let state = if number % 180 < 90 {
            EndpointState::Ready
        } else {
            EndpointState::Unhealthy
        };
        gate.set_endpoint(now, flapping, state);
        if number % 3 == 0 {
            let ended = tickets
                .iter()
                .position(|&ticket| gate.granted(ticket).is_some())
                .unwrap();
            gate.on_end(now, tickets.swap_remove(ended), Outcome::Completed);
            tickets.push(gate.on_arrival(now, arrival()).unwrap());
        }
        if gate.load(now).queued > 0 {
            assert!(
                (0..10).all(|id| gate.endpoint_in_flight(ReplicaId(id)) == 2),
                "{number}"
            );
        }
    }
    assert_eq!(gate.load(ms(900)).refused.total(), 0);
}

/// <https://github.com/knative/serving/issues/15211>
#[test]
fn b60_no_call_goes_to_an_ending_replica_and_it_tells_when_it_is_empty() {
    let mut gate = gate(1, 2);
    let first = gate.on_arrival(ms(0), arrival()).unwrap();
    let busy = gate.granted(first).unwrap();
    gate.set_endpoint(ms(1), busy, EndpointState::Draining);
    let ReplicaView::Rows(rows) = gate.observe(ms(1)).replicas else {
        panic!("the gate knows its replicas");
    };
    let in_flight: Vec<_> = rows.iter().map(|row| (row.id, row.in_flight)).collect();
    assert!(
        in_flight.contains(&(busy, 1)),
        "victims can be chosen among the idle"
    );
    for _ in 0..20 {
        gate.on_arrival(ms(2), arrival()).unwrap();
    }
    assert_eq!(gate.endpoint_in_flight(busy), 1);
    assert_eq!(outputs(&mut gate), []);
    gate.on_end(ms(300_000), first, Outcome::Completed);
    assert!(outputs(&mut gate).contains(&Output::Drained { replica: busy }));
    assert_eq!(gate.endpoint_in_flight(busy), 0);
}

/// <https://github.com/knative/serving/issues/15211>
#[test]
fn b60_a_call_that_an_ending_replica_refused_is_next_in_line_elsewhere() {
    let mut gate = gate(1, 2);
    let tickets: Vec<_> = (0..4)
        .map(|_| gate.on_arrival(ms(0), arrival()).unwrap())
        .collect();
    let failed = gate.granted(tickets[0]).unwrap();
    gate.on_retry(ms(1), tickets[0]);
    assert_eq!(gate.granted(tickets[0]), None, "the other replica is busy");
    let granted = Output::Granted {
        ticket: tickets[2],
        replica: failed,
    };
    assert_eq!(
        outputs(&mut gate),
        [granted],
        "who may use the slot gets it"
    );
    let other = gate.granted(tickets[1]).unwrap();
    gate.on_end(ms(2), tickets[1], Outcome::Completed);
    assert_eq!(
        outputs(&mut gate),
        [Output::Granted {
            ticket: tickets[0],
            replica: other
        }]
    );
    assert_eq!(gate.load(ms(2)).in_flight, 3, "still the same request");
}

/// One slot, 100 requests of 1 s one after the other, then three that wait behind one.
#[test]
fn a_request_that_cannot_have_a_slot_before_its_deadline_is_refused_on_arrival() {
    let mut gate = gate(1, 1);
    for second in 0..100 {
        let ticket = gate.on_arrival(ms(second * 1000), arrival()).unwrap();
        gate.on_end(ms(second * 1000 + 1000), ticket, Outcome::Completed);
    }
    let within = |seconds: u64| Arrival {
        deadline: Some(ms(100_000 + seconds * 1000)),
        ..arrival()
    };
    for _ in 0..4 {
        gate.on_arrival(ms(100_000), arrival()).unwrap();
    }
    let refusal = gate.on_arrival(ms(100_000), within(3)).unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::DeadlineExpired);
    assert_eq!(refusal.retry_after, None);
    assert_eq!(gate.load(ms(100_000)).in_flight, 4);
    gate.on_arrival(ms(100_000), within(6)).unwrap();
}

#[test]
fn a_deadline_refuses_nobody_while_the_rate_is_unknown_or_only_little_was_asked_for() {
    let within_a_second = |now: u64| Arrival {
        deadline: Some(ms(now + 1000)),
        ..arrival()
    };
    let mut fresh = gate(1, 1);
    for _ in 0..50 {
        fresh.on_arrival(ms(0), within_a_second(0)).unwrap();
    }
    let mut cold = gate(1, 0);
    for _ in 0..50 {
        cold.on_arrival(ms(0), within_a_second(0)).unwrap();
    }
    // One short request in ten seconds is a low rate, and no sign of a slow fleet.
    let mut idle = gate(1, 1);
    let ticket = idle.on_arrival(ms(20_000), arrival()).unwrap();
    idle.on_end(ms(20_010), ticket, Outcome::Completed);
    for _ in 0..50 {
        idle.on_arrival(ms(29_000), within_a_second(29_000))
            .unwrap();
    }
}
