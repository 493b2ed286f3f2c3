//! Any order of arrivals, ends, retries, changes of the fleet and steps of time, against the
//! reference.

use std::time::Duration;

use inflight_core::admission::{
    AdmissionScope, Arrival, EndpointState, Gate, GateConfig, GateLoad, Outcome, Output,
    QueueBounds, RefusalReason,
};
use inflight_core::{Bytes, ModelIndex, ReplicaId, SessionKey, Ticket, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;

use super::reference::{Reference, Request};
use super::{config, ms, outputs, slots};

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        model: Index,
        session: Option<u64>,
        patience_ms: Option<u64>,
        draw: u64,
    },
    End(Index, Outcome),
    EndAgain(Index),
    Retry(Index),
    Hold(Index, u64),
    SetEndpoint(u64, EndpointState),
    Remove(u64),
    SetSlots(usize, u32),
    Configure(GateConfig),
    Wait(u64),
    Back(u64),
    Observe,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Completed),
        Just(Outcome::ClientGone),
        Just(Outcome::UpstreamFailed),
        Just(Outcome::TimedOut),
    ]
}

fn endpoint_state() -> impl Strategy<Value = EndpointState> {
    prop_oneof![
        3 => Just(EndpointState::Ready),
        1 => Just(EndpointState::Starting),
        1 => Just(EndpointState::Draining),
        1 => Just(EndpointState::Unhealthy),
    ]
}

/// Settings of one to three models; no session is judged, as the reference does not.
fn other_config() -> impl Strategy<Value = GateConfig> {
    let models = prop::collection::vec(1..4_u32, 1..=3);
    let times = (1..200_u64, 1..300_u64);
    let scope = prop_oneof![Just(AdmissionScope::Off), Just(AdmissionScope::NewSessions)];
    (models, 0..10_u32, 0..150_u64, times, scope, 1..200_u64).prop_map(
        |(models, requests, bytes, (wait, cold_wait), scope, bucket)| {
            let mut changed = config(&models);
            changed.queue = QueueBounds {
                requests,
                bytes: Bytes(bytes),
                wait: Duration::from_millis(wait),
                cold_wait: Duration::from_millis(cold_wait),
            };
            changed.admission.scope = scope;
            changed.bucket = Duration::from_millis(bucket);
            changed
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let arrive = (
        any::<Index>(),
        prop::option::of(0..4_u64),
        prop::option::weighted(0.2, 0..150_u64),
    );
    prop_oneof![
        120 => (arrive, any::<u64>()).prop_map(|((model, session, patience_ms), draw)| {
            Step::Arrive { model, session, patience_ms, draw }
        }),
        80 => (any::<Index>(), outcome()).prop_map(|(which, outcome)| Step::End(which, outcome)),
        8 => any::<Index>().prop_map(Step::EndAgain),
        25 => any::<Index>().prop_map(Step::Retry),
        20 => (any::<Index>(), 0..60_u64).prop_map(|(which, more)| Step::Hold(which, more)),
        40 => (0..4_u64, endpoint_state()).prop_map(|(id, state)| Step::SetEndpoint(id, state)),
        8 => (0..4_u64).prop_map(Step::Remove),
        12 => (0..2_usize, 1..4_u32).prop_map(|(model, count)| Step::SetSlots(model, count)),
        12 => other_config().prop_map(Step::Configure),
        50 => (0..60_u64).prop_map(Step::Wait),
        5 => (0..5000_u64).prop_map(Step::Back),
        10 => Just(Step::Observe),
    ]
}

fn small_config() -> GateConfig {
    let queue = QueueBounds {
        requests: 8,
        bytes: Bytes(100),
        wait: Duration::from_millis(100),
        cold_wait: Duration::from_millis(250),
    };
    GateConfig {
        queue,
        ..config(&[1, 2])
    }
}

/// The gate and the reference side by side.
struct Pair {
    gate: Gate,
    reference: Reference,
    ended: Vec<Ticket>,
    /// Refused after they had waited.
    expired: u64,
    /// Refused on arrival.
    turned_away: u64,
}

impl Pair {
    fn new() -> Self {
        Self {
            gate: Gate::new(small_config(), ms(0)),
            reference: Reference::new(small_config(), ms(0)),
            ended: Vec::new(),
            expired: 0,
            turned_away: 0,
        }
    }

    fn live(&self, which: &Index) -> Option<Ticket> {
        let requests = &self.reference.requests;
        (!requests.is_empty()).then(|| which.get(requests).ticket)
    }

    /// Makes one call to the gate; checks that what was due came first and returns the rest.
    fn call<T>(&mut self, now: Timestamp, call: impl FnOnce(&mut Gate) -> T) -> (T, Vec<Output>) {
        let answer = call(&mut self.gate);
        let outputs = outputs(&mut self.gate);
        self.reference.advance(now);
        let mut expected = self.reference.expire();
        let is_refused = |output: &&Output| matches!(output, Output::Refused { .. });
        let mut refused: Vec<_> = outputs
            .iter()
            .take_while(is_refused)
            .filter_map(|output| match output {
                Output::Refused { ticket, refusal } => Some((*ticket, refusal.reason)),
                Output::Granted { .. } | Output::Drained { .. } => None,
            })
            .collect();
        refused.sort_unstable();
        expected.sort_unstable();
        assert_eq!(refused, expected);
        self.expired += refused.len() as u64;
        self.ended.extend(refused.iter().map(|(ticket, _)| *ticket));
        (answer, outputs[refused.len()..].to_vec())
    }

    fn apply(&mut self, drained_before: &[ReplicaId], outputs: &[Output]) {
        let mut drained = self.reference.apply(outputs);
        drained.sort_unstable();
        let mut expected = self.reference.drained();
        expected.retain(|id| !drained_before.contains(id));
        expected.sort_unstable();
        assert_eq!(drained, expected);
    }

    fn step(&mut self, step: &Step) {
        let now = self.reference.now;
        let drained = self.reference.drained();
        let outputs = match step.clone() {
            Step::Arrive {
                model,
                session,
                patience_ms,
                draw,
            } => {
                let model = model.index(self.reference.slots.len());
                let deadline = patience_ms.map(|patience| now + Duration::from_millis(patience));
                self.arrive(
                    now,
                    Arrival {
                        model: ModelIndex(model),
                        session: session.map(SessionKey),
                        first_call: false,
                        deadline,
                        draw,
                    },
                )
            }
            Step::End(which, outcome) => match self.live(&which) {
                Some(ticket) => self.end(now, ticket, outcome),
                None => return,
            },
            Step::EndAgain(which) if !self.ended.is_empty() => {
                let ticket = *which.get(&self.ended);
                let call = |gate: &mut Gate| {
                    gate.on_retry(now, ticket);
                    gate.on_end(now, ticket, Outcome::Completed);
                    assert!(!gate.on_held_bytes(now, ticket, Bytes(1)));
                };
                self.call(now, call).1
            }
            Step::EndAgain(_) => return,
            Step::Retry(which) => match self.live(&which) {
                Some(ticket) => self.retry(now, ticket),
                None => return,
            },
            Step::Hold(which, more) => match self.live(&which) {
                Some(ticket) => self.hold(now, ticket, more),
                None => return,
            },
            Step::SetEndpoint(id, state) => {
                let id = ReplicaId(id);
                let (_, outputs) = self.call(now, |gate| gate.set_endpoint(now, id, state));
                self.reference.set_endpoint(id, Some(state));
                outputs
            }
            Step::Remove(id) => {
                let id = ReplicaId(id);
                let (_, outputs) = self.call(now, |gate| gate.remove_endpoint(now, id));
                self.reference.set_endpoint(id, None);
                outputs
            }
            Step::SetSlots(model, count) => {
                let call = |gate: &mut Gate| gate.set_slots(now, ModelIndex(model), slots(count));
                let (_, outputs) = self.call(now, call);
                self.reference.slots[model] = count;
                outputs
            }
            Step::Configure(config) => self.configure(now, config),
            Step::Wait(millis) => {
                let later = now + Duration::from_millis(millis);
                self.call(later, |gate| gate.on_timeout(later)).1
            }
            Step::Back(millis) => {
                let earlier = now - Duration::from_millis(millis);
                self.call(earlier, |gate| gate.on_timeout(earlier)).1
            }
            Step::Observe => self.call(now, |gate| gate.observe(now)).1,
        };
        self.apply(&drained, &outputs);
        self.check();
    }

    /// Nothing is lost: counts go on, and whoever is in flight stays.
    fn configure(&mut self, now: Timestamp, config: GateConfig) -> Vec<Output> {
        // What was due before is not the change's doing.
        let (_, due) = self.call(now, |gate| gate.on_timeout(now));
        assert_eq!(due, []);
        let before = self.gate.load(now);
        let in_call = config.clone();
        let (_, outputs) = self.call(now, |gate| gate.configure(now, in_call));
        self.reference.configure(config);
        let after = self.gate.load(now);
        let counts = |load: &GateLoad| {
            let ends = (
                load.completed,
                load.client_gone,
                load.upstream_failed,
                load.timed_out,
            );
            (
                load.in_flight,
                load.arrivals,
                load.refused,
                ends,
                load.sessions,
            )
        };
        assert_eq!(counts(&after), counts(&before));
        assert!(after.peak_seconds >= before.peak_seconds);
        outputs
    }

    fn arrive(&mut self, now: Timestamp, arrival: Arrival) -> Vec<Output> {
        let (answer, outputs) = self.call(now, |gate| gate.on_arrival(now, arrival));
        let model = arrival.model.0;
        let usable = self.reference.usable(model, None);
        let objection = if arrival.deadline.is_some_and(|deadline| deadline <= now) {
            Some(RefusalReason::DeadlineExpired)
        } else if usable.is_empty() {
            self.reference.queue_objection()
        } else {
            None
        };
        let reason = answer.map_err(|refusal| refusal.reason).err();
        // The reference does not estimate; how the gate does is tested with known rates.
        let may_be_too_late = usable.is_empty() && arrival.deadline.is_some();
        let is_estimated = reason == Some(RefusalReason::DeadlineExpired) && may_be_too_late;
        if objection.is_some() || !is_estimated {
            assert_eq!(reason, objection);
        }
        let Ok(ticket) = answer else {
            self.turned_away += 1;
            return outputs;
        };
        let replica = self.gate.granted(ticket);
        assert_eq!(replica.is_some(), !usable.is_empty());
        assert!(replica.is_none_or(|replica| usable.contains(&replica)));
        let deadline = arrival.deadline;
        let request = Request {
            ticket,
            model,
            deadline,
            held: 0,
            since: now,
            avoid: None,
            replica,
        };
        self.reference.requests.push(request);
        outputs
    }

    fn end(&mut self, now: Timestamp, ticket: Ticket, outcome: Outcome) -> Vec<Output> {
        let (_, outputs) = self.call(now, |gate| gate.on_end(now, ticket, outcome));
        self.reference
            .requests
            .retain(|request| request.ticket != ticket);
        self.ended.push(ticket);
        outputs
    }

    fn retry(&mut self, now: Timestamp, ticket: Ticket) -> Vec<Output> {
        let (_, outputs) = self.call(now, |gate| gate.on_retry(now, ticket));
        let requests = &mut self.reference.requests;
        let at = requests.iter().position(|request| request.ticket == ticket);
        let Some(at) = at.filter(|&at| requests[at].replica.is_some()) else {
            return outputs;
        };
        let mut request = requests.remove(at);
        request.avoid = request.replica.take();
        request.since = now;
        requests.insert(0, request);
        if let Some(replica) = self.gate.granted(ticket) {
            self.reference.grant(ticket, replica);
        }
        outputs
    }

    fn hold(&mut self, now: Timestamp, ticket: Ticket, more: u64) -> Vec<Output> {
        let (counted, outputs) =
            self.call(now, |gate| gate.on_held_bytes(now, ticket, Bytes(more)));
        let fits = self.reference.held() + more <= self.reference.bytes_max();
        let requests = &mut self.reference.requests;
        let request = requests.iter_mut().find(|request| request.ticket == ticket);
        match request {
            Some(Request {
                replica: Some(_), ..
            }) => assert!(counted),
            Some(request) => {
                assert_eq!(counted, fits);
                request.held += if fits { more } else { 0 };
            }
            None => assert!(!counted),
        }
        outputs
    }

    fn check(&self) {
        let reference = &self.reference;
        let load = self.gate.load(reference.now);
        assert_eq!(load.in_flight, reference.requests.len() as u64);
        assert_eq!(load.executing, reference.executing() as u64);
        assert_eq!(load.queued, load.in_flight - load.executing);
        assert_eq!(load.queued_bytes, Bytes(reference.held()));
        assert_seconds(load.in_flight_seconds, reference.in_flight_nanos);
        assert_seconds(load.executing_seconds, reference.executing_nanos);
        for request in &reference.requests {
            assert_eq!(self.gate.granted(request.ticket), request.replica);
        }
        for model in 0..reference.slots.len() {
            let waits = reference.next_served(model);
            assert!(
                waits.is_none(),
                "{waits:?} waits beside a slot it could use"
            );
        }
        for id in (0..4).map(ReplicaId) {
            let in_flight = self.gate.endpoint_in_flight(id) as usize;
            assert_eq!(in_flight, reference.in_flight_of(id));
        }
        if let Some(expiry) = reference.next_expiry() {
            assert!(self.gate.poll_timeout().is_some_and(|wake| wake <= expiry));
        }
    }

    /// Ends everything, after which nothing may be left.
    fn finish(mut self) {
        let now = self.reference.now;
        while let Some(ticket) = self
            .reference
            .requests
            .first()
            .map(|request| request.ticket)
        {
            let drained = self.reference.drained();
            let outputs = self.end(now, ticket, Outcome::Completed);
            self.apply(&drained, &outputs);
            self.check();
        }
        let load = self.gate.load(now);
        assert_eq!((load.in_flight, load.executing, load.queued), (0, 0, 0));
        assert_eq!(load.queued_bytes, Bytes(0));
        let ends = load.completed + load.client_gone + load.upstream_failed + load.timed_out;
        assert_eq!(ends + self.expired, load.arrivals);
        assert_eq!(self.expired + self.turned_away, load.refused.total());
    }
}

/// Compares to the nanosecond or 1 part in 10^12.
fn assert_seconds(seconds: f64, nanos: u128) {
    let expected = Duration::from_nanos(u64::try_from(nanos).expect("tests are short"));
    let difference = (seconds - expected.as_secs_f64()).abs();
    assert!(difference < 1e-9, "{seconds} is not {expected:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_gate_does_what_the_reference_does(steps in prop::collection::vec(step(), 0..250)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
        }
        pair.finish();
    }
}
