//! What the core costs: counting, the gate, decisions. `cargo bench -p inflight-core`.
//!
//! It measures and asserts nothing: figures belong to a machine, and are kept in
//! `docs/performance.md`.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench reads the clock and shares the gate as the shell does; the bans are the core's"
)]

use std::hint::black_box;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use inflight_core::admission::{
    AdmissionConfig, AdmissionScope, Arrival, Gate, GateConfig, ModelConfig, Outcome, QueueBounds,
    When,
};
use inflight_core::load::{
    InFlight, Level, Missing, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView, Term,
};
use inflight_core::scaling::{
    Bounds, ConcurrencyConfig, MetricConfig, MetricKind, OccupancyConfig, Policy, Scaler,
    ScalingConfig, StaffingConfig,
};
use inflight_core::{
    Bytes, ModelIndex, Occupancy, ReplicaId, Replicas, SessionKey, Slots, Timestamp,
};

const BUCKET: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_micros(10);
const REPLICAS: u32 = 20;
const SESSIONS: u64 = 1000;

criterion_group!(benches, counting, gate, two_threads, decision, many_fleets);
criterion_main!(benches);

fn counting(criterion: &mut Criterion) {
    criterion.bench_function("count/begin+end", |bencher| {
        let mut now = Timestamp::ORIGIN;
        let mut load = InFlight::new(BUCKET, now);
        bencher.iter(|| {
            now = now + STEP;
            load.begin(now);
            now = now + STEP;
            load.end(now);
        });
        black_box(load);
    });
}

fn gate(criterion: &mut Criterion) {
    for replicas in [1, 8, 100] {
        criterion.bench_function(&format!("gate/arrive+end/{replicas} replicas"), |bencher| {
            let mut gate = gate_of(replicas);
            let mut request = 0;
            bencher.iter(|| {
                request += 1;
                pass(&mut gate, request);
            });
        });
    }
}

/// One gate under one lock, as a fleet shares it: requests a second by one thread and by two.
fn two_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gate/shared");
    for threads in [1_u64, 2] {
        group.throughput(Throughput::Elements(threads));
        group.bench_function(format!("{threads} threads"), |bencher| {
            bencher.iter_custom(|times| shared(threads, times));
        });
    }
    group.finish();
}

/// Time for `times` requests of each thread.
fn shared(threads: u64, times: u64) -> Duration {
    let gate = Mutex::new(gate_of(8));
    let start = Barrier::new(usize::try_from(threads).unwrap_or(1) + 1);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (gate, start) = (&gate, &start);
            scope.spawn(move || {
                start.wait();
                for request in 0..times {
                    let at = |step| {
                        Timestamp::ORIGIN + STEP * u32::try_from(request + step).unwrap_or(0)
                    };
                    let lock = || gate.lock().unwrap_or_else(PoisonError::into_inner);
                    let ticket = lock().on_arrival(at(0), arrival(request * threads + thread));
                    if let Ok(ticket) = ticket {
                        lock().on_end(at(1), ticket, Outcome::Completed);
                    }
                }
            });
        }
        start.wait();
        Instant::now()
    })
    .elapsed()
}

fn decision(criterion: &mut Criterion) {
    for (name, policy) in policies() {
        criterion.bench_function(&format!("decision/{name}"), |bencher| {
            let mut fleet = Fleet::new(policy.clone());
            fleet.warm_up();
            bencher.iter(|| fleet.tick());
        });
    }
}

fn many_fleets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tick");
    group.sample_size(10);
    group.bench_function("10,000 fleets of 20 replicas", |bencher| {
        let mut fleets: Vec<Fleet> = (0..10_000)
            .map(|_| Fleet::new(Policy::Staffing(StaffingConfig::balanced())))
            .collect();
        fleets.iter_mut().for_each(Fleet::warm_up);
        bencher.iter(|| fleets.iter_mut().for_each(Fleet::tick));
    });
    group.finish();
}

fn policies() -> Vec<(&'static str, Policy)> {
    let mut policies = vec![
        ("staffing", Policy::Staffing(StaffingConfig::balanced())),
        (
            "concurrency",
            Policy::Concurrency(ConcurrencyConfig::default()),
        ),
    ];
    if let Ok(config) = OccupancyConfig::new(2.0, Duration::from_secs(60)) {
        policies.push(("occupancy", Policy::Occupancy(config)));
    }
    if let Ok(config) = MetricConfig::new(2.0, MetricKind::AverageValue) {
        policies.push(("metric", Policy::Metric(config)));
    }
    policies
}

/// A scaler and the reading it is given at each tick: a constant load on twenty replicas.
struct Fleet {
    scaler: Scaler,
    observation: Observation,
    now: Timestamp,
    tick: Duration,
}

impl Fleet {
    fn new(policy: Policy) -> Self {
        let tick = policy.tick();
        let (least, most) = (Replicas::new(1), Replicas::new(100));
        let bounds = Bounds::new(least, most).expect("one is less than a hundred");
        let slots = Slots::new(4).expect("four is more than zero");
        let config = ScalingConfig::new(policy, bounds, slots);
        let row = |id| ReplicaRow {
            id: ReplicaId(u64::from(id)),
            state: ReplicaState::Ready,
            in_flight: 2,
        };
        let known = |requests| Term::exact(Occupancy::from_count(requests));
        let level = |requests| Level {
            now: known(requests),
            integral: Term::exact(0.0),
        };
        Self {
            scaler: Scaler::new(config, Timestamp::ORIGIN, Replicas::new(REPLICAS)),
            observation: Observation {
                replicas: ReplicaView::Rows((0..REPLICAS).map(row).collect()),
                models: vec![ModelLoad {
                    in_flight: level(40),
                    executing: level(40),
                    queued: level(0),
                    arrivals: Term::exact(0.0),
                    completions: Term::exact(0.0),
                    service_seconds: Term::exact(0.0),
                    in_flight_max: known(44),
                }],
                peak_seconds: Term::exact(0.0),
                started: Vec::new(),
                metric: Term::Unknown(Missing::NotOffered),
                filled: Term::Unknown(Missing::NotOffered),
                is_partial: false,
                is_called: false,
            },
            now: Timestamp::ORIGIN,
            tick,
        }
    }

    /// Fills the windows, so that every decision has all that it looks at.
    fn warm_up(&mut self) {
        for _ in 0..100 {
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now = self.now + self.tick;
        let seconds = self.now.since(Timestamp::ORIGIN).as_secs_f64();
        let model = &mut self.observation.models[0];
        model.in_flight.integral = Term::exact(40.0 * seconds);
        model.executing.integral = Term::exact(40.0 * seconds);
        model.queued.integral = Term::exact(0.0);
        model.arrivals = Term::exact(400.0 * seconds);
        model.completions = Term::exact(400.0 * seconds);
        model.service_seconds = Term::exact(40.0 * seconds);
        self.observation.peak_seconds = Term::exact(44.0 * seconds);
        self.observation.metric = Term::exact(40.0);
        self.scaler.observe(self.now, &self.observation);
        black_box(self.scaler.decide(self.now));
    }
}

/// A gate with everything that the configuration's defaults switch on.
fn gate_of(replicas: u64) -> Gate {
    let config = GateConfig {
        models: vec![ModelConfig {
            slots: Slots::new(4).expect("four is more than zero"),
        }],
        queue: QueueBounds {
            requests: 1000,
            bytes: Bytes(64_000_000),
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
        bucket: BUCKET,
    };
    let mut gate = Gate::new(config, Timestamp::ORIGIN);
    for id in 0..replicas {
        gate.set_endpoint(Timestamp::ORIGIN, ReplicaId(id), ReplicaState::Ready);
    }
    gate
}

fn arrival(request: u64) -> Arrival {
    Arrival {
        model: ModelIndex(0),
        session: Some(SessionKey(request % SESSIONS)),
        first_call: false,
        deadline: None,
        draw: request,
    }
}

fn pass(gate: &mut Gate, request: u64) {
    let at = Timestamp::from_nanos(request * 20_000);
    if let Ok(ticket) = gate.on_arrival(at, arrival(request)) {
        gate.on_end(at + STEP, ticket, Outcome::Completed);
    }
    black_box(gate.poll_output());
}
