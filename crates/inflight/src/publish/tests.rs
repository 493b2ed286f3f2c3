use std::fs;
use std::process::Command;

use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Gate, GateConfig, ModelConfig, QueueBounds, When,
};
use inflight_core::{Bytes, ReplicaId, Slots};
use tokio::time::timeout;

use super::*;
use crate::clock::Clock;
use crate::config::PrometheusFile;
use crate::fleet::{Board, Published, Sources};
use crate::ports::{NamedPorts, ReplicaChange};

const PATIENCE: Duration = Duration::from_secs(10);

/// A fleet of whose replicas others are told.
fn fleet() -> Arc<Fleet> {
    let clock = Clock::start();
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
            scope: AdmissionScope::Off,
            sessions_max: 100,
            session_idle: Duration::from_secs(60),
        },
        bucket: Duration::from_millis(100),
    };
    let gate = Gate::new(gate, clock.now());
    let board = Board::new("staffing", 1, Replicas::ZERO, Replicas::ONE);
    let sources = Sources {
        published: Some(Published::default()),
        ..Sources::default()
    };
    Fleet::with_sources("f", clock, gate, board, sources)
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
async fn pages_are_read_of_replicas_that_came_while_a_file_was_being_written_for_ever() {
    let folder = std::env::temp_dir().join(format!("inflight-hangs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("targets.json");
    // A pipe that nobody reads, where the file is written: a disk that hangs.
    let disk = folder.join(format!(".targets.json.{}.next", std::process::id()));
    let made = Command::new("mkfifo").arg(&disk).status().unwrap();
    assert!(made.success());
    let prometheus = PrometheusFile {
        file: file.clone(),
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
    let (to_target, _at_target) = mpsc::channel(8);
    let (news, news_taken) = mpsc::channel(8);
    let (events, _told) = mpsc::channel(8);
    let links = Links {
        commands: commands_taken,
        to_target,
        news: news_taken,
        events,
        readings: mpsc::channel(1).1,
        in_haste: watch::channel(None).0,
    };
    let fleet = fleet();
    let mut serving = fleet.published().unwrap().serving();
    let (_settings, settings_taken) = watch::channel(settings);
    let publisher = serve(Arc::clone(&fleet), settings_taken, BTreeMap::new(), links);
    let publisher = tokio::spawn(publisher);
    let mut known = Vec::new();
    for index in 1..=2 {
        for change in [ReplicaChange::Starting, ReplicaChange::Ready { took: None }] {
            news.send(event(index, change)).await.unwrap();
        }
        let count = usize::try_from(index).unwrap();
        let is_known = serving.wait_for(|serving| serving.len() == count);
        known.push(timeout(PATIENCE, is_known).await.is_ok());
    }
    // The disk works again.
    let emptied = tokio::task::spawn_blocking(move || fs::read(&disk));
    emptied.await.unwrap().unwrap();
    drop((commands, news));
    timeout(PATIENCE, publisher).await.unwrap().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(known, [true, true]);
    assert!(text.contains("127.0.0.1:2"), "{text}");
}
