//! The page's series: bounded, whole, and gone with their fleet.

use std::collections::BTreeSet;
use std::time::Duration;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::{Bytes, ModelIndex, Replicas, SessionKey, Slots};

use tokio::sync::mpsc;

use super::*;
use crate::api::Access;
use crate::fleet::{Board, Member, Roster};
use crate::story::Story;

fn fleet(name: &str, clock: Clock) -> Arc<Fleet> {
    let gate = GateConfig {
        models: vec![ModelConfig { slots: Slots::ONE }],
        queue: QueueBounds {
            requests: 1,
            bytes: Bytes(1),
            wait: Duration::from_secs(30),
            cold_wait: Duration::from_secs(300),
        },
        admission: AdmissionConfig {
            threshold: 3.0,
            reopen: 2.4,
            when: When::AtMax,
            scope: AdmissionScope::NewSessions,
            sessions_max: 100_000,
            session_idle: Duration::from_secs(60),
        },
        bucket: Duration::from_millis(100),
    };
    let board = Board::new("staffing", 1, Replicas::ZERO, Replicas::ONE);
    Fleet::new(name, clock, Gate::new(gate, clock.now()), board)
}

/// Returns the page of an API that shows these fleets.
fn page_of(fleets: &[Arc<Fleet>], clock: Clock) -> String {
    let member = |fleet: &Arc<Fleet>| Member {
        fleet: Arc::clone(fleet),
        orders: mpsc::channel(1).0,
    };
    let roster = Arc::new(Roster::default());
    roster.replace(fleets.iter().map(member).collect());
    let api = Api {
        roster,
        clock,
        story: Story::new(clock, None),
        access: Access::new(([127, 0, 0, 1], 0).into(), None),
        instance: InstanceId(1),
    };
    encode(&api, None).unwrap()
}

fn series(page: &str) -> BTreeSet<&str> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, _)| series)
        .collect()
}

#[test]
fn the_series_of_a_removed_fleet_vanish() {
    let clock = Clock::start();
    let (kept, removed) = (fleet("kept", clock), fleet("removed", clock));
    let alone = page_of(&[Arc::clone(&kept)], clock);
    let both = page_of(&[Arc::clone(&kept), removed], clock);
    let after = page_of(&[kept], clock);
    assert!(both.contains("fleet=\"removed\""));
    assert_eq!(series(&after), series(&alone));
}

#[test]
fn requests_add_no_series() {
    let clock = Clock::start();
    let fleet = fleet("hello", clock);
    let before = page_of(&[Arc::clone(&fleet)], clock);
    for number in 0..1000 {
        let arrival = Arrival {
            model: ModelIndex(0),
            session: Some(SessionKey(number)),
            first_call: false,
            deadline: None,
            draw: number,
        };
        drop(fleet.arrive(arrival));
    }
    let after = page_of(&[fleet], clock);
    assert_eq!(series(&after), series(&before));
}

#[test]
fn a_series_is_there_once_and_the_page_ends_whole() {
    let clock = Clock::start();
    let page = page_of(&[fleet("a", clock), fleet("b", clock)], clock);
    let samples = page.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(series(&page).len(), samples);
    assert!(page.ends_with("\n# EOF\n"));
}

#[test]
fn a_name_that_needs_escaping_breaks_no_line() {
    let clock = Clock::start();
    let page = page_of(&[fleet("a\"b\\c\nd", clock)], clock);
    assert!(page.contains(r#"inflight_admission_open{fleet="a\"b\\c\nd"} 1"#));
}
