//! Readings of a load that is written down rather than simulated.

use std::time::Duration;

use inflight_core::load::{
    Level, Missing, ModelLoad, Observation, ReplicaRow, ReplicaState, ReplicaView, Term,
};
use inflight_core::{Occupancy, ReplicaId, Timestamp};

/// A load that has been the same since the second zero, or since the last step.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) in_flight: f64,
    pub(crate) executing: f64,
    pub(crate) replicas: ReplicaView,
    pub(crate) metric: Option<f64>,
    pub(crate) since: u64,
    pub(crate) in_flight_seconds: f64,
    pub(crate) executing_seconds: f64,
}

impl Reading {
    /// No load on so many ready replicas.
    pub(crate) fn ready(count: usize) -> Self {
        Self {
            in_flight: 0.0,
            executing: 0.0,
            replicas: rows(&vec![ReplicaState::Ready; count]),
            metric: None,
            since: 0,
            in_flight_seconds: 0.0,
            executing_seconds: 0.0,
        }
    }

    /// A source that says nothing.
    pub(crate) fn nothing() -> Observation {
        let mut observation = Self::ready(0).at(0);
        let level = Level::NOT_OFFERED;
        observation.replicas = ReplicaView::Ready(Term::Unknown(Missing::NeverRead));
        for model in &mut observation.models {
            (model.in_flight, model.executing, model.queued) = (level, level, level);
            model.arrivals = Term::Unknown(Missing::NeverRead);
            model.in_flight_max = Term::Unknown(Missing::NeverRead);
        }
        observation
    }

    /// Changes the load and the fleet from `second` on; all that is in flight executes.
    pub(crate) fn step(&mut self, second: u64, in_flight: f64, ready: u32) {
        self.step_both(second, in_flight, in_flight, ready);
    }

    pub(crate) fn step_both(&mut self, second: u64, in_flight: f64, executing: f64, ready: u32) {
        let span = (second - self.since) as f64;
        self.in_flight_seconds += self.in_flight * span;
        self.executing_seconds += self.executing * span;
        self.since = second;
        (self.in_flight, self.executing) = (in_flight, executing);
        self.replicas = rows(&vec![ReplicaState::Ready; ready as usize]);
    }

    pub(crate) fn at(&self, second: u64) -> Observation {
        let span = (second - self.since) as f64;
        let in_flight = self.in_flight_seconds + self.in_flight * span;
        let executing = self.executing_seconds + self.executing * span;
        let queued = (self.in_flight - self.executing).max(0.0);
        let level = |now: f64, integral: f64| Level {
            now: Term::exact(Occupancy::new(now).unwrap()),
            integral: Term::exact(integral),
        };
        Observation {
            replicas: self.replicas.clone(),
            models: vec![ModelLoad {
                in_flight: level(self.in_flight, in_flight),
                executing: level(self.executing, executing),
                queued: level(queued, (in_flight - executing).max(0.0)),
                // A second for each request.
                arrivals: Term::exact(executing),
                completions: Term::exact(executing),
                service_seconds: Term::exact(executing),
                in_flight_max: Term::exact(Occupancy::new(self.in_flight).unwrap()),
            }],
            peak_seconds: Term::exact(in_flight),
            started: Vec::new(),
            metric: self
                .metric
                .map_or(Term::Unknown(Missing::NotOffered), Term::exact),
            filled: Term::Unknown(Missing::NotOffered),
            is_partial: false,
            is_called: false,
        }
    }
}

/// Replicas in the given states, named by their positions.
pub(crate) fn rows(states: &[ReplicaState]) -> ReplicaView {
    let row = |(id, &state): (usize, &ReplicaState)| ReplicaRow {
        id: ReplicaId(id as u64),
        state,
        in_flight: 0,
    };
    ReplicaView::Rows(states.iter().enumerate().map(row).collect())
}

pub(crate) fn at(second: u64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_secs(second)
}
