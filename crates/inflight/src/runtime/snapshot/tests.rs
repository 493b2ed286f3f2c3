//! What is written is read back, and what cannot be used is told apart.

use inflight_core::admission::{PastCounts, PastIntegral};
use inflight_core::load::{Missing, PastLoad, PastModel, PastSeries};
use inflight_core::scaling::{Held, Hold};
use inflight_core::{Replicas, SessionKey};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn time() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_nanos)
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..1e300_f64, 0.0..1.0_f64]
}

fn missing() -> impl Strategy<Value = Missing> {
    prop_oneof![
        Just(Missing::NotOffered),
        Just(Missing::NeverRead),
        Just(Missing::NotANumber),
        any::<u64>().prop_map(|age| Missing::Stale {
            age: Duration::from_nanos(age)
        }),
    ]
}

fn series() -> impl Strategy<Value = PastSeries> {
    let parts = (
        vec((time(), number()), 0..5),
        option::of(number()),
        option::of(number()),
        any::<bool>(),
        option::of(missing()),
    );
    parts.prop_map(
        |(points, cumulative, level, is_of_means, missing)| PastSeries {
            points,
            cumulative,
            level,
            is_of_means,
            missing,
        },
    )
}

fn integral() -> impl Strategy<Value = PastIntegral> {
    (any::<u128>(), any::<u128>()).prop_map(|(count, peak)| PastIntegral { count, peak })
}

fn counts() -> impl Strategy<Value = PastCounts> {
    let parts = (
        integral(),
        integral(),
        any::<u64>(),
        any::<u64>(),
        any::<u128>(),
    );
    parts.prop_map(
        |(in_flight, executing, arrivals, completions, service_nanos)| PastCounts {
            in_flight,
            executing,
            arrivals,
            completions,
            service_nanos,
        },
    )
}

fn model() -> impl Strategy<Value = PastModel> {
    let parts = (
        [series(), series(), series()],
        [series(), series(), series()],
        vec((time(), number()), 0..5),
        [(); 3].map(|()| option::of((time(), number()))),
        any::<bool>(),
    );
    parts.prop_map(
        |([a, b, c], [d, e, f], in_flight_max, levels, is_from_outside)| PastModel {
            in_flight: a,
            executing: b,
            queued: c,
            arrivals: d,
            completions: e,
            service_seconds: f,
            in_flight_max,
            levels,
            is_from_outside,
        },
    )
}

fn checks() -> impl Strategy<Value = PastChecks> {
    let parts = (
        any::<[u64; 4]>(),
        vec(any::<u64>(), 0..4),
        any::<bool>(),
        option::of(time()),
        vec((any::<u64>().prop_map(SessionKey), time()), 0..5),
    );
    parts.prop_map(
        |(answered, refused, is_closed, called_at, sessions)| PastChecks {
            answered,
            refused,
            is_closed,
            called_at,
            sessions,
        },
    )
}

fn gate() -> impl Strategy<Value = PastGate> {
    let parts = (
        vec(counts(), 2),
        integral(),
        integral(),
        vec(any::<u64>(), 0..4),
        vec(any::<u64>(), 0..4),
        any::<bool>(),
        vec((any::<u64>().prop_map(SessionKey), time()), 0..5),
    );
    parts.prop_map(
        |(models, in_flight, executing, ended, refused, is_open, sessions)| PastGate {
            models,
            in_flight,
            executing,
            ended,
            refused,
            is_open,
            sessions,
        },
    )
}

fn scaler() -> impl Strategy<Value = PastScaler> {
    let size = || any::<u32>().prop_map(Replicas::new);
    let sizes = move || vec((time(), size()), 0..4);
    let series = (series(), series(), series(), option::of(time()));
    let load = (vec(model(), 2), series).prop_map(|(models, (ready, peak, filled, partial_at))| {
        PastLoad {
            models,
            ready,
            peak,
            filled,
            partial_at,
        }
    });
    let span = || any::<u64>().prop_map(Duration::from_nanos);
    let returns = vec((time(), span()), 0..4);
    let delays = vec(span(), 0..4);
    let parts = (
        (load, delays, sizes(), returns, sizes()),
        (time(), time(), option::of(time())),
        ([size(), size(), size()], any::<bool>()),
        option::of((option::of(size()), time())),
        (
            option::of((time(), size())),
            option::of(time()),
            option::of(size()),
        ),
    );
    parts.prop_map(
        |((load, start_delays, targets, returns, sizes), times, size, held, growth)| {
            let (busy_at, started, unknown_since) = times;
            let (burst, stalled_since, ready) = growth;
            let ([found, settled, desired], is_to_be_found) = size;
            PastScaler {
                load,
                start_delays,
                busy_at,
                targets,
                returns,
                sizes,
                unknown_since,
                started,
                found,
                is_to_be_found,
                settled,
                desired,
                held: held.map(|(size, until)| Held {
                    hold: size.map_or(Hold::Pause, Hold::Size),
                    until,
                }),
                burst,
                stalled_since,
                ready,
            }
        },
    )
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let names = || vec("[a-z]{1,5}", 2);
    let fleet = (
        "[a-z]{1,9}",
        names(),
        gate(),
        option::of(checks()),
        scaler(),
    )
        .prop_map(|(name, models, gate, checks, scaler)| PastFleet {
            name,
            models,
            gate,
            checks,
            scaler,
        });
    (time(), vec(fleet, 0..3)).prop_map(|(at, fleets)| Snapshot { at, fleets })
}

fn text(snapshot: &Snapshot, since_boot: u64) -> String {
    let since_boot = Duration::from_secs(since_boot);
    serde_json::to_string(&WireSnapshot::of(snapshot, "boot".to_owned(), since_boot)).unwrap()
}

fn read(text: &str, since_boot: u64) -> Result<Snapshot, SnapshotError> {
    Snapshot::from_text_at(text, "boot", Duration::from_secs(since_boot))
}

fn empty(at: u64) -> Snapshot {
    Snapshot {
        at: Timestamp::from_nanos(at),
        fleets: Vec::new(),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(snapshot in snapshot()) {
        prop_assert_eq!(read(&text(&snapshot, 7), 7).unwrap(), snapshot);
    }

    #[test]
    fn what_was_cut_is_damaged_and_no_panic(snapshot in snapshot(), part in 0.0..1.0_f64) {
        let text = text(&snapshot, 7);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss,
            reason = "a place in a short text")]
        let cut = (text.len() as f64 * part) as usize;
        prop_assert!(matches!(read(&text[..cut], 7), Err(SnapshotError::Damaged(_))));
    }
}

#[test]
fn the_time_in_between_passes_on_the_clock() {
    let read = read(&text(&empty(1_000_000_000), 100), 103).unwrap();
    assert_eq!(read.at, Timestamp::from_nanos(4_000_000_000));
}

#[test]
fn what_is_old_or_foreign_is_told() {
    let good = text(&empty(5), 100);
    let told = |text: &str, since_boot| read(text, since_boot).unwrap_err().to_string();
    assert_eq!(
        told(&good, 701),
        "it is 601 s old, at most 600 s are of use"
    );
    assert_eq!(
        told(&good.replace("\"boot\":\"boot\"", "\"boot\":\"x\""), 100),
        "it is from before the machine was started"
    );
    assert_eq!(
        told(
            &good.replace("\"version\":1", "\"version\":2,\"new\":[]"),
            100
        ),
        "it has version 2, known is 1"
    );
    assert!(told("", 100).starts_with("it is damaged"));
    assert!(told("{}", 100).starts_with("it is damaged"));
}

#[test]
fn fields_that_are_unknown_or_missing_do_no_harm() {
    let text = r#"{"version":1,"boot":"boot","since_boot":0,"at":5,"later":1,
        "fleets":[{"name":"a","later":{},"gate":{"is_open":false}}]}"#;
    let read = read(text, 0).unwrap();
    assert_eq!(read.fleets[0].name, "a");
    assert!(!read.fleets[0].gate.is_open && read.fleets[0].scaler == PastScaler::default());
}

#[test]
fn rows_follow_their_models_names() {
    let row = |arrivals| PastCounts {
        arrivals,
        ..PastCounts::default()
    };
    let fleet = PastFleet {
        name: "a".to_owned(),
        models: vec!["x".to_owned(), "y".to_owned()],
        gate: PastGate {
            models: vec![row(1), row(2)],
            ..PastGate::default()
        },
        ..PastFleet::default()
    };
    let mut snapshot = Snapshot {
        at: Timestamp::ORIGIN,
        fleets: vec![fleet],
    };
    assert_eq!(snapshot.take("b", &names(&["x"])), None);
    let taken = snapshot.take("a", &names(&["y", "new", "x"])).unwrap();
    assert_eq!(taken.gate.models, [row(2), row(0), row(1)]);
    assert_eq!(snapshot.take("a", &names(&["x"])), None);
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}
