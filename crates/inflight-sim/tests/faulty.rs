//! Runs with random faults: each seed must settle. `INFLIGHT_SEEDS=FIRST..LAST` runs others, such
//! as `1..10000` for a night, or `17..17` to replay one.

use inflight_sim::check::faulty_run;

#[expect(
    clippy::disallowed_methods,
    reason = "which seeds to run is the caller's wish"
)]
fn seeds() -> (u64, u64) {
    let wish = std::env::var("INFLIGHT_SEEDS").unwrap_or_else(|_| "1..200".to_owned());
    let (first, last) = wish
        .split_once("..")
        .expect("INFLIGHT_SEEDS is FIRST..LAST");
    let seed = |text: &str| text.parse().expect("a seed is a whole number");
    (seed(first), seed(last))
}

#[test]
fn after_faults_every_fleet_settles_and_no_request_is_lost() {
    let (first, last) = seeds();
    let broken: Vec<String> = (first..=last)
        .map(faulty_run)
        .filter(|run| !run.broken.is_empty())
        .map(|run| run.to_string())
        .collect();
    assert!(
        broken.is_empty(),
        "replay with INFLIGHT_SEEDS=SEED..SEED:\n{}",
        broken.join("\n")
    );
}

#[test]
fn a_seed_replays() {
    assert_eq!(faulty_run(5).outcome, faulty_run(5).outcome);
}
