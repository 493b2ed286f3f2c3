//! A counter that was scraped, and its rate over a window, as in PromQL.

use std::collections::VecDeque;

/// Samples of one counter. *Units*: seconds.
#[derive(Clone, Debug)]
pub(super) struct Window {
    samples: VecDeque<(f64, f64)>,
    span: f64,
}

impl Window {
    pub(super) fn new(span: f64) -> Self {
        Self {
            samples: VecDeque::new(),
            span,
        }
    }

    pub(super) fn push(&mut self, now: f64, value: f64) {
        self.samples.push_back((now, value));
        while self
            .samples
            .get(1)
            .is_some_and(|&(at, _)| at <= now - self.span)
        {
            self.samples.pop_front();
        }
    }

    /// Returns the growth per second over the window, or since the first sample; zero before the
    /// second.
    pub(super) fn rate(&self) -> f64 {
        match (self.samples.front(), self.samples.back()) {
            (Some(&(from, low)), Some(&(to, high))) if to > from => (high - low) / (to - from),
            (Some(_) | None, _) => 0.0,
        }
    }
}
