//! The `metric` policy as a whole: rows worked out by hand from the words of Kubernetes' autoscaler.

use std::time::Duration;

use inflight_core::load::{Answer, Answers, Missing, Patience};
use inflight_core::scaling::{
    Bounds, DownWindow, MetricConfig, MetricKind, Policy, Scaler, ScalingConfig, Tolerance,
};
use inflight_core::{Replicas, Slots, Timestamp};

use crate::driver::reading::at;
use MetricKind::{AverageValue, Value};

/// How long each row is read: past every window.
const SECONDS: u64 = 600;

fn scaler(kind: MetricKind, target: f64, tolerance: f64, current: u32) -> Scaler {
    let policy = Policy::Metric(MetricConfig::new(target, kind).unwrap());
    let bounds = Bounds::new(Replicas::ZERO, Replicas::new(100)).unwrap();
    let config = ScalingConfig {
        down_window: DownWindow::Fixed(Duration::ZERO),
        tolerance: Tolerance::new(tolerance).unwrap(),
        idle_grace: Duration::from_secs(60),
        ..ScalingConfig::new(policy, bounds, Slots::ONE)
    };
    Scaler::new(config, Timestamp::ORIGIN, Replicas::new(current))
}

/// Decides every 15 s on answers of every 5 s, while `current` is kept by whoever changes the fleet.
fn desired(
    kind: MetricKind,
    target: f64,
    tolerance: f64,
    current: u32,
    answer: Answer,
) -> (u32, String) {
    let mut scaler = scaler(kind, target, tolerance, current);
    let mut answers = Answers::new(Patience {
        late: Duration::from_secs(15),
        stale: Duration::from_secs(30),
    });
    let mut last = (0, String::new());
    for second in (0..SECONDS).step_by(5) {
        answers.on_answer(at(second), answer);
        scaler.observe(at(second), &answers.observe(at(second)));
        // Once: the rows are of one step from `current`.
        if second == SECONDS - 5 {
            let decision = scaler.decide(at(second));
            last = (decision.desired.get(), decision.reason.to_string());
        }
    }
    last
}

fn answer(metric: f64, ready: f64) -> Answer {
    Answer::Metric {
        metric: Ok(metric),
        replicas: Ok(ready),
    }
}

#[test]
fn rows_of_the_autoscaler_come_out_alike() {
    for (kind, metric, target, tolerance, ready, current, expected) in [
        // A total: ready replicas do not matter, and the tolerance is judged by the size.
        (AverageValue, 50.0, 10.0, 0.0, 1.0, 5, 5),
        (AverageValue, 50.1, 10.0, 0.0, 1.0, 5, 6),
        (AverageValue, 55.0, 10.0, 0.1, 5.0, 5, 5),
        (AverageValue, 55.1, 10.0, 0.1, 5.0, 5, 6),
        (AverageValue, 45.0, 10.0, 0.1, 5.0, 5, 5),
        (AverageValue, 44.9, 10.0, 0.1, 5.0, 5, 5),
        (AverageValue, 30.0, 10.0, 0.1, 5.0, 5, 3),
        (AverageValue, 0.3, 0.1, 0.0, 0.0, 0, 3),
        (AverageValue, 1e18, 1e-3, 0.0, 5.0, 5, 100),
        // A ratio: multiplies what is ready.
        (Value, 150.0, 100.0, 0.0, 4.0, 4, 6),
        (Value, 105.0, 100.0, 0.1, 4.0, 4, 4),
        (Value, 110.0, 100.0, 0.1, 10.0, 10, 10),
        (Value, 111.0, 100.0, 0.1, 10.0, 10, 12),
        (Value, 50.0, 100.0, 0.0, 4.0, 4, 2),
        // Three of five were never scheduled: they multiply nothing.
        (Value, 200.0, 100.0, 0.0, 2.0, 5, 4),
        // Nothing is ready yet: no reason to end what starts.
        (Value, 50.0, 100.0, 0.0, 0.0, 4, 4),
        (Value, 300.0, 100.0, 0.0, 0.0, 0, 3),
    ] {
        let (size, reason) = desired(kind, target, tolerance, current, answer(metric, ready));
        assert_eq!(
            size, expected,
            "{kind:?} of {metric} by {target}, {ready} of {current} ready: {reason}"
        );
    }
}

#[test]
fn an_unknown_number_holds_and_says_why() {
    for (missing, why) in [
        (
            Missing::NoRow,
            "the metric is unknown (the answer is empty)",
        ),
        (
            Missing::SeveralRows,
            "the metric is unknown (the answer has several rows)",
        ),
        (Missing::NotANumber, "not a finite, non-negative number"),
    ] {
        let nothing = Answer::Metric {
            metric: Err(missing),
            replicas: Ok(7.0),
        };
        let (size, reason) = desired(AverageValue, 10.0, 0.0, 7, nothing);
        assert_eq!(size, 7);
        assert!(reason.contains(why), "{reason}");
    }
}

#[test]
fn zero_lets_the_fleet_sleep_after_the_grace_and_lost_replicas_are_not_replaced() {
    assert_eq!(desired(AverageValue, 10.0, 0.0, 3, answer(0.0, 3.0)).0, 0);
    // Of five that are wanted two are ready: the number may count the others, who knows.
    assert_eq!(desired(AverageValue, 10.0, 0.0, 5, answer(50.0, 2.0)).0, 5);
}
