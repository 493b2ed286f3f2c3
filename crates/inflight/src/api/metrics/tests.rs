//! The page's series: bounded, whole, and gone with their fleet.

use std::collections::BTreeSet;

use inflight_core::admission::Arrival;
use inflight_core::{ModelIndex, SessionKey};

use tokio::sync::mpsc;

use super::*;
use crate::api::Access;
use crate::fleet::{Member, Roster, Sources, sample};
use crate::story::Story;

fn fleet(name: &str, clock: Clock) -> Arc<Fleet> {
    let sources = Sources {
        has_gateway: true,
        ..Sources::default()
    };
    sample::fleet(name, clock, sources)
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

#[test]
fn models_have_series_of_their_own() {
    let clock = Clock::start();
    let fleet = fleet("hello", clock);
    // More names than rows: the page shows what there is.
    fleet.board().models = vec!["resnet".to_owned(), "bert".to_owned()];
    let page = page_of(&[fleet], clock);
    let series =
        |name: &str, more: &str| format!("{name}{{fleet=\"hello\",model=\"resnet\"{more}}} 0");
    assert!(page.contains(&series("inflight_model_requests", ",state=\"queued\"")));
    assert!(page.contains(&series("inflight_model_arrivals_total", "")));
    assert!(!page.contains("bert"));
}
