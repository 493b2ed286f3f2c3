use std::fs;
use std::process::Command;

use inflight_core::ReplicaId;
use tokio::time::timeout;

use super::*;
use crate::clock::Clock;
use crate::config::PrometheusFile;
use crate::fleet::{Published, Sources, sample};
use crate::ports::{NamedPorts, ReplicaChange};

const PATIENCE: Duration = Duration::from_secs(10);

/// A fleet of whose replicas others are told.
fn fleet() -> Arc<Fleet> {
    let sources = Sources {
        published: Some(Published::default()),
        ..Sources::default()
    };
    sample::fleet("f", Clock::start(), sources)
}

fn event(index: u32, change: ReplicaChange) -> TargetEvent {
    TargetEvent {
        replica: ReplicaId(index.into()),
        index,
        address: ([127, 0, 0, 1], u16::try_from(index).unwrap()).into(),
        ports: NamedPorts::default(),
        change,
    }
}

#[tokio::test]
async fn a_file_that_somebody_removes_or_changes_is_written_again() {
    let folder = std::env::temp_dir().join(format!("inflight-changed-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("targets.json");
    let scene = scene(&file);
    for change in [ReplicaChange::Starting, ReplicaChange::Ready { took: None }] {
        scene.news.send(event(1, change)).await.unwrap();
    }
    let is_there = |text: String| text.contains("127.0.0.1:1");
    let written = async || {
        for _ in 0..200 {
            if fs::read_to_string(&file).is_ok_and(is_there) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    };
    let mut found = vec![written().await];
    fs::remove_file(&file).unwrap();
    found.push(written().await);
    fs::write(&file, "[]").unwrap();
    found.push(written().await);
    scene.end().await;
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found, [true, true, true]);
}

/// One that publishes a file for a Prometheus, and its surroundings.
struct Scene {
    fleet: Arc<Fleet>,
    news: mpsc::Sender<TargetEvent>,
    publisher: tokio::task::JoinHandle<()>,
    commands: mpsc::Sender<TargetCommand>,
    _others: (
        mpsc::Receiver<TargetCommand>,
        mpsc::Receiver<TargetEvent>,
        watch::Sender<Settings>,
    ),
}

fn scene(file: &Path) -> Scene {
    let prometheus = PrometheusFile {
        file: file.to_owned(),
        port: None,
    };
    let settings = Settings {
        publish: PublishSettings {
            envoy: None,
            prometheus: Some(prometheus),
        },
        drain: Duration::from_secs(60),
    };
    let (commands, commands_taken) = mpsc::channel(8);
    let (to_target, at_target) = mpsc::channel(8);
    let (news, news_taken) = mpsc::channel(8);
    let (events, told) = mpsc::channel(8);
    let links = Links {
        commands: commands_taken,
        to_target,
        news: news_taken,
        events,
        readings: mpsc::channel(1).1,
        in_haste: watch::channel(None).0,
    };
    let fleet = fleet();
    let (changes, settings_taken) = watch::channel(settings);
    let publisher = serve(Arc::clone(&fleet), settings_taken, BTreeMap::new(), links);
    Scene {
        publisher: tokio::spawn(publisher),
        fleet,
        news,
        commands,
        _others: (at_target, told, changes),
    }
}

impl Scene {
    async fn end(self) {
        drop((self.commands, self.news));
        timeout(PATIENCE, self.publisher).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn pages_are_read_of_replicas_that_came_while_a_file_was_being_written_for_ever() {
    let folder = std::env::temp_dir().join(format!("inflight-hangs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("targets.json");
    // A pipe that nobody reads, where the file is written: a disk that hangs.
    let disk = folder.join(format!(".targets.json.{}.next", std::process::id()));
    let made = Command::new("mkfifo").arg(&disk).status().unwrap();
    assert!(made.success());
    let scene = scene(&file);
    let mut serving = scene.fleet.published().unwrap().serving();
    let mut known = Vec::new();
    for index in 1..=2 {
        for change in [ReplicaChange::Starting, ReplicaChange::Ready { took: None }] {
            scene.news.send(event(index, change)).await.unwrap();
        }
        let count = usize::try_from(index).unwrap();
        let is_known = serving.wait_for(|serving| serving.len() == count);
        known.push(timeout(PATIENCE, is_known).await.is_ok());
    }
    // The disk works again.
    let emptied = tokio::task::spawn_blocking(move || fs::read(&disk));
    emptied.await.unwrap().unwrap();
    scene.end().await;
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(known, [true, true]);
    assert!(text.contains("127.0.0.1:2"), "{text}");
}
