use inflight_core::Occupancy;
use inflight_core::load::ReplicaView;
use serde_json::{Value, json};

use super::*;

fn level(value: Term<Occupancy>, integral: Term<f64>) -> Level {
    Level {
        now: value,
        integral,
    }
}

fn observed(in_flight: Term<f64>, replicas: Term<Replicas>) -> Observation {
    let known = |value: f64, estimator| Term::Known {
        value,
        age: Duration::from_millis(300),
        estimator,
    };
    let none = Term::Unknown(Missing::NotOffered);
    let executing = known(12.0, Estimator::CompletionCounter);
    let in_flight = in_flight.map(|value| Occupancy::new(value).unwrap());
    Observation {
        replicas: ReplicaView::Ready(replicas),
        models: vec![ModelLoad {
            in_flight: level(in_flight, none),
            executing: level(Term::Unknown(Missing::NotOffered), executing),
            queued: Level::NOT_OFFERED,
            arrivals: none,
            completions: none,
            service_seconds: none,
            in_flight_max: Term::Unknown(Missing::NotOffered),
        }],
        peak_seconds: none,
        started: Vec::new(),
        metric: none,
        filled: none,
        is_partial: false,
        is_called: false,
    }
}

fn fleet(sources: &Value, decision: &Value) -> wire::Fleet {
    let unknown = json!(null);
    let fleet = json!({
        "name": "triton", "policy": "occupancy", "slots": 1, "sources": sources, "decision": decision,
        "replicas": { "desired": 3, "ready": 2, "starting": 0, "draining": 0, "unhealthy": 0, "min": 1, "max": 9 },
        "load": { "in_flight": unknown, "executing": unknown, "queued": unknown, "arrivals_per_second": unknown,
                  "service_seconds": unknown, "inflation": unknown, "age_seconds": unknown, "models": [] },
        "hold": unknown, "admission": unknown, "crashes": 0, "last_crash": unknown, "start_delay_seconds": unknown, "unwritten": {},
    });
    serde_json::from_value(fleet).unwrap()
}

fn decision(wanted: Option<u32>, inputs: &Value, reason: &str) -> Value {
    json!({
        "at": "2026-11-30T02:00:00Z", "current": 3, "wanted": wanted, "desired": 3, "at_max": false,
        "reason": reason, "finding": reason, "limits": [], "inputs": inputs, "thresholds": null,
    })
}

fn source(kind: &str, state: &str, failure: Option<&str>) -> Value {
    json!({ "kind": kind, "address": "10.0.0.3:9901", "instance": null, "state": state, "in_flight": null,
            "age_seconds": failure.is_none().then_some(0.4), "failure": failure })
}

#[test]
fn each_term_says_how_it_was_got_and_where_it_leads() {
    let sources = json!([
        source("envoy", "read", None),
        source("triton", "read", None)
    ]);
    let inputs = json!({ "in_flight": 8.0, "executing": 4.0, "replicas": 2.0, "required": 4.0 });
    let decided = decision(Some(2), &inputs, "8 in flight, 4 executing on 2 replicas");
    let in_flight = Term::Known {
        value: 8.0,
        age: Duration::from_millis(300),
        estimator: Estimator::LiveGauge,
    };
    let observed = observed(in_flight, Term::exact(Replicas::new(2)));
    let (text, is_known) = report(&fleet(&sources, &decided), &observed);
    assert!(is_known);
    insta::assert_snapshot!(text);
}

#[test]
fn a_term_that_is_unknown_is_said_with_the_peer_that_failed() {
    let sources = json!([
        source("envoy", "lost", Some("no connection: Connection refused")),
        source("triton", "read", None)
    ]);
    let inputs = json!({ "in_flight": null, "executing": 4.0, "replicas": null });
    let decided = decision(
        None,
        &inputs,
        "the number in flight is unknown (never read)",
    );
    let unknown = Term::Unknown(Missing::NeverRead);
    let observed = observed(unknown, Term::Unknown(Missing::NeverRead));
    let (text, is_known) = report(&fleet(&sources, &decided), &observed);
    assert!(!is_known);
    insta::assert_snapshot!(text);
}
