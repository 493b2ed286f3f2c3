//! Endpoints that somebody else starts: found, checked, taken out, brought back, drained.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use inflight::config::{Config, Surroundings};
use inflight::control::{Control, TargetLink};
use inflight::endpoints::{self, Comings, Family, HealthSettings, Resolver, Settings, Source};
use inflight::fleet::{Fleet, ReplicaCounts};
use inflight::ports::Order;
use inflight::probe::Probe;
use inflight::runtime::Running;
use inflight::story::Story;
use inflight_core::admission::HealthConfig;
use inflight_core::scaling::{Bounds, Policy, Scaler, ScalingConfig, StaffingConfig};
use inflight_core::{Replicas, Slots};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::gateway_world::{Http1, Replica, Speaks, World, eventually, get};

fn counts(fleet: &Fleet) -> (u32, u32, u32, u32) {
    let (_, counts) = fleet.load_and_replicas();
    let ReplicaCounts {
        starting,
        ready,
        draining,
        unhealthy,
    } = counts;
    (starting, ready, draining, unhealthy)
}

/// An instance in this process, with one fleet at fixed addresses.
struct Instance {
    fleet: Arc<Fleet>,
    gateway: SocketAddr,
    running: Running,
}

impl Instance {
    async fn start(addresses: &[SocketAddr], more: &str) -> Self {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let text = format!(
            r#"
version: 1
admin: {{ listen: "127.0.0.1:0" }}
fleets:
  - name: fixed
    slots: 4
    replicas: {{ min: 1, max: 4 }}
    source: {{ gateway: {{ listen: "127.0.0.1:0" }} }}
    endpoints: {{ static: {addresses:?} }}
{more}
"#
        );
        let config =
            Config::from_text(Path::new("test.yaml"), &text, &Surroundings::Elsewhere).unwrap();
        let running = Running::start(config, false).await.unwrap();
        let (fleet, gateway) = running.first().unwrap();
        Self {
            fleet,
            gateway,
            running,
        }
    }
}

/// What no request failed with.
const NONE: [StatusCode; 0] = [];

const QUICK: &str = "    health: { every: 50ms, timeout: 500ms, healthy_after: 1 }";

/// Sends so many GETs on one connection and returns those that were not answered with 200.
async fn failures(gateway: SocketAddr, path: &str, count: usize) -> Vec<StatusCode> {
    let mut client = Http1::to(gateway).await;
    let mut failed = Vec::new();
    for _ in 0..count {
        let status = client.get(path).await.status();
        if status != StatusCode::OK {
            failed.push(status);
        }
    }
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_address_gets_requests_once_it_passed_a_check() {
    let replica = Replica::start().await;
    let late = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let late_at = late.local_addr().unwrap();
    drop(late);
    let instance = Instance::start(&[replica.address, late_at], QUICK).await;
    assert!(failures(instance.gateway, "/", 50).await.is_empty());
    assert_eq!(counts(&instance.fleet), (1, 1, 0, 0));
    let late = TcpListener::bind(late_at).await.unwrap();
    let _late = Replica::listening(late, Speaks::Both);
    eventually(|| counts(&instance.fleet) == (0, 2, 0, 0)).await;
    instance.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_health_a_fixed_address_is_ready_at_once_and_for_ever() {
    let replica = Replica::start().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [replica.address, nobody.local_addr().unwrap()];
    drop(nobody);
    let instance = Instance::start(&addresses, "    health: off").await;
    assert!(failures(instance.gateway, "/", 50).await.is_empty());
    assert_eq!(counts(&instance.fleet), (0, 2, 0, 0));
    instance.running.stop().await.unwrap();
}

/// The checks of this one are an hour apart: only requests can find out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b30_a_closed_port_that_looks_idle_is_taken_out_by_the_requests_that_fail_there() {
    let (stays, closes) = (Replica::start().await, Replica::start().await);
    let slow = "    health: { every: 1h, timeout: 500ms, healthy_after: 1 }";
    let instance = Instance::start(&[stays.address, closes.address], slow).await;
    eventually(|| counts(&instance.fleet) == (0, 2, 0, 0)).await;
    let address = closes.address;
    closes.kill();
    eventually(|| std::net::TcpStream::connect(address).is_err()).await;
    let mut failed = Vec::new();
    for _ in 0..200 {
        failed.extend(failures(instance.gateway, "/", 1).await);
        if counts(&instance.fleet) == (0, 1, 0, 1) {
            break;
        }
    }
    assert_eq!(failed, NONE, "a request that was not begun goes elsewhere");
    assert_eq!(counts(&instance.fleet), (0, 1, 0, 1));
    let again = TcpListener::bind(address).await.unwrap();
    let again = Replica::listening(again, Speaks::Both);
    eventually(|| counts(&instance.fleet) == (0, 2, 0, 0)).await;
    assert!(failures(instance.gateway, "/", 100).await.is_empty());
    assert!(again.requests() > 0);
    instance.running.stop().await.unwrap();
}

/// A check by connecting passes each time, and each request is broken off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_flaps_costs_no_request_and_is_asked_ever_later() {
    let steady = Replica::start().await;
    let flapping = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = flapping.local_addr().unwrap();
    let closing = tokio::spawn(async move {
        loop {
            drop(flapping.accept().await);
        }
    });
    let instance = Instance::start(&[steady.address, address], QUICK).await;
    eventually(|| counts(&instance.fleet).1 == 2).await;
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        clients.spawn(failures(instance.gateway, "/sleep", 300));
    }
    let mut was_out = false;
    while !clients.is_empty() {
        tokio::select! {
            failed = clients.join_next() => assert_eq!(failed.unwrap().unwrap(), NONE),
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                was_out |= counts(&instance.fleet).3 == 1;
            }
        }
    }
    assert!(was_out);
    closing.abort();
    instance.running.stop().await.unwrap();
}

/// As a proxy with a panic threshold would not: requests wait instead of being sent to the dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b03_while_nobody_is_healthy_requests_wait_and_nobody_is_locked_out_for_ever() {
    let replica = Replica::start().await;
    let health = "    health: { path: /, every: 20ms, timeout: 500ms, unhealthy_after: 2 }";
    let instance = Instance::start(&[replica.address], health).await;
    eventually(|| counts(&instance.fleet) == (0, 1, 0, 0)).await;
    let address = replica.address;
    replica.kill();
    eventually(|| counts(&instance.fleet) == (0, 0, 0, 1)).await;
    let gateway = instance.gateway;
    let waiting = tokio::spawn(async move { failures(gateway, "/", 1).await });
    eventually(|| instance.fleet.load().queued == 1).await;
    let again = TcpListener::bind(address).await.unwrap();
    let _again = Replica::listening(again, Speaks::Both);
    assert_eq!(waiting.await.unwrap(), NONE);
    instance.running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_models_on_one_fleet_never_exceed_their_own_slots() {
    let replicas = [Replica::start().await, Replica::start().await];
    let addresses = [replicas[0].address, replicas[1].address];
    let more = r#"
    models:
      - { name: large, path: /sleep, slots: 1 }
      - { name: small, header: { x-model: small }, slots: 3 }
      - { name: other }
"#;
    let instance = Instance::start(&addresses, more).await;
    eventually(|| counts(&instance.fleet) == (0, 2, 0, 0)).await;
    let gateway = instance.gateway;
    let of_small = || {
        let mut request = get("/hold");
        let name = http::HeaderName::from_static("x-model");
        request.headers_mut().insert(name, "small".parse().unwrap());
        request
    };
    let mut held = JoinSet::new();
    for _ in 0..10 {
        let request = of_small();
        held.spawn(async move {
            let mut client = Http1::to(gateway).await;
            client.send(request).await.status()
        });
    }
    let shares = || instance.fleet.load().models;
    eventually(|| shares()[1].executing >= 6.0 && shares()[1].queued >= 4.0).await;
    for replica in &replicas {
        eventually(|| replica.seen.executing.load(Ordering::SeqCst) == 3).await;
        assert_eq!(replica.seen.executing_max.load(Ordering::SeqCst), 3);
    }
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        clients.spawn(failures(gateway, "/sleep", 30));
    }
    while !clients.is_empty() {
        tokio::select! {
            failed = clients.join_next() => assert_eq!(failed.unwrap().unwrap(), NONE),
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                let shares = shares();
                assert!(shares[0].executing <= 2.0 && shares[1].executing <= 6.0, "{shares:?}");
            }
        }
    }
    for replica in &replicas {
        let most = replica.seen.executing_max.load(Ordering::SeqCst);
        assert_eq!(most, 4, "three of one model and one of the other");
    }
    assert!(shares()[2].arrivals < 1.0);
    assert!(failures(gateway, "/", 1).await.is_empty());
    assert!(shares()[2].arrivals >= 1.0);
    while !held.is_empty() {
        for replica in &replicas {
            replica.seen.release.notify_waiters();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        while let Some(ended) = held.try_join_next() {
            assert_eq!(ended.unwrap(), StatusCode::OK);
        }
    }
    instance.running.stop().await.unwrap();
}

/// What a name stands for in a test.
#[derive(Default)]
struct Names {
    answer: Mutex<Option<BTreeSet<SocketAddr>>>,
    asked: AtomicU64,
    hangs: AtomicBool,
}

impl Names {
    fn set(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        *self.answer.lock().unwrap() = Some(addresses.into_iter().collect());
    }

    fn fail(&self) {
        *self.answer.lock().unwrap() = None;
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    fn resolver(self: &Arc<Self>) -> Resolver {
        let names = Arc::clone(self);
        Arc::new(move |_| {
            names.asked.fetch_add(1, Ordering::SeqCst);
            let names = Arc::clone(&names);
            Box::pin(async move {
                if names.hangs.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                let answer = names.answer.lock().unwrap().clone();
                answer
                    .map(|addresses| addresses.into_iter().collect())
                    .ok_or_else(|| io::Error::other("name or service not known"))
            })
        })
    }

    /// Waits until an answer was taken that was asked for after this call.
    async fn taken(&self) {
        let asked = self.asked();
        eventually(|| self.asked() >= asked + 2).await;
    }
}

/// A gateway before a fleet whose endpoints are those of a name.
struct Named {
    world: World,
    names: Arc<Names>,
    settings: watch::Sender<Settings>,
    _health: watch::Sender<HealthSettings>,
    _orders: mpsc::Sender<Order>,
    _stop: oneshot::Sender<()>,
    _parts: JoinSet<()>,
}

impl Named {
    fn start(names: Names) -> Self {
        let world = World::new(4, &[]);
        let names = Arc::new(names);
        let mut parts = JoinSet::new();
        let (commands, taken) = mpsc::channel(16);
        let (news_in, news) = mpsc::channel(16);
        let (events_in, events) = mpsc::channel(16);
        let source = Source::Name {
            name: "fleet:80".into(),
            every: Duration::from_millis(10),
            family: Family::Any,
        };
        let comings = Comings {
            are_checked: true,
            drain: Duration::from_secs(60),
        };
        let fleet = || Arc::clone(&world.fleet);
        let (settings, settings_taken) = watch::channel(Settings { source, comings });
        let resolver = names.resolver();
        parts.spawn(endpoints::serve(
            fleet(),
            settings_taken,
            resolver,
            taken,
            news_in,
        ));
        let health = HealthSettings {
            probe: Probe::Tcp,
            timeout: Duration::from_secs(1),
            proves: true,
            rules: HealthConfig {
                every: Duration::from_secs(5),
                unhealthy_after: 3.try_into().unwrap(),
                healthy_after: 1.try_into().unwrap(),
                give_up_after: None,
            },
        };
        let (health, health_taken) = watch::channel(health);
        parts.spawn(endpoints::watch(fleet(), health_taken, news, events_in));
        let bounds = Bounds::new(Replicas::ZERO, Replicas::new(8)).unwrap();
        let policy = Policy::Staffing(StaffingConfig::balanced());
        let config = ScalingConfig::new(policy, bounds, Slots::ONE);
        let now = world.fleet.clock().now();
        let scaler = Scaler::new(config, now, Replicas::ZERO);
        let link = TargetLink { commands, events };
        let story = Story::new(world.fleet.clock(), None);
        let control = Control::new(fleet(), scaler, Some(link), story);
        let (stop, stopped) = oneshot::channel();
        let (orders, orders_taken) = mpsc::channel(1);
        parts.spawn(control.run(orders_taken, stopped));
        Self {
            world,
            names,
            settings,
            _health: health,
            _orders: orders,
            _stop: stop,
            _parts: parts,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_while_the_addresses_of_a_name_change() {
    let replicas = [
        Replica::start().await,
        Replica::start().await,
        Replica::start().await,
    ];
    let at = |index: usize| replicas[index].address;
    let named = Named::start(Names::default());
    named.names.set([at(0)]);
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        clients.spawn(failures(named.world.address, "/sleep", 200));
    }
    let sets = [
        vec![0, 1],
        vec![1],
        vec![1, 2],
        vec![0, 2],
        vec![2],
        vec![0, 1, 2],
    ];
    let mut round = 0;
    while !clients.is_empty() {
        named
            .names
            .set(sets[round % sets.len()].iter().map(|&index| at(index)));
        named.names.taken().await;
        round += 1;
        while let Some(failed) = clients.try_join_next() {
            assert_eq!(failed.unwrap(), NONE);
        }
    }
    assert!(round > sets.len(), "{round} changes");
    named.names.set([at(0), at(1), at(2)]);
    eventually(|| counts(&named.world.fleet) == (0, 3, 0, 0)).await;
    named.names.set([at(2)]);
    eventually(|| counts(&named.world.fleet) == (0, 1, 0, 0)).await;
    let before = (replicas[0].requests(), replicas[1].requests());
    assert!(failures(named.world.address, "/", 20).await.is_empty());
    assert_eq!((replicas[0].requests(), replicas[1].requests()), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b60_an_address_that_is_gone_finishes_what_it_has_and_gets_nothing_more() {
    let (goes, stays) = (Replica::start().await, Replica::start().await);
    let named = Named::start(Names::default());
    named.names.set([goes.address]);
    let gateway = named.world.address;
    let held = tokio::spawn(async move { failures(gateway, "/hold", 1).await });
    eventually(|| goes.requests() == 1).await;
    named.names.set([stays.address]);
    eventually(|| counts(&named.world.fleet) == (0, 1, 1, 0)).await;
    assert!(failures(gateway, "/", 20).await.is_empty());
    assert_eq!(goes.requests(), 1);
    goes.seen.release.notify_one();
    assert_eq!(held.await.unwrap(), NONE);
    eventually(|| counts(&named.world.fleet) == (0, 1, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b15_a_name_that_is_unknown_or_empty_keeps_its_last_addresses() {
    let replica = Replica::start().await;
    let named = Named::start(Names::default());
    named.names.taken().await;
    assert_eq!(named.world.fleet.board().resolved, None);
    let gateway = named.world.address;
    let waiting = tokio::spawn(async move { failures(gateway, "/", 1).await });
    named.world.until_queued(1).await;
    named.names.set([replica.address]);
    assert_eq!(
        waiting.await.unwrap(),
        NONE,
        "it waited for the first answer"
    );
    for fail in [true, false] {
        named.names.set([replica.address]);
        named.names.taken().await;
        if fail {
            named.names.fail();
        } else {
            named.names.set([]);
        }
        named.names.taken().await;
        let resolved = named.world.fleet.board().resolved;
        named.names.taken().await;
        assert_eq!(named.world.fleet.board().resolved, resolved);
        assert_eq!(counts(&named.world.fleet), (0, 1, 0, 0));
        assert!(failures(gateway, "/", 20).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_hangs_is_asked_once_and_the_addresses_stay() {
    let replica = Replica::start().await;
    let named = Named::start(Names::default());
    named.names.set([replica.address]);
    eventually(|| counts(&named.world.fleet) == (0, 1, 0, 0)).await;
    named.names.hangs.store(true, Ordering::SeqCst);
    let asked = named.names.asked();
    eventually(|| named.names.asked() > asked).await;
    let asked = named.names.asked();
    assert!(failures(named.world.address, "/sleep", 50).await.is_empty());
    assert_eq!(named.names.asked(), asked);
    assert_eq!(counts(&named.world.fleet), (0, 1, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_addresses_those_that_answer_serve() {
    let mut replicas = Vec::new();
    for _ in 0..10 {
        replicas.push(Replica::start().await);
    }
    let live = replicas.iter().map(|replica| replica.address);
    // Nobody listens on these addresses of the loopback network.
    let dead = (0..990_u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        SocketAddr::from(([127, 9, high, low], 9))
    });
    let named = Named::start(Names::default());
    named.names.set(live.chain(dead));
    eventually(|| counts(&named.world.fleet) == (990, 10, 0, 0)).await;
    assert!(failures(named.world.address, "/", 100).await.is_empty());
    named.names.set([replicas[0].address]);
    eventually(|| counts(&named.world.fleet) == (0, 1, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_settings_count_at_once_and_what_they_leave_out_drains() {
    let (named_one, fixed) = (Replica::start().await, Replica::start().await);
    let named = Named::start(Names::default());
    named.names.set([named_one.address]);
    let gateway = named.world.address;
    let held = tokio::spawn(async move { failures(gateway, "/hold", 1).await });
    eventually(|| named_one.requests() == 1).await;
    let by_name = named.settings.borrow().source.clone();

    let to = |source: Source| {
        named
            .settings
            .send_modify(|settings| settings.source = source)
    };
    to(Source::Fixed(vec![fixed.address]));
    eventually(|| counts(&named.world.fleet) == (0, 1, 1, 0)).await;
    assert_eq!(named.world.fleet.board().resolved, None);
    assert!(failures(gateway, "/", 20).await.is_empty());
    assert_eq!((named_one.requests(), fixed.requests()), (1, 20));

    to(by_name);
    eventually(|| counts(&named.world.fleet) == (0, 1, 0, 0)).await;
    assert!(failures(gateway, "/", 20).await.is_empty());
    assert_eq!(fixed.requests(), 20);
    named_one.seen.release.notify_one();
    assert_eq!(held.await.unwrap(), NONE);
}
