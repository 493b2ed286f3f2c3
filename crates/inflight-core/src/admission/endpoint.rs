//! The endpoints that requests can be bound to, and how many of each model each one holds.
//!
//! Slots are per replica *and* per model: a busy model never takes the slots of another.

use std::time::Duration;

use crate::ids::ReplicaId;
use crate::load::{InFlight, ReplicaRow, ReplicaState};
use crate::time::Timestamp;

/// One endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Endpoint {
    pub(super) id: ReplicaId,
    /// `None` when it was removed while it still holds requests.
    state: Option<ReplicaState>,
    /// Requests it holds, by model.
    permits: Vec<u32>,
    /// Requests it holds.
    in_flight: u32,
}

/// The endpoints of a fleet, in the order of their ids.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Endpoints {
    rows: Vec<Endpoint>,
    models: usize,
    /// Ready endpoints, counted like requests, so that their mean over any time is exact.
    ready: InFlight,
}

impl Endpoint {
    pub(super) fn is_ready(&self) -> bool {
        self.state == Some(ReplicaState::Ready)
    }

    /// Returns how many requests of `model` it holds.
    pub(super) fn permits(&self, model: usize) -> u32 {
        self.permits[model]
    }

    /// Returns how many requests it holds.
    pub(super) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Tells whether it is draining and has nothing left.
    fn is_drained(&self) -> bool {
        self.state == Some(ReplicaState::Draining) && self.in_flight == 0
    }

    #[cfg(test)]
    pub(super) fn holding(id: u64, state: ReplicaState, permits: &[u32]) -> Self {
        let in_flight = permits.iter().sum();
        Self {
            id: ReplicaId(id),
            state: Some(state),
            permits: permits.to_vec(),
            in_flight,
        }
    }
}

impl Endpoints {
    pub(super) fn new(models: usize, bucket: Duration, now: Timestamp) -> Self {
        Self {
            rows: Vec::new(),
            models,
            ready: InFlight::new(bucket, now),
        }
    }

    /// Counts by so many models from here on; never by fewer than before.
    pub(super) fn add_models(&mut self, models: usize) {
        self.models = self.models.max(models);
        for row in &mut self.rows {
            row.permits.resize(self.models, 0);
        }
    }

    pub(super) fn as_slice(&self) -> &[Endpoint] {
        &self.rows
    }

    pub(super) const fn ready(&self) -> &InFlight {
        &self.ready
    }

    pub(super) fn get(&self, id: ReplicaId) -> Option<&Endpoint> {
        self.find(id).ok().map(|at| &self.rows[at])
    }

    /// Adds an endpoint or changes its state; tells whether it became draining with nothing to
    /// drain.
    pub(super) fn set(&mut self, now: Timestamp, id: ReplicaId, state: ReplicaState) -> bool {
        let at = self.find(id).unwrap_or_else(|at| {
            let permits = vec![0; self.models];
            self.rows.insert(
                at,
                Endpoint {
                    id,
                    state: None,
                    permits,
                    in_flight: 0,
                },
            );
            at
        });
        let before = self.change(now, at, Some(state));
        before != Some(ReplicaState::Draining) && self.rows[at].is_drained()
    }

    /// Takes an endpoint away; what it holds is still given back one by one.
    pub(super) fn remove(&mut self, now: Timestamp, id: ReplicaId) {
        if let Ok(at) = self.find(id) {
            self.change(now, at, None);
            self.forget_if_gone(at);
        }
    }

    /// Takes a slot of the endpoint in place `at`.
    pub(super) fn take(&mut self, at: usize, model: usize) -> ReplicaId {
        let row = &mut self.rows[at];
        invariant!("only ready endpoints get requests", row.is_ready());
        row.permits[model] += 1;
        row.in_flight += 1;
        row.id
    }

    /// Gives a slot back; tells whether that was the last request of a draining endpoint.
    pub(super) fn give_back(&mut self, id: ReplicaId, model: usize) -> bool {
        let Ok(at) = self.find(id) else {
            invariant!("an endpoint is known while it holds requests", false);
            return false;
        };
        let row = &mut self.rows[at];
        invariant!("a slot given back was taken", row.permits[model] > 0);
        row.permits[model] = row.permits[model].saturating_sub(1);
        row.in_flight = row.in_flight.saturating_sub(1);
        let drained = row.is_drained();
        self.forget_if_gone(at);
        drained
    }

    /// Returns a row for each endpoint that was not removed.
    pub(super) fn replica_rows(&self) -> Vec<ReplicaRow> {
        let row = |row: &Endpoint| {
            row.state.map(|state| ReplicaRow {
                id: row.id,
                state,
                in_flight: row.in_flight,
            })
        };
        self.rows.iter().filter_map(row).collect()
    }

    fn change(
        &mut self,
        now: Timestamp,
        at: usize,
        state: Option<ReplicaState>,
    ) -> Option<ReplicaState> {
        let row = &mut self.rows[at];
        let was_ready = row.is_ready();
        let before = std::mem::replace(&mut row.state, state);
        match (was_ready, row.is_ready()) {
            (false, true) => self.ready.begin(now),
            (true, false) => self.ready.end(now),
            (true, true) | (false, false) => {}
        }
        before
    }

    fn forget_if_gone(&mut self, at: usize) {
        if self.rows[at].state.is_none() && self.rows[at].in_flight == 0 {
            self.rows.remove(at);
        }
    }

    fn find(&self, id: ReplicaId) -> Result<usize, usize> {
        self.rows.binary_search_by_key(&id, |row| row.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::ORIGIN;
    const ID: ReplicaId = ReplicaId(7);

    fn endpoints() -> Endpoints {
        Endpoints::new(2, Duration::from_millis(100), NOW)
    }

    #[test]
    fn an_endpoint_is_drained_once_when_its_last_request_ends() {
        let mut endpoints = endpoints();
        endpoints.set(NOW, ID, ReplicaState::Ready);
        endpoints.take(0, 0);
        endpoints.take(0, 1);
        assert!(!endpoints.set(NOW, ID, ReplicaState::Draining));
        assert!(!endpoints.give_back(ID, 0));
        assert!(endpoints.give_back(ID, 1));
        assert!(
            !endpoints.set(NOW, ID, ReplicaState::Draining),
            "it was draining before"
        );
    }

    #[test]
    fn an_idle_endpoint_is_drained_at_once() {
        let mut endpoints = endpoints();
        assert!(!endpoints.set(NOW, ID, ReplicaState::Ready));
        assert!(endpoints.set(NOW, ID, ReplicaState::Draining));
    }

    #[test]
    fn a_removed_endpoint_is_known_until_its_last_request_ended() {
        let mut endpoints = endpoints();
        endpoints.set(NOW, ID, ReplicaState::Ready);
        endpoints.take(0, 1);
        endpoints.remove(NOW, ID);
        assert_eq!(endpoints.ready().count(), 0);
        assert_eq!(endpoints.replica_rows(), []);
        assert_eq!(endpoints.get(ID).map(Endpoint::in_flight), Some(1));
        assert!(!endpoints.give_back(ID, 1));
        assert_eq!(endpoints.get(ID), None);
    }
}
