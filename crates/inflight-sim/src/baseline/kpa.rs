//! Knative's pod autoscaler: averages of concurrency over a stable and a panic window.
//!
//! Source: knative/serving, `docs/scaling/SYSTEM.md` and `pkg/autoscaler` (collector, windows,
//! scaling), Apache-2.0; written from recorded sequences of its answers. Minimum, maximum and
//! scale to zero are done elsewhere in Knative, and here by the run.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::control::Rule;
use crate::readings::Readings;
use crate::units::{count, float, nanos};

/// Settings, by Knative's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KpaConfig {
    /// Concurrency that a pod is for: its total by the target utilization.
    pub target: f64,
    /// Concurrency that a pod takes at most.
    pub total: f64,
    /// *Units*: seconds.
    pub stable_window: f64,
    /// The panic window as a percentage of the stable one.
    pub panic_percentage: f64,
    /// Panic begins when so many times the ready pods are needed.
    pub panic_threshold: f64,
    /// At most so many times the ready pods at once.
    pub up_rate: f64,
    /// At least the ready pods by so much at once.
    pub down_rate: f64,
    /// The least size above zero; 0 and 1 are none.
    pub activation: u32,
    /// How long a size is held on the way down. *Units*: seconds.
    pub down_delay: f64,
    /// Whether the revision can be reached: if not, there is no down rate.
    pub reachable: bool,
    /// Concurrency to spare for bursts; 0: the proxy is never in the path, below 0: always.
    pub burst_capacity: f64,
    /// Whether averages are exponentially weighted.
    pub is_weighted: bool,
    /// Whether there are pods to ask; without them no data is no load.
    pub has_pods: bool,
}

impl KpaConfig {
    /// Knative's defaults for a number of slots: 70 % of them, 60 s and 10 % of it.
    #[must_use]
    pub fn for_slots(slots: f64) -> Self {
        Self {
            target: 0.7 * slots,
            total: slots,
            stable_window: 60.0,
            panic_percentage: 10.0,
            panic_threshold: 2.0,
            up_rate: 1000.0,
            down_rate: 2.0,
            activation: 0,
            down_delay: 0.0,
            reachable: true,
            burst_capacity: 200.0,
            is_weighted: false,
            has_pods: true,
        }
    }

    /// The panic window, in whole seconds.
    fn panic_window(&self) -> f64 {
        (self.stable_window * self.panic_percentage / 100.0)
            .round()
            .max(1.0)
    }
}

/// What one tick says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KpaTick {
    /// The size.
    pub desired: u32,
    /// The average over the stable window.
    pub stable: f64,
    /// The average over the panic window.
    pub panic: f64,
    /// Concurrency that the ready pods could take beyond the burst to spare for.
    pub excess: f64,
}

/// The autoscaler and what it collected.
#[derive(Clone, Debug)]
pub struct Kpa {
    config: KpaConfig,
    stable: Buckets,
    panic: Buckets,
    /// When the panic threshold was last passed. *Units*: nanoseconds.
    panic_since: Option<u64>,
    panic_most: u32,
    delayed: Option<Delay>,
}

/// Sums of reports in buckets of one second.
#[derive(Clone, Debug)]
struct Buckets {
    window: u64,
    sums: BTreeMap<u64, f64>,
    first: Option<u64>,
    last: Option<u64>,
}

/// The sizes of the recent past, by slots of two seconds.
#[derive(Clone, Debug)]
struct Delay {
    slots: u64,
    sizes: VecDeque<(u64, u32)>,
}

impl Kpa {
    /// Starts an autoscaler for so many ready pods.
    #[must_use]
    pub fn new(config: KpaConfig, now: u64, ready: u32) -> Self {
        let slots = count((config.down_delay / 2.0).ceil());
        Self {
            stable: Buckets::new(config.stable_window),
            panic: Buckets::new(config.panic_window()),
            // Started with several pods, it panics, so that it keeps them for a while.
            panic_since: (ready > 1).then_some(now),
            panic_most: ready,
            delayed: (slots > 0).then(|| Delay {
                slots,
                sizes: VecDeque::new(),
            }),
            config,
        }
    }

    /// Changes the settings; the delay keeps the length that it was created with.
    pub fn set_config(&mut self, config: KpaConfig) {
        self.stable.resize(config.stable_window);
        self.panic.resize(config.panic_window());
        self.config = config;
    }

    /// Takes a report of the fleet's average concurrency. *Units*: nanoseconds.
    pub fn record(&mut self, now: u64, concurrency: f64) {
        self.stable.record(now / SECOND, concurrency);
        self.panic.record(now / SECOND, concurrency);
    }

    /// Decides; `None`: there is no data, and nothing moves. *Units*: nanoseconds.
    pub fn tick(&mut self, now: u64, ready: u32) -> Option<KpaTick> {
        let config = self.config;
        let average = |buckets: &Buckets| {
            if config.is_weighted {
                buckets.weighted(now / SECOND)
            } else {
                buckets.average(now / SECOND)
            }
        };
        let stable = average(&self.stable).or((!config.has_pods).then_some(0.0))?;
        let panic = average(&self.panic).unwrap_or(0.0);
        let pods = f64::from(ready.max(1));
        let up = (config.up_rate * pods).ceil();
        let down = if config.reachable {
            (pods / config.down_rate).floor()
        } else {
            0.0
        };
        let raw_stable = (stable / config.target).ceil();
        let raw_panic = (panic / config.target).ceil();
        let bounded = |raw: f64| raw.max(down).min(up);
        let activated = |raw: f64| {
            let least = f64::from(config.activation);
            if config.activation > 1 && raw > 0.0 {
                bounded(raw).max(least)
            } else {
                bounded(raw)
            }
        };
        let wanted = whole(activated(raw_stable));
        let wanted_in_panic = whole(activated(raw_panic));
        let is_over = raw_panic / pods >= config.panic_threshold;
        match self.panic_since {
            _ if is_over => self.panic_since = Some(now),
            Some(since) if now > since + nanos(config.stable_window) => {
                self.panic_since = None;
                self.panic_most = 0;
            }
            Some(_) | None => {}
        }
        let mut desired = wanted;
        if self.panic_since.is_some() {
            self.panic_most = self.panic_most.max(wanted).max(wanted_in_panic);
            desired = self.panic_most;
        }
        if config.reachable
            && let Some(delay) = &mut self.delayed
        {
            desired = delay.push(now / (2 * SECOND), desired);
        }
        let capacity = f64::from(ready) * config.total;
        let excess = match config.burst_capacity {
            spare if spare > 0.0 => (capacity - spare - panic).floor(),
            spare if spare < 0.0 => -1.0,
            _ => 0.0,
        };
        Some(KpaTick {
            desired,
            stable,
            panic,
            excess,
        })
    }

    /// Returns when the threshold of the panic was last passed, while it panics.
    /// *Units*: nanoseconds.
    #[must_use]
    pub fn panicking_since(&self) -> Option<u64> {
        self.panic_since
    }

    /// Returns whether it panics, and the most pods since it does.
    #[must_use]
    pub fn panicking(&self) -> (bool, u32) {
        (self.panic_since.is_some(), self.panic_most)
    }
}

const SECOND: u64 = 1_000_000_000;

fn whole(pods: f64) -> u32 {
    u32::try_from(count(pods)).unwrap_or(u32::MAX)
}

impl Buckets {
    fn new(window: f64) -> Self {
        Self {
            window: count(window.ceil()).max(1),
            sums: BTreeMap::new(),
            first: None,
            last: None,
        }
    }

    /// Adds a report to its second. After silence of a whole window it starts again.
    fn record(&mut self, second: u64, value: f64) {
        match self.last {
            Some(last) if second >= last + self.window => {
                self.sums.clear();
                self.first = Some(second);
                self.last = Some(second);
            }
            Some(last) if second + self.window <= last => return,
            Some(last) => {
                self.first = self.first.min(Some(second));
                self.last = Some(last.max(second));
            }
            None => {
                self.first = Some(second);
                self.last = Some(second);
            }
        }
        *self.sums.entry(second).or_insert(0.0) += value;
        let newest = self.last.unwrap_or(second);
        self.sums.retain(|&at, _| at + self.window > newest);
    }

    /// Returns the mean of the seconds of the window that have reports or lie before one; `None`
    /// when the newest is older than the window.
    fn average(&self, now: u64) -> Option<f64> {
        let (first, last) = (self.first?, self.last?);
        let silent = now.saturating_sub(last);
        if silent > self.window {
            return None;
        }
        if silent == self.window {
            return Some(0.0);
        }
        let span = (last - first + 1).min(self.window - silent);
        let now = now.max(last);
        let within = self.sums.range((now + 1).saturating_sub(self.window)..);
        let sum: f64 = within.map(|(_, value)| value).sum();
        Some((sum / float(span) * 1e6).round() / 1e6)
    }

    /// Returns the exponentially weighted mean, neither rounded nor normalised; `None` when the
    /// newest report is older than the window.
    fn weighted(&self, now: u64) -> Option<f64> {
        let last = self.last?;
        if now.saturating_sub(last) > self.window {
            return None;
        }
        // The oldest bucket weighs a ten-thousandth; at least a fifth is of the newest.
        let weight = (1.0 - libm::pow(1e-4, 1.0 / float(self.window))).max(0.2);
        let now = now.max(last);
        let within = self.sums.range((now + 1).saturating_sub(self.window)..);
        let weighed =
            within.map(|(&at, value)| value * weight * libm::pow(1.0 - weight, float(now - at)));
        Some(weighed.sum())
    }

    /// Keeps the newest buckets; a window that was young is full from then on.
    fn resize(&mut self, window: f64) {
        let window = count(window.ceil()).max(1);
        if window == self.window {
            return;
        }
        let old = std::mem::replace(&mut self.window, window);
        if let Some(last) = self.last {
            let kept = old.min(window);
            self.sums.retain(|&at, _| at + kept > last);
            self.first = Some((last + 1).saturating_sub(old));
        }
    }
}

impl Delay {
    /// Returns the largest size of the slots up to this one.
    fn push(&mut self, slot: u64, size: u32) -> u32 {
        match self.sizes.back_mut() {
            Some((at, largest)) if *at == slot => *largest = (*largest).max(size),
            Some(_) | None => self.sizes.push_back((slot, size)),
        }
        while self
            .sizes
            .front()
            .is_some_and(|&(at, _)| at + self.slots <= slot)
        {
            self.sizes.pop_front();
        }
        self.sizes
            .iter()
            .map(|&(_, size)| size)
            .max()
            .unwrap_or(size)
    }
}

/// Where concurrency is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedAt {
    /// At the proxy, with the wire.
    Proxy,
    /// In the replica, waiting requests included, as the queue proxy does.
    Replica,
}

/// An autoscaler for each model over a simulated fleet, of which the largest size counts: a report
/// each second, a decision each two.
#[derive(Debug)]
pub struct Knative {
    models: Vec<(Kpa, f64)>,
    at: CountedAt,
}

impl Knative {
    /// Builds the rule, with settings for each model, for a fleet that starts with so many
    /// replicas.
    #[must_use]
    pub fn new(configs: &[KpaConfig], at: CountedAt, replicas: u32) -> Self {
        let model = |config: &KpaConfig| (Kpa::new(*config, 0, replicas), 0.0);
        Self {
            models: configs.iter().map(model).collect(),
            at,
        }
    }
}

impl Rule for Knative {
    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32> {
        let at = nanos(now.round());
        let is_even = (at / SECOND).is_multiple_of(2);
        let mut largest = None;
        for ((kpa, reported), model) in self.models.iter_mut().zip(&fleet.models) {
            let total = match self.at {
                CountedAt::Proxy => model.in_flight_seconds,
                CountedAt::Replica => model.at_replica_seconds,
            };
            if now > 0.0 {
                kpa.record(at, total - *reported);
            }
            *reported = total;
            if is_even {
                let desired = kpa.tick(at, fleet.ready).map(|tick| tick.desired);
                largest = largest.max(desired);
            }
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: KpaConfig, reports: &[f64], ready: impl Fn(u64) -> u32) -> Vec<u32> {
        let mut kpa = Kpa::new(config, 0, ready(0));
        let mut desired = Vec::new();
        for (second, report) in (1..).zip(reports) {
            kpa.record(second * SECOND, *report);
            if second % 2 == 0 {
                let tick = kpa.tick(second * SECOND, ready(second));
                desired.push(tick.map_or(u32::MAX, |tick| tick.desired));
            }
        }
        desired
    }

    #[test]
    fn a_constant_load_gets_its_pods_after_the_panic() {
        let config = KpaConfig::for_slots(1.0);
        let desired = run(config, &[2.1; 80], |second| if second < 7 { 1 } else { 4 });
        assert!(
            desired.iter().all(|&desired| desired == 4),
            "2.1 / 0.7 is above 3: {desired:?}"
        );
    }

    #[test]
    fn panic_ends_one_stable_window_and_a_tick_after_the_threshold_was_passed() {
        let config = KpaConfig {
            target: 1.0,
            ..KpaConfig::for_slots(1.0)
        };
        let mut reports = vec![10.0; 10];
        reports.resize(100, 1.0);
        let desired = run(config, &reports, |second| if second < 20 { 1 } else { 10 });
        let falls = desired.iter().position(|&desired| desired < 10);
        // Over at 18 s for the last time: the panic window then still needs two for one pod.
        assert!(falls.is_some_and(|tick| tick > 35), "{desired:?}");
    }

    #[test]
    fn silence_is_no_load_only_after_a_whole_window() {
        let mut kpa = Kpa::new(KpaConfig::for_slots(1.0), 0, 1);
        assert_eq!(kpa.tick(0, 1), None);
        kpa.record(SECOND, 3.0);
        let at = |kpa: &mut Kpa, second: u64| kpa.tick(second * SECOND, 5).map(|tick| tick.stable);
        assert_eq!(at(&mut kpa, 30), Some(3.0));
        assert_eq!(at(&mut kpa, 61), Some(0.0));
        assert_eq!(at(&mut kpa, 62), None);
    }

    #[test]
    fn a_delay_holds_the_largest_size_of_its_slots() {
        let mut delay = Delay {
            slots: 15,
            sizes: VecDeque::new(),
        };
        assert_eq!(delay.push(0, 9), 9);
        assert_eq!(delay.push(14, 1), 9);
        assert_eq!(delay.push(15, 1), 1);
    }
}
