//! A fleet in virtual time that ticks the real scaler.
//!
//! One model; requests wait in one queue and are bound to a replica when a slot is free. Clients
//! are sequential, or arrivals are Poisson; service times are constant or exponential; a replica
//! takes a constant time to start, or for ever. Hours pass in milliseconds, and a seed gives the
//! same run everywhere. It models neither the wire nor a gateway's own delays.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt;
use std::time::Duration;

use inflight_core::load::{
    Level, Missing, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView, Term,
};
use inflight_core::scaling::{Scaler, ScalingConfig};
use inflight_core::{Decision, Occupancy, ReplicaId, Replicas, Timestamp};

/// What a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: ScalingConfig,
    /// Replicas that are ready at the start.
    pub(crate) replicas: u32,
    pub(crate) service: Service,
    /// Between an answer and the same client's next request.
    pub(crate) think: Duration,
    /// `None`: replicas that are started later never become ready.
    pub(crate) start_delay: Option<Duration>,
    pub(crate) tick: Duration,
    pub(crate) seed: u64,
}

/// How long a request executes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    Constant(Duration),
    Exponential(Duration),
}

/// What happens to the load or the fleet at a given second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// So many sequential clients; those too many leave once they are answered.
    Clients(usize),
    /// So many requests at once.
    Burst(usize),
    /// Poisson arrivals per second.
    Rate(f64),
    /// So many ready replicas become unhealthy; what they execute is lost.
    Break(usize),
}

/// A decision and the state of the fleet it was made for.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) second: f64,
    pub(crate) decision: Decision,
    pub(crate) ready: u32,
    pub(crate) in_flight: usize,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            second,
            decision,
            ready,
            in_flight,
        } = self;
        write!(
            f,
            "at {second} s, {ready} ready, {in_flight} in flight: {decision}"
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    // Their order is that of events at the same moment: what ends, ends first.
    Complete { request: u64 },
    Arrive { client: Option<usize> },
    Open { epoch: u64 },
    Ready { replica: u64 },
    Act { index: usize },
    Tick,
}

struct Replica {
    state: ReplicaState,
    asked_at: u64,
    executing: BTreeSet<u64>,
}

struct Request {
    replica: u64,
    client: Option<usize>,
    began: u64,
}

/// A level with its exact integral.
#[derive(Default)]
struct Counted {
    count: usize,
    integral: f64,
    since: u64,
}

pub(crate) struct Run {
    setup: Setup,
    actions: Vec<(f64, Action)>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    scaler: Scaler,
    slots: usize,
    replicas: BTreeMap<u64, Replica>,
    requests: BTreeMap<u64, Request>,
    waiting: VecDeque<Option<usize>>,
    /// Clients that are to go on, and those that have a request or a think time running.
    clients: usize,
    live: BTreeSet<usize>,
    rate: f64,
    epoch: u64,
    names: u64,
    now: u64,
    in_flight: Counted,
    executing: Counted,
    in_flight_max: usize,
    arrivals: f64,
    completions: f64,
    service_seconds: f64,
    started: Vec<Duration>,
    random: u64,
    records: Vec<Record>,
}

/// Runs the actions, each at its second, and returns every decision up to `seconds`.
pub(crate) fn run(setup: &Setup, actions: &[(f64, Action)], seconds: f64) -> Vec<Record> {
    let mut run = Run::new(setup.clone(), actions.to_vec());
    let end = nanos(Duration::from_secs_f64(seconds));
    while let Some(Reverse((at, event))) = run.events.pop() {
        if at > end {
            break;
        }
        run.now = at;
        run.handle(event);
    }
    run.records
}

impl Run {
    fn new(setup: Setup, actions: Vec<(f64, Action)>) -> Self {
        let found = Replicas::new(setup.replicas);
        let slots = setup
            .config
            .slots
            .first()
            .map_or(1, |slots| slots.get() as usize);
        let mut run = Self {
            scaler: Scaler::new(setup.config.clone(), Timestamp::ORIGIN, found),
            events: BinaryHeap::from([Reverse((0, Event::Tick))]),
            slots,
            replicas: BTreeMap::new(),
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            clients: 0,
            live: BTreeSet::new(),
            rate: 0.0,
            epoch: 0,
            names: 0,
            now: 0,
            in_flight: Counted::default(),
            executing: Counted::default(),
            in_flight_max: 0,
            arrivals: 0.0,
            completions: 0.0,
            service_seconds: 0.0,
            started: Vec::new(),
            random: setup.seed,
            records: Vec::new(),
            setup,
            actions,
        };
        for _ in 0..run.setup.replicas {
            let name = run.name();
            run.replicas
                .insert(name, Replica::new(ReplicaState::Ready, 0));
        }
        for (index, (second, _)) in run.actions.iter().enumerate() {
            let at = nanos(Duration::from_secs_f64(*second));
            run.events.push(Reverse((at, Event::Act { index })));
        }
        run
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Complete { request } => self.complete(request),
            Event::Arrive { client } => self.arrive(client),
            Event::Open { epoch } if epoch == self.epoch => {
                self.arrive(None);
                self.next_open();
            }
            Event::Open { .. } => {}
            Event::Ready { replica } => self.become_ready(replica),
            Event::Act { index } => self.act(self.actions[index].1),
            Event::Tick => self.tick(),
        }
        self.bind();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Clients(count) => {
                self.clients = count;
                for client in 0..count {
                    if self.live.insert(client) {
                        self.at(
                            Duration::ZERO,
                            Event::Arrive {
                                client: Some(client),
                            },
                        );
                    }
                }
            }
            Action::Burst(count) => (0..count).for_each(|_| self.arrive(None)),
            Action::Rate(rate) => {
                self.rate = rate;
                self.epoch += 1;
                self.next_open();
            }
            Action::Break(count) => {
                let ready = self.names_of(ReplicaState::Ready);
                for name in ready.into_iter().take(count) {
                    self.break_replica(name);
                }
            }
        }
    }

    fn arrive(&mut self, client: Option<usize>) {
        if let Some(client) = client
            && client >= self.clients
        {
            self.live.remove(&client);
            return;
        }
        self.arrivals += 1.0;
        self.in_flight.add(self.now, 1);
        self.in_flight_max = self.in_flight_max.max(self.in_flight.count);
        self.waiting.push_back(client);
    }

    /// Gives what waits to the ready replicas with most free slots.
    fn bind(&mut self) {
        while !self.waiting.is_empty() {
            let ready = self
                .replicas
                .iter()
                .filter(|(_, one)| one.state == ReplicaState::Ready);
            let free = ready.filter(|(_, one)| one.executing.len() < self.slots);
            let Some((&replica, _)) = free.min_by_key(|(_, one)| one.executing.len()) else {
                return;
            };
            let Some(client) = self.waiting.pop_front() else {
                return;
            };
            let request = self.name();
            self.requests.insert(
                request,
                Request {
                    replica,
                    client,
                    began: self.now,
                },
            );
            if let Some(replica) = self.replicas.get_mut(&replica) {
                replica.executing.insert(request);
            }
            self.executing.add(self.now, 1);
            let service = self.service();
            self.at(service, Event::Complete { request });
        }
    }

    fn complete(&mut self, request: u64) {
        let Some(Request {
            replica,
            client,
            began,
        }) = self.requests.remove(&request)
        else {
            return;
        };
        self.completions += 1.0;
        self.service_seconds += seconds(self.now - began);
        self.end(client);
        if let Some(one) = self.replicas.get_mut(&replica) {
            one.executing.remove(&request);
            if one.state == ReplicaState::Draining && one.executing.is_empty() {
                self.replicas.remove(&replica);
            }
        }
    }

    fn end(&mut self, client: Option<usize>) {
        self.executing.remove(self.now, 1);
        self.in_flight.remove(self.now, 1);
        if client.is_some() {
            let think = self.setup.think;
            self.at(think, Event::Arrive { client });
        }
    }

    fn break_replica(&mut self, name: u64) {
        let Some(replica) = self.replicas.get_mut(&name) else {
            return;
        };
        replica.state = ReplicaState::Unhealthy;
        for request in std::mem::take(&mut replica.executing) {
            if let Some(request) = self.requests.remove(&request) {
                self.end(request.client);
            }
        }
    }

    fn become_ready(&mut self, name: u64) {
        if let Some(replica) = self.replicas.get_mut(&name)
            && replica.state == ReplicaState::Starting
        {
            replica.state = ReplicaState::Ready;
            self.started
                .push(Duration::from_nanos(self.now - replica.asked_at));
        }
    }

    fn tick(&mut self) {
        let now = Timestamp::from_nanos(self.now);
        let observation = self.observation();
        self.scaler.observe(now, &observation);
        let decision = self.scaler.decide(now);
        self.apply(&decision);
        self.records.push(Record {
            second: seconds(self.now),
            decision,
            ready: u32::try_from(self.names_of(ReplicaState::Ready).len()).unwrap(),
            in_flight: self.in_flight.count,
        });
        let tick = self.setup.tick;
        self.at(tick, Event::Tick);
    }

    fn apply(&mut self, decision: &Decision) {
        for ReplicaId(name) in &decision.drain {
            let Some(replica) = self.replicas.get_mut(name) else {
                continue;
            };
            if replica.executing.is_empty() {
                self.replicas.remove(name);
            } else {
                replica.state = ReplicaState::Draining;
            }
        }
        let live = self
            .replicas
            .values()
            .filter(|one| one.state != ReplicaState::Draining);
        for _ in live.count()..decision.desired.get() as usize {
            let replica = self.name();
            self.replicas
                .insert(replica, Replica::new(ReplicaState::Starting, self.now));
            if let Some(delay) = self.setup.start_delay {
                self.at(delay, Event::Ready { replica });
            }
        }
    }

    fn observation(&mut self) -> Observation {
        let in_flight = self.in_flight.read(self.now);
        let executing = self.executing.read(self.now);
        let waiting = self.waiting.len();
        let queued = Level {
            now: Term::exact(Occupancy::from_count(waiting as u64)),
            integral: Term::exact((self.in_flight.integral - self.executing.integral).max(0.0)),
        };
        let row = |(&name, one): (&u64, &Replica)| ReplicaRow {
            id: ReplicaId(name),
            state: one.state,
            in_flight: u32::try_from(one.executing.len()).unwrap(),
        };
        let largest = std::mem::replace(&mut self.in_flight_max, self.in_flight.count);
        Observation {
            replicas: ReplicaView::Rows(self.replicas.iter().map(row).collect()),
            models: vec![ModelLoad {
                in_flight,
                executing,
                queued,
                arrivals: Term::exact(self.arrivals),
                completions: Term::exact(self.completions),
                service_seconds: Term::exact(self.service_seconds),
                in_flight_max: Term::exact(Occupancy::from_count(largest as u64)),
            }],
            peak_seconds: Term::Unknown(Missing::NotOffered),
            started: std::mem::take(&mut self.started),
            metric: Term::Unknown(Missing::NotOffered),
            filled: Term::Unknown(Missing::NotOffered),
            is_partial: false,
            is_called: false,
        }
    }

    fn names_of(&self, state: ReplicaState) -> Vec<u64> {
        let of_state = self.replicas.iter().filter(|(_, one)| one.state == state);
        of_state.map(|(&name, _)| name).collect()
    }

    fn next_open(&mut self) {
        if self.rate > 0.0 {
            let gap = self.exponential(Duration::from_secs_f64(1.0 / self.rate));
            self.at(gap, Event::Open { epoch: self.epoch });
        }
    }

    fn service(&mut self) -> Duration {
        match self.setup.service {
            Service::Constant(service) => service,
            Service::Exponential(mean) => self.exponential(mean),
        }
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        let uniform = self.uniform();
        mean.mul_f64(-(1.0 - uniform).ln())
    }

    /// Splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.events.push(Reverse((self.now + nanos(after), event)));
    }

    fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }
}

impl Replica {
    fn new(state: ReplicaState, asked_at: u64) -> Self {
        Self {
            state,
            asked_at,
            executing: BTreeSet::new(),
        }
    }
}

impl Counted {
    fn add(&mut self, now: u64, by: usize) {
        self.advance(now);
        self.count += by;
    }

    fn remove(&mut self, now: u64, by: usize) {
        self.advance(now);
        self.count -= by;
    }

    fn advance(&mut self, now: u64) {
        self.integral += self.count as f64 * seconds(now - self.since);
        self.since = now;
    }

    fn read(&mut self, now: u64) -> Level {
        self.advance(now);
        Level {
            now: Term::exact(Occupancy::from_count(self.count as u64)),
            integral: Term::exact(self.integral),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
