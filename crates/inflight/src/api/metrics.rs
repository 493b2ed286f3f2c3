//! `/metrics`: what Prometheus scrapes.
//!
//! The page is made anew at each scrape from one reading of each fleet and nothing is kept in
//! between, so the series of a removed fleet vanish with it. A label's value is the name of a fleet
//! or a model in the configuration, or a word of this program, never anything that a request says: the number of series is
//! bounded.

mod families;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Uri, header};
use axum::response::IntoResponse;
use inflight_core::admission::{CheckLoad, GateLoad};
use inflight_core::load::InstanceId;
use inflight_core::{Replicas, Timestamp};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::failure::Failure;
use super::query::parameters;
use super::{Api, Shared, mapping};
use crate::clock::Clock;
use crate::fleet::{
    Asked, Checks, ConfigurationState, DecisionCounts, Fleet, PeerKind, Peers, ReplicaCounts,
    Timings,
};
use crate::ports::HoldKind;
use crate::story::journal::Journal;
use families::{
    BUILD_INFO, CONFIGURATION_REFUSED, CONFIGURATION_RELOADS, FAMILIES, Family, HISTOGRAMS,
    HistogramFamily, INSTANCE_INFO, JOURNAL_LOST, Kind, UPTIME, Value,
};

/// Ends the page: a comment in the Prometheus format, by which a reader knows a whole page from
/// one that was cut.
const END: &str = "# EOF\n";

/// Answers a scrape.
///
/// In the Prometheus text format, which every scraper takes: in OpenMetrics the gauge
/// `inflight_requests` and the counter `inflight_requests_total` would be one family of two
/// types, which strict parsers refuse.
///
/// `?fleet=NAME` leaves out the other fleets, for peers that ask for one every second.
pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
) -> Result<impl IntoResponse, Failure> {
    let parameters = parameters(&uri, &["fleet"])?;
    let text = encode(&shared.api, parameters.get("fleet"))
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
    families.chain(histograms).chain([
        format!("{JOURNAL_LOST}_total"),
        format!("{BUILD_INFO}_info"),
        format!("{INSTANCE_INFO}_info"),
        UPTIME.to_owned(),
        format!("{CONFIGURATION_RELOADS}_total"),
        CONFIGURATION_REFUSED.to_owned(),
    ])
}

/// Writes the page of the fleet of a name, or of all.
fn encode(api: &Api, only: Option<&String>) -> Result<String, fmt::Error> {
    let mut fleets = api.roster.fleets();
    fleets.retain(|fleet| only.is_none_or(|name| fleet.name() == name));
    let readings = fleets
        .iter()
        .map(|fleet| Reading::of(fleet, api.clock))
        .collect();
    let journal_lost = api.story.journal().map_or(0, Journal::lost);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page {
        readings,
        configuration: api.roster.configuration().clone(),
        journal_lost,
        instance: api.instance,
        uptime: api.clock.now().since(Timestamp::ORIGIN),
    }));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    text.push_str(END);
    Ok(text)
}

/// One reading of a fleet.
#[derive(Debug)]
struct Reading {
    fleet: String,
    has_gateway: bool,
    knows_replicas: bool,
    unwritten_files: Option<u64>,
    checks: Option<CheckLoad>,
    models: Vec<String>,
    load: GateLoad,
    held: Option<HoldKind>,
    gateway_age: Option<Duration>,
    peers_ages: Vec<(PeerKind, Duration)>,
    peers_ready: Option<u32>,
    unreachable_peers: Option<usize>,
    replicas: ReplicaCounts,
    desired: Option<u32>,
    decisions: DecisionCounts,
    crashes: u64,
    endpoints_age: Option<f64>,
    /// What KEDA asked, where it sizes the fleet.
    asked: Option<Asked>,
    timings: Timings,
}

impl Reading {
    fn of(fleet: &Fleet, clock: Clock) -> Self {
        let (load, replicas) = fleet.load_and_replicas();
        let board = fleet.board();
        let now = clock.now();
        let gateway_age = mapping::observation_age(&board, now);
        let peers = fleet.peers();
        Self {
            fleet: fleet.name().to_owned(),
            has_gateway: fleet.has_gateway(),
            knows_replicas: fleet.knows_replicas(),
            unwritten_files: (fleet.published())
                .map(|published| u64::try_from(published.failures().len()).unwrap_or(u64::MAX)),
            checks: fleet.checks().map(Checks::load),
            models: board.models.clone(),
            load,
            held: mapping::held(&board, now).map(|held| HoldKind::of(held.hold)),
            gateway_age: gateway_age.filter(|_| fleet.has_gateway()),
            peers_ages: peers.map(|peers| peers.ages(now)).unwrap_or_default(),
            peers_ready: peers.and_then(Peers::ready).map(Replicas::get),
            unreachable_peers: peers.map(|peers| peers.unreachable(now)),
            replicas,
            desired: board
                .decisions()
                .next()
                .map(|decision| decision.desired.get()),
            decisions: board.made(),
            crashes: board.crashes,
            endpoints_age: board.resolved.map(|at| now.since(at).as_secs_f64()),
            asked: board.external.map(|_| board.asked),
            timings: fleet.timings().clone(),
        }
    }
}

/// One scrape.
#[derive(Debug)]
struct Page {
    readings: Vec<Reading>,
    configuration: ConfigurationState,
    journal_lost: u64,
    instance: InstanceId,
    uptime: Duration,
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES {
            self.encode_family(&mut encoder, family)?;
        }
        for family in HISTOGRAMS {
            self.encode_histogram(&mut encoder, family)?;
        }
        self.encode_configuration(&mut encoder)?;
        let lost = (
            JOURNAL_LOST,
            "Lines of the journal that were lost: the file could not be written",
        );
        encoder
            .encode_descriptor(lost.0, lost.1, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&self.journal_lost, None)?;
        encoder
            .encode_descriptor(BUILD_INFO, "The running version", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        let help = "This run of this instance, by which its counters are told from others'";
        encoder
            .encode_descriptor(INSTANCE_INFO, help, None, MetricType::Info)?
            .encode_info(&[("id", format!("{:016x}", self.instance.0))])?;
        encoder
            .encode_descriptor(
                UPTIME,
                "How long this run has lasted",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&self.uptime.as_secs_f64())
    }
}

impl Page {
    fn encode_configuration(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ConfigurationState {
            refused,
            reloads,
            refusals,
            ..
        } = &self.configuration;
        let help = "Configuration files read while running, by what became of them";
        let name = CONFIGURATION_RELOADS;
        let mut rows = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (result, count) in [("in_force", reloads), ("refused", refusals)] {
            let labels = [("result", result)];
            rows.encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
        let help = "1 while the configuration file is refused and a former one is in force";
        let name = CONFIGURATION_REFUSED;
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&u64::from(refused.is_some()))
    }

    fn encode_family(&self, encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
        let metric_type = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let mut rows = encoder.encode_descriptor(family.name, family.help, None, metric_type)?;
        let shown = |reading: &&Reading| family.is_of(reading);
        for reading in self.readings.iter().filter(shown) {
            for sample in (family.samples)(reading) {
                let model = sample.model.as_deref().map(|model| ("model", model));
                let labels: Vec<_> = [("fleet", reading.fleet.as_str())]
                    .into_iter()
                    .chain(model)
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
        for reading in self.readings.iter().filter(|reading| reading.has_gateway) {
            let labels = [("fleet", reading.fleet.as_str())];
            (family.histogram)(&reading.timings).encode(rows.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
