//! What a server's metric page says: the names of known servers, and those that the configuration
//! gives, as one table; and the collector that reads a page by it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use inflight_core::load::{Estimator, SERIES_MAX, ServerReading, ServerSeries};

use super::count;
use super::envoy::Names;
use super::text_format::Sample;
use crate::config::{CustomExecuting, ServerKind};

/// By which names a server tells what.
#[derive(Clone, Debug)]
pub struct ServerTable {
    executing: Executing,
    queued: Option<String>,
    /// Without what waits nothing can be said.
    needs_queued: bool,
    /// Names of one gauge in different versions, the latest first.
    filled: &'static [&'static str],
    /// Labels that a sample must have.
    labels: Vec<(String, String)>,
    /// A label, one of whose values a sample must have; none: any.
    one_of: (&'static str, Vec<String>),
}

#[derive(Clone, Debug)]
enum Executing {
    Gauge(String),
    Time {
        total: String,
        waiting: Option<String>,
        completions: Option<&'static str>,
        per_second: f64,
    },
}

/// What a sample is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Executing,
    Total,
    Waiting,
    Completions,
    Queued,
    Filled(usize),
}

/// Why a page says nothing of use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerPageError {
    /// The metric is not there.
    #[error("no {0} on the page")]
    Missing(String),
    /// It is there for others only.
    #[error("no {metric} of those that are looked for; it is there for {has}")]
    OfOthers {
        /// The metric.
        metric: String,
        /// Whom it is there for.
        has: Names,
    },
    /// A number is none of requests or seconds.
    #[error("{0} is no count")]
    NoCount(String),
    /// More models than a server can have.
    #[error("more than {SERIES_MAX} series of one counter")]
    TooManySeries,
}

impl ServerTable {
    /// Returns the table of a kind of server.
    #[must_use]
    pub fn of(kind: &ServerKind) -> Self {
        match kind {
            ServerKind::Triton { models } => Self {
                executing: Executing::Time {
                    total: "nv_inference_request_duration_us".to_owned(),
                    waiting: Some("nv_inference_queue_duration_us".to_owned()),
                    completions: Some("nv_inference_request_success"),
                    per_second: 1e6,
                },
                queued: Some("nv_inference_pending_request_count".to_owned()),
                needs_queued: false,
                filled: &[],
                labels: Vec::new(),
                one_of: ("model", models.clone()),
            },
            ServerKind::Vllm {
                model,
                cache_target,
            } => Self {
                executing: Executing::Gauge("vllm:num_requests_running".to_owned()),
                queued: Some("vllm:num_requests_waiting".to_owned()),
                needs_queued: true,
                filled: match cache_target {
                    Some(_) => &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
                    None => &[],
                },
                labels: Vec::new(),
                one_of: ("model_name", model.iter().cloned().collect()),
            },
            ServerKind::Custom(custom) => Self {
                executing: match &custom.executing {
                    CustomExecuting::Gauge(name) => Executing::Gauge(name.clone()),
                    CustomExecuting::Time {
                        total,
                        waiting,
                        per_second,
                    } => Executing::Time {
                        total: total.clone(),
                        waiting: waiting.clone(),
                        completions: None,
                        per_second: f64::from(*per_second),
                    },
                },
                queued: custom.queued.clone(),
                needs_queued: false,
                filled: &[],
                labels: custom.labels.clone(),
                one_of: ("", Vec::new()),
            },
        }
    }

    /// Returns how the number executing is got.
    #[must_use]
    pub const fn estimator(&self) -> Estimator {
        match self.executing {
            Executing::Gauge(_) => Estimator::LiveGauge,
            Executing::Time { .. } => Estimator::CompletionCounter,
        }
    }

    fn of_sample(&self, name: &str) -> Option<Of> {
        let is = |wanted: &Option<String>| wanted.as_deref() == Some(name);
        let executing = match &self.executing {
            Executing::Gauge(gauge) => (gauge == name).then_some(Of::Executing),
            Executing::Time { total, .. } if total == name => Some(Of::Total),
            Executing::Time { waiting, .. } if is(waiting) => Some(Of::Waiting),
            Executing::Time { completions, .. } => {
                (*completions == Some(name)).then_some(Of::Completions)
            }
        };
        executing
            .or_else(|| is(&self.queued).then_some(Of::Queued))
            .or_else(|| {
                let filled = self.filled.iter().position(|&filled| filled == name);
                filled.map(Of::Filled)
            })
    }

    /// Tells whether a sample counts; of those that do not, names whom it is of.
    fn counts(&self, sample: &Sample<'_>, others: &mut Names) -> bool {
        let has_labels = self.labels.iter().all(|(name, wanted)| {
            let value = sample.labels().value(name);
            let counts = value.is_some_and(|value| value == **wanted);
            if !counts && let Some(value) = value {
                others.add(&value.text());
            }
            counts
        });
        let (label, values) = &self.one_of;
        if !has_labels || values.is_empty() {
            return has_labels;
        }
        let Some(value) = sample.labels().value(label) else {
            return false;
        };
        let counts = values.iter().any(|wanted| value == **wanted);
        if !counts {
            others.add(&value.text());
        }
        counts
    }
}

/// Collects one page.
#[derive(Debug)]
pub struct ServerPage<'a> {
    table: &'a ServerTable,
    executing: Option<f64>,
    queued: Option<f64>,
    /// The sum and the number of samples, for each generation of the metric.
    filled: [(f64, f64); 2],
    series: BTreeMap<u64, ServerSeries>,
    has_total: bool,
    others: Names,
    error: Option<ServerPageError>,
}

impl<'a> ServerPage<'a> {
    /// Starts a page.
    #[must_use]
    pub fn new(table: &'a ServerTable) -> Self {
        Self {
            table,
            executing: None,
            queued: None,
            filled: [(0.0, 0.0); 2],
            series: BTreeMap::new(),
            has_total: false,
            others: Names::default(),
            error: None,
        }
    }

    /// Takes a sample.
    pub fn take(&mut self, sample: &Sample<'_>) {
        let Some(of) = self.table.of_sample(sample.name) else {
            return;
        };
        if !self.table.counts(sample, &mut self.others) {
            return;
        }
        let Some(value) = count(sample.value) else {
            self.error = Some(ServerPageError::NoCount(sample.name.to_owned()));
            return;
        };
        match of {
            Of::Executing => *self.executing.get_or_insert(0.0) += value,
            Of::Queued => *self.queued.get_or_insert(0.0) += value,
            Of::Filled(generation) => {
                if let Some((sum, count)) = self.filled.get_mut(generation) {
                    *sum += value;
                    *count += 1.0;
                }
            }
            Of::Total | Of::Waiting | Of::Completions => self.take_counter(of, sample, value),
        }
    }

    fn take_counter(&mut self, of: Of, sample: &Sample<'_>, value: f64) {
        let id = series_id(sample);
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&id) {
            self.error = Some(ServerPageError::TooManySeries);
            return;
        }
        let per_second = match self.table.executing {
            Executing::Time { per_second, .. } => per_second,
            Executing::Gauge(_) => 1.0,
        };
        let series = self.series.entry(id).or_default();
        if of == Of::Completions {
            series.completions += value;
        } else if of == Of::Total {
            self.has_total = true;
            series.total_seconds += value / per_second;
        } else {
            series.waiting_seconds += value / per_second;
        }
    }

    /// Returns what the page says.
    ///
    /// # Errors
    /// It does not say all that is needed.
    pub fn reading(self) -> Result<ServerReading, ServerPageError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let missing = match &self.table.executing {
            Executing::Gauge(name) => self.executing.is_none().then_some(name),
            Executing::Time { total, .. } => (!self.has_total).then_some(total),
        };
        let no_queued = self.table.needs_queued && self.queued.is_none();
        let missing = missing.or(self.table.queued.as_ref().filter(|_| no_queued));
        if let Some(metric) = missing.cloned() {
            return Err(if self.others.is_empty() {
                ServerPageError::Missing(metric)
            } else {
                ServerPageError::OfOthers {
                    metric,
                    has: self.others,
                }
            });
        }
        // One server with several engines is as full as these are on average.
        let filled = self.filled.iter().find(|(_, count)| *count > 0.0);
        Ok(ServerReading {
            executing: self.executing,
            queued: self.queued,
            filled: filled.map(|(sum, count)| sum / count),
            series: self.series.into_iter().collect(),
        })
    }
}

/// Returns what tells a series from others of its metric, and is the same for those of other
/// metrics that belong to it: their labels may come in another order.
fn series_id(sample: &Sample<'_>) -> u64 {
    sample.labels().fold(0_u64, |id, label| {
        let mut hasher = DefaultHasher::new();
        (label.name, label.value.text()).hash(&mut hasher);
        id.wrapping_add(hasher.finish())
    })
}

#[cfg(test)]
mod tests {
    use super::super::text_format::{End, TextReader};
    use super::*;
    use crate::config::CustomSettings;

    const QUEUED: &str = include_str!("../../tests/pages/triton_queued.prom");
    const BEFORE: &str = include_str!("../../tests/pages/triton_before.prom");
    const LOADED: &str = include_str!("../../tests/pages/triton_loaded.prom");
    const RAY: &str = include_str!("../../tests/pages/ray_serve.prom");

    const VLLM: &str = r#"vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 5.0
vllm:num_requests_running{engine="0",model_name="b"} 50.0
vllm:num_requests_waiting{engine="0",model_name="a"} 2.0
vllm:gpu_cache_usage_perc{engine="0",model_name="a"} 0.9
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.6
"#;

    fn read(text: &str, kind: &ServerKind) -> Result<ServerReading, ServerPageError> {
        let table = ServerTable::of(kind);
        let mut page = ServerPage::new(&table);
        let mut reader = TextReader::new();
        reader
            .feed(text.as_bytes(), |sample| page.take(sample))
            .unwrap();
        reader.finish(End::Delimited, |_| {}).unwrap();
        page.reading()
    }

    fn triton(models: &[&str]) -> ServerKind {
        ServerKind::Triton {
            models: models.iter().map(|&model| model.to_owned()).collect(),
        }
    }

    fn vllm(model: Option<&str>) -> ServerKind {
        ServerKind::Vllm {
            model: model.map(str::to_owned),
            cache_target: Some(0.9),
        }
    }

    fn executed(reading: &ServerReading) -> f64 {
        let seconds = reading.series.iter();
        seconds
            .map(|(_, series)| series.total_seconds - series.waiting_seconds)
            .sum()
    }

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn triton_tells_what_waits_and_the_time_of_what_it_completed() {
        let reading = read(QUEUED, &triton(&[])).unwrap();
        assert_eq!((reading.queued, reading.executing), (Some(5.0), None));
        close(executed(&reading), (155_351.0 - 400.0) / 1e6);
        let completed: f64 = reading.series.iter().map(|(_, row)| row.completions).sum();
        close(completed, 10.0);
        // Labels come in another order in each family, and still make one series for each model.
        assert_eq!(reading.series.len(), 2);
        let (before, loaded) = (read(BEFORE, &triton(&[])), read(LOADED, &triton(&[])));
        assert!(executed(&loaded.unwrap()) > executed(&before.unwrap()));
    }

    #[test]
    fn b12_models_that_others_call_are_left_to_those_that_clients_call() {
        let reading = read(QUEUED, &triton(&["bert-large"])).unwrap();
        assert_eq!(reading.queued, Some(1.0));
        assert_eq!(reading.series.len(), 1);
        assert_eq!(
            read(QUEUED, &triton(&["resnet"])).unwrap_err().to_string(),
            "no nv_inference_request_duration_us of those that are looked for; it is there for \
             resnet50, bert-large"
        );
    }

    #[test]
    fn vllm_tells_what_runs_and_waits_and_how_full_its_cache_is_in_both_generations() {
        let reading = read(VLLM, &vllm(Some("a"))).unwrap();
        assert_eq!((reading.executing, reading.queued), (Some(8.0), Some(2.0)));
        close(reading.filled.unwrap(), 0.4);
        let old = VLLM.replace("kv_cache", "other");
        close(read(&old, &vllm(Some("a"))).unwrap().filled.unwrap(), 0.9);
        assert_eq!(read(VLLM, &vllm(None)).unwrap().executing, Some(58.0));
        let unsaid = VLLM.replace("num_requests_waiting", "other");
        assert!(read(&unsaid, &vllm(None)).is_err());
    }

    #[test]
    fn a_server_is_read_by_configured_names_and_labels() {
        let custom = |label: &str| {
            ServerKind::Custom(CustomSettings {
                executing: CustomExecuting::Gauge("ray_serve_replica_processing_queries".into()),
                queued: Some("ray_serve_deployment_queued_queries".into()),
                labels: vec![("application".into(), label.into())],
            })
        };
        let reading = read(RAY, &custom("app one")).unwrap();
        assert_eq!((reading.executing, reading.queued), (Some(3.0), Some(6.0)));
        assert_eq!(
            read(RAY, &custom("app")).unwrap_err().to_string(),
            "no ray_serve_replica_processing_queries of those that are looked for; it is there \
             for app one"
        );
        let time = ServerKind::Custom(CustomSettings {
            executing: CustomExecuting::Time {
                total: "ts_inference_latency_microseconds".into(),
                waiting: Some("ts_queue_latency_microseconds".into()),
                per_second: 1_000_000,
            },
            queued: None,
            labels: Vec::new(),
        });
        let page = "ts_inference_latency_microseconds{model_name=\"m\",} 3e6\n\
                    ts_queue_latency_microseconds{model_name=\"m\",} 5e5\n";
        close(executed(&read(page, &time).unwrap()), 2.5);
        assert_eq!(
            read("up 1\n", &time).unwrap_err().to_string(),
            "no ts_inference_latency_microseconds on the page"
        );
    }

    #[test]
    fn a_number_that_is_none_drops_the_page() {
        for value in ["NaN", "-3", "+Inf", "1e30"] {
            let page = VLLM.replace("3.0", value);
            assert!(read(&page, &vllm(None)).is_err(), "{value}");
        }
    }

    #[test]
    fn a_server_without_end_of_series_is_refused() {
        let page: String = (0..5_000)
            .map(|model| format!("nv_inference_request_duration_us{{model=\"m{model}\"}} 1\n"))
            .collect();
        assert_eq!(
            read(&page, &triton(&[])),
            Err(ServerPageError::TooManySeries)
        );
    }
}
