//! What is written is read back as it was, bit for bit.

use inflight_core::Replicas;
use inflight_core::load::{Estimator, Level, Missing, ModelLoad, Observation, ReplicaState};
use inflight_core::scaling::{Policy, StepLimit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::wire::{Line, VERSION};
use super::*;

fn any_span() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn any_missing() -> impl Strategy<Value = Missing> {
    prop_oneof![
        Just(Missing::NotOffered),
        Just(Missing::NeverRead),
        Just(Missing::NotANumber),
        Just(Missing::NoRow),
        Just(Missing::SeveralRows),
        any_span().prop_map(|age| Missing::Stale { age }),
    ]
}

fn any_term<T: Copy + std::fmt::Debug + 'static>(
    value: BoxedStrategy<T>,
) -> BoxedStrategy<load::Term<T>> {
    let estimator = prop_oneof![
        Just(Estimator::Exact),
        Just(Estimator::LiveGauge),
        Just(Estimator::CompletionCounter),
        Just(Estimator::Query),
    ];
    let known = (
        value.clone(),
        prop_oneof![Just(Duration::ZERO), any_span()],
        estimator,
    );
    prop_oneof![
        value.prop_map(load::Term::exact),
        known.prop_map(|(value, age, estimator)| load::Term::Known {
            value,
            age,
            estimator
        }),
        any_missing().prop_map(load::Term::Unknown),
    ]
    .boxed()
}

/// Every float that equals itself; NaN has a test of its own.
fn any_float() -> BoxedStrategy<f64> {
    any::<f64>()
        .prop_filter("NaN", |value| !value.is_nan())
        .boxed()
}

fn any_occupancy() -> BoxedStrategy<Occupancy> {
    let value = any::<f64>().prop_filter_map("no occupancy", |value| Occupancy::new(value.abs()));
    value.boxed()
}

fn any_level() -> impl Strategy<Value = Level> {
    (any_term(any_occupancy()), any_term(any_float()))
        .prop_map(|(now, integral)| Level { now, integral })
}

fn any_model() -> impl Strategy<Value = ModelLoad> {
    let levels = (any_level(), any_level(), any_level());
    let totals = (
        any_term(any_float()),
        any_term(any_float()),
        any_term(any_float()),
    );
    (levels, totals, any_term(any_occupancy())).prop_map(
        |(
            (in_flight, executing, queued),
            (arrivals, completions, service_seconds),
            in_flight_max,
        )| {
            ModelLoad {
                in_flight,
                executing,
                queued,
                arrivals,
                completions,
                service_seconds,
                in_flight_max,
            }
        },
    )
}

fn any_replicas() -> impl Strategy<Value = ReplicaView> {
    let state = prop_oneof![
        Just(ReplicaState::Starting),
        Just(ReplicaState::Ready),
        Just(ReplicaState::Draining),
        Just(ReplicaState::Unhealthy),
    ];
    let row = (any::<u64>(), state, any::<u32>()).prop_map(|(id, state, in_flight)| ReplicaRow {
        id: ReplicaId(id),
        state,
        in_flight,
    });
    let ready = any_term(any::<u32>().prop_map(Replicas::new).boxed());
    prop_oneof![
        vec(row, 0..5).prop_map(ReplicaView::Rows),
        ready.prop_map(ReplicaView::Ready),
    ]
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let (peak, numbers) = (
        any_term(any_float()),
        (any_term(any_float()), any_term(any_float())),
    );
    let started = vec(any_span(), 0..3);
    (
        any_replicas(),
        vec(any_model(), 0..3),
        peak,
        started,
        numbers,
        any::<(bool, bool)>(),
    )
        .prop_map(
            |(
                replicas,
                models,
                peak_seconds,
                started,
                (metric, filled),
                (is_partial, is_called),
            )| Observation {
                replicas,
                models,
                peak_seconds,
                started,
                metric,
                filled,
                is_partial,
                is_called,
            },
        )
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let batching = option::of((0.001..1.0, 0.0..1.0, 1.0..99.0)).prop_map(|terms| {
        terms.map(|(batch, each, largest)| Batching::new(batch, each, largest).unwrap())
    });
    let parts = any::<(bool, bool, bool, bool, bool)>();
    let staffing = (
        0.0..10.0,
        any::<u32>(),
        0.1..1.0,
        vec(batching, 0..3),
        parts,
    )
        .prop_map(
            |(margin, factor, ceiling, batching, (backlog, trend, closed_loop, cap, returns))| {
                let config = StaffingConfig::latency().with_margin(margin).unwrap();
                let config = config.with_utilization_ceiling(ceiling).unwrap();
                let mut config = config.with_down_factor(factor).with_batching(batching);
                config.parts = Parts {
                    backlog,
                    trend,
                    closed_loop,
                    cap,
                    returns,
                };
                Policy::Staffing(config)
            },
        );
    let span = |millis: u64| Duration::from_millis(millis);
    let settings = (0.001..1e6, 1000_u64..3_600_000, option::of(0.001..1.0));
    let occupancy = settings.prop_map(move |(threshold, window, filled_target)| {
        let config = OccupancyConfig::new(threshold, span(window)).unwrap();
        Policy::Occupancy(match filled_target {
            Some(target) => config.with_filled_target(target).unwrap(),
            None => config,
        })
    });
    let concurrency = (0.01..1.0, any::<bool>(), 1000_u64..3_600_000, 1.0..10.0).prop_map(
        move |(utilization, peak, window, threshold)| {
            let measure = if peak { Measure::Peak } else { Measure::Mean };
            let (stable, burst) = (span(window), span(window.min(6000)));
            let config = ConcurrencyConfig::new(utilization, measure, stable, burst).unwrap();
            Policy::Concurrency(config.with_burst_threshold(threshold).unwrap())
        },
    );
    let metric = (0.001..1e15, any::<bool>()).prop_map(|(target, value)| {
        let kind = if value {
            MetricKind::Value
        } else {
            MetricKind::AverageValue
        };
        Policy::Metric(MetricConfig::new(target, kind).unwrap())
    });
    prop_oneof![staffing, occupancy, concurrency, metric]
}

fn any_step() -> impl Strategy<Value = StepLimit> {
    let limited = (any::<u32>(), any_span()).prop_map(|(replicas, every)| StepLimit::Limited {
        replicas: Replicas::new(replicas),
        every,
    });
    prop_oneof![Just(StepLimit::Unlimited), limited]
}

fn any_config() -> impl Strategy<Value = ScalingConfig> {
    let sizes = (0_u32..100, 1_u32..100, option::of(any::<u32>()), 0.0..1.0);
    let spans = (option::of(any_span()), any_span(), any_span(), any_span());
    let slots = vec(1_u32.., 0..4);
    (any_policy(), sizes, (any_step(), any_step()), spans, slots).prop_map(
        |(policy, (min, more, fallback, tolerance), (step_up, step_down), spans, slots)| {
            let (down_window, idle_grace, unknown_hold, freshness) = spans;
            ScalingConfig {
                policy,
                bounds: Bounds::new(Replicas::new(min), Replicas::new(min + more)).unwrap(),
                down_window: down_window.map_or(DownWindow::Auto, DownWindow::Fixed),
                tolerance: Tolerance::new(tolerance).unwrap(),
                step_up,
                step_down,
                idle_grace,
                unknown_hold,
                unknown_fallback: fallback.map(Replicas::new),
                is_sized_elsewhere: min % 2 == 1,
                freshness,
                slots: slots
                    .iter()
                    .map(|&slots| Slots::new(slots).unwrap())
                    .collect(),
            }
        },
    )
}

/// Writes a line, reads it, and returns what it says.
fn through(what: What) -> What {
    let line = Line {
        v: VERSION,
        run: 1_796_000_000_000,
        time: "2026-11-30T02:00:00.000Z".to_owned(),
        at: u64::MAX,
        fleet: "hello".to_owned(),
        what,
    };
    let text = serde_json::to_string(&line).unwrap();
    let read: Line = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    read.what
}

proptest! {
    #[test]
    fn an_observation_survives_the_journal(written in any_observation()) {
        let line = through(What::Tick { observation: observation(&written), decision: None });
        let What::Tick { observation, .. } = line else { panic!("{line:?}") };
        prop_assert_eq!(observation_of(&observation).unwrap(), written);
    }

    #[test]
    fn a_configuration_survives_the_journal(written in any_config()) {
        let line = through(What::Config { config: Box::new(config(&written)) });
        let What::Config { config } = line else { panic!("{line:?}") };
        prop_assert_eq!(config_of(&config).unwrap(), written);
    }

    #[test]
    fn a_hold_survives_the_journal(size in option::of(any::<u32>()), until in any::<u64>()) {
        let hold = size.map_or(Hold::Pause, |size| Hold::Size(Replicas::new(size)));
        let written = Held { hold, until: Timestamp::from_nanos(until) };
        let line = through(held(written));
        let What::Hold { replicas, until } = line else { panic!("{line:?}") };
        prop_assert_eq!(hold_of(replicas, until), written);
    }
}

#[test]
fn what_is_not_a_number_survives_the_journal_as_a_word() {
    let term = load::Term::exact(f64::NAN);
    let text = serde_json::to_string(&float(&term)).unwrap();
    assert_eq!(text, "\"nan\"");
    let read = float_of(serde_json::from_str(&text).unwrap()).unwrap();
    assert!(read.known().unwrap().is_nan());
}

#[test]
fn what_is_unknown_is_null_with_its_reason() {
    let term = load::Term::Unknown(Missing::NeverRead);
    let text = serde_json::to_string(&float(&term)).unwrap();
    assert_eq!(text, r#"{"value":null,"missing":"never_read"}"#);
}
