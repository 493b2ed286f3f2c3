//! Who is let in when the fleet is overloaded.

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, EndpointState, Gate, GateConfig, Outcome,
    RefusalReason, When,
};
use inflight_core::load::{Missing, Quantity, Unknown};
use inflight_core::scaling::Finding;
use inflight_core::{Decision, Reason, ReplicaId, Replicas, Ticket, Timestamp};

use super::{arrival, arrival_of, config, ms};

pub(crate) fn decision(at_max: bool) -> Decision {
    Decision {
        at: ms(0),
        current: Replicas::ONE,
        wanted: None,
        desired: Replicas::ONE,
        drain: Vec::new(),
        at_max,
        inputs: Vec::new(),
        reason: Reason {
            finding: Finding::Unknown(Unknown {
                quantity: Quantity::InFlight,
                missing: Missing::NeverRead,
            }),
            limits: Vec::new(),
        },
    }
}

/// One replica of one slot; 4 requests of session 1 in flight since 0 ms, and the last of them.
fn overloaded(admission: AdmissionConfig) -> (Gate, Ticket) {
    let mut gate = Gate::new(
        GateConfig {
            admission,
            ..config(&[1])
        },
        ms(0),
    );
    gate.set_endpoint(ms(0), ReplicaId(0), EndpointState::Ready);
    let mut arrive = || {
        gate.on_arrival(ms(0), arrival_of(1))
            .expect("the gate is open")
    };
    let [_, _, _, last] = [arrive(), arrive(), arrive(), arrive()];
    (gate, last)
}

fn default_with(when: When) -> AdmissionConfig {
    AdmissionConfig {
        when,
        ..config(&[1]).admission
    }
}

fn refusal(gate: &mut Gate, now: Timestamp, arrival: Arrival) -> Option<RefusalReason> {
    gate.on_arrival(now, arrival)
        .err()
        .map(|refusal| refusal.reason)
}

#[test]
fn a_new_session_is_refused_and_one_that_runs_goes_on() {
    let (mut gate, _) = overloaded(default_with(When::Always));
    assert_eq!(
        refusal(&mut gate, ms(1000), arrival_of(2)),
        Some(RefusalReason::Overloaded)
    );
    assert_eq!(
        refusal(&mut gate, ms(1000), arrival_of(2)),
        Some(RefusalReason::Overloaded)
    );
    assert_eq!(refusal(&mut gate, ms(1000), arrival_of(1)), None);
    assert_eq!(
        refusal(&mut gate, ms(1000), arrival()),
        None,
        "without a session nobody judges"
    );
    let first_call = Arrival {
        first_call: true,
        ..arrival_of(1)
    };
    assert_eq!(
        refusal(&mut gate, ms(1000), first_call),
        Some(RefusalReason::Overloaded)
    );
    assert_eq!(
        gate.load(ms(1000)).refused.get(RefusalReason::Overloaded),
        3
    );
}

#[test]
fn by_default_the_gate_works_only_while_the_fleet_cannot_grow() {
    let (mut gate, _) = overloaded(default_with(When::AtMax));
    assert_eq!(refusal(&mut gate, ms(1000), arrival_of(2)), None);
    gate.on_decision(ms(1000), &decision(true));
    assert_eq!(
        refusal(&mut gate, ms(1000), arrival_of(3)),
        Some(RefusalReason::Overloaded)
    );
    gate.on_decision(ms(1000), &decision(false));
    assert_eq!(refusal(&mut gate, ms(1000), arrival_of(3)), None);
}

#[test]
fn switched_off_nobody_is_refused_and_nothing_is_remembered() {
    let scope = AdmissionScope::Off;
    let (mut gate, _) = overloaded(AdmissionConfig {
        scope,
        ..default_with(When::Always)
    });
    assert_eq!(refusal(&mut gate, ms(1000), arrival_of(2)), None);
    assert_eq!(gate.load(ms(1000)).sessions, 0);
}

#[test]
fn an_open_gate_lets_nobody_in_who_would_pass_the_threshold_at_that_moment() {
    let admission = default_with(When::Always);
    let mut gate = Gate::new(
        GateConfig {
            admission,
            ..config(&[1])
        },
        ms(0),
    );
    gate.set_endpoint(ms(0), ReplicaId(0), EndpointState::Ready);
    for session in 0..3 {
        assert_eq!(refusal(&mut gate, ms(0), arrival_of(session)), None);
    }
    assert!(gate.load(ms(0)).admission_open);
    assert_eq!(
        refusal(&mut gate, ms(0), arrival_of(3)),
        Some(RefusalReason::Overloaded)
    );
}

#[test]
fn the_gate_reopens_below_the_lower_threshold_only() {
    let check = |reopen: f64, opens_at_3: bool| {
        let (mut gate, last) = overloaded(AdmissionConfig {
            reopen,
            ..default_with(When::Always)
        });
        assert!(!gate.load(ms(5_000)).admission_open);
        gate.on_end(ms(5_000), last, Outcome::ClientGone);
        gate.on_timeout(ms(20_000));
        let load = gate.load(ms(20_000));
        assert_eq!(load.inflation, Some(3.0));
        assert_eq!(load.admission_open, opens_at_3);
    };
    check(2.4, false);
    check(3.0, true);
}

#[test]
fn without_a_ready_replica_new_sessions_are_held() {
    let admission = default_with(When::Always);
    let mut gate = Gate::new(
        GateConfig {
            admission,
            ..config(&[1])
        },
        ms(0),
    );
    for session in 0..50 {
        assert_eq!(
            refusal(&mut gate, ms(session * 1000), arrival_of(session)),
            None
        );
    }
    assert_eq!(gate.load(ms(60_000)).inflation, None);
}

#[test]
fn after_a_restart_unknown_sessions_count_as_old_for_a_minute() {
    let (mut gate, _) = overloaded(default_with(When::Always));
    gate.on_restart(ms(1000));
    assert_eq!(refusal(&mut gate, ms(20_000), arrival_of(2)), None);
    assert_eq!(
        refusal(&mut gate, ms(61_000), arrival_of(3)),
        Some(RefusalReason::Overloaded)
    );
}
