//! Who is taken out, when, and who comes back.

use super::*;

const A: ReplicaId = ReplicaId(1);
const B: ReplicaId = ReplicaId(2);

fn at(millis: u64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_millis(millis)
}

fn rules() -> HealthConfig {
    HealthConfig {
        every: Duration::from_secs(5),
        unhealthy_after: NonZeroU32::new(3).unwrap(),
        healthy_after: NonZeroU32::new(2).unwrap(),
        give_up_after: Some(Duration::from_secs(60)),
    }
}

fn two() -> Health {
    let mut health = Health::new(rules());
    health.add_healthy(at(0), A);
    health.add_healthy(at(0), B);
    health
}

/// Does the next check of `id`, with those of others passed, and returns when that was.
fn check(health: &mut Health, id: ReplicaId, result: CheckResult) -> Timestamp {
    loop {
        let now = health.due.first().unwrap().0;
        let next = health.next_check(now).unwrap();
        if next == id {
            health.on_check(now, id, result);
            return now;
        }
        health.on_check(now, next, CheckResult::Passed);
    }
}

fn changes(health: &mut Health) -> Vec<(ReplicaId, HealthChange)> {
    std::iter::from_fn(|| health.poll_change()).collect()
}

#[test]
fn a_first_check_that_passes_makes_an_endpoint_fit() {
    let mut health = Health::new(rules());
    health.add_unproven(at(0), A);
    assert_eq!(health.next_check(at(0)), Some(A));
    assert_eq!(health.next_check(at(0)), None, "it is being checked");
    health.on_check(at(10), A, CheckResult::Failed);
    assert!(changes(&mut health).is_empty(), "it was never fit");
    assert_eq!(check(&mut health, A, CheckResult::Passed), at(1_010));
    assert_eq!(changes(&mut health), [(A, HealthChange::Healthy)]);
}

#[test]
fn only_checks_that_fail_in_a_row_take_out_and_those_that_pass_in_a_row_bring_back() {
    use CheckResult::{Failed, Passed, Unknown};
    let mut health = two();
    for result in [Failed, Failed, Passed, Failed, Unknown, Failed] {
        check(&mut health, A, result);
        assert!(changes(&mut health).is_empty());
    }
    let out = check(&mut health, A, Failed);
    let cause = UnhealthyCause::Checks(3);
    assert_eq!(changes(&mut health), [(A, HealthChange::Unhealthy(cause))]);
    let first = check(&mut health, A, Passed);
    assert_eq!(first, out + OUT_FIRST);
    check(&mut health, A, Failed);
    check(&mut health, A, Passed);
    assert!(changes(&mut health).is_empty());
    check(&mut health, A, Passed);
    assert_eq!(changes(&mut health), [(A, HealthChange::Healthy)]);
}

#[test]
fn requests_that_fail_in_a_row_take_out_at_once() {
    let mut health = two();
    health.on_request_failed(at(1), A);
    health.on_request_failed(at(2), A);
    health.on_request_answered(A);
    assert!(!health.has_suspects());
    for _ in 0..2 {
        health.on_request_failed(at(3), A);
    }
    assert!(changes(&mut health).is_empty());
    health.on_request_failed(at(4), A);
    let cause = UnhealthyCause::Requests(3);
    assert_eq!(changes(&mut health), [(A, HealthChange::Unhealthy(cause))]);
    assert_eq!(health.next_check(at(1_003)), None);
    assert_eq!(health.next_check(at(1_004)), Some(A));
}

#[test]
fn requests_never_take_out_the_last_one_but_have_it_checked_at_once() {
    let mut health = two();
    for _ in 0..3 {
        health.on_request_failed(at(1), A);
    }
    for _ in 0..50 {
        health.on_request_failed(at(2), B);
    }
    assert_eq!(changes(&mut health).len(), 1);
    health.pause(A);
    let mut now = at(2);
    for _ in 0..3 {
        assert_eq!(health.next_check(now), Some(B));
        health.on_request_failed(now, B);
        health.on_check(now, B, CheckResult::Failed);
        health.on_request_failed(now, B);
        assert_eq!(health.next_check(now), None, "requests ask for no more");
        now = now + SOON;
    }
    let cause = UnhealthyCause::Checks(3);
    assert_eq!(changes(&mut health), [(B, HealthChange::Unhealthy(cause))]);
}

#[test]
fn one_that_flaps_is_asked_later_each_time_and_forgiven_when_steady() {
    let mut health = two();
    let mut now = at(0);
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        for _ in 0..3 {
            health.on_request_failed(now, A);
        }
        assert_eq!(
            check(&mut health, A, CheckResult::Passed),
            now + Duration::from_secs(seconds)
        );
        now = check(&mut health, A, CheckResult::Passed);
    }
    let _ = changes(&mut health);
    now = now + STEADY;
    for _ in 0..3 {
        health.on_request_failed(now, A);
    }
    let out_until = health.rows[&A].check;
    assert_eq!(out_until, Check::At(now + OUT_FIRST));
}

#[test]
fn a_check_that_began_before_it_was_taken_out_does_not_bring_it_back() {
    let mut health = Health::new(HealthConfig {
        healthy_after: NonZeroU32::MIN,
        ..rules()
    });
    health.add_healthy(at(0), B);
    health.add_unproven(at(0), A);
    check(&mut health, A, CheckResult::Passed);
    let now = health.due.iter().find(|(_, id)| *id == A).unwrap().0;
    while health.next_check(now) != Some(A) {}
    for _ in 0..3 {
        health.on_request_failed(now, A);
    }
    let _ = changes(&mut health);
    health.on_check(now, A, CheckResult::Passed);
    assert!(changes(&mut health).is_empty());
    assert_eq!(health.rows[&A].check, Check::At(now + OUT_FIRST));
}

#[test]
fn one_is_given_up_at_a_time() {
    let mut health = two();
    for _ in 0..6 {
        let now = health.due.first().unwrap().0;
        let id = health.next_check(now).unwrap();
        health.on_check(now, id, CheckResult::Failed);
    }
    assert_eq!(changes(&mut health).len(), 2);
    let first = health.give_up_at().unwrap();
    let other = if first.1 == A { B } else { A };
    health.on_timeout(first.0 - Duration::from_millis(1));
    assert!(changes(&mut health).is_empty());
    health.on_timeout(first.0);
    health.on_timeout(first.0);
    assert_eq!(changes(&mut health), [(first.1, HealthChange::GivenUp)]);
    let second = health.give_up_at().unwrap();
    assert_eq!(second, (first.0 + Duration::from_secs(60), other));
}

#[test]
fn one_that_is_left_alone_is_neither_checked_nor_judged_and_remembered() {
    let mut health = two();
    for _ in 0..3 {
        health.on_request_failed(at(1), A);
    }
    let _ = changes(&mut health);
    health.pause(A);
    assert!(health.due.iter().all(|(_, id)| *id != A));
    assert_eq!(health.resume(at(5), A), Some(true));
    assert_eq!(health.next_check(at(5)), Some(A));
    health.pause(B);
    health.on_request_failed(at(6), B);
    assert_eq!(health.resume(at(7), B), Some(false));
    health.remove(A);
    assert_eq!(health.resume(at(8), A), None);
    health.on_check(at(9), A, CheckResult::Passed);
}

#[test]
fn what_is_again_what_it_was_is_not_told() {
    let mut health = Health::new(HealthConfig {
        healthy_after: NonZeroU32::MIN,
        unhealthy_after: NonZeroU32::MIN,
        ..rules()
    });
    health.add_healthy(at(0), A);
    check(&mut health, A, CheckResult::Failed);
    check(&mut health, A, CheckResult::Passed);
    assert!(changes(&mut health).is_empty());
}

#[test]
fn a_thousand_endpoints_that_became_fit_at_once_are_checked_one_after_the_other() {
    let mut health = Health::new(rules());
    for id in 0..1_000 {
        health.add_healthy(at(0), ReplicaId(id));
    }
    let due_by = |millis| {
        health
            .due
            .iter()
            .filter(|(due, _)| *due <= at(millis))
            .count()
    };
    assert_eq!(due_by(2_499), 0);
    for millis in (2_600..=5_000).step_by(100) {
        let share = due_by(millis) - due_by(millis - 100);
        assert!((20..=60).contains(&share), "{share} within 100 ms");
    }
    assert_eq!(due_by(5_000), 1_000);
}

#[test]
fn other_rules_bring_a_late_check_forward_and_nobody_back() {
    let hour = Duration::from_secs(3_600);
    let mut health = Health::new(HealthConfig {
        every: hour,
        ..rules()
    });
    health.add_healthy(at(0), A);
    health.add_healthy(at(0), B);
    for _ in 0..3 {
        health.on_request_failed(at(1), B);
    }
    let _ = changes(&mut health);
    let due_of = |health: &Health, id| {
        let due = health.due.iter().find(|(_, of)| *of == id);
        due.map(|(due, _)| *due).unwrap()
    };
    assert!(due_of(&health, A) > at(1_000_000));
    let out_until = due_of(&health, B);
    health.set_config(at(2), rules());
    assert!(due_of(&health, A) <= at(2) + rules().every);
    assert_eq!(due_of(&health, B), out_until);
    assert!(changes(&mut health).is_empty());
}
