//! Picks the endpoint that a request is bound to.

use super::endpoint::Endpoint;
use crate::ids::ReplicaId;

/// Returns the place of the ready endpoint with a free slot for `model` that holds the fewest
/// requests, of whatever model; `draw` chooses evenly among equals. `None`: no free slot.
///
/// `avoid` failed this request before and is passed over while another endpoint is ready, even
/// when that one has no slot free at this moment.
pub(super) fn pick(
    endpoints: &[Endpoint],
    model: usize,
    slots: u32,
    avoid: Option<ReplicaId>,
    draw: u64,
) -> Option<usize> {
    let avoid = avoid.filter(|&id| {
        endpoints
            .iter()
            .any(|other| other.is_ready() && other.id != id)
    });
    let usable = |endpoint: &Endpoint| {
        endpoint.is_ready() && endpoint.permits(model) < slots && Some(endpoint.id) != avoid
    };
    let mut least = u32::MAX;
    let mut equals = 0;
    let mut last = None;
    for (at, endpoint) in endpoints
        .iter()
        .enumerate()
        .filter(|(_, endpoint)| usable(endpoint))
    {
        let in_flight = endpoint.in_flight();
        if last.is_none() || in_flight < least {
            (least, equals, last) = (in_flight, 1, Some(at));
        } else if in_flight == least {
            equals += 1;
            last = Some(at);
        }
    }
    if equals <= 1 {
        return last;
    }
    let skipped = usize::try_from(draw % equals).unwrap_or(0);
    let mut chosen = endpoints
        .iter()
        .enumerate()
        .filter(|(_, endpoint)| usable(endpoint) && endpoint.in_flight() == least);
    chosen.nth(skipped).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::ReplicaState;

    fn ready(id: u64, permits: &[u32]) -> Endpoint {
        Endpoint::holding(id, ReplicaState::Ready, permits)
    }

    #[test]
    fn the_least_loaded_with_a_free_slot_is_picked() {
        let fleet = [ready(1, &[2]), ready(2, &[1]), ready(3, &[4])];
        assert_eq!(pick(&fleet, 0, 4, None, 9), Some(1));
        assert_eq!(pick(&fleet, 0, 1, None, 9), None);
    }

    #[test]
    fn only_ready_endpoints_are_picked() {
        let states = [
            ReplicaState::Starting,
            ReplicaState::Draining,
            ReplicaState::Unhealthy,
        ];
        for state in states {
            assert_eq!(
                pick(&[Endpoint::holding(1, state, &[0])], 0, 4, None, 0),
                None
            );
        }
    }

    #[test]
    fn slots_are_counted_by_model_and_load_over_all_models() {
        let fleet = [ready(1, &[1, 0]), ready(2, &[0, 3])];
        assert_eq!(pick(&fleet, 0, 1, None, 0), Some(1));
        assert_eq!(pick(&fleet, 1, 4, None, 0), Some(0));
    }

    #[test]
    fn the_draw_chooses_evenly_among_equals() {
        let fleet = [
            ready(1, &[0]),
            ready(2, &[1]),
            ready(3, &[0]),
            ready(4, &[0]),
        ];
        let picked: Vec<_> = (0..6).map(|draw| pick(&fleet, 0, 2, None, draw)).collect();
        assert_eq!(
            picked,
            [Some(0), Some(2), Some(3), Some(0), Some(2), Some(3)]
        );
    }

    #[test]
    fn the_avoided_one_is_picked_only_when_no_other_is_ready() {
        let avoid = Some(ReplicaId(1));
        let fleet = [ready(1, &[0]), ready(2, &[1])];
        assert_eq!(pick(&fleet, 0, 2, avoid, 0), Some(1));
        assert_eq!(pick(&fleet, 0, 1, avoid, 0), None);
        assert_eq!(pick(&fleet[..1], 0, 1, avoid, 0), Some(0));
    }
}
