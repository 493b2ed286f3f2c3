//! The table, driven by hand and by random inputs.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    replicas_max: Replicas::new(8),
    start_timeout: Duration::from_secs(100),
    drain_timeout: Duration::from_secs(60),
    stop_grace: Duration::from_secs(30),
};

fn at(seconds: u64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_secs(seconds)
}

fn id(number: u64) -> ReplicaId {
    ReplicaId(number)
}

fn size(table: &mut Table, seconds: u64, desired: u32, drain: &[u64]) {
    let drain: Vec<ReplicaId> = drain.iter().map(|number| id(*number)).collect();
    table.on_size(at(seconds), Replicas::new(desired), &drain);
}

/// Returns what the table wants done, in short words.
fn actions(table: &mut Table) -> Vec<String> {
    let short = |action| match action {
        Action::Tell { id, index, change } => {
            let change = match change {
                ReplicaChange::Starting => "starting".to_owned(),
                ReplicaChange::Ready { took: Some(took) } => format!("ready in {took:?}"),
                ReplicaChange::Ready { took: None } => "ready again".to_owned(),
                ReplicaChange::Unhealthy { .. } | ReplicaChange::GivenUp => {
                    "not told by the table".to_owned()
                }
                ReplicaChange::Draining => "draining".to_owned(),
                ReplicaChange::Gone {
                    unexpected: false, ..
                } => "gone".to_owned(),
                ReplicaChange::Gone {
                    unexpected: true, ..
                } => "crashed".to_owned(),
            };
            format!("{}@{index} {change}", id.0)
        }
        Action::Launch { id, index } => format!("{}@{index} launch", id.0),
        Action::Terminate { id } => format!("{} terminate", id.0),
        Action::Kill { id } => format!("{} kill", id.0),
    };
    std::iter::from_fn(|| table.poll_action())
        .map(short)
        .collect()
}

/// A table with this many ready replicas, whose ids and indices are the same numbers.
fn ready_table(count: u32) -> Table {
    let mut table = Table::new(LIMITS);
    size(&mut table, 0, count, &[]);
    for number in 0..count {
        table.on_ready(at(0), id(u64::from(number)));
    }
    actions(&mut table);
    table
}

#[test]
fn replicas_start_at_the_lowest_free_index_and_get_ready() {
    let mut table = Table::new(LIMITS);
    size(&mut table, 1, 2, &[]);
    assert_eq!(
        actions(&mut table),
        ["0@0 starting", "0@0 launch", "1@1 starting", "1@1 launch"]
    );
    table.on_ready(at(4), id(1));
    assert_eq!(actions(&mut table), ["1@1 ready in 3s"]);
    size(&mut table, 5, 2, &[]);
    table.on_ready(at(5), id(1));
    assert_eq!(
        actions(&mut table),
        [""; 0],
        "the same size again changes nothing"
    );
}

#[test]
fn the_named_replica_drains_and_stops_when_it_is_empty() {
    let mut table = ready_table(3);
    size(&mut table, 1, 2, &[1]);
    assert_eq!(actions(&mut table), ["1@1 draining"]);
    table.on_drained(at(2), id(1));
    assert_eq!(actions(&mut table), ["1 terminate"]);
    table.on_exited(at(3), id(1), "exited with code 0");
    assert_eq!(actions(&mut table), ["1@1 gone"]);
    size(&mut table, 4, 3, &[]);
    assert_eq!(
        actions(&mut table),
        ["3@1 starting", "3@1 launch"],
        "the free index is used"
    );
}

#[test]
fn one_that_stays_unhealthy_is_drained_and_stopped_and_its_successor_has_its_index() {
    let mut table = ready_table(2);
    table.on_replace(at(70), id(0));
    assert_eq!(actions(&mut table), ["0@0 draining"]);
    size(&mut table, 71, 2, &[]);
    assert_eq!(
        actions(&mut table),
        [""; 0],
        "it is neither taken back nor succeeded before it is gone"
    );
    table.on_drained(at(72), id(0));
    assert_eq!(actions(&mut table), ["0 terminate"]);
    table.on_timeout(at(102));
    assert_eq!(actions(&mut table), ["0 kill"]);
    assert!(table.on_exited(at(102), id(0), "killed by signal 9"));
    assert_eq!(
        actions(&mut table),
        ["0@0 crashed", "2@0 starting", "2@0 launch"]
    );
    table.on_replace(at(103), id(2));
    table.on_replace(at(103), id(9));
    assert_eq!(
        actions(&mut table),
        [""; 0],
        "only one that was ready is replaced"
    );
}

#[test]
fn an_unhealthy_one_with_a_stand_in_is_not_succeeded_when_fewer_are_wanted_meanwhile() {
    let mut table = ready_table(3);
    table.on_replace(at(70), id(0));
    size(&mut table, 71, 2, &[]);
    table.on_drained(at(72), id(0));
    table.on_exited(at(73), id(0), "exited with code 0");
    assert_eq!(
        actions(&mut table),
        ["0@0 draining", "0 terminate", "0@0 crashed"]
    );
}

#[test]
fn only_as_many_are_drained_as_are_too_many() {
    let mut table = ready_table(3);
    size(&mut table, 1, 2, &[2, 1, 0]);
    assert_eq!(actions(&mut table), ["2@2 draining"]);
    size(&mut table, 1, 2, &[2, 1, 0]);
    assert_eq!(actions(&mut table), [""; 0]);
}

#[test]
fn names_that_are_unknown_or_twice_do_no_harm() {
    let mut table = ready_table(3);
    size(&mut table, 1, 1, &[77, 0, 0]);
    assert_eq!(actions(&mut table), ["0@0 draining", "2@2 draining"]);
}

#[test]
fn b47_without_names_the_waiting_and_starting_go_first_and_the_highest_index() {
    let mut table = ready_table(2);
    size(&mut table, 1, 5, &[]);
    table.on_exited(at(1), id(2), "exited with code 1");
    actions(&mut table);
    size(&mut table, 1, 1, &[]);
    assert_eq!(
        actions(&mut table),
        [
            "5@2 gone",
            "4@4 draining",
            "4 terminate",
            "3@3 draining",
            "3 terminate",
            "1@1 draining"
        ]
    );
}

#[test]
fn a_draining_replica_is_taken_back_before_a_new_one_starts() {
    let mut table = ready_table(3);
    size(&mut table, 1, 1, &[0, 1]);
    actions(&mut table);
    size(&mut table, 2, 4, &[]);
    assert_eq!(
        actions(&mut table),
        [
            "0@0 ready again",
            "1@1 ready again",
            "3@3 starting",
            "3@3 launch"
        ]
    );
}

#[test]
fn one_named_to_go_again_is_taken_back_last() {
    let mut table = ready_table(3);
    size(&mut table, 1, 1, &[0, 1]);
    actions(&mut table);
    size(&mut table, 2, 2, &[0]);
    assert_eq!(actions(&mut table), ["1@1 ready again"]);
}

#[test]
fn a_replica_that_was_told_to_stop_is_not_taken_back() {
    let mut table = ready_table(1);
    size(&mut table, 1, 0, &[]);
    table.on_drained(at(1), id(0));
    actions(&mut table);
    size(&mut table, 2, 1, &[]);
    assert_eq!(actions(&mut table), ["1@1 starting", "1@1 launch"]);
}

#[test]
fn a_crash_while_another_drains_takes_that_one_back() {
    let mut table = ready_table(2);
    size(&mut table, 1, 1, &[0]);
    actions(&mut table);
    table.on_exited(at(2), id(1), "killed by signal 9");
    assert_eq!(actions(&mut table), ["1@1 crashed", "0@0 ready again"]);
}

#[test]
fn a_replica_that_does_not_drain_in_time_is_terminated_then_killed() {
    let mut table = ready_table(1);
    size(&mut table, 1, 0, &[]);
    actions(&mut table);
    assert_eq!(table.poll_timeout(), Some(at(61)));
    table.on_timeout(at(60));
    assert_eq!(actions(&mut table), [""; 0]);
    table.on_timeout(at(61));
    assert_eq!(actions(&mut table), ["0 terminate"]);
    assert_eq!(table.poll_timeout(), Some(at(91)));
    table.on_timeout(at(91));
    table.on_timeout(at(92));
    assert_eq!(actions(&mut table), ["0 kill"]);
    assert_eq!(table.poll_timeout(), None);
}

#[test]
fn a_starting_replica_that_is_not_wanted_is_stopped_at_once() {
    let mut table = Table::new(LIMITS);
    size(&mut table, 0, 1, &[]);
    actions(&mut table);
    size(&mut table, 1, 0, &[]);
    assert_eq!(actions(&mut table), ["0@0 draining", "0 terminate"]);
    table.on_ready(at(2), id(0));
    assert_eq!(actions(&mut table), [""; 0], "ready comes too late");
}

#[test]
fn a_command_that_exits_at_once_is_started_ever_more_rarely() {
    let mut table = Table::new(LIMITS);
    size(&mut table, 0, 1, &[]);
    actions(&mut table);
    let mut now = 0;
    for (crash, wait) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        let crash = u64::try_from(crash).unwrap();
        table.on_exited(at(now), id(crash), "exited with code 1");
        let successor = crash + 1;
        assert_eq!(
            actions(&mut table),
            [
                format!("{crash}@0 crashed"),
                format!("{successor}@0 starting")
            ]
        );
        assert_eq!(table.poll_timeout(), Some(at(now + wait)));
        now += wait;
        table.on_timeout(at(now));
        assert_eq!(actions(&mut table), [format!("{successor}@0 launch")]);
    }
}

#[test]
fn sizing_down_and_up_does_not_forget_that_the_command_crashes() {
    let mut table = Table::new(LIMITS);
    size(&mut table, 0, 1, &[]);
    table.on_exited(at(0), id(0), "exited with code 1");
    table.on_timeout(at(1));
    table.on_exited(at(1), id(1), "exited with code 1");
    size(&mut table, 1, 0, &[]);
    actions(&mut table);
    size(&mut table, 2, 1, &[]);
    assert_eq!(actions(&mut table), ["3@0 starting"]);
    assert_eq!(table.poll_timeout(), Some(at(3)));
}

#[test]
fn the_first_crash_of_a_steady_replica_is_replaced_at_once() {
    let mut table = ready_table(1);
    table.on_exited(at(3_600), id(0), "killed by signal 9");
    assert_eq!(
        actions(&mut table),
        ["0@0 crashed", "1@0 starting", "1@0 launch"]
    );
}

#[test]
fn a_replica_never_ready_is_stopped_and_its_successor_waits_for_its_index() {
    let mut table = Table::new(LIMITS);
    size(&mut table, 0, 1, &[]);
    actions(&mut table);
    table.on_timeout(at(100));
    assert_eq!(actions(&mut table), ["0 terminate"]);
    size(&mut table, 101, 1, &[]);
    assert_eq!(actions(&mut table), [""; 0]);
    table.on_exited(at(102), id(0), "ended by signal 15");
    assert_eq!(actions(&mut table), ["0@0 crashed", "1@0 starting"]);
    assert_eq!(table.poll_timeout(), Some(at(103)));
}

#[test]
fn indices_stay_below_the_maximum_while_old_replicas_end() {
    let mut table = ready_table(8);
    size(&mut table, 1, 7, &[3]);
    table.on_drained(at(1), id(3));
    actions(&mut table);
    size(&mut table, 2, 1_000_000, &[]);
    assert_eq!(actions(&mut table), [""; 0], "all eight indices are taken");
    table.on_exited(at(3), id(3), "exited with code 0");
    assert_eq!(
        actions(&mut table),
        ["3@3 gone", "8@3 starting", "8@3 launch"]
    );
}

#[test]
fn stop_ends_everything_at_the_same_time_and_nothing_starts_any_more() {
    let mut table = ready_table(3);
    table.on_exited(at(1), id(1), "exited with code 1");
    size(&mut table, 1, 2, &[0]);
    actions(&mut table);
    table.on_stop(at(1));
    assert_eq!(
        actions(&mut table),
        ["0 terminate", "2@2 draining", "2 terminate", "3@1 gone"]
    );
    size(&mut table, 4, 5, &[]);
    table.on_exited(at(4), id(0), "exited with code 0");
    assert!(!table.is_done());
    table.on_exited(at(4), id(2), "exited with code 0");
    assert_eq!(actions(&mut table), ["0@0 gone", "2@2 gone"]);
    assert!(table.is_done());
}

#[test]
fn what_is_said_about_an_unknown_replica_is_ignored() {
    let mut table = ready_table(1);
    table.on_ready(at(1), id(9));
    table.on_drained(at(1), id(9));
    table.on_drained(at(1), id(0));
    table.on_exited(at(1), id(9), "exited with code 0");
    assert_eq!(actions(&mut table), [""; 0]);
}

/// One random input.
#[derive(Clone, Debug)]
enum Input {
    Size(u32, Vec<u64>),
    Drained(usize),
    Replace(usize),
    Ready(usize),
    Exit(usize),
    Wait(u64),
    Stop,
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let input = prop_oneof![
        6 => (0..12_u32, prop::collection::vec(0..40_u64, 0..4))
            .prop_map(|(desired, drain)| Input::Size(desired, drain)),
        4 => (0..10_usize).prop_map(Input::Drained),
        2 => (0..10_usize).prop_map(Input::Replace),
        6 => (0..10_usize).prop_map(Input::Ready),
        4 => (0..10_usize).prop_map(Input::Exit),
        6 => (0..100_000_u64).prop_map(Input::Wait),
        1 => Just(Input::Stop),
    ];
    prop::collection::vec(input, 1..120)
}

/// What the outside sees of one replica, from the actions alone.
#[derive(Debug, Default)]
struct Seen {
    running: bool,
    states: Vec<&'static str>,
}

proptest! {
    #[test]
    fn whatever_happens_there_are_no_more_than_wanted_and_each_has_its_own_index(
        inputs in inputs(),
    ) {
        let mut table = Table::new(LIMITS);
        let mut now = at(0);
        let mut desired = 0;
        let mut stopped = false;
        let mut seen: BTreeMap<ReplicaId, Seen> = BTreeMap::new();
        let mut indices: BTreeMap<u32, ReplicaId> = BTreeMap::new();
        let mut launches = 0_usize;
        let mut exits = 0_usize;
        for input in inputs {
            let running: Vec<ReplicaId> =
                seen.iter().filter(|(_, it)| it.running).map(|(id, _)| *id).collect();
            match input {
                Input::Size(size, drain) => {
                    desired = if stopped { 0 } else { size.min(8) };
                    let drain: Vec<_> = drain.into_iter().map(id).collect();
                    table.on_size(now, Replicas::new(size), &drain);
                }
                Input::Drained(at) => {
                    if let Some(id) = running.get(at) { table.on_drained(now, *id); }
                }
                Input::Replace(at) => {
                    if let Some(id) = running.get(at) { table.on_replace(now, *id); }
                }
                Input::Ready(at) => {
                    if let Some(id) = running.get(at) { table.on_ready(now, *id); }
                }
                Input::Exit(at) => if let Some(id) = running.get(at) {
                    table.on_exited(now, *id, "exited with code 1");
                    exits += 1;
                    seen.entry(*id).or_default().running = false;
                },
                Input::Wait(millis) => {
                    now = now + Duration::from_millis(millis);
                    table.on_timeout(now);
                }
                Input::Stop => { table.on_stop(now); stopped = true; desired = 0; }
            }
            while let Some(action) = table.poll_action() {
                match action {
                    Action::Tell { id, index, change } => {
                        let entry = seen.entry(id).or_default();
                        match change {
                            ReplicaChange::Starting => {
                                prop_assert!(entry.states.is_empty());
                                let lowest = (0..).find(|index| !indices.contains_key(index));
                                prop_assert_eq!(lowest, Some(index), "the lowest free index");
                                indices.insert(index, id);
                                entry.states.push("starting");
                            }
                            ReplicaChange::Ready { .. } => entry.states.push("ready"),
                            ReplicaChange::Unhealthy { .. } | ReplicaChange::GivenUp => {
                                prop_assert!(false, "the table tells no health");
                            }
                            ReplicaChange::Draining => entry.states.push("draining"),
                            ReplicaChange::Gone { .. } => {
                                prop_assert_eq!(indices.remove(&index), Some(id));
                                entry.states.push("gone");
                            }
                        }
                        let repeated = entry.states.windows(2).any(|two| two[0] == two[1]);
                        prop_assert!(!repeated, "{:?}", entry.states);
                    }
                    Action::Launch { id, .. } => {
                        launches += 1;
                        prop_assert!(!stopped, "nothing starts after the stop");
                        let entry = seen.entry(id).or_default();
                        prop_assert!(!entry.running);
                        entry.running = true;
                    }
                    Action::Terminate { id } | Action::Kill { id } => {
                        prop_assert!(seen.get(&id).is_some_and(|entry| entry.running));
                    }
                }
            }
            let live = seen.values()
                .filter(|it| matches!(it.states.last(), Some(&"starting" | &"ready")))
                .count();
            let failing = table.replicas.values().filter(|it| it.state.is_failing()).count();
            let desired = usize::try_from(desired).unwrap();
            prop_assert!(live <= desired + failing, "{live} live, {desired} wanted");
            prop_assert!(indices.len() <= 8);
            prop_assert!(live >= desired || indices.len() == 8 || failing > 0);
            prop_assert!(launches <= exits + 8, "never more processes than the maximum");
            prop_assert!(table.backoff.start_at(now, 0).since(now) <= Duration::from_secs(60));
        }
    }
}

#[test]
fn an_adopted_replica_keeps_its_place_is_asked_first_and_counts_as_there() {
    let mut table = Table::new(LIMITS);
    let age = Duration::from_secs(50);
    for (number, stage) in [
        (5, Stage::Ready),
        (6, Stage::Starting),
        (7, Stage::Stopping),
    ] {
        let index = u32::try_from(number).unwrap() - 5;
        assert_eq!(
            table.adopt(at(100), id(number), index, stage, age),
            id(number)
        );
    }
    let expected = [
        "5@0 starting",
        "6@1 starting",
        "7@2 starting",
        "7@2 draining",
    ];
    assert_eq!(actions(&mut table), expected);
    size(&mut table, 100, 3, &[]);
    assert_eq!(
        actions(&mut table),
        ["8@3 starting", "8@3 launch"],
        "two are there, one is going, and ids go on"
    );
    table.on_ready(at(101), id(5));
    table.on_ready(at(102), id(6));
    assert_eq!(actions(&mut table), ["5@0 ready again", "6@1 ready in 52s"]);
    table.on_timeout(at(130));
    assert_eq!(actions(&mut table), ["7 kill"]);
    table.on_exited(at(131), id(7), "killed");
    assert_eq!(actions(&mut table), ["7@2 gone"]);
}

#[test]
fn an_adopted_replica_that_does_not_answer_drains_and_is_replaced() {
    let mut table = Table::new(LIMITS);
    table.adopt(at(100), id(0), 0, Stage::Ready, Duration::from_secs(99));
    size(&mut table, 100, 1, &[]);
    actions(&mut table);
    table.on_timeout(at(200));
    assert_eq!(
        actions(&mut table),
        ["0@0 draining"],
        "whoever sends it requests past us has not heard that it does not answer"
    );
    table.on_ready(at(201), id(0));
    size(&mut table, 202, 1, &[]);
    assert_eq!(actions(&mut table), [""; 0], "it is not taken back");
    table.on_drained(at(203), id(0));
    assert_eq!(actions(&mut table), ["0 terminate"]);
    assert!(table.on_exited(at(204), id(0), "killed by signal 9"));
    assert_eq!(actions(&mut table), ["0@0 crashed", "1@0 starting"]);
}

#[test]
fn an_adopted_replica_that_is_not_wanted_drains_and_is_taken_back_only_once_it_answered() {
    let mut table = Table::new(LIMITS);
    for number in 0..2 {
        let index = u32::try_from(number).unwrap();
        let age = Duration::from_secs(99);
        table.adopt(at(100), id(number), index, Stage::Ready, age);
    }
    actions(&mut table);
    size(&mut table, 100, 0, &[]);
    assert_eq!(actions(&mut table), ["1@1 draining", "0@0 draining"]);
    table.on_ready(at(101), id(1));
    assert_eq!(actions(&mut table), [""; 0]);
    size(&mut table, 102, 2, &[]);
    assert_eq!(
        actions(&mut table),
        ["1@1 ready again", "2@2 starting", "2@2 launch"]
    );
    table.on_drained(at(103), id(0));
    table.on_exited(at(104), id(0), "exited with code 0");
    assert_eq!(actions(&mut table), ["0 terminate", "0@0 gone"]);
}

#[test]
fn a_table_that_was_handed_over_still_kills_what_does_not_stop() {
    let mut table = ready_table(1);
    table.set_handed_over(at(1), true);
    table.on_stop(at(2));
    assert_eq!(actions(&mut table), ["0@0 draining", "0 terminate"]);
    assert_eq!(table.poll_timeout(), Some(at(32)));
}

#[test]
fn a_table_that_was_handed_over_starts_and_ends_nothing_until_it_is_taken_back() {
    let mut table = ready_table(2);
    table.set_handed_over(at(1), true);
    size(&mut table, 2, 5, &[]);
    table.on_exited(at(3), id(0), "exited with code 1");
    assert_eq!(actions(&mut table), ["0@0 crashed"]);
    assert_eq!(table.poll_timeout(), None);
    table.set_handed_over(at(4), false);
    assert_eq!(actions(&mut table), ["2@0 starting", "2@0 launch"]);
}
