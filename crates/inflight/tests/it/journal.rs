//! A journal of a real run gives the same decisions again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use inflight::clock::Clock;
use inflight::control::Control;
use inflight::ports::{HoldKind, Order};
use inflight::story::journal::{Journal, JournalConfig};
use inflight::story::wire::{Line, What};
use inflight::story::{Story, config_of, hold_of, observation_of};
use inflight_core::load::ReplicaState;
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, Hold, OccupancyConfig, Policy, Scaler, ScalingConfig, StaffingConfig,
};
use inflight_core::{ReplicaId, Replicas, Slots, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::api::instance::{NOWHERE, arrival, fleet_named};

/// A file that is gone afterwards.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

#[tokio::test]
async fn a_journal_of_a_real_run_gives_the_same_decisions_bit_for_bit() {
    let file = Scratch(std::env::temp_dir().join(format!("inflight-run-{}", std::process::id())));
    let journal = Journal::start(JournalConfig {
        file: file.0.clone(),
        max_size: 100_000_000,
    });
    let clock = Clock::start();
    let story = Story::new(clock, Some(journal.unwrap()));
    let policies = [
        Policy::Staffing(StaffingConfig::latency()),
        Policy::Occupancy(OccupancyConfig::new(2.0, Duration::from_secs(1)).unwrap()),
        Policy::Concurrency(ConcurrencyConfig::default()),
    ];
    let runs = policies
        .into_iter()
        .map(|policy| run(policy, clock, story.clone()));
    futures_util::future::join_all(runs).await;
    story.journal().unwrap().close().await;
    assert_eq!(story.journal().unwrap().lost(), 0);

    let text = fs::read_to_string(&file.0).unwrap();
    let mut scalers: BTreeMap<String, Scaler> = BTreeMap::new();
    let (mut decided, mut sizes) = (0, BTreeMap::<_, Vec<u32>>::new());
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        let now = Timestamp::from_nanos(line.at);
        match &line.what {
            What::Start {
                config,
                current,
                goes_on,
                ..
            } => {
                assert!(!goes_on, "{line:?}");
                let config = config_of(config).unwrap();
                let scaler = Scaler::new(config, now, Replicas::new(*current));
                scalers.insert(line.fleet.clone(), scaler);
            }
            What::Tick {
                observation,
                decision,
            } => {
                let scaler = scalers.get_mut(&line.fleet).unwrap();
                scaler.observe(now, &observation_of(observation).unwrap());
                let Some(written) = decision else { continue };
                let again = inflight::story::decision_line(&scaler.decide(now));
                assert_eq!(&again, written);
                decided += 1;
                let sizes = sizes.entry(line.fleet.clone()).or_default();
                if sizes.last() != Some(&written.desired) {
                    sizes.push(written.desired);
                }
            }
            What::Hold { replicas, until } => {
                let held = hold_of(*replicas, *until);
                let scaler = scalers.get_mut(&line.fleet).unwrap();
                scaler.hold(held.hold, held.until);
            }
            What::Release { .. } => scalers.get_mut(&line.fleet).unwrap().release(),
            What::Admission { .. } | What::State { .. } => {}
            What::Config { .. } | What::Replica { .. } | What::Error { .. } | What::Lost { .. } => {
                panic!("nothing of the kind happened: {line:?}")
            }
        }
    }
    assert_eq!(scalers.len(), 3);
    assert!(decided > 30, "{decided}");
    for (fleet, sizes) in sizes {
        assert!(sizes.contains(&6), "{fleet} was held at 6: {sizes:?}");
        assert!(sizes.len() > 2, "{fleet} was decided about: {sizes:?}");
    }
}

/// Runs one fleet for a moment, with requests that come and go, replicas that change, and a hold.
async fn run(policy: Policy, clock: Clock, story: Story) {
    let fleet = fleet_named(policy.name(), clock);
    let bounds = Bounds::new(Replicas::ZERO, Replicas::new(8)).unwrap();
    let config = ScalingConfig::new(policy, bounds, Slots::new(2).unwrap());
    let now = clock.now();
    story.started(fleet.name(), now, &config, Replicas::ONE, None);
    let scaler = Scaler::new(config, now, Replicas::ONE);
    let (orders, taken) = mpsc::channel(16);
    let control = Control::new(Arc::clone(&fleet), scaler, None, story);
    let (stop, stopped) = oneshot::channel();
    let control = tokio::spawn(control.run(taken, stopped));
    let mut permits = Vec::new();
    for step in 0..40_u64 {
        match step {
            5 => fleet.set_endpoint(ReplicaId(1), NOWHERE, ReplicaState::Ready),
            10 => fleet.set_endpoint(ReplicaId(2), NOWHERE, ReplicaState::Starting),
            15 => fleet.set_endpoint(ReplicaId(2), NOWHERE, ReplicaState::Ready),
            20 => hold(&orders, Hold::Size(Replicas::new(6))).await,
            30 => release(&orders, HoldKind::Size).await,
            _ => {}
        }
        // An order is decided on at once, and its end by the policy again.
        if !(20..30).contains(&step) {
            hold(&orders, Hold::Pause).await;
            release(&orders, HoldKind::Pause).await;
        }
        permits.extend(fleet.arrive(arrival()));
        if step % 3 == 0 {
            permits.remove(0);
        }
        sleep(Duration::from_millis(17)).await;
    }
    drop(permits);
    stop.send(()).unwrap();
    control.await.unwrap();
}

async fn hold(orders: &mpsc::Sender<Order>, hold: Hold) {
    let (done, is_done) = oneshot::channel();
    let span = Duration::from_secs(60);
    orders.send(Order::Hold { hold, span, done }).await.unwrap();
    assert!(is_done.await.unwrap().is_some());
}

async fn release(orders: &mpsc::Sender<Order>, kind: HoldKind) {
    let (done, is_done) = oneshot::channel();
    orders.send(Order::Release { kind, done }).await.unwrap();
    assert_eq!(is_done.await.unwrap(), None);
}
