//! What is true of every decision, whatever was read before.

use std::time::Duration;

use inflight_core::load::{
    Estimator, Level, Missing, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView, Term,
};
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, DownWindow, Hold, Measure, MetricConfig, MetricKind,
    OccupancyConfig, Policy, Scaler, ScalingConfig, StaffingConfig, StepLimit, Tolerance,
};
use inflight_core::{Decision, Limit, Occupancy, ReplicaId, Replicas, Slots, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

type Readings = Vec<(Duration, Observation)>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_size_is_within_the_bounds_and_no_reading_panics(
        config in any_config(),
        found in 0_u32..2000,
        readings in any_readings(any_replicas().boxed()),
    ) {
        let bounds = config.bounds;
        for decision in decide(config, found, &readings) {
            prop_assert!(decision.desired >= bounds.min() && decision.desired <= bounds.max());
            prop_assert!(!decision.to_string().is_empty());
            for input in &decision.inputs {
                prop_assert!(input.value.is_none_or(f64::is_finite), "{:?}", input);
            }
        }
    }

    #[test]
    fn unknown_input_never_shrinks(
        config in any_config(),
        found in 0_u32..2000,
        readings in any_readings(healthy_replicas().boxed()),
    ) {
        let max = config.bounds.max();
        for decision in decide(config, found, &readings) {
            if decision.wanted.is_none() {
                prop_assert!(decision.desired >= decision.current.min(max), "{}", decision);
            }
        }
    }

    #[test]
    fn a_size_set_by_hand_is_the_size_up_to_the_maximum_and_a_pause_keeps_what_it_found(
        config in any_config(),
        found in 0_u32..2000,
        size in proptest::option::of(0_u32..2000),
        readings in any_readings(healthy_replicas().boxed()),
    ) {
        let max = config.bounds.max();
        let mut now = Timestamp::from_nanos(1 << 40);
        let mut scaler = Scaler::new(config, now, Replicas::new(found));
        let before = scaler.decide(now).desired;
        let hold = size.map_or(Hold::Pause, |size| Hold::Size(Replicas::new(size)));
        scaler.hold(hold, Timestamp::from_nanos(u64::MAX));
        let expected = size.map_or(before, Replicas::new).min(max);
        for (pause, observation) in &readings {
            now = (now + *pause).min(Timestamp::from_nanos(u64::MAX - 1));
            scaler.observe(now, observation);
            let decision = scaler.decide(now);
            prop_assert_eq!(decision.desired, expected, "{}", decision);
            prop_assert!(decision.at_max);
        }
    }

    #[test]
    fn a_hold_adds_for_the_lost_and_never_leaves_the_bounds(
        config in any_config(),
        size in 0_u32..2000,
        readings in any_readings(any_replicas().boxed()),
    ) {
        let max = config.bounds.max();
        let mut now = Timestamp::from_nanos(1 << 40);
        let mut scaler = Scaler::new(config, now, Replicas::ZERO);
        scaler.hold(Hold::Size(Replicas::new(size)), Timestamp::from_nanos(u64::MAX));
        for (pause, observation) in &readings {
            now = (now + *pause).min(Timestamp::from_nanos(u64::MAX - 1));
            scaler.observe(now, observation);
            let desired = scaler.decide(now).desired;
            prop_assert!(desired <= max && desired >= Replicas::new(size).min(max));
        }
    }

    #[test]
    fn after_a_hold_the_policy_decides_within_the_bounds(
        config in any_config(),
        size in 0_u32..2000,
        held_for in any_span(),
        readings in any_readings(any_replicas().boxed()),
    ) {
        let bounds = config.bounds;
        let mut now = Timestamp::from_nanos(1 << 40);
        let until = now + held_for;
        let mut scaler = Scaler::new(config, now, Replicas::ZERO);
        scaler.hold(Hold::Size(Replicas::new(size)), until);
        for (pause, observation) in &readings {
            now = now + *pause;
            scaler.observe(now, observation);
            let decision = scaler.decide(now);
            let by_hand = |limit: &Limit| matches!(limit, Limit::Paused { .. } | Limit::Sized { .. });
            prop_assert_eq!(decision.reason.limits.iter().any(by_hand), now < until);
            prop_assert_eq!(scaler.held(now).is_some(), now < until);
            if now >= until {
                prop_assert_eq!(bounds.clamp(decision.desired), decision.desired);
            }
        }
    }

    #[test]
    fn a_size_that_nothing_bound_is_the_least_that_fits_its_thresholds(
        config in any_config(),
        readings in any_readings(healthy_replicas().boxed()),
    ) {
        let is_one_model = config.slots.len() < 2;
        let mut now = Timestamp::from_nanos(1 << 40);
        let mut scaler = Scaler::new(config, now, Replicas::ZERO);
        for (pause, observation) in &readings {
            now = now + *pause;
            scaler.observe(now, observation);
            let decision = scaler.decide(now);
            let Some(found) = decision.reason.finding.thresholds() else { continue };
            if !is_one_model || !decision.reason.limits.is_empty() {
                continue;
            }
            let slack = 1.0 + 1e-9;
            prop_assert!(
                found.up <= found.most_for(decision.desired) * slack,
                "{:?} {}", found, decision
            );
            let fewer = found.most_for(decision.desired.minus(Replicas::ONE));
            let fits = found.up.max(found.down) * slack <= fewer;
            prop_assert!(decision.desired <= Replicas::ONE || !fits, "{:?} {}", found, decision);
        }
    }

    #[test]
    fn the_same_readings_give_the_same_decisions(
        config in any_config(),
        found in 0_u32..2000,
        readings in any_readings(any_replicas().boxed()),
    ) {
        let first = decide(config.clone(), found, &readings);
        prop_assert_eq!(first, decide(config, found, &readings));
    }

    #[test]
    fn a_scaler_that_goes_on_elsewhere_decides_as_if_it_had_stayed(
        config in any_config(),
        readings in any_readings(any_replicas().boxed()),
        moves in vec(any::<bool>(), 40),
    ) {
        let mut now = Timestamp::from_nanos(1 << 40);
        let mut stayed = Scaler::new(config.clone(), now, Replicas::new(3));
        let mut moved = stayed.clone();
        for ((pause, observation), moves) in readings.iter().zip(moves) {
            now = now + *pause;
            stayed.observe(now, observation);
            moved.observe(now, observation);
            prop_assert_eq!(moved.decide(now), stayed.decide(now));
            if moves {
                let past = moved.export();
                moved = Scaler::new(config.clone(), now, Replicas::ZERO);
                moved.restore(now, &past);
                prop_assert_eq!(moved.export(), past);
            }
        }
    }

    #[test]
    fn what_goes_is_what_is_too_many(
        config in any_config(),
        readings in any_readings(any_replicas().boxed()),
    ) {
        let decisions = decide(config, 3, &readings);
        for (decision, (_, observation)) in decisions.iter().zip(&readings) {
            let ReplicaView::Rows(rows) = &observation.replicas else {
                prop_assert!(decision.drain.is_empty());
                continue;
            };
            let live = rows.iter().filter(|row| row.state != ReplicaState::Draining).count();
            let surplus = Replicas::from_len(live).minus(decision.desired);
            prop_assert_eq!(Replicas::from_len(decision.drain.len()), surplus);
            for row in rows.iter().filter(|row| row.state == ReplicaState::Draining) {
                prop_assert!(!decision.drain.contains(&row.id));
            }
        }
    }
}

fn decide(config: ScalingConfig, found: u32, readings: &Readings) -> Vec<Decision> {
    let mut now = Timestamp::from_nanos(1 << 40);
    let mut scaler = Scaler::new(config, now, Replicas::new(found));
    let mut decisions = Vec::new();
    for (pause, observation) in readings {
        now = now + *pause;
        scaler.observe(now, observation);
        let estimate = scaler.estimate(now);
        assert!(estimate.in_flight.is_none_or(f64::is_finite));
        decisions.push(scaler.decide(now));
    }
    decisions
}

fn any_config() -> impl Strategy<Value = ScalingConfig> {
    let span = || (0_u64..400).prop_map(Duration::from_secs);
    let step = || {
        prop_oneof![
            Just(StepLimit::Unlimited),
            (any::<u32>(), span()).prop_map(|(replicas, every)| StepLimit::Limited {
                replicas: Replicas::new(replicas),
                every
            }),
        ]
    };
    let window = prop_oneof![Just(DownWindow::Auto), span().prop_map(DownWindow::Fixed)];
    let fallback = proptest::option::of((0_u32..50).prop_map(Replicas::new));
    let sizes = (0_u32..5, 1_u32..1000);
    let slots = vec(
        (1_u32..9).prop_map(|slots| Slots::new(slots).unwrap()),
        0..3,
    );
    (
        any_policy(),
        sizes,
        window,
        (step(), step()),
        0.0..1.0,
        (span(), span()),
        fallback,
        slots,
    )
        .prop_map(
            |(policy, (min, more), down_window, steps, tolerance, spans, fallback, slots)| {
                let bounds = Bounds::new(Replicas::new(min), Replicas::new(min + more)).unwrap();
                ScalingConfig {
                    down_window,
                    tolerance: Tolerance::new(tolerance).unwrap(),
                    step_up: steps.0,
                    step_down: steps.1,
                    idle_grace: spans.0,
                    unknown_hold: spans.1,
                    unknown_fallback: fallback,
                    slots,
                    ..ScalingConfig::new(policy, bounds, Slots::ONE)
                }
            },
        )
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let windows = (1_u64..100, 0_u64..100).prop_map(|(burst, more)| {
        (
            Duration::from_secs(burst + more),
            Duration::from_secs(burst),
        )
    });
    let kind = prop_oneof![Just(MetricKind::AverageValue), Just(MetricKind::Value)];
    let measure = prop_oneof![Just(Measure::Mean), Just(Measure::Peak)];
    prop_oneof![
        Just(Policy::Staffing(StaffingConfig::balanced())),
        Just(Policy::Staffing(StaffingConfig::latency())),
        (0.001..10.0, 1_u64..300).prop_map(|(threshold, seconds)| {
            let window = Duration::from_secs(seconds);
            Policy::Occupancy(OccupancyConfig::new(threshold, window).unwrap())
        }),
        (0.01..1.0, measure, windows).prop_map(|(utilization, measure, (stable, burst))| {
            let config = ConcurrencyConfig::new(utilization, measure, stable, burst);
            Policy::Concurrency(config.unwrap())
        }),
        (0.001..100.0, kind)
            .prop_map(|(target, kind)| Policy::Metric(MetricConfig::new(target, kind).unwrap())),
    ]
}

fn any_readings(replicas: BoxedStrategy<ReplicaView>) -> impl Strategy<Value = Readings> {
    let pause = prop_oneof![
        4 => Just(Duration::from_secs(2)),
        1 => Just(Duration::ZERO),
        1 => (0_u64..400_000).prop_map(Duration::from_millis),
        1 => any_span(),
    ];
    vec((pause, any_observation(replicas)), 1..40)
}

fn any_observation(replicas: BoxedStrategy<ReplicaView>) -> impl Strategy<Value = Observation> {
    let parts = (
        replicas,
        vec(any_model(), 0..3),
        any_term(),
        vec(any_span(), 0..3),
        (any_term(), any_term()),
        any::<(bool, bool)>(),
    );
    parts.prop_map(
        |(replicas, models, peak_seconds, started, (metric, filled), (is_partial, is_called))| {
            Observation {
                replicas,
                models,
                peak_seconds,
                started,
                metric,
                filled,
                is_partial,
                is_called,
            }
        },
    )
}

fn any_model() -> impl Strategy<Value = ModelLoad> {
    let levels = (any_level(), any_level(), any_level());
    let counts = (any_term(), any_term(), any_term());
    (levels, counts, any_occupancy()).prop_map(|(levels, counts, in_flight_max)| ModelLoad {
        in_flight: levels.0,
        executing: levels.1,
        queued: levels.2,
        arrivals: counts.0,
        completions: counts.1,
        service_seconds: counts.2,
        in_flight_max,
    })
}

fn any_level() -> impl Strategy<Value = Level> {
    (any_occupancy(), any_term()).prop_map(|(now, integral)| Level { now, integral })
}

fn any_occupancy() -> impl Strategy<Value = Term<Occupancy>> {
    any_term().prop_map(|term| match term {
        Term::Known {
            value,
            age,
            estimator,
        } => match Occupancy::new(value) {
            Some(value) => Term::Known {
                value,
                age,
                estimator,
            },
            None => Term::Unknown(Missing::NotANumber),
        },
        Term::Unknown(missing) => Term::Unknown(missing),
    })
}

fn any_term() -> impl Strategy<Value = Term<f64>> {
    let value = prop_oneof![
        6 => 0.0..1000.0,
        1 => any::<f64>(),
        1 => prop_oneof![
            Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(f64::MAX), Just(1e-300),
        ],
    ];
    let age = prop_oneof![4 => Just(Duration::ZERO), 1 => any_span()];
    let missing = prop_oneof![Just(Missing::NotOffered), Just(Missing::NeverRead)];
    prop_oneof![
        5 => (value, age).prop_map(|(value, age)| {
            Term::Known { value, age, estimator: Estimator::LiveGauge }
        }),
        1 => missing.prop_map(Term::Unknown),
    ]
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0_u64..100_000).prop_map(Duration::from_millis),
        1 => any::<u64>().prop_map(Duration::from_nanos),
        1 => Just(Duration::MAX),
    ]
}

fn any_replicas() -> impl Strategy<Value = ReplicaView> {
    let state = prop_oneof![
        Just(ReplicaState::Starting),
        Just(ReplicaState::Ready),
        Just(ReplicaState::Draining),
        Just(ReplicaState::Unhealthy),
    ];
    prop_oneof![4 => rows_of(state.boxed()), 1 => counted()]
}

fn healthy_replicas() -> impl Strategy<Value = ReplicaView> {
    let state = prop_oneof![Just(ReplicaState::Starting), Just(ReplicaState::Ready)];
    prop_oneof![4 => rows_of(state.boxed()), 1 => counted()]
}

fn rows_of(state: BoxedStrategy<ReplicaState>) -> impl Strategy<Value = ReplicaView> {
    vec((state, any::<u32>()), 0..12).prop_map(|rows| {
        let row = |(id, (state, in_flight))| ReplicaRow {
            id: ReplicaId(id),
            state,
            in_flight,
        };
        ReplicaView::Rows((0..).zip(rows).map(row).collect())
    })
}

fn counted() -> impl Strategy<Value = ReplicaView> {
    prop_oneof![
        any::<u32>().prop_map(|count| ReplicaView::Ready(Term::exact(Replicas::new(count)))),
        Just(ReplicaView::Ready(Term::Unknown(Missing::NeverRead))),
    ]
}
