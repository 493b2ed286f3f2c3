//! Which replicas go when a fleet shrinks. Draining ones are on their way already.

use std::cmp::Reverse;

use crate::ids::ReplicaId;
use crate::load::{ReplicaRow, ReplicaState};
use crate::units::Replicas;

/// Returns the replicas that are too many for `desired`, first to go first: unhealthy ones, then
/// starting ones, then ready ones with the least to finish; among equals the youngest.
pub(super) fn choose(rows: &[ReplicaRow], desired: Replicas) -> Vec<ReplicaId> {
    let live = || {
        rows.iter()
            .filter(|row| row.state != ReplicaState::Draining)
    };
    let surplus = Replicas::from_len(live().count()).minus(desired);
    if surplus == Replicas::ZERO {
        return Vec::new();
    }
    let mut order: Vec<(u8, u32, Reverse<ReplicaId>)> = live()
        .map(|row| (rank(row.state), load(row), Reverse(row.id)))
        .collect();
    order.sort_unstable();
    let surplus = usize::try_from(surplus.get()).unwrap_or(usize::MAX);
    order
        .into_iter()
        .take(surplus)
        .map(|(_, _, Reverse(id))| id)
        .collect()
}

fn rank(state: ReplicaState) -> u8 {
    match state {
        ReplicaState::Unhealthy => 0,
        ReplicaState::Starting => 1,
        ReplicaState::Ready => 2,
        ReplicaState::Draining => 3,
    }
}

/// Returns what a replica has to finish; what an unhealthy or starting one holds does not matter.
fn load(row: &ReplicaRow) -> u32 {
    match row.state {
        ReplicaState::Ready => row.in_flight,
        ReplicaState::Unhealthy | ReplicaState::Starting | ReplicaState::Draining => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, state: ReplicaState, in_flight: u32) -> ReplicaRow {
        ReplicaRow {
            id: ReplicaId(id),
            state,
            in_flight,
        }
    }

    fn chosen(rows: &[ReplicaRow], desired: u32) -> Vec<u64> {
        choose(rows, Replicas::new(desired))
            .into_iter()
            .map(|id| id.0)
            .collect()
    }

    #[test]
    fn unhealthy_then_starting_then_the_least_loaded_go_and_among_equals_the_youngest() {
        let rows = [
            row(1, ReplicaState::Ready, 0),
            row(2, ReplicaState::Ready, 5),
            row(3, ReplicaState::Starting, 0),
            row(4, ReplicaState::Ready, 0),
            row(5, ReplicaState::Unhealthy, 9),
            row(6, ReplicaState::Draining, 0),
        ];
        assert_eq!(chosen(&rows, 5), Vec::<u64>::new());
        assert_eq!(chosen(&rows, 3), [5, 3]);
        assert_eq!(chosen(&rows, 0), [5, 3, 4, 1, 2]);
    }
}
