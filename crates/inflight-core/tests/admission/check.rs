//! The gate before a fleet whose load is read.

use std::collections::BTreeMap;
use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Call, CheckConfig, CheckGate, CheckMode, Held, OnUnknown,
    RefusalReason, Verdict, When,
};
use inflight_core::load::{Estimator, Level, Missing, ModelLoad, Observation, ReplicaView, Term};
use inflight_core::{Occupancy, Replicas, SessionKey};
use proptest::prelude::*;

use super::session_gate::decision;
use super::{config as gate_config, ms};

const NOT_READ: Term<f64> = Term::Unknown(Missing::NotOffered);

fn config(when: When) -> CheckConfig {
    CheckConfig {
        admission: AdmissionConfig {
            when,
            ..gate_config(&[1]).admission
        },
        mode: CheckMode::NewSessions,
        on_unknown: OnUnknown::Refuse,
        held_max: 3,
        ready_timeout: Duration::from_secs(300),
        hold_min: Duration::from_secs(200),
    }
}

fn known<T>(value: Option<T>, age: u64) -> Term<T> {
    value.map_or(Term::Unknown(Missing::NeverRead), |value| Term::Known {
        value,
        age: Duration::from_millis(age),
        estimator: Estimator::LiveGauge,
    })
}

/// What a proxy and its servers say: in flight, executing, healthy replicas.
fn reading(in_flight: Option<f64>, executing: Option<f64>, ready: Option<u32>) -> Observation {
    aged(0, in_flight, executing, ready)
}

fn aged(
    age: u64,
    in_flight: Option<f64>,
    executing: Option<f64>,
    ready: Option<u32>,
) -> Observation {
    let level = |value: Option<f64>| Level {
        now: known(value.and_then(Occupancy::new), age),
        integral: NOT_READ,
    };
    Observation {
        replicas: ReplicaView::Ready(known(ready.map(Replicas::new), age)),
        models: vec![ModelLoad {
            in_flight: level(in_flight),
            executing: level(executing),
            queued: Level::NOT_OFFERED,
            arrivals: NOT_READ,
            completions: NOT_READ,
            service_seconds: NOT_READ,
            in_flight_max: Term::Unknown(Missing::NotOffered),
        }],
        peak_seconds: NOT_READ,
        started: Vec::new(),
        metric: NOT_READ,
        filled: NOT_READ,
        is_partial: false,
        is_called: false,
    }
}

fn call(session: u64) -> Call {
    Call {
        session: SessionKey(session),
        is_first: false,
    }
}

fn first_call(session: u64) -> Call {
    Call {
        is_first: true,
        ..call(session)
    }
}

fn reason(verdict: &Verdict) -> Option<RefusalReason> {
    match verdict {
        Verdict::Refused(refusal) => Some(refusal.reason),
        Verdict::LetIn | Verdict::Held(_) => None,
    }
}

fn held(verdict: Verdict) -> Held {
    match verdict {
        Verdict::Held(held) => held,
        Verdict::LetIn | Verdict::Refused(_) => panic!("{verdict:?}"),
    }
}

/// Reads the same once a second, up to and including `to`.
fn read(gate: &mut CheckGate, seconds: std::ops::RangeInclusive<u64>, what: &Observation) {
    for second in seconds {
        gate.on_reading(ms(second * 1000), what, true);
    }
}

#[test]
fn a_new_session_is_refused_above_the_threshold_and_a_running_one_never() {
    let mut gate = CheckGate::new(config(When::Always), ms(0));
    read(&mut gate, 0..=0, &reading(Some(1.0), Some(1.0), Some(1)));
    assert_eq!(gate.on_call(ms(1), call(1)), Verdict::LetIn);
    read(&mut gate, 1..=20, &reading(Some(8.0), Some(1.0), Some(1)));
    assert!(!gate.load(ms(20_000)).is_open);
    let refused = gate.on_call(ms(20_001), call(2));
    assert_eq!(reason(&refused), Some(RefusalReason::Overloaded));
    let refused = gate.on_call(ms(20_001), first_call(1));
    assert_eq!(reason(&refused), Some(RefusalReason::Overloaded));
    for _ in 0..1_000 {
        assert_eq!(gate.on_call(ms(20_002), call(1)), Verdict::LetIn);
    }
    let again = gate.on_call(ms(20_003), call(2));
    assert_eq!(
        reason(&again),
        Some(RefusalReason::Overloaded),
        "a retry makes nobody old"
    );
    let counts = gate.load(ms(20_003)).counts;
    assert_eq!((counts.new, counts.running), (1, 1_000));
    assert_eq!(counts.refused.get(RefusalReason::Overloaded), 3);
}

#[test]
fn what_was_let_in_since_the_reading_counts() {
    let mut gate = CheckGate::new(config(When::Always), ms(0));
    read(&mut gate, 0..=0, &reading(Some(4.0), Some(4.0), Some(2)));
    let let_in =
        (0..100).filter(|&session| gate.on_call(ms(10 + session), call(session)) == Verdict::LetIn);
    assert_eq!(let_in.count(), 8, "3 × 4 less the four that are in flight");
    // The next reading is of a moment before them all: they are not in it.
    gate.on_reading(ms(1_000), &aged(1_000, Some(4.0), Some(4.0), Some(2)), true);
    assert!(reason(&gate.on_call(ms(1_001), call(200))).is_some());
    gate.on_reading(ms(2_000), &reading(Some(11.0), Some(4.0), Some(2)), true);
    assert_eq!(gate.on_call(ms(2_001), call(200)), Verdict::LetIn);
    assert!(reason(&gate.on_call(ms(2_001), call(201))).is_some());
}

#[test]
fn requests_that_are_judged_one_by_one_end_as_others_do() {
    let mode = CheckMode::EveryRequest;
    let mut gate = CheckGate::new(
        CheckConfig {
            mode,
            ..config(When::Always)
        },
        ms(0),
    );
    for second in 0..=10_u32 {
        let mut what = reading(Some(2.0), Some(2.0), Some(2));
        what.models[0].completions = Term::exact(100.0 * f64::from(second));
        gate.on_reading(ms(u64::from(second) * 1000), &what, true);
    }
    // A hundred a second come and end.
    for at in 0..100 {
        let now = ms(10_000 + at * 10);
        assert_eq!(gate.on_call(now, call(at)), Verdict::LetIn, "{at}");
    }
    let burst = (0..100).filter(|&at| gate.on_call(ms(10_999), call(at)) == Verdict::LetIn);
    let count = burst.count();
    assert!((1..=5).contains(&count), "{count}");
}

#[test]
fn at_max_the_gate_works_only_while_the_fleet_cannot_grow() {
    let mut gate = CheckGate::new(config(When::AtMax), ms(0));
    read(&mut gate, 0..=20, &reading(Some(8.0), Some(1.0), Some(1)));
    assert_eq!(gate.on_call(ms(20_000), call(1)), Verdict::LetIn);
    gate.on_decision(ms(20_000), &decision(true));
    assert!(reason(&gate.on_call(ms(20_001), call(2))).is_some());
    gate.on_decision(ms(20_002), &decision(false));
    assert_eq!(gate.on_call(ms(20_003), call(2)), Verdict::LetIn);
}

#[test]
fn b49_a_first_call_at_zero_waits_asks_for_a_replica_and_is_let_in() {
    let mut gate = CheckGate::new(config(When::AtMax), ms(0));
    assert!(!gate.on_reading(ms(0), &reading(Some(0.0), None, Some(0)), true));
    assert!(!gate.is_called(ms(0)));
    let places: Vec<_> = (0..3)
        .map(|it| held(gate.on_call(ms(10), first_call(it))))
        .collect();
    assert!(gate.is_called(ms(10)) && gate.waits_at_zero(ms(10)));
    assert!(!gate.on_reading(ms(1_000), &reading(Some(0.0), None, Some(0)), true));
    assert!(gate.on_reading(ms(2_000), &reading(Some(0.0), None, Some(1)), true));
    for place in places {
        assert_eq!(gate.on_wake(ms(2_001), place), Verdict::LetIn);
    }
    assert_eq!(gate.load(ms(2_001)).held, 0);
    assert!(!gate.waits_at_zero(ms(2_001)));
    assert!(
        gate.is_called(ms(202_000)),
        "held for a while after the last one"
    );
    assert!(!gate.is_called(ms(202_001)));
}

#[test]
fn b49_nobody_waits_longer_than_the_ready_timeout() {
    let mut gate = CheckGate::new(config(When::AtMax), ms(0));
    read(&mut gate, 0..=0, &reading(Some(0.0), None, Some(0)));
    let place = held(gate.on_call(ms(10), first_call(1)));
    assert_eq!(gate.wait_until(&place), ms(300_010));
    let place = held(gate.on_wake(ms(300_009), place));
    let expired = gate.on_wake(ms(300_010), place);
    assert_eq!(reason(&expired), Some(RefusalReason::ColdWaitExpired));
    assert_eq!(gate.load(ms(300_010)).held, 0);
}

#[test]
fn b51_places_at_the_gate_are_bounded_and_come_back() {
    let mut gate = CheckGate::new(config(When::AtMax), ms(0));
    read(&mut gate, 0..=0, &reading(Some(0.0), None, Some(0)));
    let mut places: Vec<_> = (0..3)
        .map(|it| held(gate.on_call(ms(1), first_call(it))))
        .collect();
    for session in 3..5_000 {
        let refused = gate.on_call(ms(2), first_call(session));
        assert_eq!(reason(&refused), Some(RefusalReason::NoReplica));
    }
    gate.on_left(ms(3), places.pop().unwrap());
    let again = held(gate.on_call(ms(4), first_call(9)));
    let refusal = gate.on_stop(ms(5), again);
    assert_eq!(refusal.reason, RefusalReason::Stopping);
    assert_eq!(gate.load(ms(5)).held, 2);
    assert_eq!(gate.load(ms(5)).counts.left, 1);
}

#[test]
fn a_replica_counts_when_every_proxy_knows_it_or_one_has_for_long() {
    let mut gate = CheckGate::new(config(When::AtMax), ms(0));
    gate.on_reading(ms(0), &reading(Some(0.0), None, Some(0)), false);
    let place = held(gate.on_call(ms(1), first_call(1)));
    let one = reading(Some(0.0), Some(0.0), Some(1));
    assert!(!gate.on_reading(ms(1_000), &one, false));
    let other = held(gate.on_call(ms(1_001), first_call(2)));
    assert!(gate.on_reading(ms(2_000), &one, true));
    assert_eq!(gate.on_wake(ms(2_001), place), Verdict::LetIn);
    for second in 3..=12 {
        gate.on_reading(ms(second * 1_000), &one, false);
    }
    assert_eq!(gate.on_wake(ms(12_001), other), Verdict::LetIn);

    let mut gate = CheckGate::new(config(When::AtMax), ms(0));
    let place = held(gate.on_call(ms(1), first_call(1)));
    for second in 1..=10 {
        assert!(
            !gate.on_reading(ms(second * 1_000), &one, false),
            "{second}"
        );
    }
    assert!(
        gate.on_reading(ms(11_000), &one, false),
        "the other has a fault of its own"
    );
    assert_eq!(gate.on_wake(ms(11_001), place), Verdict::LetIn);
}

#[test]
fn those_that_wait_are_let_in_as_there_is_room_and_before_later_ones() {
    let mut gate = CheckGate::new(config(When::Always), ms(0));
    read(&mut gate, 0..=0, &reading(Some(0.0), None, Some(0)));
    let mut places: Vec<_> = (0..3)
        .map(|it| held(gate.on_call(ms(1), first_call(it))))
        .collect();
    read(&mut gate, 1..=1, &reading(Some(1.0), Some(1.0), Some(1)));
    let late = gate.on_call(ms(1_001), call(9));
    assert_eq!(reason(&late), Some(RefusalReason::Overloaded));
    for _ in 0..2 {
        let verdict = gate.on_wake(ms(1_002), places.pop().unwrap());
        assert_eq!(verdict, Verdict::LetIn);
    }
    let place = held(gate.on_wake(ms(1_003), places.pop().unwrap()));
    assert!(gate.on_reading(ms(2_000), &reading(Some(2.0), Some(1.0), Some(1)), true));
    assert_eq!(gate.on_wake(ms(2_001), place), Verdict::LetIn);
}

#[test]
fn an_unknown_load_keeps_the_state_and_then_the_settings_say_who_passes() {
    for (on_unknown, passes) in [(OnUnknown::Refuse, false), (OnUnknown::LetIn, true)] {
        let config = CheckConfig {
            on_unknown,
            ..config(When::AtMax)
        };
        let mut gate = CheckGate::new(config, ms(0));
        assert_eq!(
            gate.on_call(ms(9_000), call(1)),
            Verdict::LetIn,
            "not read yet"
        );
        read(&mut gate, 10..=20, &reading(Some(1.0), Some(1.0), Some(1)));
        read(&mut gate, 21..=30, &reading(None, None, None));
        assert_eq!(
            gate.on_call(ms(30_000), call(2)),
            Verdict::LetIn,
            "ten seconds"
        );
        let verdict = gate.on_call(ms(30_001), call(3));
        assert_eq!(verdict == Verdict::LetIn, passes);
        assert!(gate.load(ms(30_001)).is_blind);
        assert_eq!(gate.load(ms(30_001)).counts.unknown, u64::from(passes));
        if !passes {
            assert_eq!(reason(&verdict), Some(RefusalReason::LoadUnknown));
        }
        assert_eq!(gate.on_call(ms(30_002), call(1)), Verdict::LetIn, "running");
        let first = gate.on_call(ms(30_003), first_call(4));
        assert_eq!(
            first == Verdict::LetIn,
            passes,
            "waits for a replica where it is closed"
        );
        if let Verdict::Held(place) = first {
            read(&mut gate, 31..=31, &reading(Some(1.0), Some(1.0), Some(1)));
            assert_eq!(gate.on_wake(ms(31_001), place), Verdict::LetIn);
        }
    }
}

#[test]
fn a_loop_that_reads_no_more_makes_the_load_unknown() {
    let mut gate = CheckGate::new(config(When::AtMax), ms(0));
    read(&mut gate, 0..=5, &reading(Some(1.0), Some(1.0), Some(1)));
    assert_eq!(gate.on_call(ms(15_000), call(1)), Verdict::LetIn);
    let refused = gate.on_call(ms(15_001), call(2));
    assert_eq!(reason(&refused), Some(RefusalReason::LoadUnknown));
}

#[test]
fn without_a_replica_a_closed_gate_stays_closed_for_all_but_first_calls() {
    let mut gate = CheckGate::new(config(When::Always), ms(0));
    read(&mut gate, 0..=20, &reading(Some(8.0), Some(1.0), Some(1)));
    read(&mut gate, 21..=60, &reading(Some(0.0), None, Some(0)));
    let refused = gate.on_call(ms(60_000), call(1));
    assert_eq!(reason(&refused), Some(RefusalReason::Overloaded));
    let place = held(gate.on_call(ms(60_000), first_call(1)));
    read(&mut gate, 61..=61, &reading(Some(0.0), Some(0.0), Some(1)));
    assert_eq!(gate.on_wake(ms(61_000), place), Verdict::LetIn);
}

#[test]
fn a_refused_caller_comes_back_when_there_may_be_room() {
    let mut gate = CheckGate::new(config(When::Always), ms(0));
    for second in 0..=20_u64 {
        let mut what = reading(Some(53.0), Some(1.0), Some(1));
        what.models[0].completions = Term::exact(Occupancy::from_count(second * 5).get());
        gate.on_reading(ms(second * 1000), &what, true);
    }
    let Verdict::Refused(refusal) = gate.on_call(ms(20_000), call(1)) else {
        panic!("it is overloaded");
    };
    let wait = refusal.retry_after.unwrap();
    // 54 in flight are to become 2.4, at five a second.
    assert!((wait.as_secs_f64() - 51.6 / 5.0).abs() < 0.1, "{wait:?}");
}

#[test]
fn switched_off_it_refuses_nobody_and_still_holds_first_calls() {
    let mut settings = config(When::Always);
    settings.admission.scope = AdmissionScope::Off;
    let mut gate = CheckGate::new(settings, ms(0));
    read(&mut gate, 0..=20, &reading(Some(80.0), Some(1.0), Some(1)));
    assert_eq!(gate.on_call(ms(20_000), call(1)), Verdict::LetIn);
    assert_eq!(gate.on_call(ms(90_000), call(2)), Verdict::LetIn, "unknown");
    read(&mut gate, 91..=91, &reading(Some(0.0), None, Some(0)));
    let verdict = gate.on_call(ms(91_000), first_call(3));
    assert!(matches!(verdict, Verdict::Held(_)));
}

#[test]
fn a_successor_knows_the_sessions_the_state_and_the_call() {
    let mut gate = CheckGate::new(config(When::Always), ms(0));
    read(&mut gate, 0..=0, &reading(Some(0.0), Some(0.0), Some(1)));
    assert_eq!(gate.on_call(ms(1), first_call(1)), Verdict::LetIn);
    read(&mut gate, 1..=20, &reading(Some(8.0), Some(1.0), Some(1)));
    assert!(reason(&gate.on_call(ms(20_000), call(2))).is_some());
    let past = gate.export(ms(20_000));
    let mut heir = CheckGate::new(config(When::Always), ms(20_000));
    heir.restore(ms(20_000), &past);
    assert_eq!(heir.load(ms(20_000)).counts, gate.load(ms(20_000)).counts);
    assert!(heir.is_called(ms(200_000)));
    assert!(!heir.load(ms(20_000)).is_open);
    assert_eq!(heir.on_call(ms(20_001), call(1)), Verdict::LetIn);
    assert!(reason(&heir.on_call(ms(20_001), call(2))).is_some());
}

/// The same rules, as slowly and plainly as possible.
#[derive(Default)]
struct Model {
    now: u64,
    /// The latest reading: in flight, executing, ready; and when each was last known.
    in_flight: Option<(u64, f64)>,
    executing: Option<(u64, f64)>,
    ready: Option<(u64, u32)>,
    last: BTreeMap<u64, u64>,
    at_max: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Read(Option<f64>, Option<f64>, Option<u32>),
    AtMax(bool),
    Call(u64, bool),
    Wake,
    Leave,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let level = || proptest::option::weighted(0.9, 0.0..20.0_f64);
    let step = prop_oneof![
        3 => (level(), level(), proptest::option::weighted(0.9, 0..4_u32))
            .prop_map(|(l, s, r)| Step::Read(l, s, r)),
        1 => any::<bool>().prop_map(Step::AtMax),
        5 => (0..12_u64, any::<bool>()).prop_map(|(key, first)| Step::Call(key, first)),
        2 => Just(Step::Wake),
        1 => Just(Step::Leave),
    ];
    let pause = prop_oneof![8 => 0..2_000_u64, 1 => 5_000..90_000_u64];
    proptest::collection::vec((pause, step), 1..120)
}

impl Model {
    fn fresh<T: Copy>(&self, value: Option<(u64, T)>) -> Option<T> {
        value
            .filter(|(at, _)| self.now - at <= 10_000)
            .map(|(_, value)| value)
    }
}

proptest! {
    /// What must hold of every answer, whatever happens.
    #[test]
    fn no_answer_breaks_the_promises(steps in steps(), lets_in in any::<bool>(), always in any::<bool>()) {
        let on_unknown = if lets_in { OnUnknown::LetIn } else { OnUnknown::Refuse };
        let when = if always { When::Always } else { When::AtMax };
        let settings = CheckConfig { on_unknown, ..config(when) };
        let mut gate = CheckGate::new(settings, ms(0));
        let (mut model, mut places) = (Model::default(), Vec::new());
        let (mut let_in, mut answers) = (0_u32, 0_u64);
        for (pause, step) in steps {
            model.now += pause;
            let now = ms(model.now);
            let mut call_of = None;
            let before = gate.load(now);
            match step {
                Step::Read(l, s, r) => {
                    gate.on_reading(now, &reading(l, s, r), true);
                    let at = model.now;
                    model.in_flight = l.map(|l| (at, l)).or(model.in_flight);
                    model.executing = s.map(|s| (at, s)).or(model.executing);
                    // How many are ready is that of the latest reading, or unknown.
                    model.ready = r.map(|r| (at, r));
                    // Whoever was let in within the tenth of a second before may not be in it.
                    let_in = 0;
                }
                Step::AtMax(at_max) => {
                    gate.on_decision(now, &decision(at_max));
                    model.at_max = at_max;
                }
                Step::Call(key, is_first) => {
                    let is_running = !is_first
                        && model.last.get(&key).is_some_and(|last| model.now - last < 60_000);
                    let verdict = gate.on_call(now, Call { session: SessionKey(key), is_first });
                    if is_running {
                        prop_assert_eq!(&verdict, &Verdict::LetIn);
                        model.last.insert(key, model.now);
                        answers += 1;
                    } else {
                        call_of = Some((key, is_first, verdict));
                    }
                }
                Step::Wake => if let Some((key, place)) = places.pop() {
                    let until = gate.wait_until(&place);
                    let verdict = gate.on_wake(now, place);
                    let waits_on = matches!(verdict, Verdict::Held(_));
                    prop_assert!(!waits_on || now < until);
                    call_of = Some((key, true, verdict));
                },
                Step::Leave => if let Some((_, place)) = places.pop() {
                    gate.on_left(now, place);
                    answers += 1;
                },
            }
            if let Some((key, is_first, verdict)) = call_of {
                let ready = model.fresh(model.ready);
                let is_judged = always || model.at_max;
                match verdict {
                    Verdict::LetIn => {
                        if is_judged && !before.is_blind
                            && let (Some(l), Some(s), Some(r)) =
                                (model.fresh(model.in_flight), model.fresh(model.executing), ready)
                            && r > 0 && model.in_flight.is_some_and(|(at, _)| at == model.ready.unwrap().0)
                        {
                            let after = l + f64::from(let_in) + 1.0;
                            prop_assert!(after / s.max(f64::from(r)) <= 3.0 + 1e-9);
                            prop_assert!(before.is_open);
                        }
                        let_in += 1;
                        answers += 1;
                        model.last.insert(key, model.now);
                    }
                    Verdict::Held(place) => {
                        prop_assert!(is_first);
                        places.push((key, place));
                    }
                    Verdict::Refused(refusal) => {
                        answers += 1;
                        let wait = refusal.retry_after.unwrap();
                        prop_assert!((1..=60).contains(&wait.as_secs()));
                        match refusal.reason {
                            RefusalReason::Overloaded => prop_assert!(is_judged && !before.is_blind),
                            RefusalReason::LoadUnknown => prop_assert!(!lets_in && before.is_blind),
                            RefusalReason::NoReplica => prop_assert_eq!(places.len(), 3),
                            RefusalReason::ColdWaitExpired => prop_assert!(ready.is_none_or(|r| r == 0)),
                            RefusalReason::QueueFull
                            | RefusalReason::QueueBytes
                            | RefusalReason::WaitExpired
                            | RefusalReason::DeadlineExpired
                            | RefusalReason::Stopping => prop_assert!(false, "{:?}", refusal.reason),
                        }
                    }
                }
            }
            let load = gate.load(now);
            prop_assert_eq!(load.held, places.len());
            prop_assert!(load.held <= 3);
            prop_assert!(places.is_empty() || gate.is_called(now));
            let counts = load.counts;
            let counted = counts.running + counts.new + counts.unknown + counts.left
                + counts.refused.total();
            prop_assert_eq!(counted, answers);
        }
    }
}
