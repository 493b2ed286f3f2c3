//! The file stays bounded and whole, and its faults are counted, not met.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicU32;

use super::super::wire::VERSION;
use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("inflight-journal-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn journal(&self, max_size: u64) -> (PathBuf, Writer) {
        let file = self.0.join("journal.jsonl");
        let config = JournalConfig {
            file: file.clone(),
            max_size,
        };
        (file, Writer::new(config, Arc::default()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn line(at: u64) -> Line {
    Line {
        v: VERSION,
        run: 7,
        time: "2026-11-30T02:00:00.000Z".to_owned(),
        at,
        fleet: "hello".to_owned(),
        what: What::Admission { open: true },
    }
}

fn read(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.map(|line| line.unwrap()).collect()
}

#[test]
fn it_is_moved_aside_when_full_and_both_files_stay_within_the_bound() {
    const BOUND: u64 = 4000;
    let folder = Folder::new();
    let (file, mut writer) = folder.journal(BOUND);
    (0..200).for_each(|at| writer.take(&line(at), 0));
    let aside = folder.0.join("journal.jsonl.1");
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(size(&file) + size(&aside) <= BOUND);
    let lines = [read(&aside), read(&file)].concat();
    let times: Vec<_> = lines.iter().map(|line| line.at).collect();
    let first = times[0];
    assert_eq!(
        times,
        (first..200).collect::<Vec<_>>(),
        "none is lost between the two"
    );
    assert_eq!(writer.counts.failed.load(Ordering::Relaxed), 0);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
    for path in [file, aside] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn a_line_that_a_crash_cut_is_followed_by_a_whole_one() {
    let folder = Folder::new();
    let (file, mut writer) = folder.journal(1 << 20);
    fs::write(&file, "{\"v\":1,\"run\":6,\"ti").unwrap();
    writer.take(&line(1), 0);
    let text = fs::read_to_string(&file).unwrap();
    let (cut, whole) = text.split_once('\n').unwrap();
    assert!(serde_json::from_str::<Line>(cut).is_err());
    assert_eq!(serde_json::from_str::<Line>(whole).unwrap(), line(1));
}

#[test]
fn what_cannot_be_written_is_counted_and_told_once_it_can() {
    let folder = Folder::new();
    let (file, mut writer) = folder.journal(1 << 20);
    fs::create_dir(&file).unwrap();
    (0..3).for_each(|at| writer.take(&line(at), 0));
    assert_eq!(writer.counts.failed.load(Ordering::Relaxed), 3);
    fs::remove_dir(&file).unwrap();
    writer.file = JournalFile::new(JournalConfig {
        file: file.clone(),
        max_size: 1 << 20,
    });
    writer.take(&line(3), 0);
    let lines = read(&file);
    assert_eq!(lines[0].what, What::Lost { count: 3 });
    assert_eq!(lines[1], line(3));
    assert_eq!(lines.len(), 2);
}

#[test]
fn lines_for_which_there_was_no_room_are_told_where_they_are_missing() {
    let folder = Folder::new();
    let (file, mut writer) = folder.journal(1 << 20);
    // The third line was dropped while the first two still waited for the thread.
    writer.counts.dropped.store(1, Ordering::Relaxed);
    writer.take(&line(0), 0);
    writer.take(&line(1), 0);
    writer.take(&line(3), 1);
    let lines = read(&file);
    assert_eq!(lines[..2], [line(0), line(1)]);
    assert_eq!(lines[2].what, What::Lost { count: 1 });
    assert_eq!(lines[3..], [line(3)]);
    let beginnings = writer.counts.beginnings.load(Ordering::Relaxed);
    assert_eq!(beginnings, 2, "the file's, and where the line is missing");
}

#[test]
fn a_removed_folder_loses_lines_and_nothing_else() {
    let folder = Folder::new();
    let (file, mut writer) = folder.journal(2000);
    writer.take(&line(0), 0);
    fs::remove_dir_all(&folder.0).unwrap();
    // The open file takes what still fits; then there is nothing to move aside.
    (1..100).for_each(|at| writer.take(&line(at), 0));
    assert!(writer.counts.failed.load(Ordering::Relaxed) > 50);
    assert!(!file.exists());
}

#[tokio::test]
async fn closing_waits_for_what_was_said() {
    let folder = Folder::new();
    let file = folder.0.join("journal.jsonl");
    let config = JournalConfig {
        file: file.clone(),
        max_size: 1 << 20,
    };
    let journal = Journal::start(config).unwrap();
    (0..500).for_each(|at| journal.write(line(at)));
    journal.close().await;
    assert_eq!(read(&file).len(), 500);
    assert_eq!(journal.lost(), 0);
}
