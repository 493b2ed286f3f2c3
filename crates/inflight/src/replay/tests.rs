//! Journals that are whole, and journals that are not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inflight_core::load::{
    Level, Missing, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView, Term,
};
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, Hold, Policy, Scaler, ScalingConfig, StaffingConfig,
};
use inflight_core::{Occupancy, ReplicaId, Replicas, Slots};

use super::source::{Next, Source, SourceError};
use super::*;
use crate::clock::Clock;
use crate::story::Story;
use crate::story::journal::{Journal, JournalConfig};

/// A folder that is gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("inflight-replay-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.journal()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn rewrite(&self, lines: &[String]) {
        fs::write(self.journal(), lines.join("\n") + "\n").unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A process of ours with one fleet, as far as its journal knows it.
struct Process {
    story: Story,
    scaler: Scaler,
    second: u64,
    told: u64,
    in_flight: [f64; 2],
}

fn at(second: u64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_secs(second)
}

fn config(policy: Policy) -> ScalingConfig {
    let bounds = Bounds::new(Replicas::ONE, Replicas::new(50)).unwrap();
    ScalingConfig::new(policy, bounds, Slots::new(2).unwrap())
}

impl Process {
    fn start(folder: &Folder, max_size: u64, before: Option<&Self>) -> Self {
        let file = folder.journal();
        let journal = Journal::start(JournalConfig { file, max_size }).unwrap();
        let second = before.map_or(0, |before| before.second);
        let story = Story::new(Clock::start_at(at(second)), Some(journal));
        let config = config(Policy::Concurrency(ConcurrencyConfig::default()));
        let past = before.map(|before| before.scaler.export());
        story.started("hello", at(second), &config, Replicas::ONE, past.as_ref());
        let mut scaler = Scaler::new(config, at(second), Replicas::ONE);
        if let Some(past) = &past {
            scaler.restore(at(second), past);
        }
        Self {
            story,
            scaler,
            second,
            told: 0,
            in_flight: [0.0; 2],
        }
    }

    /// Two seconds pass with so many requests in flight.
    async fn tick(&mut self, in_flight: u32) {
        let now = at(self.second + 2);
        self.second += 2;
        self.in_flight = [
            f64::from(in_flight),
            self.in_flight[1] + 2.0 * f64::from(in_flight),
        ];
        let observation = self.observation();
        self.scaler.observe(now, &observation);
        let decision = self.scaler.decide(now);
        self.story.read("hello", now, &observation, Some(&decision));
        // The thread that writes it says soon whether a file begins.
        self.written().await;
        self.told = self.story.known("hello", now, &self.scaler, self.told);
    }

    fn observation(&self) -> Observation {
        let [now, integral] = self.in_flight;
        let occupancy = Term::exact(Occupancy::new(now).unwrap());
        let level = Level {
            now: occupancy,
            integral: Term::exact(integral),
        };
        let rows = 0..self.second % 7;
        Observation {
            replicas: ReplicaView::Rows(
                rows.map(|id| ReplicaRow {
                    id: ReplicaId(id),
                    state: ReplicaState::Ready,
                    in_flight: 1,
                })
                .collect(),
            ),
            models: vec![ModelLoad {
                in_flight: level,
                executing: level,
                queued: Level::NOT_OFFERED,
                arrivals: Term::exact(integral),
                completions: Term::exact(integral),
                service_seconds: Term::exact(integral / 3.0),
                in_flight_max: occupancy,
            }],
            peak_seconds: Term::exact(integral),
            started: vec![Duration::from_millis(self.second)],
            metric: Term::Unknown(Missing::NotOffered),
            filled: Term::Unknown(Missing::NotOffered),
            is_partial: false,
            is_called: false,
        }
    }

    fn hold(&mut self, size: u32) {
        let (hold, until) = (Hold::Size(Replicas::new(size)), at(self.second + 30));
        self.scaler.hold(hold, until);
        let held = inflight_core::scaling::Held { hold, until };
        self.story.held("hello", at(self.second), held);
    }

    async fn written(&self) {
        self.story.journal().unwrap().close().await;
    }

    /// So many ticks of a load that comes and goes.
    async fn run(&mut self, ticks: u32) {
        for tick in 0..ticks {
            self.tick(tick * tick % 37).await;
        }
    }
}

/// Replays to the end.
fn replayed(path: &Path, by: By) -> (Tally, Vec<String>) {
    let mut source = Source::open(path).unwrap();
    let mut replay = Replay::new(by);
    let mut told = Vec::new();
    loop {
        let next = source.read_on();
        let line = source.place().line;
        match next {
            Ok(Some(Next::Line(taken, unknown))) => {
                told.extend(unknown.map(|field| format!("{line}: {field}")));
                match replay.take(source.place(), &taken) {
                    Ok(note) => told.extend(note.map(|note| format!("{line}: {note}"))),
                    Err(fault) => told.push(format!("{line}: {fault}")),
                }
            }
            Ok(Some(Next::Cut)) => {
                told.push(format!("{line}: cut"));
                replay.gap();
            }
            Ok(Some(Next::File)) => replay.file_begins(),
            Ok(None) => break,
            Err(error) => {
                told.push(format!("{line}: {error}"));
                break;
            }
        }
    }
    let tally = replay.tallies().next().map(|(_, tally)| tally.clone());
    (tally.unwrap_or_default(), told)
}

/// A whole journal of one process.
async fn recorded(ticks: u32) -> Folder {
    let folder = Folder::new();
    let mut process = Process::start(&folder, 100_000_000, None);
    process.run(ticks).await;
    process.written().await;
    folder
}

#[track_caller]
fn assert_same(tally: &Tally, compared: u64, skipped: u64) {
    let found = (tally.compared, tally.differing, tally.skipped);
    assert_eq!(found, (compared, 0, skipped), "{:?}", tally.first);
}

#[tokio::test]
async fn a_whole_journal_gives_the_same_decisions_with_holds_and_another_configuration() {
    let folder = Folder::new();
    let mut process = Process::start(&folder, 100_000_000, None);
    process.run(40).await;
    process.hold(9);
    process.run(30).await;
    let staffing = config(Policy::Staffing(StaffingConfig::latency()));
    process
        .story
        .configured("hello", at(process.second), &staffing);
    process.scaler.set_config(at(process.second), staffing);
    process.run(40).await;
    process.written().await;
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_same(&tally, 110, 0);
    assert_eq!(told, Vec::<String>::new());
    let (recorded, again) = (tally.recorded_replica_seconds, tally.again_replica_seconds);
    assert!(recorded > 200.0 && recorded.total_cmp(&again).is_eq());
}

#[tokio::test]
async fn a_restart_goes_on_from_what_was_known() {
    let folder = Folder::new();
    let mut first = Process::start(&folder, 100_000_000, None);
    first.run(50).await;
    first.written().await;
    let mut second = Process::start(&folder, 100_000_000, Some(&first));
    second.in_flight = first.in_flight;
    second.run(50).await;
    second.written().await;
    assert_eq!(folder.lines()[0].matches("past").count(), 0);
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_same(&tally, 100, 0);
    assert_eq!(told, Vec::<String>::new());

    // Version 1 did not say what it goes on from; the file's next `state` does.
    let mut lines = folder.lines();
    let start = lines
        .iter()
        .rposition(|line| line.contains(r#""kind":"start""#));
    let line = &mut lines[start.unwrap()];
    let (before, _) = line.split_once(r#","past""#).unwrap();
    *line = format!("{before}}}").replace("\"v\":2", "\"v\":1");
    folder.rewrite(&lines);
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_same(&tally, 99, 1);
    assert!(
        told[0].contains("goes on from what an earlier process knew"),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_rotated_journal_is_read_from_its_predecessor_and_from_its_middle() {
    let folder = Folder::new();
    let mut process = Process::start(&folder, 400_000, None);
    process.run(700).await;
    process.written().await;
    let aside = folder.0.join("journal.jsonl.1");
    assert!(aside.exists());
    let first = fs::read_to_string(&aside).unwrap();
    assert!(
        first.contains(r#""kind":"config""#),
        "more than two files were written"
    );
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_eq!(
        (tally.differing, tally.skipped),
        (0, 1),
        "{:?}",
        tally.first
    );
    assert_eq!(told, Vec::<String>::new());
    let both = tally.compared;
    fs::remove_file(aside).unwrap();
    let (tally, _) = replayed(&folder.journal(), By::Recorded);
    assert_eq!(
        (tally.differing, tally.skipped),
        (0, 1),
        "{:?}",
        tally.first
    );
    assert!(tally.compared > 50 && tally.compared < both);
}

#[tokio::test]
async fn what_is_no_continuation_is_not_taken_for_a_difference() {
    let folder = Folder::new();
    let mut process = Process::start(&folder, 400_000, None);
    process.run(700).await;
    process.written().await;
    // The file in between is gone: somebody moved it away.
    let aside = folder.0.join("journal.jsonl.1");
    let text = fs::read_to_string(&aside).unwrap();
    let kept: Vec<&str> = text.lines().take(60).collect();
    fs::write(&aside, kept.join("\n") + "\n").unwrap();
    let (tally, _) = replayed(&folder.journal(), By::Recorded);
    assert_eq!(tally.differing, 0, "{:?}", tally.first);
    assert!(tally.skipped <= 3 && tally.compared > 100);
}

/// Makes a journal one of version 1, which says no state.
fn of_version_1(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.contains(r#""kind":"state""#));
    let lines: Vec<String> = lines
        .map(|line| line.replacen("\"v\":2", "\"v\":1", 1))
        .collect();
    fs::write(file, lines.join("\n") + "\n").unwrap();
}

/// A whole journal in two files of version 1, each of so many decisions.
async fn in_two_files_of_version_1(ticks: usize) -> (Folder, PathBuf) {
    let folder = recorded(u32::try_from(2 * ticks).unwrap()).await;
    of_version_1(&folder.journal());
    let mut lines = folder.lines();
    let is_tick = |line: &&String| line.contains(r#""kind":"tick""#);
    let last = lines.iter().filter(is_tick).nth(ticks - 1).unwrap().clone();
    let end = lines.iter().position(|line| *line == last).unwrap() + 1;
    let aside = folder.0.join("journal.jsonl.1");
    let rest = lines.split_off(end);
    folder.rewrite(&lines);
    fs::rename(folder.journal(), &aside).unwrap();
    folder.rewrite(&rest);
    (folder, aside)
}

#[tokio::test]
async fn a_difference_after_a_file_of_version_1_is_one_where_the_next_file_continues_it() {
    let (folder, _) = in_two_files_of_version_1(40).await;
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_same(&tally, 80, 0);
    assert_eq!(told, Vec::<String>::new());
    let mut lines = folder.lines();
    lines[4] = lines[4].replace(r#""at_max":false"#, r#""at_max":true"#);
    folder.rewrite(&lines);
    let (tally, _) = replayed(&folder.journal(), By::Recorded);
    assert_eq!((tally.compared, tally.differing, tally.skipped), (80, 1, 0));
    assert_eq!(tally.first[0].line, 5);
}

#[tokio::test]
async fn a_difference_after_a_file_of_version_1_that_is_not_continued_is_told() {
    let (folder, _) = in_two_files_of_version_1(40).await;
    let lines = folder.lines();
    folder.rewrite(&lines[20..]);
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_eq!(tally.differing, 0, "{:?}", tally.first);
    assert!(tally.skipped > 0);
    assert_eq!(told.len(), 1);
    assert!(
        told[0].contains("version 1 of the journal does not say which"),
        "{told:?}"
    );
}

#[tokio::test]
async fn lines_that_are_missing_are_no_difference_until_the_state_is_told_again() {
    let folder = recorded(60).await;
    let mut lines = folder.lines();
    let lost = r#"{"v":2,"run":1,"time":"t","at":1,"fleet":"","kind":"lost","count":3}"#;
    lines.splice(20..23, [lost.to_owned()]);
    folder.rewrite(&lines);
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_eq!(tally.differing, 0);
    assert!(tally.skipped > 30, "the state is not told again here");
    assert_eq!(
        told,
        ["21: 3 lines before this one were lost when it was written"]
    );
}

#[tokio::test]
async fn a_decision_that_was_tampered_with_is_told_with_its_line() {
    let folder = recorded(30).await;
    let mut lines = folder.lines();
    let place = 12;
    lines[place] = lines[place].replace(r#""at_max":false"#, r#""at_max":true"#);
    folder.rewrite(&lines);
    let (tally, _) = replayed(&folder.journal(), By::Recorded);
    assert_eq!((tally.compared, tally.differing), (30, 1));
    let difference = &tally.first[0];
    assert_eq!(difference.line, 13);
    assert!(difference.recorded.at_max && !difference.again.at_max);
}

#[tokio::test]
async fn another_configuration_is_compared_and_need_not_have_the_same_tick() {
    let folder = recorded(200).await;
    let by = |policy| By::Other([("hello".to_owned(), config(policy))].into());
    let same = by(Policy::Concurrency(ConcurrencyConfig::default()));
    let (tally, _) = replayed(&folder.journal(), same);
    assert_same(&tally, 200, 0);
    let ratio = inflight_core::scaling::OccupancyConfig::new(2.0, Duration::from_secs(60));
    let (tally, _) = replayed(&folder.journal(), by(Policy::Occupancy(ratio.unwrap())));
    assert_eq!(tally.compared + tally.skipped, 200);
    assert!(tally.differing > 50 && tally.skipped < 8, "{tally:?}");
    assert!(tally.again_replica_seconds < tally.recorded_replica_seconds);
    let sizes: Vec<_> = tally
        .first
        .iter()
        .map(|one| (one.recorded.desired, one.again.desired))
        .collect();
    let mut distinct = sizes.clone();
    distinct.dedup();
    assert_eq!(
        sizes, distinct,
        "what stays as different as it is, is told once"
    );
    let (tally, told) = replayed(&folder.journal(), By::Other(BTreeMap::new()));
    assert_eq!(tally.compared, 0);
    assert_eq!(
        told,
        ["1: fleet hello is not in the configuration and is left out"]
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_told_with_its_line() {
    let folder = recorded(5).await;
    let lines = folder.lines();
    let told = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines = lines.clone();
        change(&mut lines);
        folder.rewrite(&lines);
        replayed(&folder.journal(), By::Recorded).1
    };
    let newer = |lines: &mut Vec<String>| lines[3] = r#"{"v":9,"kind":"dance"}"#.to_owned();
    assert_eq!(
        told(&newer),
        ["4: the line is of version 9 of the journal, allowed is 1 to 2"]
    );
    let unknown = |lines: &mut Vec<String>| {
        lines[3] = lines[3].replace(r#""metric""#, r#""colour":1,"metric""#);
    };
    assert_eq!(told(&unknown), ["4: observation.colour"]);
    let kind = |lines: &mut Vec<String>| lines[3] = lines[3].replace("tick", "tock");
    let answer = told(&kind);
    assert!(
        answer[0].starts_with("4: unknown variant `tock`, expected one of"),
        "{answer:?}"
    );
    let no_json = |lines: &mut Vec<String>| lines[3] = "hello".to_owned();
    assert_eq!(told(&no_json), ["4: column 1: expected value"]);
    let value = |lines: &mut Vec<String>| lines[0] = lines[0].replace(r#""max":50"#, r#""max":0"#);
    assert_eq!(
        told(&value)[0],
        "1: replicas.max is 0, allowed is 1 or more"
    );
    let cut = |lines: &mut Vec<String>| lines[3].truncate(100);
    assert_eq!(told(&cut)[0], "4: cut");
}

#[tokio::test]
async fn a_journal_that_ends_within_a_line_is_compared_up_to_there() {
    let folder = recorded(5).await;
    let text = fs::read_to_string(folder.journal()).unwrap();
    fs::write(folder.journal(), &text[..text.len() - 9]).unwrap();
    let (tally, told) = replayed(&folder.journal(), By::Recorded);
    assert_same(&tally, 4, 0);
    let last = text.lines().count();
    assert_eq!(
        told,
        [format!(
            "{last}: the line is cut in the middle: the journal ends there"
        )]
    );
}

#[test]
fn what_is_no_journal_is_told_by_its_name() {
    let folder = Folder::new();
    let error = |path: &Path| match Source::open(path) {
        Ok(mut source) => source.read_on().map(|_| ()).unwrap_err(),
        Err(error) => error,
    };
    let missing = error(&folder.journal());
    assert!(matches!(missing, SourceError::Open { .. }), "{missing}");
    assert!(matches!(error(&folder.0), SourceError::Open { .. }));
    fs::write(folder.journal(), "\n\n").unwrap();
    assert!(matches!(error(&folder.journal()), SourceError::Empty));
}
