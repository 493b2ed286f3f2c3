//! What a peer's metric page says about one fleet.
//!
//! The names are those that `api` writes; the integration tests hold the two together.

use std::time::Duration;

use inflight_core::Replicas;
use inflight_core::load::{Counted, InstanceId, ModelCounts};

use super::text_format::Sample;

/// The counters of one model, by the samples that carry them: one of each makes a row whole.
const COUNTERS: usize = 7;

/// Which fleet is looked for, and its models here.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The fleet's name at the peer.
    pub(super) fleet: String,
    /// The names of our models, in the order of the configuration.
    pub(super) models: Vec<String>,
}

/// Why a page says nothing of use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PageError {
    /// Somebody else's page, or one of a version that cannot be summed.
    #[error("no page of an inflight whose counters can be summed")]
    NoInstance,
    /// The instance does not count the fleet.
    #[error("that instance has no gateway for a fleet {0:?}")]
    NoFleet(String),
    /// Some of a model's counters are missing, or are no counts.
    #[error("the counters of fleet {0:?} are not all there and counts")]
    Counters(String),
}

/// Collects one page.
#[derive(Debug)]
pub(super) struct Page<'a> {
    wanted: &'a Wanted,
    instance: Option<InstanceId>,
    uptime: Option<Duration>,
    ready: Option<Replicas>,
    models: Vec<ModelCounts>,
    seen: [usize; COUNTERS],
    is_wrong: bool,
}

impl<'a> Page<'a> {
    pub(super) fn new(wanted: &'a Wanted) -> Self {
        Self {
            wanted,
            instance: None,
            uptime: None,
            ready: None,
            models: vec![ModelCounts::default(); wanted.models.len()],
            seen: [0; COUNTERS],
            is_wrong: false,
        }
    }

    pub(super) fn take(&mut self, sample: &Sample<'_>) {
        match sample.name {
            "inflight_instance_info" => {
                let id = sample.labels().value("id").map(|id| id.text());
                let id = id.and_then(|id| u64::from_str_radix(&id, 16).ok());
                self.instance = id.map(InstanceId);
            }
            "inflight_uptime_seconds" => {
                self.uptime = Duration::try_from_secs_f64(sample.value).ok();
            }
            _ if !self.is_wanted(sample) => {}
            "inflight_replicas" if has(sample, "state", "ready") => {
                self.ready = count(sample.value).map(|value| Replicas::ceil(value.get()));
            }
            name => self.take_counter(name, sample),
        }
    }

    /// Returns what the page says.
    ///
    /// # Errors
    /// It does not say all that a sum needs.
    pub(super) fn counted(self) -> Result<Counted, PageError> {
        let (Some(instance), Some(uptime)) = (self.instance, self.uptime) else {
            return Err(PageError::NoInstance);
        };
        if self.seen == [0; COUNTERS] {
            return Err(PageError::NoFleet(self.wanted.fleet.clone()));
        }
        if self.is_wrong || self.seen.iter().any(|&seen| seen != self.seen[0]) {
            return Err(PageError::Counters(self.wanted.fleet.clone()));
        }
        Ok(Counted {
            instance,
            uptime,
            ready: self.ready,
            models: self.models,
        })
    }

    fn is_wanted(&self, sample: &Sample<'_>) -> bool {
        sample.name.starts_with("inflight_") && has(sample, "fleet", &self.wanted.fleet)
    }

    fn take_counter(&mut self, name: &str, sample: &Sample<'_>) {
        let is_executing = has(sample, "state", "executing");
        // A model that only the peer knows counts where requests of no model count: with the first.
        let model = self
            .wanted
            .models
            .iter()
            .position(|name| has(sample, "model", name));
        let Some(counts) = self.models.get_mut(model.unwrap_or(0)) else {
            return;
        };
        let (counter, total) = match (name, is_executing) {
            ("inflight_model_requests", true) => (0, &mut counts.executing),
            ("inflight_model_requests", false) => (1, &mut counts.queued),
            ("inflight_model_seconds_total", true) => (2, &mut counts.executing_seconds),
            ("inflight_model_seconds_total", false) => (3, &mut counts.queued_seconds),
            ("inflight_model_arrivals_total", _) => (4, &mut counts.arrivals),
            ("inflight_model_completions_total", _) => (5, &mut counts.completions),
            ("inflight_model_service_seconds_total", _) => (6, &mut counts.service_seconds),
            _ => return,
        };
        self.seen[counter] += 1;
        match count(sample.value) {
            Some(value) => *total += value.get(),
            None => self.is_wrong = true,
        }
    }
}

/// A count is finite and not negative.
fn count(value: f64) -> Option<inflight_core::Occupancy> {
    inflight_core::Occupancy::new(value)
}

fn has(sample: &Sample<'_>, label: &str, value: &str) -> bool {
    sample
        .labels()
        .value(label)
        .is_some_and(|found| found == *value)
}

#[cfg(test)]
mod tests {
    use super::super::text_format::{End, TextReader};
    use super::*;

    const PAGE: &str = r#"inflight_instance_info{id="00000000000000ff"} 1
inflight_uptime_seconds 12.5
inflight_replicas{fleet="hello",state="ready"} 3
inflight_replicas{fleet="hello",state="desired"} 9
inflight_model_requests{fleet="hello",model="a",state="executing"} 4
inflight_model_requests{fleet="hello",model="a",state="queued"} 1
inflight_model_seconds_total{fleet="hello",model="a",state="executing"} 40.5
inflight_model_seconds_total{fleet="hello",model="a",state="queued"} 10
inflight_model_arrivals_total{fleet="hello",model="a"} 100
inflight_model_completions_total{fleet="hello",model="a"} 96
inflight_model_service_seconds_total{fleet="hello",model="a"} 39
inflight_model_arrivals_total{fleet="other",model="a"} 5000
# EOF
"#;

    fn read(page: &str, fleet: &str, models: &[&str]) -> Result<Counted, PageError> {
        let wanted = Wanted {
            fleet: fleet.to_owned(),
            models: models.iter().map(|&name| name.to_owned()).collect(),
        };
        let mut collected = Page::new(&wanted);
        let mut reader = TextReader::new();
        reader
            .feed(page.as_bytes(), |sample| collected.take(sample))
            .unwrap();
        reader.finish(End::Marked, |_| {}).unwrap();
        collected.counted()
    }

    #[test]
    fn a_page_gives_the_counters_of_the_fleet_that_is_wanted() {
        let counted = read(PAGE, "hello", &["a"]).unwrap();
        assert_eq!(counted.instance, InstanceId(255));
        assert_eq!(counted.ready, Some(Replicas::new(3)));
        assert_eq!(
            counted.models,
            [ModelCounts {
                executing: 4.0,
                queued: 1.0,
                executing_seconds: 40.5,
                queued_seconds: 10.0,
                arrivals: 100.0,
                completions: 96.0,
                service_seconds: 39.0,
            }]
        );
    }

    #[test]
    fn a_model_that_only_the_peer_has_counts_with_the_first() {
        let counted = read(PAGE, "hello", &["x", "y"]).unwrap();
        assert!((counted.models[0].arrivals - 100.0).abs() < 1e-9);
        assert_eq!(counted.models[1], ModelCounts::default());
    }

    #[test]
    fn what_is_missing_or_no_count_is_never_zero() {
        assert_eq!(
            read(PAGE, "absent", &["a"]),
            Err(PageError::NoFleet("absent".to_owned()))
        );
        let old = PAGE.replace("inflight_instance_info", "inflight_other_info");
        assert_eq!(read(&old, "hello", &["a"]), Err(PageError::NoInstance));
        for (from, to) in [
            ("} 100\n", "} NaN\n"),
            ("} 40.5", "} -1"),
            ("model_completions", "gone"),
        ] {
            let page = PAGE.replace(from, to);
            assert_eq!(
                read(&page, "hello", &["a"]),
                Err(PageError::Counters("hello".to_owned()))
            );
        }
    }
}
