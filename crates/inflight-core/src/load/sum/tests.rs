use super::*;
use crate::ModelIndex;
use crate::load::{History, Quantity};

const STALE: Duration = Duration::from_secs(30);
const A: PeerId = PeerId(1);
const B: PeerId = PeerId(2);
const C: PeerId = PeerId(3);

fn at(seconds: f64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_secs_f64(seconds)
}

/// An instance with a constant load from its start.
#[derive(Clone, Copy)]
struct Gateway {
    id: u64,
    started: f64,
    executing: f64,
}

impl Gateway {
    fn counted(&self, seconds: f64) -> Counted {
        let uptime = seconds - self.started;
        Counted {
            instance: InstanceId(self.id),
            uptime: Duration::from_secs_f64(uptime),
            ready: Some(Replicas::new(4)),
            models: vec![ModelCounts {
                executing: self.executing,
                queued: 0.0,
                executing_seconds: self.executing * uptime,
                queued_seconds: 0.0,
                arrivals: self.executing * uptime,
                completions: self.executing * uptime,
                service_seconds: self.executing * uptime,
            }],
        }
    }

    /// What it had in flight over all time, as the sum of the others' parts is to find it.
    fn read(&self, sum: &mut Sum, seconds: f64, peer: PeerId) {
        sum.on_reading(at(seconds), peer, &self.counted(seconds));
    }
}

fn gateway(id: u64, executing: f64) -> Gateway {
    Gateway {
        id,
        started: -1_000.0,
        executing,
    }
}

fn sum_of(peers: &[PeerId]) -> Sum {
    let mut sum = Sum::new(1, STALE);
    for &peer in peers {
        sum.add_peer(peer);
    }
    sum
}

fn integral(observation: &Observation) -> f64 {
    observation.models[0].in_flight.integral.known().unwrap()
}

fn in_flight(observation: &Observation) -> Option<f64> {
    let now = observation.models[0].in_flight.now;
    now.known().map(Occupancy::get)
}

/// The windows that a policy would look at, fed with the sum.
struct Windows(History);

impl Windows {
    fn new() -> Self {
        Self(History::new(1, Duration::from_secs(120), STALE))
    }

    fn read(&mut self, now: Timestamp, observation: &Observation) {
        self.0.observe(now, observation);
    }

    fn mean(&self, now: Timestamp, window: u64) -> f64 {
        let window = Duration::from_secs(window);
        self.0
            .mean(now, ModelIndex(0), Quantity::InFlight, window)
            .unwrap()
    }
}

#[test]
fn the_mean_is_exact_whatever_the_moments_of_reading_are() {
    let (a, b) = (gateway(1, 3.0), gateway(2, 10.0));
    let mut sum = sum_of(&[A, B]);
    let mut windows = Windows::new();
    // A reading a second of each, at odd moments; a sum each two seconds.
    for whole in 0..60 {
        let second = f64::from(whole);
        a.read(&mut sum, second + 0.3 + 0.2 * (second * 7.0).sin(), A);
        b.read(&mut sum, second + 0.6 + 0.3 * (second * 5.0).cos(), B);
        if whole % 2 == 1 {
            let now = at(second + 0.95);
            windows.read(now, &sum.observe(now, None));
            if second > 10.0 {
                assert!((windows.mean(now, 6) - 13.0).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn what_an_instance_counted_before_the_first_reading_is_not_of_our_time() {
    let mut sum = sum_of(&[A]);
    gateway(1, 5.0).read(&mut sum, 1.0, A);
    let first = sum.observe(at(1.0), None);
    assert!(integral(&first) < 1e-9);
    assert_eq!(in_flight(&first), Some(5.0));
}

#[test]
fn a_restart_is_a_counter_reset_and_never_a_drop() {
    let mut sum = sum_of(&[A]);
    let mut windows = Windows::new();
    let mut before = 0.0;
    for second in 0..100 {
        let second = f64::from(second);
        let run = if second < 50.0 { 0 } else { 1 };
        let run = Gateway {
            id: run,
            started: f64::from(u32::try_from(run).unwrap()) * 49.5,
            executing: 8.0,
        };
        run.read(&mut sum, second, A);
        let observation = sum.observe(at(second), None);
        assert!(!observation.is_partial);
        assert!(integral(&observation) >= before);
        before = integral(&observation);
        windows.read(at(second), &observation);
        if second >= 20.0 {
            let mean = windows.mean(at(second), 10);
            assert!((mean - 8.0).abs() < 1e-6, "{mean} at {second}");
        }
    }
}

#[test]
fn an_older_instance_at_the_same_address_does_not_bring_its_past() {
    let mut sum = sum_of(&[A]);
    for second in 0..10 {
        gateway(1, 2.0).read(&mut sum, f64::from(second), A);
    }
    let before = integral(&sum.observe(at(9.0), None));
    gateway(2, 900.0).read(&mut sum, 10.0, A);
    let after = integral(&sum.observe(at(10.0), None));
    assert!(after - before < 3.0, "{before} to {after}");
}

#[test]
fn b25_a_peer_that_hangs_keeps_its_last_values_and_blocks_nobody() {
    let gateways = [gateway(1, 1.0), gateway(2, 2.0), gateway(3, 4.0)];
    let mut sum = sum_of(&[A, B, C]);
    let mut windows = Windows::new();
    for second in 0..28 {
        let second = f64::from(second);
        gateways[0].read(&mut sum, second, A);
        gateways[1].read(&mut sum, second, B);
        if second < 10.0 {
            gateways[2].read(&mut sum, second, C);
        }
        let observation = sum.observe(at(second), None);
        assert_eq!(in_flight(&observation), Some(7.0));
        assert!(!observation.is_partial);
        windows.read(at(second), &observation);
        if second > 6.0 {
            let mean = windows.mean(at(second), 6);
            assert!((mean - 7.0).abs() < 1e-6, "{mean} at {second}");
        }
    }
    assert_eq!(sum.peer(at(28.0), C).unwrap().standing, Standing::Held);
    assert_eq!(sum.peer(at(28.0), A).unwrap().standing, Standing::Read);
}

#[test]
fn a_peer_that_comes_back_counts_on_without_a_jump() {
    let mut sum = sum_of(&[A, B]);
    let mut windows = Windows::new();
    // While nobody sees B it gets a hundred times as much.
    let mut b = gateway(2, 1.0);
    for second in 0..60 {
        let second = f64::from(second);
        gateway(1, 1.0).read(&mut sum, second, A);
        if second <= 10.0 {
            b.read(&mut sum, second, B);
        } else if second >= 30.0 {
            b.started = -200_000.0;
            b.read(&mut sum, second, B);
        }
        let observation = sum.observe(at(second), None);
        windows.read(at(second), &observation);
        if second > 10.0 {
            let mean = windows.mean(at(second), 6);
            assert!((mean - 2.0).abs() < 1e-6, "{mean} at {second}");
        }
    }
}

#[test]
fn b16_a_peer_that_is_gone_makes_the_sum_partial_and_all_gone_make_it_unknown() {
    let mut sum = sum_of(&[A, B, C]);
    assert!(sum.observe(at(0.0), None).is_partial, "never read");
    for second in 1..10 {
        let second = f64::from(second);
        for (id, peer) in [(1, A), (2, B), (3, C)] {
            gateway(id, 9.0).read(&mut sum, second, peer);
        }
    }
    let whole = sum.observe(at(9.0), None);
    assert!(!whole.is_partial);
    for second in 10..60 {
        gateway(1, 9.0).read(&mut sum, f64::from(second), A);
        let observation = sum.observe(at(f64::from(second)), None);
        assert!(integral(&observation) >= integral(&whole));
        assert_eq!(observation.is_partial, second > 39, "at {second}");
        let expected = if second > 39 { 9.0 } else { 27.0 };
        assert_eq!(in_flight(&observation), Some(expected));
    }
    assert_eq!(sum.peer(at(60.0), B).unwrap().standing, Standing::Lost);
    let gone = sum.observe(at(100.0), None);
    assert!(gone.is_partial);
    assert!(matches!(
        gone.models[0].in_flight.integral,
        Term::Unknown(Missing::Stale { .. })
    ));
    assert!(matches!(
        gone.replicas,
        ReplicaView::Ready(Term::Unknown(_))
    ));
}

#[test]
fn a_peer_that_is_taken_off_the_list_is_held_and_then_forgotten() {
    let mut sum = sum_of(&[A, B]);
    for second in 0..5 {
        gateway(1, 1.0).read(&mut sum, f64::from(second), A);
        gateway(2, 6.0).read(&mut sum, f64::from(second), B);
    }
    sum.remove_peer(B);
    for second in 5..60 {
        let second = f64::from(second);
        gateway(1, 1.0).read(&mut sum, second, A);
        let observation = sum.observe(at(second), None);
        assert!(!observation.is_partial);
        let expected = if second <= 34.0 { 7.0 } else { 1.0 };
        assert_eq!(in_flight(&observation), Some(expected), "at {second}");
    }
    assert_eq!(sum.peer(at(60.0), B), None);
}

#[test]
fn b27_instances_are_told_apart_by_their_ids_and_not_by_addresses() {
    // Eight behind one address, each read in turn.
    let mut sum = sum_of(&[A]);
    for second in 0..32 {
        gateway(second % 8, 10.0).read(&mut sum, second as f64 * 0.25, A);
    }
    assert_eq!(in_flight(&sum.observe(at(8.0), None)), Some(80.0));

    // One behind two addresses, read at the same moments and a little out of order.
    let mut sum = sum_of(&[A, B]);
    let mut windows = Windows::new();
    for second in 0..40 {
        let second = f64::from(second);
        gateway(1, 10.0).read(&mut sum, second + 0.1, A);
        let older = gateway(1, 10.0).counted(second + 0.099);
        sum.on_reading(at(second + 0.101), B, &older);
        let observation = sum.observe(at(second + 0.2), None);
        windows.read(at(second + 0.2), &observation);
        assert_eq!(in_flight(&observation), Some(10.0));
    }
    let mean = windows.mean(at(39.2), 10);
    assert!((mean - 10.0).abs() < 1e-6, "{mean}");
}

#[test]
fn b29_only_the_moments_of_reading_count_and_none_goes_back() {
    let mut sum = sum_of(&[A]);
    gateway(1, 5.0).read(&mut sum, 10.0, A);
    gateway(1, 5.0).read(&mut sum, 12.0, A);
    let before = integral(&sum.observe(at(12.0), None));
    // A reading that is older, and a sum for an earlier moment.
    gateway(1, 5.0).read(&mut sum, 11.0, A);
    let after = integral(&sum.observe(at(11.0), None));
    assert!((after - before).abs() < 1e-9);
    assert!((before - 10.0).abs() < 1e-9);
}

#[test]
fn own_counts_and_the_peers_are_summed_to_one_moment() {
    let mut sum = sum_of(&[A]);
    let mut windows = Windows::new();
    let own = |second: f64| {
        let mut one = sum_of(&[C]);
        gateway(9, 6.0).read(&mut one, 0.0, C);
        gateway(9, 6.0).read(&mut one, second, C);
        let mut own = one.observe(at(second), None);
        own.replicas = ReplicaView::Rows(Vec::new());
        own
    };
    for second in 1..40 {
        let second = f64::from(second);
        gateway(1, 4.0).read(&mut sum, second + 0.4, A);
        let now = at(second + 0.7);
        let observation = sum.observe(now, Some((InstanceId(9), own(second + 0.7))));
        assert_eq!(observation.replicas, ReplicaView::Rows(Vec::new()));
        assert_eq!(in_flight(&observation), Some(10.0));
        windows.read(now, &observation);
        if second > 12.0 {
            let mean = windows.mean(now, 6);
            assert!((mean - 10.0).abs() < 1e-6, "{mean} at {second}");
        }
    }
}

#[test]
fn the_means_around_a_restart_are_no_higher_than_what_there_was() {
    let mut sum = sum_of(&[A, B]);
    let mut windows = Windows::new();
    for step in 0..400 {
        let second = f64::from(step) * 0.1;
        // A is killed at 20 s and starts again at 21.3 s with the same load.
        let run = if second < 20.0 { 1 } else { 3 };
        let a = Gateway {
            id: run,
            started: if run == 1 { -9.0 } else { 21.3 },
            executing: 10.0,
        };
        if step % 3 == 0 && !(20.0..21.5).contains(&second) {
            a.read(&mut sum, second, A);
        }
        if step % 4 == 0 {
            gateway(2, 10.0).read(&mut sum, second, B);
        }
        if step % 5 == 0 {
            let now = at(second + 0.05);
            windows.read(now, &sum.observe(now, None));
            if second > 8.0 {
                for window in [1, 2, 5] {
                    let mean = windows.mean(now, window);
                    assert!(
                        (mean - 20.0).abs() < 1e-6,
                        "{mean} over {window} s at {second}"
                    );
                }
            }
        }
    }
}
