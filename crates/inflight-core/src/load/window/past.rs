//! A history as it leaves one process for another, and how it goes on there.
//!
//! Only what windows are made of: the latest levels are read again before anything is decided.

use super::History;
use crate::load::PastSeries;
use crate::load::tracked::Tracked;
use crate::time::Timestamp;

/// What was observed of one fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastLoad {
    /// A row for each model, in the order of the configuration.
    pub models: Vec<PastModel>,
    /// Ready replicas, integrated.
    pub ready: PastSeries,
    /// The integral of bucket maxima.
    pub peak: PastSeries,
    /// Memory in use, integrated.
    pub filled: PastSeries,
}

/// What was observed of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastModel {
    /// Requests in flight, integrated.
    pub in_flight: PastSeries,
    /// Requests executing, integrated.
    pub executing: PastSeries,
    /// Requests queued, integrated.
    pub queued: PastSeries,
    /// Arrivals.
    pub arrivals: PastSeries,
    /// Completions.
    pub completions: PastSeries,
    /// Time executing of the completed.
    pub service_seconds: PastSeries,
    /// The largest numbers in flight between readings.
    pub in_flight_max: Vec<(Timestamp, f64)>,
}

impl History {
    /// Returns what the windows are made of.
    #[must_use]
    pub fn export(&self) -> PastLoad {
        let models = self.models.iter().map(|model| PastModel {
            in_flight: model.in_flight.integral.series.export(),
            executing: model.executing.integral.series.export(),
            queued: model.queued.integral.series.export(),
            arrivals: model.arrivals.series.export(),
            completions: model.completions.series.export(),
            service_seconds: model.service_seconds.series.export(),
            in_flight_max: model.in_flight_max.export(),
        });
        PastLoad {
            models: models.collect(),
            ready: self.ready.series.export(),
            peak: self.peak.series.export(),
            filled: self.filled.series.export(),
        }
    }

    /// Goes on from what was observed elsewhere. What is not in order, lies ahead of `now` or is
    /// no number is left out; a model without a row starts anew.
    pub fn restore(&mut self, now: Timestamp, past: &PastLoad) {
        for (model, past) in self.models.iter_mut().zip(&past.models) {
            let tracked = [
                (&mut model.in_flight.integral, &past.in_flight),
                (&mut model.executing.integral, &past.executing),
                (&mut model.queued.integral, &past.queued),
                (&mut model.arrivals, &past.arrivals),
                (&mut model.completions, &past.completions),
                (&mut model.service_seconds, &past.service_seconds),
            ];
            for (tracked, past) in tracked {
                tracked.restore(now, past);
            }
            model.in_flight_max.restore(now, &past.in_flight_max);
        }
        self.ready.restore(now, &past.ready);
        self.peak.restore(now, &past.peak);
        self.filled.restore(now, &past.filled);
    }
}

impl Tracked {
    fn restore(&mut self, now: Timestamp, past: &PastSeries) {
        self.series.restore(now, past);
        if self.series.newest().is_some() {
            self.missing = None;
        }
    }
}
