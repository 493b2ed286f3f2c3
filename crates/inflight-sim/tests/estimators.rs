//! Ways of counting what is in flight, on loads whose truth is known: which of them say it.
//!
//! The figures are those of the prototype's tables; where they are drawn at random, to within a few
//! percent.

use std::time::Duration;

use inflight_core::Timestamp;
use inflight_core::load::InFlight;
use inflight_sim::{Purpose, Random};

/// *Units*: milliseconds.
const BUCKET: f64 = 100.0;

/// What each way says of a load: means over its whole time.
struct Read {
    /// Arrivals of each bucket and what was in flight at its start.
    arrivals_and_carry: f64,
    /// The largest number of each bucket.
    maxima: f64,
    /// The number at each bucket's end.
    samples: f64,
    /// The integral of the number.
    exact: f64,
}

fn at(millis: f64) -> Timestamp {
    Timestamp::ORIGIN + Duration::from_secs_f64(millis / 1e3)
}

/// Reads requests `(arrive, depart)` in milliseconds over so many buckets.
fn read(requests: &[(f64, f64)], buckets: u32) -> Read {
    let mut events: Vec<(f64, bool)> = Vec::new();
    for &(arrive, depart) in requests {
        events.extend([(arrive, true), (depart, false)]);
    }
    // Departures first at equal times.
    events.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut load = InFlight::new(at(BUCKET).since(at(0.0)), at(0.0));
    let (mut now, mut counted, mut sampled) = (0_u32, 0_u32, 0_u32);
    let mut events = events.into_iter().peekable();
    for bucket in 0..buckets {
        let edge = f64::from(bucket + 1) * BUCKET;
        counted += now;
        while let Some((time, begins)) = events.next_if(|(time, begins)| {
            // An end sample is taken before the arrivals at the edge.
            *time < edge || (*time <= edge && !begins)
        }) {
            if begins {
                load.begin(at(time));
                (now, counted) = (now + 1, counted + 1);
            } else {
                load.end(at(time));
                now -= 1;
            }
        }
        sampled += now;
    }
    let end = f64::from(buckets) * BUCKET;
    let mean = |total: u32| f64::from(total) / f64::from(buckets);
    Read {
        arrivals_and_carry: mean(counted),
        maxima: load.peak_seconds(at(end)) / (end / 1e3),
        samples: mean(sampled),
        exact: load.seconds(at(end)) / (end / 1e3),
    }
}

fn sequential(service: f64, gap: f64) -> Read {
    let count = (0..).map(f64::from).map(|number| number * (service + gap));
    let requests: Vec<_> = count
        .take_while(|start| start + service <= 60_000.0)
        .map(|start| (start, start + service))
        .collect();
    read(&requests, 600)
}

/// Poisson arrivals with exponential service times, served at once.
fn poisson(service: f64, mean: f64, seed: u64) -> Vec<(f64, f64)> {
    let mut random = Random::new(seed, Purpose::Load);
    let mut now = 0.0;
    let requests = 0..40_000;
    let request = |_| {
        now += random.exponential(service / mean);
        (now, now + random.exponential(service))
    };
    requests.map(request).collect()
}

#[track_caller]
fn assert_near(what: &str, found: f64, expected: f64, share: f64) {
    let error = (found / expected - 1.0).abs();
    assert!(error <= share, "{what}: {found:.4}, not {expected}");
}

#[test]
fn one_client_after_the_other_is_one_by_the_integral_and_by_its_maxima_without_gaps_only() {
    // Milliseconds of service and gap; arrivals and carry, maxima, samples, exact.
    let table = [
        (10.0, 0.0, 10.998, 1.0, 1.0),
        (10.0, 2.0, 9.0, 1.0, 0.833),
        (10.0, 10.0, 5.0, 1.0, 0.5),
        (30.0, 0.0, 4.332, 1.0, 1.0),
        (30.0, 3.0, 3.94, 1.0, 0.909),
        (30.0, 30.0, 2.0, 1.0, 0.5),
        // Every thirteenth bucket begins as a request ends, and is empty.
        (30.0, 100.0, 1.0, 12.0 / 13.0, 0.231),
    ];
    for (service, gap, carried, maxima, exact) in table {
        let read = sequential(service, gap);
        let what = format!("{service} ms after {gap} ms");
        assert_near(&what, read.exact, exact, 0.002);
        assert_near(&what, read.maxima, maxima, 0.002);
        assert_near(&what, read.arrivals_and_carry, carried, 0.15);
    }
    // A sample aliases: here every bucket ends in a gap.
    assert!(sequential(10.0, 10.0).samples < 1e-9);
    assert_near("a third", sequential(30.0, 30.0).samples, 0.333, 0.01);
}

#[test]
fn random_arrivals_are_read_right_by_the_integral_and_by_samples_and_too_high_by_buckets() {
    // Milliseconds of service, the mean in flight, and how much more the maxima say.
    let table = [
        (2.0, 0.1, 13.7),
        (2.0, 1.0, 4.48),
        (2.0, 10.0, 2.0),
        (10.0, 0.01, 10.09),
        (10.0, 1.0, 3.3),
        (10.0, 10.0, 1.72),
        (10.0, 50.0, 1.32),
        (30.0, 0.1, 3.85),
        (30.0, 1.0, 2.43),
        (30.0, 10.0, 1.51),
        (100.0, 1.0, 1.7),
        (100.0, 10.0, 1.3),
        (100.0, 50.0, 1.14),
        (1000.0, 10.0, 1.07),
    ];
    for (service, mean, ratio) in table {
        let requests = poisson(service, mean, 11);
        let last = requests.last().map_or(0.0, |(arrive, _)| *arrive);
        let whole = (0..).take_while(|edge| f64::from(*edge) * BUCKET < last);
        let read = read(&requests, u32::try_from(whole.count()).unwrap_or(0));
        let what = format!("{mean} of {service} ms");
        assert_near(&what, read.exact, mean, 0.06);
        assert_near(&what, read.samples, mean, 0.09);
        assert_near(&what, read.maxima / read.exact, ratio, 0.05);
        let carried = read.arrivals_and_carry / read.exact;
        assert_near(&what, carried, 1.0 + BUCKET / service, 0.03);
    }
}

/// ∫ in flight, and the time in flight of what has ended, at a moment. *Units*: seconds.
fn totals(requests: &[(f64, f64)], now: f64) -> (f64, f64) {
    let begun = requests.iter().filter(|(arrive, _)| *arrive < now);
    let integral = begun.map(|(arrive, depart)| depart.min(now) - arrive);
    let ended = requests.iter().filter(|(_, depart)| *depart <= now);
    (
        integral.sum(),
        ended.map(|(arrive, depart)| depart - arrive).sum(),
    )
}

/// The exact mean over a window of a minute that ends at a moment, and what a counter says that
/// moves when a request ends.
fn minute(requests: &[(f64, f64)], now: f64) -> (f64, f64) {
    let (before, after) = (totals(requests, now - 60.0), totals(requests, now));
    ((after.0 - before.0) / 60.0, (after.1 - before.1) / 60.0)
}

#[test]
fn a_counter_that_moves_at_completions_reads_one_over_the_overload_while_a_backlog_grows() {
    for (overload, expected) in [
        (1.5, 0.665),
        (2.0, 0.501),
        (3.0, 0.337),
        (5.0, 0.203),
        (10.0, 0.101),
    ] {
        let mut random = Random::new(11, Purpose::Load);
        let (mut now, mut free) = (0.0_f64, 0.0_f64);
        let mut requests = Vec::new();
        while now < 300.0 {
            now += random.exponential(0.02 / overload);
            free = free.max(now) + random.exponential(0.02);
            requests.push((now, free));
        }
        let seconds = (60..=300).step_by(20).map(f64::from);
        let ratios: Vec<f64> = seconds
            .map(|now| minute(&requests, now))
            .map(|(exact, counter)| counter / exact)
            .collect();
        let mean = ratios.iter().sum::<f64>() / ratios.iter().map(|_| 1.0).sum::<f64>();
        assert_near(&format!("{overload} times"), mean, expected, 0.06);
    }
}

#[test]
fn a_counter_that_moves_at_completions_lags_by_the_length_of_the_requests() {
    // 20 in flight from a moment on, each for a minute.
    let fixed: Vec<(f64, f64)> = (0..200_u32)
        .map(|number| f64::from(number) * 3.0)
        .map(|arrive| (arrive, arrive + 60.0))
        .collect();
    assert!(totals(&fixed, 59.0).1 < 1e-9 && totals(&fixed, 59.0).0 > 500.0);
    // The first moments at which the means over many draws reach nine tenths.
    let draws: Vec<Vec<(f64, f64)>> = (1..=40)
        .map(|seed| {
            let requests = poisson(60_000.0, 20.0, seed).into_iter().take(400);
            requests.map(|(from, to)| (from / 1e3, to / 1e3)).collect()
        })
        .collect();
    let reaches = |of: fn((f64, f64)) -> f64| {
        (60..900).step_by(5).map(f64::from).find(|now| {
            let sum: f64 = draws.iter().map(|draw| of(minute(draw, *now))).sum();
            sum / 40.0 >= 18.0
        })
    };
    let (exact, counter) = (reaches(|read| read.0), reaches(|read| read.1));
    let lag = counter.zip(exact).map(|(counter, exact)| counter - exact);
    assert!(
        lag.is_some_and(|lag| (60.0..130.0).contains(&lag)),
        "{lag:?} is not about 90 s"
    );
}
