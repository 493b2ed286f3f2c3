//! Faults that users of comparable systems reported in public, each as a test named after its
//! case: what was done there must come out right here.

use std::time::Duration;

use inflight_core::load::ReplicaState::{Draining, Ready, Starting, Unhealthy};
use inflight_core::load::{Estimator, Missing, ReplicaView, Term};
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, ConfigError, DownWindow, Measure, MetricConfig, MetricKind,
    OccupancyConfig, Policy, Scaler, ScalingConfig, StaffingConfig, StepLimit, concurrency,
};
use inflight_core::{ReplicaId, Replicas, Slots, Timestamp};

use crate::driver::fleet::{Action, Service, Setup, run};
use crate::driver::reading::{Reading, at, rows};

const MINUTE: Duration = Duration::from_secs(60);

fn bounds(min: u32, max: u32) -> Bounds {
    Bounds::new(Replicas::new(min), Replicas::new(max)).unwrap()
}

fn config(policy: Policy, min: u32, max: u32) -> ScalingConfig {
    ScalingConfig::new(policy, bounds(min, max), Slots::ONE)
}

fn metric(target: f64, kind: MetricKind) -> Policy {
    Policy::Metric(MetricConfig::new(target, kind).unwrap())
}

fn concurrency() -> Policy {
    Policy::Concurrency(ConcurrencyConfig::default())
}

fn scaler(config: ScalingConfig, current: u32) -> Scaler {
    Scaler::new(config, Timestamp::ORIGIN, Replicas::new(current))
}

/// Reads a steady load every two seconds and returns the last size.
fn steady(scaler: &mut Scaler, from: u64, to: u64, reading: &Reading) -> u32 {
    let mut desired = 0;
    for second in (from..to).step_by(2) {
        scaler.observe(at(second), &reading.at(second));
        desired = scaler.decide(at(second)).desired.get();
    }
    desired
}

#[test]
fn b13_a_metric_that_is_no_number_is_unknown_and_holds_the_size() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, -3.0] {
        let mut scaler = scaler(config(metric(2.0, MetricKind::AverageValue), 1, 100), 5);
        for second in 0..100 {
            let reading = Reading {
                metric: Some(bad),
                ..Reading::ready(5)
            };
            scaler.observe(at(second), &reading.at(second));
            let decision = scaler.decide(at(second));
            assert_eq!(decision.desired, Replicas::new(5), "{bad}");
            assert_eq!(decision.wanted, None);
            let reason = decision.reason.to_string();
            assert!(
                reason.contains("not a finite, non-negative number"),
                "{reason}"
            );
        }
    }
}

#[test]
fn b15_an_outage_of_the_source_never_shrinks_and_ends_without_a_jump() {
    let policy = Policy::Occupancy(OccupancyConfig::new(1.0, MINUTE).unwrap());
    let mut scaler = scaler(config(policy, 1, 50), 12);
    let load = Reading {
        in_flight: 12.0,
        executing: 12.0,
        ..Reading::ready(12)
    };
    assert_eq!(steady(&mut scaler, 0, 400, &load), 12);
    for second in (400..1600).step_by(2) {
        scaler.observe(at(second), &Reading::nothing());
        let decision = scaler.decide(at(second));
        assert_eq!(
            decision.desired,
            Replicas::new(12),
            "at {second}: {decision}"
        );
    }
    for second in (1600..1800).step_by(2) {
        scaler.observe(at(second), &load.at(second));
        assert_eq!(scaler.decide(at(second)).desired, Replicas::new(12));
    }
}

#[test]
fn b15_after_the_hold_the_fallback_raises_the_size_and_never_lowers_it() {
    for (fallback, expected) in [(20, 20), (3, 12)] {
        let policy = Policy::Occupancy(OccupancyConfig::new(1.0, MINUTE).unwrap());
        let config = ScalingConfig {
            unknown_fallback: Some(Replicas::new(fallback)),
            ..config(policy, 1, 50)
        };
        let mut scaler = scaler(config, 12);
        let mut sizes = Vec::new();
        for second in (0..300).step_by(2) {
            scaler.observe(at(second), &Reading::nothing());
            sizes.push(scaler.decide(at(second)).desired.get());
        }
        assert!(sizes[..60].iter().all(|&size| size == 12));
        assert_eq!(sizes.last(), Some(&expected));
    }
}

#[test]
fn b16_a_partial_reading_grows_the_fleet_and_never_shrinks_it() {
    for policy in [concurrency(), Policy::Staffing(StaffingConfig::balanced())] {
        let mut scaler = scaler(config(policy, 0, 100), 10);
        let mut reading = Reading::ready(10);
        let mut sizes = Vec::new();
        for second in (0..1_200).step_by(2) {
            match second {
                0 => reading.step(second, 9.0, 10),
                // A peer is lost with all that is in flight; then the rest of it grows.
                300 => reading.step(second, 0.0, 10),
                900 => reading.step(second, 30.0, 10),
                _ => {}
            }
            let mut observation = reading.at(second);
            observation.is_partial = second >= 300;
            scaler.observe(at(second), &observation);
            sizes.push(scaler.decide(at(second)).desired);
        }
        let before = sizes[149];
        assert!(sizes[150..450].iter().all(|&size| size == before));
        assert!(sizes[599] >= Replicas::new(30));
    }
}

#[test]
fn b17_an_overload_past_every_integer_is_the_maximum() {
    let thousandth = metric(0.001, MetricKind::AverageValue);
    let tenth = metric(0.1, MetricKind::AverageValue);
    for (policy, value) in [
        (tenth, 214_748_365.0),
        (thousandth.clone(), 1e18),
        (thousandth, 1e308),
    ] {
        let mut scaler = scaler(config(policy, 1, 40), 1);
        let reading = Reading {
            metric: Some(value),
            ..Reading::ready(1)
        };
        scaler.observe(at(0), &reading.at(0));
        let decision = scaler.decide(at(0));
        assert_eq!(decision.desired, Replicas::new(40), "{decision}");
        assert!(decision.at_max);
    }
    let step_up = StepLimit::Limited {
        replicas: Replicas::MAX,
        every: MINUTE,
    };
    let policy = metric(0.1, MetricKind::AverageValue);
    let mut scaler = scaler(
        ScalingConfig {
            step_up,
            ..config(policy, 1, 40)
        },
        1,
    );
    scaler.observe(
        at(0),
        &Reading {
            metric: Some(1e18),
            ..Reading::ready(1)
        }
        .at(0),
    );
    assert_eq!(scaler.decide(at(0)).desired, Replicas::new(40));
}

#[test]
fn b32_the_size_never_falls_while_the_load_rises_and_replicas_start() {
    let bounds = bounds(0, 200);
    let config = ScalingConfig::new(concurrency(), bounds, Slots::new(10).unwrap());
    let setup = Setup {
        config: ScalingConfig {
            down_window: DownWindow::Fixed(Duration::from_secs(6)),
            ..config
        },
        replicas: 0,
        service: Service::Exponential(Duration::from_secs(5)),
        think: Duration::ZERO,
        start_delay: Some(Duration::from_secs(90)),
        tick: Duration::from_secs(2),
        seed: 3,
    };
    let records = run(&setup, &[(10.0, Action::Clients(1000))], 400.0);
    let sizes: Vec<Replicas> = records
        .iter()
        .map(|record| record.decision.desired)
        .collect();
    assert!(sizes.is_sorted(), "{sizes:?}");
    assert_eq!(sizes.last(), Some(&Replicas::new(100)));
}

#[test]
fn b33_in_a_burst_the_larger_of_both_windows_counts() {
    let target = 10.0;
    let (long, short) = (2000.0 / 6.0 / target, 1000.0 / 5.0 / target);
    assert_eq!(
        concurrency::size(long, short, Some(Replicas::ZERO)),
        Replicas::new(34)
    );
}

#[test]
fn b34_a_burst_ends_one_stable_window_after_its_threshold_was_last_passed() {
    let down_window = DownWindow::Fixed(Duration::from_secs(1));
    let mut scaler = scaler(
        ScalingConfig {
            down_window,
            ..config(concurrency(), 1, 500)
        },
        10,
    );
    let mut left_at = None;
    let load = |second: u64| if second < 100 { 10.0 } else { 30.0 };
    let mut reading = Reading::ready(10);
    for second in (0..800).step_by(2) {
        // The fleet follows after ten ticks, then grows by one each tick, whatever is asked for.
        let ready = match u32::try_from(second).unwrap() {
            0..120 => 10,
            second => 30 + (second - 120) / 2,
        };
        reading.step(second, load(second), ready);
        scaler.observe(at(second), &reading.at(second));
        let decision = scaler.decide(at(second));
        let burst = decision.reason.to_string().contains("burst");
        if second > 120 && !burst && left_at.is_none() {
            left_at = Some(second);
        }
        assert!(
            left_at.is_none() || !burst,
            "a second burst at {second}: {decision}"
        );
    }
    assert!(
        left_at.is_some_and(|second| (176..=180).contains(&second)),
        "{left_at:?}"
    );
}

#[test]
fn b35_a_restarted_scaler_never_goes_below_the_size_it_found_until_a_window_is_full() {
    let occupancy = Policy::Occupancy(OccupancyConfig::new(1.0, MINUTE).unwrap());
    for policy in [
        concurrency(),
        occupancy,
        Policy::Staffing(StaffingConfig::balanced()),
    ] {
        let config = ScalingConfig::new(policy, bounds(1, 100), Slots::new(10).unwrap());
        let mut scaler = scaler(config, 7);
        let load = Reading {
            in_flight: 70.0,
            executing: 70.0,
            ..Reading::ready(7)
        };
        for second in (0..60).step_by(2) {
            scaler.observe(at(second), &load.at(second));
            let decision = scaler.decide(at(second));
            assert!(
                decision.desired >= Replicas::new(7),
                "at {second}: {decision}"
            );
        }
    }
}

#[test]
fn b35_a_scaler_that_others_tell_how_many_there_are_begins_with_these() {
    let config = config(
        Policy::Occupancy(OccupancyConfig::new(2.0, MINUTE).unwrap()),
        1,
        100,
    );
    let mut scaler = scaler(config, 1);
    scaler.observe(at(0), &Reading::nothing());
    assert_eq!(scaler.decide(at(0)).desired, Replicas::new(1));
    let load = Reading {
        in_flight: 14.0,
        executing: 7.0,
        replicas: ReplicaView::Ready(Term::exact(Replicas::new(7))),
        ..Reading::ready(7)
    };
    for second in (2..60).step_by(2) {
        scaler.observe(at(second), &load.at(second));
        let decision = scaler.decide(at(second));
        assert_eq!(
            decision.desired,
            Replicas::new(7),
            "at {second}: {decision}"
        );
    }
}

#[test]
fn the_larger_of_both_wishes_counts_and_unknown_memory_shrinks_nothing() {
    let policy = OccupancyConfig::new(2.0, MINUTE).unwrap();
    let policy = Policy::Occupancy(policy.with_filled_target(0.8).unwrap());
    let load = Reading {
        in_flight: 4.0,
        executing: 4.0,
        ..Reading::ready(2)
    };
    let run = |filled: Term<f64>, current: u32| {
        let mut scaler = scaler(config(policy.clone(), 1, 100), current);
        let mut size = 0;
        for second in (0..900).step_by(2) {
            let mut observation = load.at(second);
            observation.filled = filled;
            scaler.observe(at(second), &observation);
            size = scaler.decide(at(second)).desired.get();
        }
        size
    };
    assert_eq!(run(Term::exact(0.1), 6), 1);
    assert_eq!(run(Term::exact(3.9), 2), 5);
    assert_eq!(run(Term::Unknown(Missing::NeverRead), 6), 6);
}

#[test]
fn b35_a_restarted_scaler_grows_at_once() {
    let config = ScalingConfig::new(concurrency(), bounds(1, 100), Slots::new(10).unwrap());
    let mut scaler = scaler(config, 7);
    let load = Reading {
        in_flight: 700.0,
        executing: 70.0,
        ..Reading::ready(7)
    };
    assert!(steady(&mut scaler, 0, 8, &load) > 7);
}

#[test]
fn b36_the_load_of_few_ready_replicas_is_not_multiplied_by_those_that_wait() {
    let policies = [concurrency(), metric(1.0, MetricKind::AverageValue)];
    for policy in policies {
        let mut scaler = scaler(config(policy, 1, 100), 10);
        let mut states = vec![Ready];
        states.extend([Starting; 9]);
        let reading = Reading {
            in_flight: 3.0,
            executing: 1.0,
            metric: Some(3.0),
            replicas: rows(&states),
            ..Reading::ready(1)
        };
        for second in (0..600).step_by(2) {
            scaler.observe(at(second), &reading.at(second));
            let decision = scaler.decide(at(second));
            assert!(
                decision.desired <= Replicas::new(10),
                "at {second}: {decision}"
            );
        }
        let decision = scaler.decide(at(600));
        assert_eq!(decision.desired, Replicas::new(3), "{decision}");
    }
}

#[test]
fn b38_replicas_that_are_going_are_no_part_of_the_fleet() {
    let mut scaler = scaler(config(concurrency(), 1, 100), 4);
    let states = [Ready, Ready, Ready, Ready, Draining, Draining];
    let reading = Reading {
        in_flight: 8.0,
        executing: 4.0,
        replicas: rows(&states),
        ..Reading::ready(4)
    };
    assert_eq!(steady(&mut scaler, 0, 200, &reading), 8);
    assert!(scaler.decide(at(200)).drain.is_empty());
}

#[test]
fn b39_a_constant_load_settles_with_at_most_one_change_for_each_start() {
    let delay = 20.0;
    let setup = Setup {
        config: config(concurrency(), 1, 100),
        replicas: 1,
        service: Service::Constant(Duration::from_secs(1)),
        think: Duration::ZERO,
        start_delay: Some(Duration::from_secs_f64(delay)),
        tick: Duration::from_secs(2),
        seed: 5,
    };
    let records = run(&setup, &[(10.0, Action::Clients(5))], 900.0);
    let changes = records
        .iter()
        .filter(|record| record.decision.changes_size());
    let times: Vec<f64> = changes.map(|record| record.second).collect();
    let sizes: Vec<Replicas> = records
        .iter()
        .map(|record| record.decision.desired)
        .collect();
    assert!(sizes.is_sorted(), "{times:?} {sizes:?}");
    assert_eq!(sizes.last(), Some(&Replicas::new(5)));
    assert!(times.iter().all(|&time| time <= 10.0 + delay), "{times:?}");
}

#[test]
fn b41_what_waits_is_part_of_what_is_in_flight() {
    for policy in [concurrency(), Policy::Staffing(StaffingConfig::balanced())] {
        let setup = Setup {
            config: config(policy, 1, 100),
            replicas: 1,
            service: Service::Constant(Duration::from_millis(200)),
            think: Duration::ZERO,
            start_delay: Some(Duration::from_secs(5)),
            tick: Duration::from_secs(2),
            seed: 1,
        };
        let records = run(&setup, &[(10.0, Action::Clients(8))], 300.0);
        assert_eq!(records.last().unwrap().decision.desired, Replicas::new(8));
    }
}

#[test]
fn b43_settings_that_the_formula_cannot_take_are_refused_with_their_name() {
    let refusal = |error: ConfigError| error.to_string();
    for bad in [0.0, -1.0, f64::NAN, 1e-12, f64::INFINITY] {
        let error = MetricConfig::new(bad, MetricKind::AverageValue).map_err(refusal);
        assert!(error.unwrap_err().starts_with("scaling.target is "));
        let error = OccupancyConfig::new(bad, MINUTE).map_err(refusal);
        assert!(error.unwrap_err().starts_with("scaling.threshold is "));
        let error = ConcurrencyConfig::new(bad, Measure::Mean, MINUTE, MINUTE).map_err(refusal);
        assert!(error.unwrap_err().starts_with("scaling.utilization is "));
    }
    let error = OccupancyConfig::new(2.0, Duration::ZERO)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "scaling.window is 0ns, allowed is 1s to 3600s");
    assert!(Bounds::new(Replicas::new(5), Replicas::new(2)).is_err());
    let long = ConcurrencyConfig::new(1.0, Measure::Mean, MINUTE, 2 * MINUTE);
    assert!(long.is_err(), "a burst window longer than the stable one");
}

#[test]
fn b47_starting_replicas_go_before_running_ones() {
    let mut scaler = scaler(config(metric(1.0, MetricKind::AverageValue), 1, 100), 8);
    let states = [
        Ready, Ready, Ready, Ready, Starting, Starting, Starting, Starting,
    ];
    let reading = Reading {
        metric: Some(4.0),
        replicas: rows(&states),
        ..Reading::ready(4)
    };
    let mut decision = None;
    for second in (0..100).step_by(2) {
        scaler.observe(at(second), &reading.at(second));
        decision = Some(scaler.decide(at(second)));
    }
    let decision = decision.unwrap();
    assert_eq!(decision.desired, Replicas::new(4));
    let mut drained: Vec<u64> = decision.drain.iter().map(|&ReplicaId(id)| id).collect();
    drained.sort_unstable();
    assert_eq!(drained, [4, 5, 6, 7]);
}

#[test]
fn a_scrape_that_is_given_again_and_again_keeps_the_means() {
    let policy = Policy::Occupancy(OccupancyConfig::new(2.0, MINUTE).unwrap());
    let mut scaler = scaler(config(policy, 1, 100), 5);
    for second in 0..200 {
        let scraped = second / 15 * 15;
        let mut observation = Reading {
            in_flight: 10.0,
            executing: 5.0,
            ..Reading::ready(5)
        }
        .at(scraped);
        let age = Duration::from_secs(second - scraped);
        for model in &mut observation.models {
            for level in [
                &mut model.in_flight,
                &mut model.executing,
                &mut model.queued,
            ] {
                aged(&mut level.now, age);
                aged(&mut level.integral, age);
            }
        }
        scaler.observe(at(second), &observation);
        let decision = scaler.decide(at(second));
        assert_eq!(
            decision.desired,
            Replicas::new(5),
            "at {second}: {decision}"
        );
    }
}

#[test]
fn a_fleet_in_which_nothing_becomes_ready_is_at_its_maximum() {
    let mut scaler = scaler(config(concurrency(), 1, 100), 2);
    let states = [Ready, Ready, Starting, Starting];
    let reading = Reading {
        in_flight: 4.0,
        executing: 2.0,
        replicas: rows(&states),
        ..Reading::ready(2)
    };
    let mut stalled_at = None;
    for second in (0..120).step_by(2) {
        scaler.observe(at(second), &reading.at(second));
        let decision = scaler.decide(at(second));
        if decision.at_max && stalled_at.is_none() {
            stalled_at = Some(second);
        }
    }
    // Twice the start delay that is taken before any was seen, after the first wish for more.
    assert!(
        stalled_at.is_some_and(|second| (20..80).contains(&second)),
        "{stalled_at:?}"
    );
}

#[test]
fn unhealthy_replicas_that_are_replaced_are_no_maximum() {
    let mut scaler = scaler(config(concurrency(), 1, 100), 4);
    let states = [Ready, Ready, Ready, Ready, Unhealthy, Unhealthy];
    let reading = Reading {
        in_flight: 4.0,
        executing: 4.0,
        replicas: rows(&states),
        ..Reading::ready(4)
    };
    steady(&mut scaler, 0, 20, &reading);
    for second in (20..300).step_by(2) {
        scaler.observe(at(second), &reading.at(second));
        let decision = scaler.decide(at(second));
        assert_eq!(decision.desired, Replicas::new(6), "{decision}");
        assert!(!decision.at_max && decision.drain.is_empty(), "{decision}");
    }
}

#[test]
fn a_scaler_that_slept_does_not_shrink_at_its_first_decision() {
    let mut scaler = scaler(config(concurrency(), 1, 100), 5);
    let mut reading = Reading::ready(5);
    reading.step(0, 5.0, 5);
    assert_eq!(steady(&mut scaler, 0, 600, &reading), 5);
    reading.step(600, 1.0, 5);
    assert_eq!(steady(&mut scaler, 4000, 4050, &reading), 5);
    assert_eq!(steady(&mut scaler, 4050, 4200, &reading), 1);
}

#[test]
fn a_missing_number_executing_grows_a_fleet_only() {
    let policy = || Policy::Occupancy(OccupancyConfig::new(2.0, MINUTE).unwrap());
    for (current, expected) in [(3, 5), (8, 8)] {
        let mut scaler = scaler(config(policy(), 1, 100), current);
        let mut desired = 0;
        for second in (0..600).step_by(2) {
            let mut observation = Reading {
                in_flight: 9.0,
                ..Reading::ready(3)
            }
            .at(second);
            observation.models[0].executing.now = Term::Unknown(Missing::NotOffered);
            observation.models[0].executing.integral = Term::Unknown(Missing::NotOffered);
            scaler.observe(at(second), &observation);
            desired = scaler.decide(at(second)).desired.get();
        }
        assert_eq!(desired, expected);
    }
}

#[test]
fn fresh_replicas_do_not_make_the_others_look_idle_to_the_ratio() {
    let policy = Policy::Occupancy(OccupancyConfig::new(1.0, MINUTE).unwrap());
    let mut scaler = scaler(config(policy, 1, 100), 1);
    let mut reading = Reading::ready(1);
    let mut most = 0.0_f64;
    for second in (0..240).step_by(2) {
        let ready = if second < 120 { 1 } else { 5 };
        let executing = if second < 120 { 8.0 } else { 40.0 };
        reading.step_both(second, 40.0, executing, ready);
        scaler.observe(at(second), &reading.at(second));
        let decision = scaler.decide(at(second));
        let required = decision
            .inputs
            .iter()
            .find(|input| input.name == "required");
        most = most.max(required.and_then(|input| input.value).unwrap());
    }
    assert!(
        most < 5.5,
        "R read at once with S averaged would give 25, got {most}"
    );
}

#[test]
fn without_a_ready_replica_all_that_is_in_flight_is_needed() {
    let policy = Policy::Occupancy(OccupancyConfig::new(2.0, MINUTE).unwrap());
    let mut scaler = scaler(config(policy, 0, 100), 0);
    let load = Reading {
        in_flight: 50.0,
        ..Reading::ready(0)
    };
    assert_eq!(steady(&mut scaler, 0, 2, &load), 1, "from zero at once");
    assert_eq!(steady(&mut scaler, 2, 90, &load), 25);
}

fn aged<T>(term: &mut Term<T>, by: Duration)
where
    T: Copy,
{
    if let Some(value) = term.known() {
        *term = Term::Known {
            value,
            age: by,
            estimator: Estimator::LiveGauge,
        };
    }
}

#[test]
fn an_unhealthy_replica_has_a_stand_in_without_any_load_since_the_minimum_is_of_those_that_work() {
    let policy = Policy::Staffing(StaffingConfig::balanced());
    let mut idle = scaler(config(policy.clone(), 2, 4), 2);
    let reading = Reading {
        replicas: rows(&[Ready, Unhealthy]),
        ..Reading::ready(2)
    };
    assert_eq!(steady(&mut idle, 0, 600, &reading), 3);
    let mut to_zero = scaler(config(policy, 0, 4), 1);
    let reading = Reading {
        replicas: rows(&[Unhealthy]),
        ..Reading::ready(1)
    };
    assert_eq!(steady(&mut to_zero, 0, 600, &reading), 0);
}
