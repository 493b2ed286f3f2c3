//! `InFlight` against the definition, evaluated nanosecond by nanosecond.

use std::time::Duration;

use inflight_core::Timestamp;
use inflight_core::load::InFlight;
use proptest::prelude::*;

const BUCKET: u64 = 7;

/// Returns the count during each nanosecond from the start to `end`.
fn counts(events: &[(u64, bool)], start: u64, end: u64) -> Vec<u64> {
    let during = |nano: u64| {
        let told = events.iter().filter(|&&(time, _)| time <= nano);
        told.fold(
            0,
            |count: u64, &(_, is_begin)| if is_begin { count + 1 } else { count - 1 },
        )
    };
    (start..end).map(during).collect()
}

/// Returns ∫ bucket maximum, the last bucket with its maximum so far.
fn peak(counts: &[u64], start: u64) -> u64 {
    let first = usize::try_from(BUCKET - start % BUCKET).expect("a bucket is short");
    let (head, rest) = counts.split_at(first.min(counts.len()));
    let length = usize::try_from(BUCKET).expect("a bucket is short");
    std::iter::once(head)
        .chain(rest.chunks(length))
        .map(|bucket| {
            bucket
                .iter()
                .max()
                .map_or(0, |max| max * bucket.len() as u64)
        })
        .sum()
}

proptest! {
    #[test]
    fn integrals_and_maxima_are_those_of_the_definition(
        start in 0_u64..20,
        steps in prop::collection::vec((0_u64..12, any::<bool>()), 0..40),
    ) {
        let mut load = InFlight::new(Duration::from_nanos(BUCKET), Timestamp::from_nanos(start));
        let mut events: Vec<(u64, bool)> = Vec::new();
        let (mut now, mut in_flight) = (start, 0_u64);
        let mut last_peak = 0;
        for (step, wants_begin) in steps {
            now += step;
            let at = Timestamp::from_nanos(now);
            let is_begin = wants_begin || in_flight == 0;
            if is_begin { load.begin(at) } else { load.end(at) }
            in_flight = if is_begin { in_flight + 1 } else { in_flight - 1 };
            events.push((now, is_begin));
            let counts = counts(&events, start, now);
            prop_assert_eq!(load.count(), in_flight);
            prop_assert_eq!(load.integral(at), u128::from(counts.iter().sum::<u64>()));
            prop_assert_eq!(load.peak_integral(at), u128::from(peak(&counts, start)));
            prop_assert!(load.peak_integral(at) >= last_peak, "never falls");
            last_peak = load.peak_integral(at);
        }
        let counts = counts(&events, start, now);
        let max = counts.iter().copied().max().unwrap_or(0).max(in_flight);
        prop_assert_eq!(load.take_max(Timestamp::from_nanos(now)), max);
    }

    #[test]
    fn reading_in_between_changes_nothing(
        steps in prop::collection::vec((0_u64..1000, any::<bool>()), 0..40),
    ) {
        let bucket = Duration::from_nanos(BUCKET);
        let mut quiet = InFlight::new(bucket, Timestamp::ORIGIN);
        let mut read = quiet;
        let mut now = 0;
        for (step, is_begin) in steps {
            for part in 0..step.min(3) {
                read.take_max(Timestamp::from_nanos(now + part * step / 3));
            }
            now += step;
            let at = Timestamp::from_nanos(now);
            for load in [&mut quiet, &mut read] {
                if is_begin || load.count() == 0 { load.begin(at) } else { load.end(at) }
            }
            prop_assert_eq!(quiet.integral(at), read.integral(at));
            prop_assert_eq!(quiet.peak_integral(at), read.peak_integral(at));
        }
    }
}
