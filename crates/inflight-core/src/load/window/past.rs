//! A history as it leaves one process for another, and how it goes on there.
//!
//! What windows are made of, and the latest levels, which stay in force while no newer are read.

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
    /// When a part of the load was last missing.
    pub partial_at: Option<Timestamp>,
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
    /// The latest numbers in flight, executing and queued that were known.
    pub levels: [Option<(Timestamp, f64)>; 3],
    /// Whether the number in flight is measured from outside.
    pub is_from_outside: bool,
}

impl History {
    /// Returns what the windows are made of.
    #[must_use]
    pub fn export(&self) -> PastLoad {
        let models = self.models.iter().map(|model| PastModel {
            in_flight: model.in_flight.integral.export(),
            executing: model.executing.integral.export(),
            queued: model.queued.integral.export(),
            arrivals: model.arrivals.export(),
            completions: model.completions.export(),
            service_seconds: model.service_seconds.export(),
            in_flight_max: model.in_flight_max.export(),
            levels: [&model.in_flight, &model.executing, &model.queued].map(|level| level.now),
            is_from_outside: model.in_flight.is_from_outside,
        });
        PastLoad {
            models: models.collect(),
            ready: self.ready.export(),
            peak: self.peak.export(),
            filled: self.filled.export(),
            partial_at: self.partial_at,
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
            model.in_flight.is_from_outside = past.is_from_outside;
            let leveled = [
                &mut model.in_flight,
                &mut model.executing,
                &mut model.queued,
            ];
            for (leveled, past) in leveled.into_iter().zip(past.levels) {
                leveled.now = past.filter(|&(at, level)| at <= now && level.is_finite());
            }
        }
        self.ready.restore(now, &past.ready);
        self.peak.restore(now, &past.peak);
        self.filled.restore(now, &past.filled);
        self.partial_at = past.partial_at.map(|at| at.min(now));
    }
}

impl Tracked {
    fn export(&self) -> PastSeries {
        PastSeries {
            missing: self.missing,
            ..self.series.export()
        }
    }

    fn restore(&mut self, now: Timestamp, past: &PastSeries) {
        self.series.restore(now, past);
        if self.series.newest().is_some() || past.missing.is_some() {
            self.missing = past.missing;
        }
    }
}
