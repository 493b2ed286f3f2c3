//! Checks the endpoints of a fleet, again and again, and tells who is unfit.
//!
//! It stands between whoever starts or finds the endpoints and the control loop, passes their news
//! on in order and adds its own. So an endpoint that drains or is gone is never told as unhealthy
//! afterwards. It judges nothing: the rules are in the core.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use inflight_core::ReplicaId;
use inflight_core::admission::{CheckResult, HealthChange, HealthConfig, UnhealthyCause};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::fleet::Fleet;
use crate::ports::{NamedPorts, ReplicaChange, TargetEvent};
use crate::probe::{Probe, Unfit, ask};

/// Checks that run at the same time; each has a socket. With a time-out of 2 s, 600 endpoints that
/// all hang are still asked every 5 s.
const CHECKS_MAX: usize = 256;

/// Events that may wait for the control loop; while so many do, no news is taken.
const EVENTS_WAITING: usize = 1_024;

/// How endpoints are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// What they are asked.
    pub probe: Probe,
    /// How long they may take to answer.
    pub timeout: Duration,
    /// Whether one that starts is ready when it passes a check; else whoever starts it tells.
    pub proves: bool,
    /// What follows from their answers.
    pub rules: HealthConfig,
}

/// Passes news on and adds the endpoints' health, until `news` or `events` end. Other settings count
/// from the next check on; `proves` stays what it was.
pub async fn watch(
    fleet: Arc<Fleet>,
    mut settings: watch::Receiver<HealthSettings>,
    news: mpsc::Receiver<TargetEvent>,
    events: mpsc::Sender<TargetEvent>,
) {
    let first = settings.borrow_and_update().clone();
    fleet.set_health(first.rules);
    let watcher = Watcher {
        fleet,
        probe: Arc::new(first.probe),
        timeout: first.timeout,
        proves: first.proves,
        endpoints: BTreeMap::new(),
        checks: JoinSet::new(),
        outbox: VecDeque::new(),
    };
    watcher.run(settings, news, events).await;
}

struct Watcher {
    fleet: Arc<Fleet>,
    probe: Arc<Probe>,
    timeout: Duration,
    proves: bool,
    endpoints: BTreeMap<ReplicaId, Endpoint>,
    checks: JoinSet<(ReplicaId, Result<(), Unfit>)>,
    outbox: VecDeque<TargetEvent>,
}

struct Endpoint {
    index: u32,
    address: SocketAddr,
    ports: NamedPorts,
    /// What it said when it was asked last, if that was not what it should say.
    last: Option<Unfit>,
}

impl Watcher {
    async fn run(
        mut self,
        mut settings: watch::Receiver<HealthSettings>,
        mut news: mpsc::Receiver<TargetEvent>,
        events: mpsc::Sender<TargetEvent>,
    ) {
        let clock = self.fleet.clock();
        let mut are_news_open = true;
        while are_news_open || !self.outbox.is_empty() {
            self.begin_checks();
            self.collect_changes();
            let wake = self
                .next_wake()
                .map(|at| Instant::from_std(clock.instant(at)));
            tokio::select! {
                permit = events.reserve(), if !self.outbox.is_empty() => match permit {
                    Ok(permit) => if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    },
                    Err(_) => return,
                },
                event = news.recv(), if are_news_open && self.outbox.len() < EVENTS_WAITING => {
                    match event {
                        Some(event) => self.on_news(event),
                        None => are_news_open = false,
                    }
                }
                Some(checked) = self.checks.join_next() => {
                    // A check that panicked is as good as none; its endpoint is asked no more.
                    if let Ok((replica, answer)) = checked {
                        self.on_checked(replica, answer);
                    }
                }
                Ok(()) = settings.changed() => {
                    let other = settings.borrow_and_update().clone();
                    self.fleet.set_health(other.rules);
                    self.probe = Arc::new(other.probe);
                    self.timeout = other.timeout;
                }
                () = self.fleet.health_changed() => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    let now = clock.now();
                    self.fleet.with_health(|health| health.on_timeout(now));
                }
            }
        }
    }

    /// Returns when there is something to do that no event tells.
    fn next_wake(&self) -> Option<inflight_core::Timestamp> {
        if self.checks.len() >= CHECKS_MAX {
            return None;
        }
        self.fleet
            .with_health(|health| health.poll_timeout())
            .flatten()
    }

    fn begin_checks(&mut self) {
        let now = self.fleet.clock().now();
        while self.checks.len() < CHECKS_MAX {
            let due = self.fleet.with_health(|health| health.next_check(now));
            let Some(replica) = due.flatten() else { return };
            let Some(endpoint) = self.endpoints.get(&replica) else {
                self.fleet.with_health(|health| health.remove(replica));
                continue;
            };
            let (probe, address, within) =
                (Arc::clone(&self.probe), endpoint.address, self.timeout);
            self.checks
                .spawn(async move { (replica, ask(&probe, address, within).await) });
        }
    }

    fn on_checked(&mut self, replica: ReplicaId, answer: Result<(), Unfit>) {
        let result = match &answer {
            Ok(()) => CheckResult::Passed,
            Err(unfit) if unfit.is_ours() => CheckResult::Unknown,
            Err(_) => CheckResult::Failed,
        };
        if let Err(unfit) = &answer {
            tracing::debug!(fleet = self.fleet.name(), replica = replica.0, %unfit, "a check failed");
        }
        if let Some(endpoint) = self.endpoints.get_mut(&replica) {
            endpoint.last = answer.err();
        }
        let now = self.fleet.clock().now();
        self.fleet
            .with_health(|health| health.on_check(now, replica, result));
    }

    fn on_news(&mut self, mut event: TargetEvent) {
        // What was found out before this news is told before it.
        self.collect_changes();
        let now = self.fleet.clock().now();
        let replica = event.replica;
        let endpoint = Endpoint {
            index: event.index,
            address: event.address,
            ports: Arc::clone(&event.ports),
            last: None,
        };
        match &event.change {
            ReplicaChange::Starting if self.proves => {
                self.endpoints.insert(replica, endpoint);
                self.fleet
                    .with_health(|health| health.add_unproven(now, replica));
            }
            ReplicaChange::Ready { took } => {
                let known = match took {
                    Some(_) => None,
                    None => self
                        .fleet
                        .with_health(|health| health.resume(now, replica))
                        .flatten(),
                };
                match known {
                    None => {
                        self.endpoints.insert(replica, endpoint);
                        self.fleet
                            .with_health(|health| health.add_healthy(now, replica));
                    }
                    Some(false) => {}
                    Some(true) => {
                        event.change = ReplicaChange::Unhealthy {
                            why: "it was unhealthy before it was to go".to_owned(),
                        };
                    }
                }
            }
            ReplicaChange::Draining => {
                self.fleet.with_health(|health| health.pause(replica));
            }
            ReplicaChange::Gone { .. } => {
                self.endpoints.remove(&replica);
                self.fleet.with_health(|health| health.remove(replica));
            }
            ReplicaChange::Starting | ReplicaChange::Unhealthy { .. } | ReplicaChange::GivenUp => {}
        }
        self.outbox.push_back(event);
    }

    fn collect_changes(&mut self) {
        while let Some((replica, change)) = self
            .fleet
            .with_health(|health| health.poll_change())
            .flatten()
        {
            let Some(endpoint) = self.endpoints.get(&replica) else {
                continue;
            };
            let change = match change {
                HealthChange::Healthy => ReplicaChange::Ready { took: None },
                HealthChange::Unhealthy(cause) => ReplicaChange::Unhealthy {
                    why: sentence(cause, endpoint.last.as_ref()),
                },
                HealthChange::GivenUp => ReplicaChange::GivenUp,
            };
            self.outbox.push_back(TargetEvent {
                replica,
                index: endpoint.index,
                address: endpoint.address,
                ports: Arc::clone(&endpoint.ports),
                change,
            });
        }
    }
}

fn sentence(cause: UnhealthyCause, last: Option<&Unfit>) -> String {
    match (cause, last) {
        (UnhealthyCause::Checks(count), Some(last)) => {
            format!("failed {count} checks in a row, the last one: {last}")
        }
        (UnhealthyCause::Checks(count), None) => format!("failed {count} checks in a row"),
        (UnhealthyCause::Requests(count), _) => {
            format!("{count} requests in a row did not reach it or were broken off")
        }
    }
}
