//! `/metrics`: what Prometheus scrapes.
//!
//! The page is made anew at each scrape from one reading of each fleet and nothing is kept in
//! between, so the series of a removed fleet vanish with it. A label's value is the name of a fleet
//! or a model in the configuration, or a word of this program, never anything that a request says: the number of series is
//! bounded.

mod families;

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use inflight_core::admission::GateLoad;
use inflight_core::load::Estimate;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::failure::Failure;
use super::{Api, mapping};
use crate::clock::Clock;
use crate::fleet::{DecisionCounts, Fleet, ReplicaCounts, Timings};
use families::{BUILD_INFO, FAMILIES, Family, HISTOGRAMS, HistogramFamily, Kind, Value};

/// Ends the page: a comment in the Prometheus format, by which a reader knows a whole page from
/// one that was cut.
const END: &str = "# EOF\n";

/// Answers a scrape.
///
/// In the Prometheus text format, which every scraper takes: in OpenMetrics the gauge
/// `inflight_requests` and the counter `inflight_requests_total` would be one family of two
/// types, which strict parsers refuse.
pub(super) async fn page(State(api): State<Arc<Api>>) -> Result<impl IntoResponse, Failure> {
    let text = encode(&api.fleets, api.clock)
        .map_err(|_| Failure::internal("the metrics page could not be written".to_owned()))?;
    Ok((
        [(header::CONTENT_TYPE, prometheus_text::CONTENT_TYPE)],
        text,
    ))
}

/// Returns the names of all metrics, as a query spells them.
pub fn names() -> impl Iterator<Item = String> {
    let families = FAMILIES.iter().map(Family::full_name);
    let histograms = HISTOGRAMS.iter().map(|family| family.name.to_owned());
    families
        .chain(histograms)
        .chain([format!("{BUILD_INFO}_info")])
}

fn encode(fleets: &[Arc<Fleet>], clock: Clock) -> Result<String, fmt::Error> {
    let readings = fleets
        .iter()
        .map(|fleet| Reading::of(fleet, clock))
        .collect();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page { readings }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    text.push_str(END);
    Ok(text)
}

/// One reading of a fleet.
#[derive(Debug)]
struct Reading {
    fleet: String,
    source: &'static str,
    load: GateLoad,
    estimate: Estimate,
    observation_age: Option<f64>,
    replicas: ReplicaCounts,
    desired: Option<u32>,
    decisions: DecisionCounts,
    crashes: u64,
    /// The names of the models, in the order of the load's rows.
    models: Vec<String>,
    endpoints_age: Option<f64>,
    timings: Timings,
}

impl Reading {
    fn of(fleet: &Fleet, clock: Clock) -> Self {
        let (load, replicas) = fleet.load_and_replicas();
        let board = fleet.board();
        let age = mapping::observation_age(&board, clock.now());
        Self {
            fleet: fleet.name().to_owned(),
            source: board.source,
            load,
            estimate: board.estimate.unwrap_or_default(),
            observation_age: age.map(|age| age.as_secs_f64()),
            replicas,
            desired: board
                .decisions()
                .next()
                .map(|decision| decision.desired.get()),
            decisions: board.made(),
            crashes: board.crashes,
            models: board.models.clone(),
            endpoints_age: board.resolved.map(|at| clock.now().since(at).as_secs_f64()),
            timings: fleet.timings().clone(),
        }
    }
}

/// One scrape.
#[derive(Debug)]
struct Page {
    readings: Vec<Reading>,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            self.encode_family(&mut encoder, family)?;
        }
        for family in HISTOGRAMS {
            self.encode_histogram(&mut encoder, family)?;
        }
        encoder
            .encode_descriptor(BUILD_INFO, "The running version", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

impl Page {
    fn encode_family(&self, encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
        let metric_type = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let mut rows = encoder.encode_descriptor(family.name, family.help, None, metric_type)?;
        for reading in &self.readings {
            for sample in (family.samples)(reading) {
                let model = sample.model.and_then(|row| reading.models.get(row));
                let labels: Vec<_> = [("fleet", reading.fleet.as_str())]
                    .into_iter()
                    .chain(model.map(|name| ("model", name.as_str())))
                    .chain(sample.label)
                    .collect();
                let mut row = rows.encode_family(&labels)?;
                match (family.kind, sample.value) {
                    (Kind::Counter, Value::Count(value)) => {
                        row.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                    }
                    (Kind::Counter, Value::Number(value)) => {
                        row.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                    }
                    (Kind::Gauge, Value::Count(value)) => row.encode_gauge(&value)?,
                    (Kind::Gauge, Value::Number(value)) => row.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }

    fn encode_histogram(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        family: &HistogramFamily,
    ) -> fmt::Result {
        let kind = MetricType::Histogram;
        let mut rows = encoder.encode_descriptor(family.name, family.help, None, kind)?;
        for reading in &self.readings {
            let labels = [("fleet", reading.fleet.as_str())];
            (family.histogram)(&reading.timings).encode(rows.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
