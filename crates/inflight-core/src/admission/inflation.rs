//! The exact inflation of the last ten seconds, and whether the admission gate is open by it.

use std::time::Duration;

use super::config::AdmissionConfig;
use crate::load::InFlight;
use crate::time::Timestamp;
use crate::units::request_seconds;

/// How long from one judgement to the next.
const STEP_NANOS: u64 = 1_000_000_000;
/// The window of the judgement, in steps.
const WINDOW: u64 = 10;
const MARKS: usize = 11;

/// What is counted, for its exact integrals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts<'a> {
    in_flight: &'a InFlight,
    executing: &'a InFlight,
    ready: &'a InFlight,
}

/// Judges once a second by in flight / max(executing, replicas ready), each the exact mean of
/// the last ten seconds, or of all time while that is shorter.
///
/// Without a ready replica the ratio is unknown, and the gate stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inflation {
    start: Timestamp,
    /// The number of the last judgement, which was that many steps after the start.
    step: u64,
    /// The integrals at the last judgements; that of step n is in place n % 11.
    marks: [Mark; MARKS],
    ratio: Option<f64>,
    open: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mark {
    in_flight: u128,
    executing: u128,
    ready: u128,
}

impl<'a> Counts<'a> {
    /// Puts together what is counted of requests in flight, of those executing, and of replicas
    /// that are ready.
    pub(super) const fn of(
        in_flight: &'a InFlight,
        executing: &'a InFlight,
        ready: &'a InFlight,
    ) -> Self {
        Self {
            in_flight,
            executing,
            ready,
        }
    }
}

impl Inflation {
    /// Starts with an open gate, from counts that start too.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            start: now,
            step: 0,
            marks: [Mark::default(); MARKS],
            ratio: None,
            open: true,
        }
    }

    /// Starts with the gate as it was elsewhere, from counts that went on from there.
    pub(super) fn resume(now: Timestamp, counts: Counts<'_>, open: bool) -> Self {
        let mut this = Self::new(now);
        let mark = this.mark(0, counts);
        this.marks = [mark; MARKS];
        this.open = open;
        this
    }

    /// Tells whether new sessions are let in.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// Returns the ratio of the last judgement.
    pub(super) const fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    /// Returns when the next judgement is due.
    pub(super) fn next(&self) -> Timestamp {
        self.at(self.step.saturating_add(1))
    }

    /// Judges as often as was due until `now`. To be called before any of the counts changes.
    pub(super) fn judge(&mut self, now: Timestamp, counts: Counts<'_>, config: &AdmissionConfig) {
        if now < self.next() {
            return;
        }
        let due = (now.as_nanos() - self.start.as_nanos()) / STEP_NANOS;
        // Nothing changed meanwhile, so that after one window every further judgement is equal.
        let changing = due.min(self.step.saturating_add(WINDOW + 1));
        for step in self.step + 1..=changing {
            self.judge_step(step, counts, config);
        }
        for step in (changing + 1).max(due.saturating_sub(WINDOW))..=due {
            self.mark(step, counts);
        }
        if due > changing {
            self.judge_step(due, counts, config);
        }
    }

    fn judge_step(&mut self, step: u64, counts: Counts<'_>, config: &AdmissionConfig) {
        self.step = step;
        let now = self.mark(step, counts);
        let then = self.marks[place(step.saturating_sub(WINDOW))];
        let ready_before = counts.ready.count() > 0;
        self.ratio = if ready_before {
            now.ratio_since(then)
        } else {
            None
        };
        if let Some(ratio) = self.ratio {
            if ratio > config.threshold {
                self.open = false;
            } else if ratio <= config.reopen {
                self.open = true;
            }
        }
    }

    fn mark(&mut self, step: u64, counts: Counts<'_>) -> Mark {
        let at = self.at(step);
        let mark = Mark {
            in_flight: counts.in_flight.integral(at),
            executing: counts.executing.integral(at),
            ready: counts.ready.integral(at),
        };
        self.marks[place(step)] = mark;
        mark
    }

    fn at(&self, step: u64) -> Timestamp {
        let nanos = step.saturating_mul(STEP_NANOS);
        self.start + Duration::from_nanos(nanos)
    }
}

impl Mark {
    /// Returns the ratio of the means since `then`; `None` when no replica was ready.
    fn ratio_since(self, then: Self) -> Option<f64> {
        let ready = self.ready - then.ready;
        let executing = self.executing - then.executing;
        let in_flight = request_seconds(self.in_flight - then.in_flight);
        (ready > 0).then(|| in_flight / request_seconds(executing.max(ready)))
    }
}

fn place(step: u64) -> usize {
    // A remainder of eleven fits any usize.
    usize::try_from(step % (WINDOW + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{AdmissionScope, When};

    const BUCKET: Duration = Duration::from_millis(100);
    const CONFIG: AdmissionConfig = AdmissionConfig {
        threshold: 3.0,
        reopen: 2.4,
        when: When::Always,
        scope: AdmissionScope::NewSessions,
        sessions_max: 10,
        session_idle: Duration::from_secs(60),
    };

    struct Fleet {
        in_flight: InFlight,
        executing: InFlight,
        ready: InFlight,
        inflation: Inflation,
    }

    impl Fleet {
        fn new() -> Self {
            let counter = InFlight::new(BUCKET, ms(0));
            Self {
                in_flight: counter,
                executing: counter,
                ready: counter,
                inflation: Inflation::new(ms(0)),
            }
        }

        fn judge(&mut self, now: Timestamp) {
            let counts = Counts::of(&self.in_flight, &self.executing, &self.ready);
            self.inflation.judge(now, counts, &CONFIG);
        }
    }

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn the_gate_closes_above_the_threshold_and_reopens_below_the_lower_one() {
        let mut fleet = Fleet::new();
        fleet.ready.begin(ms(0));
        for _ in 0..4 {
            fleet.in_flight.begin(ms(0));
        }
        fleet.judge(ms(999));
        assert!(fleet.inflation.is_open(), "no judgement is due");
        fleet.judge(ms(1_000));
        assert_eq!(fleet.inflation.ratio(), Some(4.0));
        assert!(!fleet.inflation.is_open());
        fleet.in_flight.end(ms(1_000));
        fleet.in_flight.end(ms(1_000));
        fleet.judge(ms(4_999));
        assert_eq!(fleet.inflation.ratio(), Some(2.5));
        assert!(!fleet.inflation.is_open());
        fleet.judge(ms(5_000));
        assert_eq!(fleet.inflation.ratio(), Some(2.4));
        assert!(fleet.inflation.is_open());
    }

    #[test]
    fn the_window_is_ten_seconds_and_replicas_are_averaged_over_the_same() {
        let mut fleet = Fleet::new();
        for _ in 0..6 {
            fleet.in_flight.begin(ms(0));
        }
        fleet.ready.begin(ms(0));
        fleet.judge(ms(20_000));
        fleet.ready.begin(ms(20_000));
        fleet.judge(ms(25_000));
        assert_eq!(fleet.inflation.ratio(), Some(6.0 / 1.5));
        fleet.judge(ms(30_000));
        assert_eq!(fleet.inflation.ratio(), Some(3.0));
    }

    #[test]
    fn without_a_ready_replica_the_gate_stays_as_it_is() {
        let mut fleet = Fleet::new();
        for _ in 0..9 {
            fleet.in_flight.begin(ms(0));
        }
        fleet.judge(ms(60_000));
        assert_eq!(fleet.inflation.ratio(), None);
        assert!(fleet.inflation.is_open());
        fleet.ready.begin(ms(60_000));
        fleet.judge(ms(61_000));
        assert!(!fleet.inflation.is_open());
        fleet.ready.end(ms(61_000));
        fleet.judge(ms(90_000));
        assert!(!fleet.inflation.is_open());
    }

    #[test]
    fn a_long_silence_is_judged_like_one_told_second_by_second() {
        let (mut told, mut silent) = (Fleet::new(), Fleet::new());
        for fleet in [&mut told, &mut silent] {
            fleet.ready.begin(ms(0));
            for _ in 0..7 {
                fleet.in_flight.begin(ms(300));
            }
        }
        for end in [5_500, 12_000, 13_000, 40_700, 1_000_000] {
            for now in (0..=end).step_by(500) {
                told.judge(ms(now));
            }
            silent.judge(ms(end));
            assert_eq!(told.inflation, silent.inflation, "{end}");
        }
        silent.judge(Timestamp::from_nanos(u64::MAX));
    }
}
