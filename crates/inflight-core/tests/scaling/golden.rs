//! The golden rows of `tests/vectors/`, exact rationals computed outside this project's code.
//!
//! `expected` is what counts in `occupancy.json`; `literal` and `prose` are two readings of the
//! same formula that differ at zero replicas.

use std::time::Duration;

use inflight_core::Replicas;
use inflight_core::load::Missing;
use inflight_core::scaling::occupancy::{self, Required};
use inflight_core::scaling::staffing::parts;
use inflight_core::scaling::{Bounds, OccupancyConfig, Tolerance, metric};
use serde_json::Value;

const OCCUPANCY: &str = include_str!("vectors/occupancy.json");
const HPA: &str = include_str!("vectors/hpa_average_value.json");
const STAFFING: &str = include_str!("vectors/staffing_sizing.json");

/// Relative error that f64 arithmetic of a few steps may have.
const ROUNDING: f64 = 1e-12;

#[test]
fn occupancy_rows() {
    let vectors = parse(OCCUPANCY);
    for row in rows(&vectors, "rows") {
        let id = row["id"].as_str().unwrap();
        let healthy = f64::from(u32_of(&row["healthy"]));
        let required = occupancy::required(
            Ok(rational(&row["l_in_flight"])),
            Ok(rational(&row["l_service"])),
            Ok(healthy),
        );
        let Required::Known(required) = required else {
            panic!("{id}: {required:?}")
        };
        check_occupancy(id, required, healthy, row);
    }
}

#[test]
fn occupancy_rows_with_missing_or_impossible_terms() {
    let vectors = parse(OCCUPANCY);
    for row in rows(&vectors, "special") {
        let id = row["id"].as_str().unwrap();
        if row["expected"]["error"] == "config" {
            let threshold = rational(&row["threshold"]);
            let config = OccupancyConfig::new(threshold, Duration::from_secs(60));
            assert!(config.is_err(), "{id} must be refused");
            continue;
        }
        let required = occupancy::required(
            term(&row["l_in_flight"]),
            term(&row["l_service"]),
            term(&row["healthy"]),
        );
        let flag = row["expected"]["flag"].as_str().unwrap();
        match required {
            Required::Unknown(unknown) => {
                assert_eq!(row["expected"]["desired"], "hold-last", "{id}");
                let invalid = unknown.missing == Missing::NotANumber;
                assert_eq!(flag, if invalid { "invalid" } else { "missing" }, "{id}");
            }
            Required::Degraded(value) => {
                assert!(flag.starts_with("degraded"), "{id}");
                check_occupancy(id, value, rational(&row["healthy"]), row);
            }
            Required::Known(value) => {
                assert!(flag.starts_with("clamped"), "{id}");
                check_occupancy(id, value, rational(&row["healthy"]), row);
            }
        }
    }
}

#[test]
fn hpa_average_value_rows() {
    let vectors = parse(HPA);
    for (index, row) in rows(&vectors, "rows").enumerate() {
        let current = Replicas::new(u32_of(&row["current"]));
        let (total, target) = (rational(&row["r_needed"]), rational(&row["threshold"]));
        let tolerance = Tolerance::new(rational(&row["tolerance"])).unwrap();
        let ratio = metric::average_value_ratio(total, target, current);
        assert_eq!(ratio.is_none(), row["usage_ratio"].is_null(), "row {index}");
        let within = ratio.map(|ratio| tolerance.contains(ratio));
        assert_eq!(within, row["within_tolerance"].as_bool(), "row {index}");
        let raw = match within {
            Some(true) => current,
            Some(false) | None => metric::average_value(total, target),
        };
        assert_eq!(raw, whole(&row["raw"]), "row {index}");
        assert_eq!(
            bounds(row).clamp(raw),
            whole(&row["clamped"]),
            "row {index}"
        );
    }
}

#[test]
fn staffing_rows() {
    let vectors = parse(STAFFING);
    for (index, row) in rows(&vectors, "rows").enumerate() {
        let offered = rational(&row["offered_slots"]);
        let ceiling = rational(&row["util_max"]);
        let margin = parts::margin(offered, rational(&row["beta"]), ceiling);
        close(index, margin, &row["margin_slots"]);
        let (queue, service) = (rational(&row["queue"]), rational(&row["service_s"]));
        let delay = rational(&row["start_delay_s"]);
        let backlog = parts::backlog(queue, offered, Some(service), delay);
        close(index, backlog, &row["backlog_slots"]);
        let want = offered + margin + backlog;
        close(index, want, &row["want_slots"]);
        let slots = f64::from(u32_of(&row["slots_per_replica"]));
        let lost = Replicas::new(u32_of(&row["unhealthy"]));
        let desired = bounds(row).clamp(parts::replicas_for(want, slots).plus(lost));
        assert_eq!(desired, whole(&row["desired"]), "row {index}");
    }
}

fn check_occupancy(id: &str, required: f64, healthy: f64, row: &Value) {
    let expected = &row["expected"];
    let right = rational(&expected["r_needed"]);
    assert!(
        (required - right).abs() <= ROUNDING * right,
        "{id}: {required} is not {right}"
    );
    let desired = occupancy::wanted(required, rational(&row["threshold"]));
    assert_eq!(desired, whole(&expected["desired"]), "{id}");
    let inflation = occupancy::inflation(required, healthy);
    match inflation {
        None => assert!(expected["ratio"].is_null(), "{id}"),
        Some(inflation) => {
            let right = rational(&expected["ratio"]);
            assert!(
                (inflation - right).abs() <= ROUNDING * right,
                "{id}: {inflation}"
            );
            let threshold = row.get("admission_threshold").map_or(3.0, rational);
            assert_eq!(
                expected["admit"].as_bool(),
                Some(inflation <= threshold),
                "{id}"
            );
        }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn rows<'a>(vectors: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    let rows = vectors[key].as_array().unwrap();
    assert!(!rows.is_empty());
    rows.iter()
}

fn bounds(row: &Value) -> Bounds {
    let size = |key: &str| Replicas::new(u32_of(&row[key]));
    Bounds::new(size("min"), size("max")).unwrap()
}

fn u32_of(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// A whole number of replicas, saturated like every number of replicas.
fn whole(value: &Value) -> Replicas {
    Replicas::new(u32::try_from(value.as_u64().unwrap()).unwrap_or(u32::MAX))
}

/// A number, or a rational as text: `p` or `p/q`.
fn rational(value: &Value) -> f64 {
    let Some(text) = value.as_str() else {
        return value.as_f64().unwrap();
    };
    let number = |text: &str| text.parse::<f64>().unwrap();
    match text.split_once('/') {
        Some((over, under)) => number(over) / number(under),
        None => number(text),
    }
}

fn term(value: &Value) -> Result<f64, Missing> {
    if value.is_null() {
        Err(Missing::NeverRead)
    } else {
        Ok(rational(value))
    }
}

fn close(index: usize, value: f64, expected: &Value) {
    let right = rational(expected);
    // The rows are rounded to twelve decimals.
    assert!(
        (value - right).abs() <= 1e-11 + ROUNDING * right,
        "row {index}: {value} is not {right}"
    );
}
