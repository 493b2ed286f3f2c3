use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::units::Replicas;

const PROXY: PeerId = PeerId(1);
const SERVER: PeerId = PeerId(10);

fn at(seconds: f64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_secs_f64(1_000.0 + seconds)
}

fn by(proxies: Option<Estimator>, servers: Estimator) -> Measured {
    Measured::new(MeasuredBy {
        proxies,
        servers,
        patience: Patience {
            late: Duration::from_secs(3),
            stale: Duration::from_secs(30),
        },
    })
}

/// Proxies with gauges before servers with counters.
fn joined(proxies: u64, servers: u64) -> Measured {
    let mut joined = by(Some(Estimator::LiveGauge), Estimator::CompletionCounter);
    for proxy in 0..proxies {
        joined.add_proxy(PeerId(PROXY.0 + proxy));
    }
    for server in 0..servers {
        joined.add_server(PeerId(SERVER.0 + server));
    }
    joined
}

fn proxy(in_flight: f64, healthy: u32) -> ProxyReading {
    ProxyReading {
        active: in_flight,
        healthy: Replicas::new(healthy),
        ..ProxyReading::default()
    }
}

/// A server whose only model has executed for so long.
fn server(seconds: f64) -> ServerReading {
    ServerReading {
        series: vec![(
            1,
            ServerSeries {
                total_seconds: seconds,
                ..ServerSeries::default()
            },
        )],
        ..ServerReading::default()
    }
}

fn value<T: Copy>(term: Term<T>) -> T {
    match term {
        Term::Known { value, .. } => value,
        Term::Unknown(missing) => panic!("unknown: {missing}"),
    }
}

fn close(left: f64, right: f64) {
    assert!(
        (left - right).abs() < 1e-6 * right.abs().max(1.0),
        "{left} is not {right}"
    );
}

/// The mean of a cumulative term between two readings, by their own moments.
fn rate(from: (f64, Term<f64>), to: (f64, Term<f64>)) -> f64 {
    let point = |(second, term): (f64, Term<f64>)| match term {
        Term::Known { value, age, .. } => (second - age.as_secs_f64(), value),
        Term::Unknown(missing) => panic!("unknown: {missing}"),
    };
    let ((from_at, from), (to_at, to)) = (point(from), point(to));
    (to - from) / (to_at - from_at)
}

#[test]
fn levels_are_added_over_proxies_and_the_most_healthy_counts() {
    let mut joined = joined(2, 0);
    joined.on_proxy(at(0.0), PROXY, &proxy(8.0, 3));
    let waiting = ProxyReading {
        pending: 2.0,
        ..proxy(5.0, 2)
    };
    joined.on_proxy(at(0.5), PeerId(2), &waiting);
    let observation = joined.observe(at(1.0));
    close(value(observation.models[0].in_flight.now).get(), 15.0);
    assert_eq!(value(observation.replicas.ready()), Replicas::new(3));
}

#[test]
fn gauges_are_integrated_as_they_were_read() {
    let mut joined = joined(1, 0);
    for (second, level) in [(0.0, 4.0), (2.0, 10.0), (3.0, 0.0)] {
        joined.on_proxy(at(second), PROXY, &proxy(level, 1));
    }
    let integral = joined.observe(at(3.0)).models[0].in_flight.integral;
    close(value(integral), 4.0 * 2.0 + 10.0);
}

#[test]
fn the_time_of_completed_requests_is_a_choice_and_says_so() {
    let mut joined = by(
        Some(Estimator::CompletionCounter),
        Estimator::CompletionCounter,
    );
    joined.add_proxy(PROXY);
    for (second, seconds) in [(0.0, 100.0), (10.0, 180.0)] {
        let reading = ProxyReading {
            request_seconds: seconds,
            ..proxy(6.0, 1)
        };
        joined.on_proxy(at(second), PROXY, &reading);
        joined.observe(at(second));
    }
    let in_flight = joined.observe(at(10.0)).models[0].in_flight;
    close(value(in_flight.integral), 80.0);
    let Term::Known { estimator, .. } = in_flight.integral else {
        panic!("unknown");
    };
    assert_eq!(estimator, Estimator::CompletionCounter);
    close(value(in_flight.now).get(), 6.0);
}

#[test]
fn requests_that_a_proxy_refused_are_added_by_littles_law() {
    let mut joined = joined(1, 1);
    let reading = |second: f64| ProxyReading {
        // 20 in flight and 10 let in a second: two seconds each. 5 more a second are refused.
        arrivals: 10.0 * second,
        refused: 5.0 * second,
        ..proxy(20.0, 1)
    };
    let mut points = Vec::new();
    for second in 0..=60 {
        let second = f64::from(second);
        joined.on_proxy(at(second), PROXY, &reading(second));
        joined.on_server(at(second), SERVER, &server(second));
        let observation = joined.observe(at(second));
        points.push((second, observation.models[0].in_flight));
        assert!(!observation.is_partial, "at {second}");
    }
    let (from, to) = (points[10], points[60]);
    close(rate((from.0, from.1.integral), (to.0, to.1.integral)), 30.0);
    close(value(to.1.now).get(), 30.0);
}

#[test]
fn refused_requests_of_unknown_time_are_the_least_there_is() {
    let mut joined = joined(1, 0);
    joined.on_proxy(at(0.0), PROXY, &proxy(0.0, 0));
    joined.observe(at(0.0));
    assert!(!joined.has_load(at(0.0)));
    let refused = ProxyReading {
        refused: 3.0,
        ..proxy(0.0, 0)
    };
    joined.on_proxy(at(1.0), PROXY, &refused);
    assert!(joined.has_load(at(1.0)) && !joined.has_load(at(60.0)));
    let observation = joined.observe(at(1.0));
    close(value(observation.models[0].in_flight.now).get(), 1.0);
    assert!(observation.is_partial);
}

#[test]
fn executing_is_the_growth_of_all_series_without_what_waited() {
    let mut joined = joined(1, 2);
    let reading = |scale: f64| ServerReading {
        series: [7, 8]
            .map(|id| {
                (
                    id,
                    ServerSeries {
                        total_seconds: 100.0 + 3.0 * scale,
                        waiting_seconds: 50.0 + scale,
                        completions: 10.0 * scale,
                    },
                )
            })
            .to_vec(),
        ..ServerReading::default()
    };
    for second in [0.0, 1.0, 2.0] {
        joined.on_proxy(at(second), PROXY, &proxy(9.0, 2));
        for peer in 0..2 {
            joined.on_server(at(second), PeerId(10 + peer), &reading(second));
        }
        joined.observe(at(second));
    }
    let load = joined.observe(at(2.0)).models[0].clone();
    close(value(load.executing.integral), 2.0 * 2.0 * 2.0 * 2.0);
    close(value(load.completions), 2.0 * 2.0 * 10.0 * 2.0);
}

#[test]
fn waiting_that_runs_ahead_of_the_total_is_taken_off_later() {
    let mut joined = joined(1, 1);
    let reading = |total_seconds, waiting_seconds| ServerReading {
        series: vec![(
            1,
            ServerSeries {
                total_seconds,
                waiting_seconds,
                completions: 0.0,
            },
        )],
        ..ServerReading::default()
    };
    let readings = [(10.0, 5.0), (10.0, 6.0), (13.0, 6.0)];
    let mut seconds = Vec::new();
    for (second, (total, waiting)) in (0..).map(f64::from).zip(readings) {
        joined.on_proxy(at(second), PROXY, &proxy(1.0, 1));
        joined.on_server(at(second), SERVER, &reading(total, waiting));
        let observation = joined.observe(at(second));
        seconds.push(value(observation.models[0].executing.integral));
    }
    assert_eq!(seconds, [0.0, 0.0, 2.0]);
}

#[test]
fn b19_a_counter_that_stands_is_no_load_and_one_that_fell_counts_from_zero() {
    let mut joined = joined(1, 1);
    let mut seconds = Vec::new();
    for (second, total) in (0..).map(f64::from).zip([50.0, 50.0, 50.0, 3.0, 4.0]) {
        joined.on_proxy(at(second), PROXY, &proxy(1.0, 1));
        joined.on_server(at(second), SERVER, &server(total));
        let observation = joined.observe(at(second));
        seconds.push(value(observation.models[0].executing.integral));
    }
    assert_eq!(seconds, [0.0, 0.0, 0.0, 3.0, 4.0]);
}

#[test]
fn b21_what_a_server_that_went_had_executed_stays_and_one_that_came_begins_at_nothing() {
    let mut joined = joined(1, 1);
    for second in 0..10 {
        let second = f64::from(second);
        joined.on_proxy(at(second), PROXY, &proxy(1.0, 1));
        joined.on_server(at(second), SERVER, &server(1e6 + second));
        joined.observe(at(second));
    }
    joined.remove_peer(SERVER);
    joined.add_server(PeerId(77));
    joined.on_proxy(at(10.0), PROXY, &proxy(1.0, 1));
    joined.on_server(at(10.0), PeerId(77), &server(5e9));
    let observation = joined.observe(at(10.0));
    close(value(observation.models[0].executing.integral), 9.0);
    assert!(joined.peer(at(10.0), SERVER).is_none());
}

/// Runs two proxies and four servers, each with one request executing and one waiting, for two
/// minutes, and leaves some unread between seconds 20 and 80. Returns the readings.
fn outage(is_away: impl Fn(PeerId) -> bool) -> Vec<(f64, Observation)> {
    let mut joined = joined(2, 4);
    let mut readings = Vec::new();
    for second in 0..=120 {
        let second = f64::from(second);
        let answers = |peer| !is_away(peer) || !(20.0..80.0).contains(&second);
        for peer in [PROXY, PeerId(2)] {
            if answers(peer) {
                joined.on_proxy(at(second), peer, &proxy(4.0, 4));
            }
        }
        for peer in (0..4).map(|server| PeerId(SERVER.0 + server)) {
            if answers(peer) {
                joined.on_server(at(second), peer, &server(second));
            }
        }
        readings.push((second, joined.observe(at(second))));
    }
    readings
}

fn executing(readings: &[(f64, Observation)], from: usize, to: usize) -> f64 {
    let point = |index: usize| {
        let (second, observation) = &readings[index];
        (*second, observation.models[0].executing.integral)
    };
    rate(point(from), point(to))
}

#[test]
fn b30_one_server_that_is_not_read_makes_executing_neither_sag_nor_jump() {
    let readings = outage(|peer| peer == SERVER);
    for second in 10..110 {
        let mean = executing(&readings, second, second + 10);
        assert!((mean - 4.0).abs() < 0.35, "{mean} at {second}");
        // Held for 30 s, then the others stand for it; then it is whole again.
        let is_partial = readings[second].1.is_partial;
        assert_eq!(is_partial, (50..80).contains(&second), "at {second}");
    }
    // Of a server that is back its second reading is the first that counts.
    assert!((executing(&readings, 0, 120) - 4.0).abs() < 0.02);
}

#[test]
fn b16_without_any_server_executing_is_unknown_and_nothing_is_divided() {
    let readings = outage(|peer| peer.0 >= SERVER.0);
    let executing = |second: usize| readings[second].1.models[0].executing.integral;
    assert!(executing(49).known().is_some());
    assert!(matches!(
        executing(55),
        Term::Unknown(Missing::Stale { .. })
    ));
    assert!(readings[55].1.is_partial);
    close(value(readings[55].1.models[0].in_flight.now).get(), 8.0);
    // The minute without them is not made up for at once.
    close(value(executing(82)) - value(executing(80)), 4.0 * 2.0);
}

#[test]
fn b25_a_proxy_that_hangs_keeps_its_last_number_and_then_the_rest_is_the_least() {
    let readings = outage(|peer| peer == PROXY);
    for (second, level, is_partial) in [
        (19, 8.0, false),
        (49, 8.0, false),
        (55, 4.0, true),
        (81, 8.0, false),
    ] {
        let observation = &readings[second].1;
        close(value(observation.models[0].in_flight.now).get(), level);
        assert_eq!(observation.is_partial, is_partial, "at {second}");
    }
}

#[test]
fn without_any_proxy_what_is_in_flight_and_healthy_is_unknown() {
    let readings = outage(|peer| peer.0 < SERVER.0);
    let lost = &readings[60].1;
    assert!(lost.models[0].in_flight.now.known().is_none());
    assert!(lost.models[0].in_flight.integral.known().is_none());
    assert!(lost.replicas.ready().known().is_none());
    // Their numbers are dated by the latest reading, and do not look fresh.
    let Term::Known { age, .. } = readings[45].1.models[0].in_flight.now else {
        panic!("unknown while it is held");
    };
    assert!(age >= Duration::from_secs(25), "{age:?}");
}

#[test]
fn servers_of_a_fleet_that_shrank_are_no_part_of_it() {
    let mut joined = joined(1, 4);
    for second in 0..60 {
        let second = f64::from(second);
        let (healthy, running) = if second < 10.0 { (4, 4) } else { (2, 2) };
        joined.on_proxy(at(second), PROXY, &proxy(2.0, healthy));
        for peer in 0..running {
            joined.on_server(at(second), PeerId(SERVER.0 + peer), &server(second));
        }
        let observation = joined.observe(at(second));
        assert!(!observation.is_partial, "at {second}");
    }
    let total = value(joined.observe(at(59.0)).models[0].executing.integral);
    close(total, 2.0 * 59.0 + 2.0 * 9.0);
}

#[test]
fn servers_that_stand_alone_tell_all_of_it() {
    let mut alone = by(None, Estimator::LiveGauge);
    let reading = |executing, queued, filled| ServerReading {
        executing: Some(executing),
        queued: Some(queued),
        filled: Some(filled),
        series: Vec::new(),
    };
    for peer in 0..3 {
        alone.add_server(PeerId(SERVER.0 + peer));
    }
    for second in [0.0, 2.0] {
        alone.on_server(at(second), SERVER, &reading(4.0, 6.0, 0.9));
        alone.on_server(at(second), PeerId(11), &reading(2.0, 0.0, 0.3));
    }
    let observation = alone.observe(at(2.0));
    let load = &observation.models[0];
    close(value(load.in_flight.now).get(), 12.0);
    close(value(load.executing.now).get(), 6.0);
    close(value(load.in_flight.integral), 24.0);
    close(value(load.executing.integral), 12.0);
    close(value(observation.filled), 1.2);
    assert_eq!(value(observation.replicas.ready()), Replicas::new(2));
    // One that is listed and was never read is unknown, not gone.
    assert!(observation.is_partial);
}

proptest! {
    /// Whatever is read, missed and restarted, totals never fall, and executing never grows by more
    /// than all servers executed, each taken at its fastest.
    #[test]
    fn no_order_of_readings_resets_and_gaps_makes_a_total_fall_or_a_spike(
        steps in proptest::collection::vec(
            (0.05_f64..40.0, 0_u64..5, 0.0_f64..8.0, 0_u8..8, 0_u32..6),
            1..200,
        ),
    ) {
        let mut joined = joined(2, 3);
        let mut now = 0.0;
        let mut counters = [1e9; 5];
        let mut before: Option<(f64, f64)> = None;
        for (pause, peer, level, what, healthy) in steps {
            now += pause;
            let index = usize::try_from(peer).unwrap();
            match what {
                0 => counters[index] = 0.0,
                // Nobody is read.
                1 => {}
                _ if peer < 2 => joined.on_proxy(at(now), PeerId(PROXY.0 + peer), &proxy(level, healthy)),
                _ => {
                    joined.on_server(at(now), PeerId(SERVER.0 + peer - 2), &server(counters[index]));
                }
            }
            // At most eight execute on each.
            for counter in &mut counters {
                *counter += level * pause.min(1.0);
            }
            let observation = joined.observe(at(now));
            let load = &observation.models[0];
            let (l, s) = (load.in_flight.integral.known(), load.executing.integral.known());
            prop_assert!(l.is_none_or(|l| l.is_finite() && l >= 0.0));
            prop_assert!(s.is_none_or(|s| s.is_finite() && s >= 0.0));
            if let (Some(l), Some(s)) = (l, s) {
                if let Some((old_l, old_s)) = before {
                    prop_assert!(l >= old_l && s >= old_s);
                }
                before = Some((l, s));
            }
        }
        // Each of three servers executed at most 8 for as long as it ran, and stands for five.
        if let Some((_, s)) = before {
            prop_assert!(s <= 5.0 * 8.0 * now + 1e-6, "{s} in {now} s");
        }
    }

    #[test]
    fn the_order_in_which_peers_are_read_changes_nothing(
        levels in proptest::collection::vec(0.0_f64..50.0, 3),
        turn in 0_usize..3,
    ) {
        let mut observations = Vec::new();
        for order in [[0, 1, 2], [2, 1, 0], [turn, (turn + 1) % 3, (turn + 2) % 3]] {
            let mut joined = joined(3, 3);
            for second in [0.0, 1.0, 2.0] {
                for peer in order {
                    let id = u64::try_from(peer).unwrap();
                    let level = levels[peer];
                    joined.on_proxy(at(second), PeerId(PROXY.0 + id), &proxy(level, 3));
                    joined.on_server(at(second), PeerId(SERVER.0 + id), &server(level * second));
                }
            }
            observations.push(joined.observe(at(2.0)));
        }
        prop_assert_eq!(&observations[0], &observations[1]);
        prop_assert_eq!(&observations[0], &observations[2]);
    }
}

#[test]
fn b27_several_servers_behind_one_address_are_found_out_and_not_read() {
    let mut joined = joined(1, 1);
    let mut is_one = true;
    for second in 0..40 {
        let second = f64::from(second);
        joined.on_proxy(at(second), PROXY, &proxy(1.0, 1));
        // Two, of which one has run for a day.
        let total = if second % 2.0 > 0.0 { 86_400.0 } else { 100.0 };
        is_one = joined.on_server(at(second), SERVER, &server(total + second));
        joined.observe(at(second));
    }
    assert!(!is_one);
    let view = joined.peer(at(40.0), SERVER).unwrap();
    assert_eq!(view.standing, Standing::Lost);
    assert!(joined.observe(at(40.0)).is_partial);
}

#[test]
fn a_server_whose_counters_fell_again_and_again_is_read_once_they_rose_for_a_minute() {
    let mut joined = joined(1, 1);
    let mut seconds = BTreeMap::new();
    for second in 0..=120 {
        let now = f64::from(second);
        // Starts again at 10, 20 and 30 s, each time with less, and then runs on.
        let base = [1e6, 1e5, 1e4, 0.0][usize::try_from(second / 10).unwrap().min(3)];
        joined.on_proxy(at(now), PROXY, &proxy(1.0, 1));
        let is_one = joined.on_server(at(now), SERVER, &server(base + now));
        assert_eq!(is_one, !(30..70).contains(&second), "at {second}");
        let integral = joined.observe(at(now)).models[0].executing.integral;
        seconds.insert(second, integral.known());
    }
    let grown = seconds[&120].unwrap() - seconds[&71].unwrap();
    close(grown, 49.0);
}

#[test]
fn counters_beyond_those_that_are_kept_are_not_counted_whole_at_each_reading() {
    let mut joined = joined(1, 1);
    let most = u64::try_from(SERIES_MAX).unwrap();
    // A server at the bound that unloads one model for another, and takes that back.
    for (second, first) in (0..).map(f64::from).zip([0, 1, 1, 0]) {
        let series = ServerSeries {
            total_seconds: 1000.0 + second,
            ..ServerSeries::default()
        };
        let reading = ServerReading {
            series: (first..first + most).map(|id| (id, series)).collect(),
            ..ServerReading::default()
        };
        joined.on_proxy(at(second), PROXY, &proxy(1.0, 1));
        joined.on_server(at(second), SERVER, &reading);
        joined.observe(at(second));
    }
    let integral = joined.observe(at(3.0)).models[0].executing.integral;
    let kept = f64::from(u32::try_from(SERIES_MAX).unwrap());
    close(value(integral), 3.0 * kept - 2.0);
}

#[test]
fn a_gauge_that_only_some_servers_tell_is_the_least_there_is() {
    let told = |queued, filled| ServerReading {
        executing: Some(4.0),
        queued,
        filled,
        series: Vec::new(),
    };
    let (full, none) = (told(Some(6.0), Some(0.9)), told(None, None));
    for (others, is_partial) in [
        (full.clone(), false),
        (told(None, Some(0.9)), true),
        (told(Some(6.0), None), true),
    ] {
        let mut alone = by(None, Estimator::LiveGauge);
        for (peer, reading) in [(SERVER, &full), (PeerId(11), &others)] {
            alone.add_server(peer);
            alone.on_server(at(0.0), peer, reading);
        }
        let observation = alone.observe(at(0.0));
        assert_eq!(observation.is_partial, is_partial, "{others:?}");
        assert!(value(observation.models[0].in_flight.now).get() >= 14.0);
    }
    // What none of them tells is not offered, and nothing is missing.
    let mut alone = by(None, Estimator::LiveGauge);
    alone.add_server(SERVER);
    alone.on_server(at(0.0), SERVER, &none);
    let observation = alone.observe(at(0.0));
    assert!(!observation.is_partial && observation.filled.known().is_none());
}

#[test]
fn a_level_of_before_an_outage_does_not_fill_all_of_it() {
    let mut proxied = joined(1, 0);
    let mut alone = by(None, Estimator::LiveGauge);
    alone.add_server(SERVER);
    for (second, level) in [(0.0, 100.0), (1_000.0, 1.0)] {
        proxied.on_proxy(at(second), PROXY, &proxy(level, 1));
        let reading = ServerReading {
            executing: Some(level),
            queued: Some(level),
            ..ServerReading::default()
        };
        alone.on_server(at(second), SERVER, &reading);
        proxied.observe(at(second));
        alone.observe(at(second));
    }
    // As long as it is held, the level of before; then the one that was found.
    let seconds = 100.0 * 30.0 + 970.0;
    let load = |mut measured: Measured| measured.observe(at(1_000.0)).models[0].clone();
    close(value(load(proxied).in_flight.integral), seconds);
    let load = load(alone);
    close(value(load.executing.integral), seconds);
    close(value(load.queued.integral), seconds);
}

#[test]
fn where_no_replica_is_and_none_is_expected_nothing_executes_which_is_known() {
    let mut joined = joined(1, 1);
    joined.on_proxy(at(0.0), PROXY, &proxy(2.0, 1));
    // Its one server was not read yet.
    assert!(executed_by(&mut joined, 0.0).known().is_none());
    joined.on_server(at(0.0), SERVER, &server(0.0));
    joined.on_server(at(1.0), SERVER, &server(1.0));
    joined.on_proxy(at(1.0), PROXY, &proxy(2.0, 1));
    close(value(executed_by(&mut joined, 1.0)), 1.0);
    joined.remove_peer(SERVER);
    // A replica that nobody can ask is not none.
    joined.on_proxy(at(100.0), PROXY, &proxy(0.0, 1));
    assert!(executed_by(&mut joined, 100.0).known().is_none());
    joined.on_proxy(at(101.0), PROXY, &proxy(0.0, 0));
    let known = executed_by(&mut joined, 101.0);
    assert!(matches!(known, Term::Known { value, age, .. } if value > 0.9 && age.is_zero()));
}

/// What was executed until a moment, in all.
fn executed_by(joined: &mut Measured, second: f64) -> Term<f64> {
    joined.observe(at(second)).models[0].executing.integral
}
