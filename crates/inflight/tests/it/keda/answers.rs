//! What each question is answered, by what was decided.

use std::time::Duration;

use inflight::fleet::{DECISIONS_KEPT, External};
use inflight_core::scaling::{Filled, Finding, OccupancyFinding};
use inflight_core::{Limit, Replicas};
use inflight_proto::externalscaler::GetMetricsRequest;
use inflight_proto::health::health_check_response::ServingStatus;
use tonic::Code;

use super::{World, concurrent, external, object, occupied, unknown};
use crate::api::instance::arrival;

#[tokio::test]
async fn occupancy_tells_what_is_needed_and_leaves_the_division_to_the_autoscaler() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    assert_eq!(world.target(&[]).await.unwrap(), (2, 2.0));
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
    let active = world.client.is_active(object(&[])).await.unwrap();
    assert!(active.get_ref().result);
}

#[tokio::test]
async fn memory_that_fills_is_told_where_it_asks_for_more_than_the_queue_does() {
    let mut world = World::start(&["vllm"], "occupancy", 2.0).await;
    let filled = |used| Some(Filled { used, target: 0.9 });
    for (used, told) in [
        (Some(3.6), (8, 8.0)),
        (Some(0.9), (7, 6.6)),
        (None, (7, 6.6)),
    ] {
        let Finding::Occupancy(found) = occupied(6.6) else {
            panic!("another finding");
        };
        let finding = Finding::Occupancy(OccupancyFinding {
            filled: filled(used),
            ..found
        });
        world.decide(4, finding, Vec::new());
        assert_eq!(world.metric(&[]).await.unwrap(), told, "{used:?}");
    }
}

#[tokio::test]
async fn stand_ins_for_the_unhealthy_are_not_told_at_the_maximum_either() {
    let mut world = World::start(&["triton"], "concurrency", 1.0).await;
    let count = Replicas::new(2);
    let limits = vec![Limit::Lost { count }, Limit::Max];
    world.decide_wanted(10, 3, concurrent(), limits);
    // Three are wanted, ten was the maximum, two of these stand in.
    assert_eq!(world.metric(&[]).await.unwrap(), (8, 8.0));
}

#[tokio::test]
async fn nothing_in_flight_is_zero_in_both_forms_and_not_active() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(0, occupied(0.0), Vec::new());
    assert_eq!(world.metric(&[]).await.unwrap(), (0, 0.0));
    let active = world.client.is_active(object(&[])).await.unwrap();
    assert!(!active.get_ref().result);
}

#[tokio::test]
async fn any_other_policy_tells_the_size_it_decided() {
    let mut world = World::start(&["triton"], "concurrency", 1.0).await;
    world.decide(3, concurrent(), Vec::new());
    assert_eq!(world.target(&[]).await.unwrap(), (1, 1.0));
    assert_eq!(world.metric(&[]).await.unwrap(), (3, 3.0));
}

#[tokio::test]
async fn b15_an_unknown_load_answers_the_last_known_value_and_never_zero() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let nothing = world.metric(&[]).await.unwrap_err();
    assert_eq!(nothing.code(), Code::Unavailable);
    world.decide(4, unknown(), Vec::new());
    assert_eq!(
        world.metric(&[]).await.unwrap_err().code(),
        Code::Unavailable
    );
    world.decide(4, occupied(6.6), Vec::new());
    world.decide(4, unknown(), Vec::new());
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
}

#[tokio::test]
async fn a_configured_fallback_counts_when_the_load_is_unknown_for_too_long() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let fallback = Limit::UnknownFallback {
        fallback: Replicas::new(5),
    };
    world.decide(5, unknown(), vec![fallback]);
    assert_eq!(world.metric(&[]).await.unwrap(), (10, 10.0));
}

#[tokio::test]
async fn a_load_that_is_unknown_for_longer_than_the_hold_is_unavailable() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    world.fleets[0].board().external = Some(External {
        hold: Duration::ZERO,
        ..external(2.0)
    });
    // It is the newest, so that nothing is unknown.
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
    world.decide(4, unknown(), Vec::new());
    let stale = world.metric(&[]).await.unwrap_err();
    assert_eq!(stale.code(), Code::Unavailable);
    assert!(stale.message().contains("scaling.unknown.hold"), "{stale}");
    assert_eq!(
        world.is_active().await.unwrap_err().code(),
        Code::Unavailable
    );
}

#[tokio::test]
async fn the_last_known_value_outlives_the_decisions_that_are_kept() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    for _ in 0..2 * DECISIONS_KEPT {
        world.decide(4, unknown(), Vec::new());
    }
    assert_eq!(world.metric(&[]).await.unwrap(), (7, 6.6));
}

#[tokio::test]
async fn a_size_that_a_person_holds_is_told_whatever_the_load_is() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let left = Duration::from_secs(60);
    let size = Replicas::new(3);
    for finding in [occupied(40.0), occupied(0.0), unknown()] {
        world.decide(3, finding.clone(), vec![Limit::Sized { size, left }]);
        assert_eq!(world.metric(&[]).await.unwrap(), (6, 6.0));
        assert_eq!(
            world.metric(&[("threshold", "4")]).await.unwrap(),
            (12, 12.0)
        );
        world.decide(5, finding, vec![Limit::Paused { left }]);
        assert_eq!(world.metric(&[]).await.unwrap(), (10, 10.0));
    }
    let none = Replicas::ZERO;
    let _permit = world.fleets[0].arrive(arrival()).unwrap();
    world.decide(
        0,
        occupied(1.0),
        vec![Limit::Sized { size: none, left }, Limit::Max],
    );
    assert_eq!(world.metric(&[]).await.unwrap(), (0, 0.0));
    assert!(!world.is_active().await.unwrap(), "held at zero");
}

#[tokio::test]
async fn what_a_maximum_of_ours_cut_off_is_told() {
    let mut world = World::start(&["triton"], "concurrency", 1.0).await;
    world.decide_wanted(8, 30, concurrent(), vec![Limit::Max]);
    assert_eq!(world.metric(&[]).await.unwrap(), (30, 30.0));
    // The cluster replaces its unhealthy ones by itself.
    let lost = Limit::Lost {
        count: Replicas::new(2),
    };
    world.decide_wanted(6, 4, concurrent(), vec![lost]);
    assert_eq!(world.metric(&[]).await.unwrap(), (4, 4.0));
}

#[tokio::test]
async fn b16_what_is_not_the_whole_load_may_grow_the_fleet_and_never_shrink_it() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    let found = Replicas::new(7);
    for limit in [Limit::Partial, Limit::Degraded, Limit::Restart { found }] {
        world.decide(7, occupied(3.0), vec![limit]);
        assert_eq!(world.metric(&[]).await.unwrap(), (14, 14.0), "{limit:?}");
        world.decide(7, occupied(31.5), vec![limit]);
        assert_eq!(world.metric(&[]).await.unwrap(), (32, 31.5), "{limit:?}");
    }
}

#[tokio::test]
async fn b17_an_overload_past_every_integer_is_no_negative_number() {
    let mut world = World::start(&["triton"], "occupancy", 0.001).await;
    for required in [214_748_365.0, 1e18, f64::MAX] {
        world.decide(4, occupied(required), Vec::new());
        let (_, total) = world.metric(&[]).await.unwrap();
        let replicas = (total / 0.001).ceil();
        assert!(
            (1e9..f64::from(i32::MAX)).contains(&replicas),
            "{required}: {replicas}"
        );
        let (whole, float) = world.metric(&[("threshold", "1000000")]).await.unwrap();
        assert!(whole > 0 && float > 0.0, "{required}: {whole} {float}");
    }
}

#[tokio::test]
async fn b13_what_is_no_number_is_unknown_to_the_autoscaler_too() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, unknown(), Vec::new());
    let nothing = world.metric(&[]).await.unwrap_err();
    assert_eq!(nothing.code(), Code::Unavailable);
    assert!(nothing.message().contains("not known"), "{nothing}");
}

#[tokio::test]
async fn b46_one_trigger_that_knows_nothing_moves_no_name_and_no_value_of_another() {
    let mut world = World::start(&["one", "two"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    for _ in 0..3 {
        let broken = world.metric(&[("fleet", "two")]).await.unwrap_err();
        assert_eq!(broken.code(), Code::Unavailable);
        assert_eq!(world.metric(&[("fleet", "one")]).await.unwrap(), (7, 6.6));
    }
    for fleet in ["one", "two"] {
        let spec = world.client.get_metric_spec(object(&[("fleet", fleet)]));
        assert_eq!(
            spec.await.unwrap().get_ref().metric_specs[0].metric_name,
            "inflight"
        );
    }
}

#[tokio::test]
async fn another_name_is_not_found_and_told_the_right_one() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    let request = GetMetricsRequest {
        scaled_object_ref: Some(object(&[])),
        metric_name: "s0-inflight".repeat(100),
    };
    let refused = world.client.get_metrics(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert!(
        refused.message().contains("the metric is \"inflight\""),
        "{refused}"
    );
    assert!(refused.message().len() < 200, "{refused}");
}

#[tokio::test]
async fn what_an_old_client_rounds_up_is_not_the_noise_of_the_last_bits() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    for (required, whole) in [(4.000_000_000_000_001, 4), (4.001, 5), (0.0004, 1)] {
        world.decide(2, occupied(required), Vec::new());
        assert_eq!(world.metric(&[]).await.unwrap().0, whole, "{required}");
    }
}

#[tokio::test]
async fn questions_are_counted_with_what_became_of_them() {
    let mut world = World::start(&["triton"], "occupancy", 2.0).await;
    world.metric(&[]).await.unwrap_err();
    world.decide(4, occupied(6.6), Vec::new());
    world.metric(&[]).await.unwrap();
    world.metric(&[("threshold", "-1")]).await.unwrap_err();
    world.is_active().await.unwrap();
    let asked = world.fleets[0].board().asked;
    let questions: Vec<_> = asked.questions().filter(|&(_, count)| count > 0).collect();
    assert_eq!(questions, [("is_active", 1), ("get_metrics", 3)]);
    let unanswered: Vec<_> = asked.unanswered().collect();
    assert_eq!(unanswered, [("unknown", 1), ("invalid", 1), ("full", 0)]);
}

#[tokio::test]
async fn health_is_that_of_the_server_or_of_a_fleet() {
    let world = World::start(&["one", "two"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    for service in ["", "externalscaler.ExternalScaler", "one"] {
        let status = world.health(service).await.unwrap();
        assert_eq!(status, ServingStatus::Serving, "{service}");
    }
    let status = world.health("two").await.unwrap();
    assert_eq!(status, ServingStatus::NotServing, "nothing is known of it");
    let missing = world.health("three").await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test]
async fn a_trigger_names_its_fleet_and_may_have_a_threshold_of_its_own() {
    let mut world = World::start(&["one", "two"], "occupancy", 2.0).await;
    world.decide(4, occupied(6.6), Vec::new());
    let missing = world.metric(&[]).await.unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument);
    assert!(missing.message().contains("one, two"), "{missing}");
    let wrong = world.metric(&[("fleet", "three")]).await.unwrap_err();
    assert_eq!(wrong.code(), Code::NotFound);
    assert_eq!(world.metric(&[("fleet", "one")]).await.unwrap(), (7, 6.6));
    let own = [("fleet", "one"), ("threshold", "1.5")];
    assert_eq!(world.target(&own).await.unwrap(), (2, 1.5));
    // KEDA has taken these from the environment.
    let from_env = [("fleetFromEnv", "one"), ("thresholdFromEnv", "3")];
    assert_eq!(world.target(&from_env).await.unwrap(), (3, 3.0));
}

#[tokio::test]
async fn b43_a_threshold_that_would_divide_by_nothing_is_refused_with_key_value_and_range() {
    let mut world = World::start(&["one"], "occupancy", 2.0).await;
    for threshold in ["0", "-1", "NaN", "inf", "abc", "1e-12", "1e7", ""] {
        let refused = world.target(&[("threshold", threshold)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{threshold}");
        let said = format!("metadata.threshold is {threshold:?}, allowed is 0.001 to 1000000");
        assert_eq!(refused.message(), said);
    }
}

#[tokio::test]
async fn a_threshold_is_refused_where_the_policy_decides_the_size() {
    let mut world = World::start(&["one"], "staffing", 1.0).await;
    let refused = world.target(&[("threshold", "3")]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("staffing"), "{refused}");
}
