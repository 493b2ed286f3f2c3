//! The parts of the `staffing` formula, each a pure function.
//!
//! Sources: the margin is the square-root staffing rule (Halfin and Whitt, "Heavy-Traffic Limits
//! for Queues with Many Exponential Servers", 1981); offered slots are Little's law. The rest is
//! ours (`docs/policies.md`). *Units*: slots and seconds throughout.

use std::time::Duration;

use super::StaffingConfig;
use super::load::{Fleet, Load};
use crate::scaling::error::{self, ConfigError};
use crate::units::Replicas;

/// Arrivals of the fast window count for no more than this much service each: longer requests
/// are seen executing long before a rate of a few seconds says anything.
const FAST_SERVICE_MAX: f64 = 60.0;

/// The fleet grows once this much of the margin is used up, so that it does not grow at every
/// breath of the load.
const TRIGGER_MARGIN: f64 = 0.75;

/// A backlog shall be cleared within half a start delay, but not faster than within 10 s: a
/// shorter one is gone before a replica could start.
const CLEARING_SECONDS_MIN: f64 = 10.0;

/// A trend of a minute is no reason to look further ahead than this.
const LEAD_SECONDS_MAX: f64 = 180.0;

/// In flight / executing up to which clients that wait for their answers are served well.
const CLOSED_LOOP_INFLATION: f64 = 1.5;

/// Closed-loop clients never ask for more than this many times the ready slots at once.
const CLOSED_LOOP_GROWTH: f64 = 4.0;

/// The part of a replica that may be missing before one more is started for it.
pub(in crate::scaling) const OVERFULL: f64 = 0.05;

/// The busy shares at which a batching fleet is right, and at which it grows.
const BATCHING_UTILIZATION: (f64, f64) = (0.8, 0.9);

/// The slots that a model needs, and of what they are made up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Staffed {
    /// Slots that the load would keep busy if nobody waited; with the trend's lead.
    pub offered: f64,
    /// Slots to spare.
    pub margin: f64,
    /// Slots for what waits.
    pub backlog: f64,
    /// The offered slots expected after a start delay, where the load grows.
    pub lead: Option<f64>,
    /// The slots that closed-loop clients were given, where that raised the answer.
    pub closed_loop: Option<f64>,
    /// The most that were ever in flight at once, where that lowered the answer.
    pub cap: Option<f64>,
    /// The slots that are right.
    pub want: f64,
    /// The slots below which the fleet grows at once.
    pub trigger: f64,
    /// The slots down to which the fleet shrinks.
    pub down: f64,
    /// The slots that are needed for longer than a queue takes to clear.
    pub lasting: f64,
}

/// A model that serves requests in batches: a batch of n takes `batch + each · n`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batching {
    batch: f64,
    each: f64,
    largest: f64,
}

impl Batching {
    /// Builds a batching model. *Units*: seconds for each batch, seconds for each request in it,
    /// requests in the largest batch.
    ///
    /// # Errors
    ///
    /// A time is not from 0 to 3600 s, both are zero, or the largest batch not from 1 to 100,000.
    pub fn new(batch: f64, each: f64, largest: f64) -> Result<Self, ConfigError> {
        let batch = error::number("batching.batch_seconds", batch, 0.0, 3600.0)?;
        let least = if batch > 0.0 { 0.0 } else { 1e-9 };
        Ok(Self {
            batch,
            each: error::number("batching.each_seconds", each, least, 3600.0)?,
            largest: error::number("batching.largest", largest, 1.0, 1e5)?,
        })
    }

    /// Returns what a batch takes, what each request in it adds, and the requests in the largest.
    ///
    /// *Units*: seconds, seconds, requests.
    #[must_use]
    pub const fn terms(&self) -> (f64, f64, f64) {
        (self.batch, self.each, self.largest)
    }

    /// Returns how long a request takes of a replica in the largest batch. *Units*: seconds.
    fn seconds_each(&self) -> f64 {
        (self.batch + self.each * self.largest) / self.largest
    }
}

/// Puts the parts together for one model.
#[must_use]
pub fn size(
    config: &StaffingConfig,
    load: &Load,
    fleet: &Fleet,
    batching: Option<Batching>,
) -> Staffed {
    let mut staffed = match batching {
        Some(batching) => batching_slots(config, load, fleet, batching),
        None => slots(config, load, fleet),
    };
    if config.parts.cap
        && let Some(peak) = load.peak
    {
        let cap = peak.max(staffed.lead.unwrap_or(0.0));
        staffed.cap = (staffed.want > cap).then_some(cap);
        staffed.want = staffed.want.min(cap);
        staffed.trigger = staffed.trigger.min(cap);
        staffed.down = staffed.down.min(cap);
        staffed.lasting = staffed.lasting.min(cap);
    }
    staffed
}

fn slots(config: &StaffingConfig, load: &Load, fleet: &Fleet) -> Staffed {
    let (beta, ceiling) = (config.margin, config.utilization_ceiling);
    let steady = steady_slots(load);
    let mut offered = offered_slots(load);
    let lead = if config.parts.trend {
        trend_lead(load, offered, fleet.start_delay)
    } else {
        None
    };
    offered = offered.max(lead.unwrap_or(0.0));
    let margin = margin(offered, beta, ceiling);
    let queued = load
        .queued_now
        .map_or(load.queued_fast, |now| now.min(load.queued_fast));
    let backlog = if config.parts.backlog {
        backlog(queued, offered, load.service, fleet.start_delay)
    } else {
        0.0
    };
    let mut want = offered + margin + backlog;
    let mut trigger = offered + TRIGGER_MARGIN * margin + backlog;
    let mut lasting = offered + margin;
    let closed = if config.parts.closed_loop {
        closed_loop(load, fleet)
    } else {
        None
    };
    let closed_loop = closed.filter(|&slots| slots > want);
    if let Some(slots) = closed {
        want = want.max(slots);
        trigger = trigger.max(slots);
        lasting = lasting.max(slots);
    }
    let down = down_slots(steady, want, beta, ceiling);
    Staffed {
        offered,
        margin,
        backlog,
        lead,
        closed_loop,
        cap: None,
        want,
        trigger,
        down,
        lasting,
    }
}

fn batching_slots(
    config: &StaffingConfig,
    load: &Load,
    fleet: &Fleet,
    batching: Batching,
) -> Staffed {
    let arrivals = load.arrivals.max(arrivals_beyond_noise(load));
    let busy = arrivals * batching.seconds_each();
    let batches_now = batching.largest * fleet.slots_ready.unwrap_or(0.0);
    let waiting = (load.queued_fast - batches_now).max(0.0);
    let backlog = if config.parts.backlog {
        waiting * batching.seconds_each() / clearing_seconds(fleet.start_delay)
    } else {
        0.0
    };
    let (right, grow) = BATCHING_UTILIZATION;
    Staffed {
        offered: busy,
        margin: busy / right - busy,
        backlog,
        want: busy / right + backlog,
        trigger: busy / grow + backlog,
        down: load.arrivals * batching.seconds_each() / right,
        lasting: busy / right,
        ..Staffed::default()
    }
}

/// Returns the slots that the load keeps busy, by the slow window: the larger of what executes,
/// less what works off a queue, and what arrives, less one standard deviation of a Poisson count.
#[must_use]
pub fn steady_slots(load: &Load) -> f64 {
    let seconds = StaffingConfig::SLOW.as_secs_f64();
    let arrivals = (load.arrivals - (load.arrivals / seconds).sqrt()).max(0.0);
    let surplus = load.completions.map(|rate| rate - load.arrivals);
    let executing = load.executing - clearing_slots(surplus, load.queued, load.service, seconds);
    executing.max(load.service.map_or(0.0, |service| arrivals * service))
}

/// Returns the slots that work off a queue: completions beyond the arrivals, times the service time
/// (Little), as far as a queue was there to be worked off. A mean queue of q is of at most 2·q
/// requests that went in the window if it shrank evenly.
fn clearing_slots(surplus: Option<f64>, queued: f64, service: Option<f64>, seconds: f64) -> f64 {
    let (Some(surplus), Some(service)) = (surplus, service) else {
        return 0.0;
    };
    surplus.max(0.0).min(2.0 * queued / seconds) * service
}

/// Returns the arrivals per second that the fast window shows beyond doubt: less two standard
/// deviations of a Poisson count.
fn arrivals_beyond_noise(load: &Load) -> f64 {
    let seconds = StaffingConfig::FAST.as_secs_f64();
    (load.arrivals_fast - 2.0 * (load.arrivals_fast / seconds).sqrt()).max(0.0)
}

/// Returns the slots that the load would keep busy if nobody waited: the steady ones, or what
/// the fast window shows beyond doubt.
#[must_use]
pub fn offered_slots(load: &Load) -> f64 {
    let seconds = StaffingConfig::FAST.as_secs_f64();
    let arrivals = arrivals_beyond_noise(load);
    let arriving = load
        .service
        .map_or(0.0, |service| arrivals * service.min(FAST_SERVICE_MAX));
    let surplus = (load.completions_fast).map(|rate| rate - load.arrivals_fast);
    let clearing = clearing_slots(surplus, load.queued_fast, load.service, seconds);
    let executing = load.executing_fast - load.executing_fast.sqrt() - clearing;
    let long = load.service.is_some_and(|service| service > seconds);
    let present = if long {
        load.executing_now.unwrap_or(0.0)
    } else {
        0.0
    };
    steady_slots(load).max(arriving).max(executing).max(present)
}

/// Returns the offered slots to expect once a replica that is asked for has started; `None`
/// unless the load grows beyond doubt.
///
/// Arrivals that grow without a larger number in flight are clients that are answered faster: no
/// trend. Nor is there one after a queue, whose clearing looks like growth.
#[must_use]
pub fn trend_lead(load: &Load, offered: f64, start_delay: f64) -> Option<f64> {
    let (trend, service) = (load.trend?, load.service?);
    let seconds = StaffingConfig::TREND.as_secs_f64();
    if trend.peak_before < 1.0 || trend.peak_last <= trend.peak_before || trend.queued_before >= 0.1
    {
        return None;
    }
    let last = trend.arrivals_last * service;
    let before = trend.arrivals_before * service;
    let noise = 2.0 * (2.0 * last.max(before).max(0.01) * service / seconds).sqrt();
    if last - before <= noise {
        return None;
    }
    let ahead = start_delay.min(LEAD_SECONDS_MAX);
    Some((1.5 * offered).min(last + (last - before) / seconds * ahead))
}

/// Returns the slots to spare: `beta` square roots, and at least what keeps the busy share under
/// the ceiling.
#[must_use]
pub fn margin(offered: f64, beta: f64, utilization_ceiling: f64) -> f64 {
    (beta * offered.sqrt()).max(offered / utilization_ceiling - offered)
}

/// Returns the slots that clear what waits: each request is worth its service time in the time
/// the backlog may take, and a whole slot while the service time is unknown.
#[must_use]
pub fn backlog(queued: f64, offered: f64, service: Option<f64>, start_delay: f64) -> f64 {
    let worth = service.map_or(1.0, |service| {
        (service / clearing_seconds(start_delay)).min(1.0)
    });
    (queued - offered.sqrt()).max(0.0) * worth
}

/// Returns the slots for clients that send as fast as they are answered: arrivals then say how
/// fast the fleet is, not how many clients there are, but what is in flight does.
///
/// Their number does not change by itself, so what is in flight neither grows nor shrinks and
/// arrivals equal completions; a queue that an open load left behind fails that over one of the two
/// windows, and is the backlog's business.
#[must_use]
pub fn closed_loop(load: &Load, fleet: &Fleet) -> Option<f64> {
    let slots_ready = fleet.slots_ready?;
    let in_flight = load.executing_fast + load.queued_fast;
    let waits = in_flight > CLOSED_LOOP_INFLATION * load.executing_fast && load.queued_fast > 1.0;
    let full = load.executing_fast >= 0.9 * slots_ready;
    let applies = waits
        && full
        && balances(load.arrivals, load.completions?, StaffingConfig::SLOW)
        && balances(
            load.arrivals_fast,
            load.completions_fast?,
            StaffingConfig::FAST,
        );
    applies.then(|| (CLOSED_LOOP_GROWTH * slots_ready).min(in_flight / CLOSED_LOOP_INFLATION))
}

/// Tells whether arrivals equal completions within two standard deviations of a Poisson count, and
/// one in twenty for clients that come and go.
fn balances(arrivals: f64, completions: f64, window: Duration) -> bool {
    let noise = 2.0 * (completions / window.as_secs_f64()).sqrt();
    (arrivals - completions).abs() <= 0.05 * completions + noise
}

/// Returns the slots down to which the fleet shrinks: those of the steady load, without what the
/// fast window, the trend and the backlog ask for.
#[must_use]
pub fn down_slots(steady: f64, want: f64, beta: f64, utilization_ceiling: f64) -> f64 {
    let full = steady + margin(steady, beta, utilization_ceiling);
    full.min(want.max(steady + beta * steady.sqrt()))
}

/// Returns the replicas that have `slots` in all; a twentieth of a replica is not worth one.
#[must_use]
pub fn replicas_for(slots: f64, slots_per_replica: f64) -> Replicas {
    Replicas::ceil(slots / slots_per_replica - OVERFULL)
}

fn clearing_seconds(start_delay: f64) -> f64 {
    (start_delay / 2.0).max(CLEARING_SECONDS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(slots_ready: f64) -> Fleet {
        Fleet {
            slots_ready: Some(slots_ready),
            start_delay: 10.0,
        }
    }

    fn steady(arrivals: f64, service: f64) -> Load {
        let executing = arrivals * service;
        Load {
            any: true,
            arrivals,
            arrivals_fast: arrivals,
            completions: Some(arrivals),
            completions_fast: Some(arrivals),
            executing,
            executing_fast: executing,
            executing_now: Some(executing),
            queued_now: Some(0.0),
            service: Some(service),
            ..Load::default()
        }
    }

    #[test]
    fn a_steady_load_gets_its_slots_and_the_margin() {
        let staffed = size(
            &StaffingConfig::balanced(),
            &steady(45.0, 0.2),
            &fleet(16.0),
            None,
        );
        assert!((staffed.offered - 9.0).abs() < 1e-9, "{staffed:?}");
        assert!((staffed.want - 12.0).abs() < 1e-9, "{staffed:?}");
        assert!((staffed.trigger - 11.25).abs() < 1e-9, "{staffed:?}");
        assert!((staffed.down - 12.0).abs() < 1e-9, "{staffed:?}");
    }

    #[test]
    fn nobody_gets_more_slots_than_were_ever_in_flight() {
        let load = Load {
            peak: Some(1.0),
            ..steady(100.0, 0.01)
        };
        let staffed = size(&StaffingConfig::balanced(), &load, &fleet(1.0), None);
        assert!(staffed.want <= 1.0 && staffed.trigger <= 1.0 && staffed.down <= 1.0);
        assert_eq!(staffed.cap, Some(1.0));
        let mut uncapped = StaffingConfig::balanced();
        uncapped.parts.cap = false;
        assert!(size(&uncapped, &load, &fleet(1.0), None).want > 1.9);
    }

    #[test]
    fn closed_loop_clients_get_at_most_four_times_the_ready_slots() {
        let load = Load {
            queued: 98.0,
            queued_fast: 98.0,
            ..steady(20.0, 0.1)
        };
        assert_eq!(closed_loop(&load, &fleet(2.0)), Some(8.0));
        assert_eq!(
            closed_loop(&load, &fleet(40.0)),
            None,
            "the fleet is not full"
        );
    }

    #[test]
    fn a_queue_that_an_open_load_left_behind_is_no_closed_loop() {
        let cleared = Load {
            queued: 98.0,
            queued_fast: 98.0,
            completions_fast: Some(40.0),
            ..steady(20.0, 0.1)
        };
        assert_eq!(closed_loop(&cleared, &fleet(2.0)), None);
    }

    #[test]
    fn what_works_off_a_queue_is_not_offered() {
        let load = Load {
            completions: Some(40.0),
            queued: 300.0,
            executing: 4.0,
            ..steady(20.0, 0.1)
        };
        assert!((steady_slots(&load) - 2.0).abs() < 1e-9);
        let no_queue = Load {
            queued: 0.0,
            ..load
        };
        assert!((steady_slots(&no_queue) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_backlog_without_a_known_service_time_counts_whole() {
        assert!((backlog(66.0, 0.0, None, 10.0) - 66.0).abs() < 1e-9);
        assert!((backlog(100.0, 0.0, Some(1.0), 10.0) - 10.0).abs() < 1e-9);
        assert!((backlog(100.0, 0.0, Some(1.0), 40.0) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn arrivals_that_grow_without_a_larger_number_in_flight_are_no_trend() {
        let trend = super::super::Trend {
            arrivals_last: 40.0,
            arrivals_before: 10.0,
            peak_last: 12.0,
            peak_before: 12.0,
            queued_before: 0.0,
        };
        let mut load = Load {
            trend: Some(trend),
            ..steady(40.0, 0.2)
        };
        assert_eq!(trend_lead(&load, 8.0, 30.0), None);
        load.trend = Some(super::super::Trend {
            peak_last: 13.0,
            ..trend
        });
        assert_eq!(trend_lead(&load, 8.0, 30.0), Some(11.0));
    }

    #[test]
    fn a_batching_model_is_sized_in_replicas() {
        let batching = Batching::new(0.02, 0.001, 32.0).unwrap();
        let load = Load {
            any: true,
            arrivals: 1500.0,
            ..Load::default()
        };
        let staffed = size(
            &StaffingConfig::balanced(),
            &load,
            &fleet(1.0),
            Some(batching),
        );
        assert!((staffed.offered - 1500.0 * 0.052 / 32.0).abs() < 1e-9);
        assert!((staffed.want - staffed.offered / 0.8).abs() < 1e-9);
        assert!(Batching::new(0.0, 0.0, 32.0).is_err());
    }
}
