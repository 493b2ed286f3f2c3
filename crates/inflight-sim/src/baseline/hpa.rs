//! The Kubernetes HorizontalPodAutoscaler: its tolerance, stabilization windows and scaling
//! policies, and as a rule of its own the target on utilization.
//!
//! Source: Kubernetes documentation, "Horizontal Pod Autoscaling" (algorithm details,
//! configurable scaling behavior) and `pkg/controller/podautoscaler` of kubernetes/kubernetes.

use std::collections::VecDeque;
use std::time::Duration;

use super::Window;
use crate::control::Rule;
use crate::readings::Readings;
use crate::units::replicas_ceil;

/// How often the controller looks by default.
pub const SYNC: Duration = Duration::from_secs(15);

/// How an HPA moves. *Units*: seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behavior {
    /// How long a larger size must be wished for.
    pub up_window: f64,
    /// How long a smaller size must be wished for.
    pub down_window: f64,
    /// By how much it may grow.
    pub up: Step,
    /// By how much it may shrink.
    pub down: Step,
    /// Within which share of the target nothing moves.
    pub tolerance: f64,
}

/// The larger of two steps that may be taken each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// So many pods.
    pub pods: u32,
    /// So many times the pods there were.
    pub share: f64,
    /// How often.
    pub period: f64,
}

impl Behavior {
    /// The defaults of `autoscaling/v2`: up at once by 4 or as many as there are each 15 s, down
    /// after 300 s.
    pub const DEFAULT: Self = Self {
        up_window: 0.0,
        down_window: 300.0,
        up: Step {
            pods: 4,
            share: 1.0,
            period: 15.0,
        },
        down: Step {
            pods: 0,
            share: 1.0,
            period: 15.0,
        },
        tolerance: 0.1,
    };

    /// Those of the chart of the first observation: up by one each 60 s after 60 s, down by one
    /// each 120 s after 600 s.
    pub const ONE_BY_ONE: Self = Self {
        up_window: 60.0,
        down_window: 600.0,
        up: Step {
            pods: 1,
            share: 0.0,
            period: 60.0,
        },
        down: Step {
            pods: 1,
            share: 0.0,
            period: 120.0,
        },
        tolerance: 0.1,
    };

    /// Faster ones: up by 4 or as many as there are each 60 s after 60 s, down by 2 or half each
    /// 60 s after 120 s.
    pub const FASTER: Self = Self {
        up_window: 60.0,
        down_window: 120.0,
        up: Step {
            pods: 4,
            share: 1.0,
            period: 60.0,
        },
        down: Step {
            pods: 2,
            share: 0.5,
            period: 60.0,
        },
        tolerance: 0.1,
    };
}

/// An HPA between a wish and a size.
#[derive(Clone, Debug)]
pub struct Hpa {
    behavior: Behavior,
    wishes: VecDeque<(f64, u32)>,
    /// Pods added (positive) and taken, and when.
    moves: VecDeque<(f64, i64)>,
}

impl Hpa {
    /// Builds an HPA that has seen nothing.
    #[must_use]
    pub fn new(behavior: Behavior) -> Self {
        Self {
            behavior,
            wishes: VecDeque::new(),
            moves: VecDeque::new(),
        }
    }

    /// Tells whether load / what the size is for is so near to 1 that nothing moves.
    #[must_use]
    pub fn is_within_tolerance(&self, ratio: f64) -> bool {
        let tolerance = self.behavior.tolerance;
        1.0 - tolerance <= ratio && ratio <= 1.0 + tolerance
    }

    /// Returns the size for a wish.
    pub fn settle(&mut self, now: f64, current: u32, wish: u32) -> u32 {
        let Behavior {
            up_window,
            down_window,
            up,
            down,
            ..
        } = self.behavior;
        self.wishes.push_back((now, wish));
        let longest = up_window.max(down_window);
        self.wishes
            .retain(|&(at, _)| at > now - longest || at >= now);
        let within = |window: f64| {
            let recent = self.wishes.iter();
            recent.filter(move |&&(at, _)| at > now - window || at >= now)
        };
        // Up only to the least that was wished for, down only to the most.
        let least = within(up_window).map(|&(_, wish)| wish).min();
        let most = within(down_window).map(|&(_, wish)| wish).max();
        let mut size = current;
        size = size.max(least.unwrap_or(size));
        size = size.min(most.unwrap_or(size).max(least.unwrap_or(0)));
        let size = if size > current {
            size.min(self.limit_up(now, current, up)).max(current)
        } else {
            size.max(self.limit_down(now, current, down)).min(current)
        };
        if size != current {
            self.moves
                .push_back((now, i64::from(size) - i64::from(current)));
            let memory = up.period.max(down.period);
            self.moves.retain(|&(at, _)| at > now - memory);
        }
        size
    }

    fn limit_up(&self, now: f64, current: u32, step: Step) -> u32 {
        let start = self.size_before(now, current, step.period, |by| by > 0);
        let by_share = replicas_ceil(f64::from(start) * (1.0 + step.share));
        by_share.max(start.saturating_add(step.pods))
    }

    fn limit_down(&self, now: f64, current: u32, step: Step) -> u32 {
        let start = self.size_before(now, current, step.period, |by| by < 0);
        let by_share = replicas_ceil(f64::from(start) * (1.0 - step.share));
        by_share.min(start.saturating_sub(step.pods))
    }

    /// The size before what moved within a period, in one direction.
    fn size_before(
        &self,
        now: f64,
        current: u32,
        period: f64,
        counts: impl Fn(i64) -> bool,
    ) -> u32 {
        let recent = self.moves.iter().filter(|&&(at, _)| at > now - period);
        let moved: i64 = recent.map(|&(_, by)| by).filter(|&by| counts(by)).sum();
        u32::try_from(i64::from(current) - moved).unwrap_or(0)
    }
}

/// A target on the share of slots that are busy, as an HPA on CPU utilization is; of several
/// models the largest size counts, as of several metrics.
#[derive(Debug)]
pub struct Utilization {
    target: f64,
    /// Slots per replica of each model, and what of them is busy.
    models: Vec<(f64, Window)>,
    hpa: Hpa,
}

impl Utilization {
    /// Builds the rule: `target` of each model's slots per replica, over 30 s.
    #[must_use]
    pub fn new(target: f64, slots: &[f64]) -> Self {
        let model = |&slots: &f64| (slots, Window::new(30.0));
        Self {
            target,
            models: slots.iter().map(model).collect(),
            hpa: Hpa::new(Behavior::DEFAULT),
        }
    }

    /// The size for one model's busy slots. Pods that are not ready count as idle ones on the way
    /// up, and must not turn it into a way down.
    fn wish(&self, busy: f64, slots: f64, fleet: &Readings) -> u32 {
        let (ready, unready) = (f64::from(fleet.ready), f64::from(fleet.starting));
        let ratio = busy / (ready * slots) / self.target;
        if self.hpa.is_within_tolerance(ratio) {
            return fleet.desired;
        }
        if ratio < 1.0 || fleet.starting == 0 {
            return replicas_ceil(ratio * ready);
        }
        let all = ready + unready;
        let spread = ratio * ready / all;
        if spread < 1.0 || self.hpa.is_within_tolerance(spread) {
            return fleet.desired;
        }
        replicas_ceil(spread * all).max(fleet.desired)
    }
}

impl Rule for Utilization {
    fn every(&self) -> Duration {
        SYNC
    }

    fn on_tick(&mut self, now: f64, fleet: &Readings) -> Option<u32> {
        for ((_, window), model) in self.models.iter_mut().zip(&fleet.models) {
            window.push(now, model.executing_seconds);
        }
        if fleet.ready == 0 {
            return None;
        }
        let models = self.models.iter();
        let wishes = models.map(|(slots, busy)| self.wish(busy.rate(), *slots, fleet));
        let wish = wishes.max()?;
        Some(self.hpa.settle(now, fleet.desired, wish))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_by_one_grows_by_one_a_minute_after_a_minute() {
        let mut hpa = Hpa::new(Behavior::ONE_BY_ONE);
        let (mut size, mut sizes) = (1, Vec::new());
        for tick in 0..17 {
            let now = f64::from(tick) * 15.0;
            size = hpa.settle(now, size, if tick == 0 { 1 } else { 5 });
            sizes.push(size);
        }
        assert_eq!(
            sizes[..5],
            [1, 1, 1, 1, 2],
            "the wish of the first tick counts 60 s"
        );
        assert_eq!(sizes[8], 3);
        assert_eq!(sizes[16], 5);
    }

    #[test]
    fn the_default_shrinks_after_five_minutes_at_once() {
        let mut hpa = Hpa::new(Behavior::DEFAULT);
        let mut size = hpa.settle(0.0, 3, 9);
        assert_eq!(size, 7, "three more, or four");
        for tick in 1..=20 {
            size = hpa.settle(f64::from(tick) * 15.0, size, 2);
        }
        assert_eq!(size, 2);
    }
}
