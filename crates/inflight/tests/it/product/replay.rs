//! `inflight replay` of what a real run wrote down.

use std::fs;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use super::instance::{INFLIGHT, Instance, configuration, fleet, gets, wait_until};

fn replay(arguments: &[&str]) -> Output {
    let mut command = Command::new(INFLIGHT);
    command.arg("replay").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_run_under_load_is_decided_the_same_again_bit_for_bit() {
    let window = "    scaling: { policy: concurrency, window: 10s, down_window: 5s }";
    let serve: &[&str] = &["__serve", "--work", "50ms", "--slots", "2"];
    let fleets = [
        fleet("hello", serve, ""),
        fleet("other", serve, window),
        fleet(
            "ratio",
            serve,
            "    scaling: { policy: occupancy, window: 10s }",
        ),
    ];
    let mut instance = Instance::start(&fleets);
    thread::scope(|scope| {
        for gateway in 0..3 {
            let gateway = instance.gateway(gateway);
            scope.spawn(move || {
                for burst in [1, 12, 30, 4] {
                    let answered = gets(gateway, "/", burst);
                    assert!(answered.iter().all(|status| *status == 200), "{answered:?}");
                    thread::sleep(Duration::from_millis(1100));
                }
            });
        }
    });
    // Another configuration, in the middle.
    let latency = "    scaling: { policy: staffing, profile: latency }";
    let changed = [
        fleet("hello", serve, latency),
        fleet("other", serve, window),
        fleet("ratio", serve, ""),
    ];
    instance.rewrite(&configuration(&changed));
    instance.signal(rustix::process::Signal::HUP);
    wait_until(
        || instance.journal().contains(r#""kind":"config""#),
        "another configuration",
    );
    gets(instance.gateway(0), "/", 20);
    assert_eq!(instance.terminate(), Some(0));

    let journal = instance.path("journal.jsonl");
    let same = replay(&[&journal]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    assert_eq!(text(&same.stderr), "");
    for fleet in ["hello", "other", "ratio"] {
        let told = text(&same.stdout)
            .lines()
            .find(|line| line.starts_with(fleet));
        assert!(told.unwrap().contains("decisions are the same"), "{same:?}");
    }

    let tight = fleet(
        "hello",
        serve,
        "    scaling: { policy: concurrency, utilization: 0.1 }",
    );
    let file = instance.file("tight.yaml", &configuration(&[tight]));
    let other = replay(&[&journal, "-c", &file]);
    assert_eq!(other.status.code(), Some(0), "{other:?}");
    assert!(
        text(&other.stdout).contains("decisions differ"),
        "{other:?}"
    );
    assert!(
        text(&other.stderr).contains("fleet other is not in the configuration"),
        "{other:?}"
    );

    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, &whole[..whole.len() - 20]).unwrap();
    let cut = replay(&[&journal]);
    assert_eq!(cut.status.code(), Some(2), "{cut:?}");
    let lines = text(&whole).lines().count();
    let place = format!("line {lines}: the line is cut in the middle");
    assert!(text(&cut.stderr).contains(&place), "{cut:?}");
}
