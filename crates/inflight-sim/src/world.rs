//! A run: the fleet, its load and what sizes it, event by event.
//!
//! Three parts share the state: [`route`] takes a request from its arrival to its answer,
//! [`fleet`] starts and stops replicas, [`faults`] breaks things. Decides nothing itself: sizes
//! come from a [`Control`], and late binding from the core's [`Gate`].

mod faults;
mod fleet;
mod requests;
mod route;

use std::collections::VecDeque;
use std::time::Duration;

use inflight_core::Decision;
use inflight_core::admission::Gate;
use inflight_core::load::Observation;

use crate::control::Control;
use crate::engine::{Events, Rank};
use crate::histogram::Histogram;
use crate::outcome::{Outcome, SizeAt};
use crate::random::{Purpose, Random};
use crate::readings::{ModelCounts, Readings, observation};
use crate::scenario::{Binding, Scenario};
use crate::timeline::{Recorder, Timeline};
use crate::units::{duration, nanos, seconds, timestamp};
use crate::workload::{Sender, Workload};

use self::faults::Restored;
use self::fleet::Replicas;
use self::requests::Requests;

/// What may happen.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Somebody may send a request.
    Wake(Sender),
    /// A request has been executed.
    Executed { request: u32, serial: u32 },
    /// A batch has been executed.
    Batch { replica: u32, model: u32 },
    /// A request's answer is there.
    Answered { request: u32 },
    /// A replica becomes ready.
    Ready { replica: u32 },
    /// A wait at the gate may end.
    Timer,
    /// The fleet is read.
    Tick,
    /// A piece of the recording ends.
    Piece,
    /// The first request came while there is no replica.
    FromZero,
    /// A fault of the scenario begins.
    Fault { place: u32 },
    /// A fault ends for one replica.
    Restore { replica: u32, what: Restored },
}

/// The state of a run.
struct World<'a> {
    scenario: &'a Scenario,
    control: Control,
    events: Events<Event>,
    workload: Workload,
    requests: Requests,
    counts: Vec<ModelCounts>,
    /// The largest numbers in flight are of the fleet: with one model, of that.
    total: Option<ModelCounts>,
    fleet: Replicas,
    gate: Option<Gate>,
    /// Which request a place in the gate is.
    tickets: Vec<u32>,
    /// When the gate wants to be woken next, by what was asked for.
    timer: u64,
    /// Requests that wait for a first ready replica, where nothing else holds them.
    held: VecDeque<u32>,
    placement: Random,
    wire: Random,
    desired: u32,
    started: Vec<Duration>,
    woken: bool,
    measured: Measured,
    recorder: Option<Recorder>,
}

/// What is measured on the way.
#[derive(Default)]
struct Measured {
    served: u64,
    within_slo: u64,
    refused: u64,
    failed: u64,
    sojourn: Histogram,
    sojourn_area: u128,
    /// Server-seconds of work done at full speed, by model.
    work: Vec<f64>,
    changes: u64,
    decisions: u64,
    sizes: Vec<SizeAt>,
}

/// Runs a scenario under a control with a seed.
#[must_use]
pub fn run(scenario: &Scenario, control: Control, seed: u64) -> Outcome {
    let mut world = World::new(scenario, control, seed);
    world.run();
    world.finish()
}

/// Runs a scenario that is known to end at `end` once more, and records what it looks like.
pub(crate) fn record(scenario: &Scenario, control: Control, seed: u64, end: f64) -> Timeline {
    let mut world = World::new(scenario, control, seed);
    world.recorder = Some(Recorder::new(end));
    world.run();
    world.end_piece();
    let recorder = world.recorder.take();
    let outcome = world.finish();
    recorder
        .map(|recorder| recorder.finish(&outcome))
        .unwrap_or_default()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, control: Control, seed: u64) -> Self {
        let models = scenario.models.len();
        Self {
            scenario,
            control,
            events: Events::new(),
            workload: Workload::new(scenario, seed),
            requests: Requests::default(),
            counts: (0..models).map(|_| ModelCounts::new()).collect(),
            total: (models > 1).then(ModelCounts::new),
            fleet: Replicas::new(scenario, seed),
            gate: route::gate(scenario),
            tickets: Vec::new(),
            timer: u64::MAX,
            held: VecDeque::new(),
            placement: Random::new(seed, Purpose::Placement),
            wire: Random::new(seed, Purpose::Wire),
            desired: scenario.fleet.replicas_start,
            started: Vec::new(),
            woken: false,
            measured: Measured {
                work: vec![0.0; models],
                ..Measured::default()
            },
            recorder: None,
        }
    }

    fn run(&mut self) {
        self.start();
        let end = nanos(self.scenario.duration);
        while !self.is_over() {
            let Some(event) = self.events.pop(end) else {
                break;
            };
            self.handle(event);
        }
    }

    fn start(&mut self) {
        for _ in 0..self.scenario.fleet.replicas_start {
            let replica = self.fleet.add(0, self.scenario.models.len());
            self.make_ready(replica);
            // It was started before the run, so how long that takes is known.
            self.started.push(duration(self.scenario.fleet.start.delay));
        }
        for (place, fault) in self.scenario.faults.iter().enumerate() {
            let place = crate::units::index(place);
            self.events
                .push(nanos(fault.at), Rank::Begin, Event::Fault { place });
        }
        for (at, sender) in self.workload.start() {
            self.events.push(at, Rank::Begin, Event::Wake(sender));
        }
        self.events.push(0, Rank::Look, Event::Tick);
        if let Some(recorder) = &self.recorder {
            self.events.push(recorder.width(), Rank::Look, Event::Piece);
        }
        self.note_size();
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(sender) => self.wake(sender),
            Event::Executed { request, serial } => self.executed(request, serial),
            Event::Batch { replica, model } => self.batch_executed(replica, model),
            Event::Answered { request } => self.answered(request),
            Event::Ready { replica } => self.start_ended(replica),
            Event::Timer => self.gate_timeout(),
            Event::Tick => self.tick(),
            Event::Piece => self.next_piece(),
            Event::FromZero => self.grow_from_zero(),
            Event::Fault { place } => self.break_something(place),
            Event::Restore { replica, what } => self.restore(replica, what),
        }
    }

    /// Tells whether the load ended by itself and every request did.
    fn is_over(&self) -> bool {
        self.requests.live() == 0 && self.workload.is_over()
    }

    fn wake(&mut self, sender: Sender) {
        let now = self.events.now();
        let (sent, next) = self.workload.on_wake(now, sender);
        if let Some((at, sender)) = next {
            self.events.push(at, Rank::Begin, Event::Wake(sender));
        }
        if let Some(sent) = sent {
            self.arrive(sent);
        }
    }

    fn tick(&mut self) {
        let now = self.events.now();
        let every = u64::try_from(self.control.every().as_nanos()).unwrap_or(u64::MAX);
        self.events
            .push(now.saturating_add(every.max(1)), Rank::Look, Event::Tick);
        let readings = self.readings();
        if let Control::Rule(rule) = &mut self.control {
            self.measured.decisions += 1;
            if let Some(desired) = rule.on_tick(seconds(now), &readings) {
                let fleet = &self.scenario.fleet;
                let desired = desired.clamp(fleet.replicas_min, fleet.replicas_max);
                if let Some(recorder) = &mut self.recorder {
                    recorder.decided(now, self.desired, desired, None);
                }
                self.resize(desired, &[]);
            }
            return;
        }
        let exact = self.exact();
        if let Control::Core(core) = &mut self.control
            && let Some(decision) = core.on_tick(now, exact, &readings)
        {
            self.follow(&decision);
        }
    }

    fn grow_from_zero(&mut self) {
        self.woken = false;
        let (now, readings, exact) = (self.events.now(), self.readings(), self.exact());
        if let Control::Core(core) = &mut self.control
            && let Some(decision) = core.on_wake(now, exact, &readings)
        {
            self.follow(&decision);
        }
    }

    fn follow(&mut self, decision: &Decision) {
        self.measured.decisions += 1;
        if let Some(recorder) = &mut self.recorder {
            let (from, to) = (self.desired, decision.desired.get());
            let reason = Some(decision.reason.to_string());
            recorder.decided(self.events.now(), from, to, reason);
        }
        if let Some(gate) = &mut self.gate {
            gate.on_decision(timestamp(self.events.now()), decision);
        }
        self.resize(decision.desired.get(), &decision.drain);
        self.gate_outputs();
    }

    fn readings(&self) -> Readings {
        let now = timestamp(self.events.now());
        self.fleet.readings(
            self.counts
                .iter()
                .map(|counts| counts.reading(now))
                .collect(),
            self.desired,
            self.workload.clients_gone(),
        )
    }

    /// Reads the fleet as our gateway would: where the gate holds requests, it is the gate's word.
    fn exact(&mut self) -> Observation {
        let now = timestamp(self.events.now());
        let started = std::mem::take(&mut self.started);
        if let Some(gate) = &mut self.gate {
            return Observation {
                started,
                ..gate.observe(now)
            };
        }
        let peak = self.total.as_ref().or(self.counts.first());
        let peak = peak.map(|counts| counts.peak(now));
        let models = self.counts.iter_mut().map(|counts| counts.load(now));
        observation(models.collect(), self.fleet.rows(), peak, started)
    }

    fn next_piece(&mut self) {
        self.end_piece();
        if let Some(recorder) = &self.recorder {
            let at = self.events.now().saturating_add(recorder.width());
            self.events.push(at, Rank::Look, Event::Piece);
        }
    }

    fn end_piece(&mut self) {
        let now = self.events.now();
        let arrivals = self.counts.iter().map(|counts| counts.arrivals).sum();
        let areas = self
            .counts
            .iter()
            .map(|counts| counts.in_flight.integral(timestamp(now)));
        let area = areas.sum();
        if let Some(recorder) = &mut self.recorder {
            recorder.piece(now, arrivals, area);
        }
    }

    fn note_size(&mut self) {
        let size = SizeAt {
            at: seconds(self.events.now()),
            desired: self.desired,
            ready: self.fleet.ready_count(),
        };
        match self.measured.sizes.last_mut() {
            Some(last) if last.at >= size.at => *last = size,
            Some(last) if (last.desired, last.ready) == (size.desired, size.ready) => {}
            Some(_) | None => self.measured.sizes.push(size),
        }
    }

    fn finish(self) -> Outcome {
        let now = self.events.now();
        let load_ended = self.is_over();
        let mut sojourn_area = self.measured.sojourn_area;
        let (mut unfinished, mut in_time) = (0, 0);
        for request in self.requests.iter() {
            let waited = request.began.unwrap_or(now) - request.arrived;
            unfinished += 1;
            in_time += u64::from(waited <= self.slo(request.model));
            sojourn_area += u128::from(now - request.arrived);
        }
        let servers = self.scenario.models.iter().map(|model| model.servers());
        let needed = self.measured.work.iter().zip(servers);
        let in_flight = self.counts.iter();
        Outcome {
            end: seconds(now),
            load_ended,
            replica_seconds: self.fleet.replica_seconds(now),
            needed_seconds: needed
                .map(|(work, servers)| work / servers)
                .fold(0.0, f64::max),
            arrivals: self.counts.iter().map(|counts| counts.arrivals).sum(),
            served: self.measured.served,
            within_slo: self.measured.within_slo,
            refused: self.measured.refused,
            failed: self.measured.failed,
            unfinished,
            unfinished_in_time: in_time,
            sojourn: self.measured.sojourn,
            changes: self.measured.changes,
            decisions: self.measured.decisions,
            sizes: self.measured.sizes,
            in_flight_area: in_flight
                .map(|counts| counts.in_flight.integral(timestamp(now)))
                .sum(),
            sojourn_area,
        }
    }

    fn slo(&self, model: u32) -> u64 {
        nanos(self.scenario.models[model as usize].slo)
    }

    fn is_late(&self) -> bool {
        matches!(self.scenario.fleet.binding, Binding::Late { .. })
    }
}
