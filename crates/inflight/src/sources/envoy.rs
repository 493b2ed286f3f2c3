//! What an Envoy's metric page says about one cluster.
//!
//! Of all its stats only those are asked for that are used, of every cluster, so that a wrong name
//! can be told from an idle cluster. Gauges are live. The time of requests is a histogram in
//! milliseconds, which moves at completion and only with Envoy's stats flush, and is absent before
//! the first one.

use std::fmt;

use inflight_core::Replicas;
use inflight_core::load::ProxyReading;

use super::count;
use super::text_format::Sample;

/// The stats that are used, of all clusters. Envoy matches its own names with this expression,
/// which have dots where the page has underscores.
pub(super) const PAGE: &str = "/stats/prometheus?filter=%5Ecluster%5C..%2B%5C.%28\
    membership_healthy%7Cupstream_cx_none_healthy%7Cupstream_rq_active%7C\
    upstream_rq_active_overflow%7Cupstream_rq_pending_active%7C\
    upstream_rq_pending_overflow%7Cupstream_rq_time%7Cupstream_rq_total%29%24";
/// All stats, for an Envoy that takes no filter.
pub(super) const WHOLE_PAGE: &str = "/stats/prometheus";

/// Clusters that are named in an error.
const NAMED_MAX: usize = 5;

/// Why a page says nothing of use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvoyPageError {
    /// Another system's page.
    #[error("no page of an Envoy with clusters")]
    NoClusters,
    /// The cluster is not there.
    #[error("no cluster {name:?}; it has {has}")]
    NoCluster {
        /// What was looked for.
        name: String,
        /// Some of what there is.
        has: Names,
    },
    /// A number of the cluster is missing.
    #[error("cluster {name:?} has no {metric}")]
    Missing {
        /// The cluster.
        name: String,
        /// What is missing.
        metric: &'static str,
    },
    /// A number is none of requests.
    #[error("{0} is no count")]
    NoCount(&'static str),
}

/// A few names, and whether there are more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    named: Vec<String>,
    has_more: bool,
}

/// The stats, as they are named after `envoy_cluster_`; the first three an Envoy always has.
const METRICS: [&str; 8] = [
    "membership_healthy",
    "upstream_rq_active",
    "upstream_rq_pending_active",
    "upstream_rq_total",
    "upstream_rq_active_overflow",
    "upstream_rq_pending_overflow",
    "upstream_cx_none_healthy",
    "upstream_rq_time_sum",
];
const NEEDED: usize = 3;

/// Collects one page.
#[derive(Debug)]
pub struct EnvoyPage<'a> {
    cluster: &'a str,
    others: Names,
    values: [Option<f64>; METRICS.len()],
    wrong: Option<&'static str>,
}

impl<'a> EnvoyPage<'a> {
    /// Starts a page on which a cluster is looked for.
    #[must_use]
    pub fn new(cluster: &'a str) -> Self {
        Self {
            cluster,
            others: Names::default(),
            values: [None; METRICS.len()],
            wrong: None,
        }
    }

    /// Takes a sample.
    pub fn take(&mut self, sample: &Sample<'_>) {
        let Some(name) = sample.name.strip_prefix("envoy_cluster_") else {
            return;
        };
        let Some(index) = METRICS.iter().position(|&metric| metric == name) else {
            return;
        };
        let Some(cluster) = sample.labels().value("envoy_cluster_name") else {
            return;
        };
        if cluster != *self.cluster {
            if index == 0 {
                self.others.add(&cluster.text());
            }
            return;
        }
        match count(sample.value) {
            Some(value) => *self.values[index].get_or_insert(0.0) += value,
            None => self.wrong = Some(METRICS[index]),
        }
    }

    /// Returns what the page says.
    ///
    /// # Errors
    /// It does not say all that is needed.
    pub fn reading(self) -> Result<ProxyReading, EnvoyPageError> {
        let name = || self.cluster.to_owned();
        if self.values.iter().all(Option::is_none) && self.wrong.is_none() {
            return Err(if self.others.is_empty() {
                EnvoyPageError::NoClusters
            } else {
                EnvoyPageError::NoCluster {
                    name: name(),
                    has: self.others,
                }
            });
        }
        if let Some(metric) = self.wrong {
            return Err(EnvoyPageError::NoCount(metric));
        }
        let mut needed = self.values.iter().zip(METRICS).take(NEEDED);
        if let Some((_, metric)) = needed.find(|(value, _)| value.is_none()) {
            return Err(EnvoyPageError::Missing {
                name: name(),
                metric,
            });
        }
        // A counter or a histogram that is not there has counted nothing.
        let values = self.values.map(Option::unwrap_or_default);
        let [healthy, active, pending, arrivals, ..] = values;
        let [.., active_overflow, pending_overflow, none_healthy, time_ms] = values;
        Ok(ProxyReading {
            active,
            pending,
            healthy: Replicas::ceil(healthy),
            arrivals,
            refused: active_overflow + pending_overflow + none_healthy,
            request_seconds: time_ms / 1e3,
        })
    }
}

impl Names {
    pub(super) fn add(&mut self, name: &str) {
        if self.named.iter().any(|known| known == name) {
            return;
        }
        if self.named.len() < NAMED_MAX {
            self.named.push(name.to_owned());
        } else {
            self.has_more = true;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join(", "))?;
        f.write_str(if self.has_more { " and more" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::super::text_format::{End, TextReader};
    use super::*;

    const OVERLOAD: &str = include_str!("../../tests/pages/envoy_overload.prom");

    const IDLE: &str = r#"envoy_cluster_membership_healthy{envoy_cluster_name="c"} 0
envoy_cluster_upstream_rq_active{envoy_cluster_name="c"} 0
envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="c"} 0
envoy_cluster_membership_healthy{envoy_cluster_name="other"} 7
envoy_cluster_upstream_rq_active{envoy_cluster_name="other"} 99
"#;

    fn read(text: &str, cluster: &str) -> Result<ProxyReading, EnvoyPageError> {
        let mut page = EnvoyPage::new(cluster);
        let mut reader = TextReader::new();
        reader
            .feed(text.as_bytes(), |sample| page.take(sample))
            .unwrap();
        reader.finish(End::Delimited, |_| {}).unwrap();
        page.reading()
    }

    #[test]
    fn what_waits_for_a_connection_and_what_was_refused_is_part_of_the_load() {
        let reading = read(OVERLOAD, "triton-grpc").unwrap();
        assert_eq!(
            reading,
            ProxyReading {
                active: 8.0,
                pending: 4.0,
                healthy: Replicas::new(2),
                arrivals: 67.0,
                refused: 2.0,
                request_seconds: reading.request_seconds,
            }
        );
        assert!((reading.request_seconds - 0.616_719_839_765_45).abs() < 1e-12);
    }

    #[test]
    fn only_the_cluster_that_is_named_counts_and_one_without_requests_is_idle() {
        assert_eq!(read(IDLE, "c").unwrap(), ProxyReading::default());
    }

    #[test]
    fn a_cluster_that_is_not_there_is_unknown_and_the_others_are_named() {
        assert_eq!(
            read(IDLE, "d").unwrap_err().to_string(),
            "no cluster \"d\"; it has c, other"
        );
        let many: String = (0..100)
            .map(|n| format!("envoy_cluster_membership_healthy{{envoy_cluster_name=\"c{n}\"}} 1\n"))
            .collect();
        assert_eq!(
            read(&many, "d").unwrap_err().to_string(),
            "no cluster \"d\"; it has c0, c1, c2, c3, c4 and more"
        );
        assert_eq!(read("up 1\n", "d"), Err(EnvoyPageError::NoClusters));
    }

    #[test]
    fn a_gauge_that_is_missing_or_fell_below_zero_drops_the_page() {
        for line in IDLE.lines().take(3) {
            let page = IDLE.replace(&format!("{line}\n"), "");
            let error = read(&page, "c").unwrap_err().to_string();
            assert!(error.starts_with("cluster \"c\" has no "), "{error}");
            for value in ["18446744073709551615", "NaN", "-1", "+Inf"] {
                let odd = line.replace("} 0", &format!("}} {value}"));
                let page = IDLE.replace(line, &odd);
                let error = read(&page, "c").unwrap_err().to_string();
                assert!(error.ends_with(" is no count"), "{error}");
            }
        }
    }
}
