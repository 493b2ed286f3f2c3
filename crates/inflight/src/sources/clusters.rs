//! What each Envoy has at each endpoint of a cluster, by its admin interface (`/clusters`).
//!
//! It is for whoever tells Envoy of the endpoints: which of them has least to finish, and when one
//! that drains is empty. The load of the fleet is measured elsewhere. Nothing is kept here.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::envoy::Names;
use super::fetch::{Client, FetchConfig};
use crate::clock::Clock;
use crate::config::EnvoyFile;
use crate::ports::{RoutedEndpoint, RoutedReading};

/// How often each is asked at first while an endpoint drains.
const EVERY_IN_HASTE: Duration = Duration::from_millis(50);
/// How often at most one that does not answer is asked then.
const FAILED_IN_HASTE: Duration = Duration::from_millis(250);
/// How often in a row it is asked so, which takes five seconds; then more and more rarely.
const TIMES_IN_HASTE: u32 = 100;

/// Who asks, whom, and where the answers go.
#[derive(Debug)]
pub struct ClustersSource {
    /// The fleet's name, for log lines.
    pub fleet: String,
    /// The Envoys and the cluster.
    pub envoys: EnvoyFile,
    /// The answers of all, in the order in which they come.
    pub readings: mpsc::Sender<RoutedReading>,
    /// For what they are wanted in haste, if for anything: another number is another matter.
    pub in_haste: watch::Receiver<Option<u64>>,
}

impl ClustersSource {
    /// Asks until nobody takes the answers any more, or one that asks has failed: what was heard last
    /// of its Envoy would be taken as true for ever.
    pub async fn run(self, clock: Clock) {
        let mut tasks = JoinSet::new();
        let cluster: Arc<str> = self.envoys.cluster.as_str().into();
        for (proxy, page) in self.envoys.admin.iter().enumerate() {
            let config = FetchConfig {
                authority: page.authority.clone(),
                path: path(&page.path, &cluster),
                timeout: self.envoys.timeout,
                is_marked: false,
            };
            let follower = Follower {
                proxy,
                fleet: self.fleet.clone(),
                envoy: page.authority.clone(),
                cluster: Arc::clone(&cluster),
                client: Client::new(config, clock),
                every: self.envoys.every,
                readings: self.readings.clone(),
                in_haste: self.in_haste.clone(),
            };
            tasks.spawn(follower.run());
        }
        all(&self.fleet, tasks).await;
    }
}

/// Waits for all, or for the first that fails.
async fn all(fleet: &str, mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(failure) = ended {
            error!(fleet, %failure, "the task that asks an Envoy failed");
            return;
        }
    }
}

/// How long to wait for the next reading in haste, after so many, where the last may have failed.
fn pause_in_haste(readings: u32, is_failing: bool) -> Duration {
    let doublings = readings.saturating_sub(TIMES_IN_HASTE).min(16);
    let pause = EVERY_IN_HASTE * (1 << doublings);
    if is_failing {
        pause.max(FAILED_IN_HASTE)
    } else {
        pause
    }
}

/// Returns where the endpoints of one cluster are told; an Envoy that knows no filter tells of all.
fn path(prefix: &str, cluster: &str) -> String {
    let letter = |c: char| match c {
        '0'..='9' | 'A'..='Z' | 'a'..='z' | '_' | '-' => c.to_string(),
        // `\x{H}` of RE2, which is of a character and not of a byte, as the query spells it.
        c => format!("%5Cx%7B{:02x}%7D", u32::from(c)),
    };
    let name: String = cluster.chars().map(letter).collect();
    let prefix = prefix.trim_end_matches('/');
    format!("{prefix}/clusters?format=json&filter=%5E{name}%24")
}

struct Follower {
    proxy: usize,
    fleet: String,
    envoy: String,
    cluster: Arc<str>,
    client: Client,
    every: Duration,
    readings: mpsc::Sender<RoutedReading>,
    in_haste: watch::Receiver<Option<u64>>,
}

/// What a page says.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    endpoints: BTreeMap<SocketAddr, RoutedEndpoint>,
    /// Whether an endpoint is without the count of what waits for a connection.
    lacks_waiting: bool,
}

impl Follower {
    async fn run(mut self) {
        let (mut failing, mut lacks_waiting) = (None, false);
        let (mut haste, mut readings) = (None, 0_u32);
        loop {
            let told = self.read().await;
            match &told {
                // The first reason may hide another: nobody there yet, then a cluster that is not.
                Err(why) if failing.as_ref() != Some(why) => warn!(
                    fleet = self.fleet,
                    envoy = self.envoy,
                    why,
                    "an Envoy does not tell what it has at which replica"
                ),
                Ok(told) if told.lacks_waiting && !lacks_waiting => {
                    lacks_waiting = true;
                    warn!(
                        fleet = self.fleet,
                        envoy = self.envoy,
                        "this Envoy does not tell of requests that wait for a connection \
                         (rq_pending_active): a replica that drains may be ended with some of them"
                    );
                }
                Ok(_) if failing.is_some() => info!(
                    fleet = self.fleet,
                    envoy = self.envoy,
                    "an Envoy tells what it has at which replica"
                ),
                Ok(_) | Err(_) => {}
            }
            failing = told.as_ref().err().cloned();
            let reading = RoutedReading {
                proxy: self.proxy,
                endpoints: told.map(|told| told.endpoints),
            };
            if self.readings.send(reading).await.is_err() {
                return;
            }
            let wanted = *self.in_haste.borrow_and_update();
            if wanted != haste {
                (haste, readings) = (wanted, 0);
            }
            readings = readings.saturating_add(1);
            let pause = match haste {
                Some(_) => pause_in_haste(readings, failing.is_some()),
                None => self.every,
            };
            tokio::select! {
                () = sleep(pause.min(self.every)) => {}
                changed = self.in_haste.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    async fn read(&mut self) -> Result<Told, String> {
        let (status, body) = self.client.get().await.map_err(|error| error.to_string())?;
        if status != StatusCode::OK {
            return Err(format!("HTTP status {status}"));
        }
        endpoints(&body, &self.cluster)
    }
}

#[derive(Debug, Deserialize)]
struct Page {
    #[serde(default)]
    cluster_statuses: Vec<Cluster>,
}

#[derive(Debug, Deserialize)]
struct Cluster {
    name: String,
    #[serde(default)]
    host_statuses: Vec<Host>,
}

#[derive(Debug, Deserialize)]
struct Host {
    address: Address,
    #[serde(default)]
    stats: Vec<Stat>,
    #[serde(default)]
    health_status: Health,
}

#[derive(Debug, Deserialize)]
struct Address {
    socket_address: Option<Socket>,
}

#[derive(Debug, Deserialize)]
struct Socket {
    address: IpAddr,
    port_value: u16,
}

#[derive(Debug, Deserialize)]
struct Stat {
    name: String,
    /// Left out where it is zero.
    #[serde(default)]
    value: Count,
}

/// A number of 64 bits, which protobuf's JSON spells as text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Count {
    Text(String),
    Number(u64),
}

impl Default for Count {
    fn default() -> Self {
        Self::Number(0)
    }
}

#[derive(Debug, Default, Deserialize)]
struct Health {
    #[serde(default)]
    eds_health_status: String,
    #[serde(default)]
    pending_dynamic_removal: bool,
}

/// Reads the endpoints of a cluster, those left out that Envoy keeps only until their checks fail.
fn endpoints(body: &[u8], cluster: &str) -> Result<Told, String> {
    let page: Page = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut others = Names::default();
    let found = page.cluster_statuses.into_iter().find(|found| {
        others.add(&found.name);
        found.name == cluster
    });
    let Some(found) = found else {
        return Err(if others.is_empty() {
            format!("no cluster {cluster:?}")
        } else {
            format!("no cluster {cluster:?}; it has {others}")
        });
    };
    let mut endpoints: BTreeMap<SocketAddr, RoutedEndpoint> = BTreeMap::new();
    let mut lacks_waiting = false;
    for host in found.host_statuses {
        let Some(socket) = host.address.socket_address else {
            continue;
        };
        if host.health_status.pending_dynamic_removal {
            continue;
        }
        let address = SocketAddr::new(socket.address, socket.port_value);
        let count = |name: &str| {
            let stat = host.stats.iter().find(|stat| stat.name == name);
            stat.map(|stat| {
                stat.value
                    .read()
                    .ok_or(format!("{name} of {address} is no count"))
            })
        };
        let active = count("rq_active").ok_or_else(|| format!("{address} has no rq_active"))??;
        let pending = count("rq_pending_active").transpose()?;
        lacks_waiting |= pending.is_none();
        let is_draining = host.health_status.eds_health_status == "DRAINING";
        // The same address in another locality is another entry.
        let sum = endpoints.entry(address).or_insert(RoutedEndpoint {
            in_flight: 0,
            is_draining,
        });
        sum.in_flight = sum
            .in_flight
            .saturating_add(active.saturating_add(pending.unwrap_or(0)));
        sum.is_draining &= is_draining;
    }
    Ok(Told {
        endpoints,
        lacks_waiting,
    })
}

impl Count {
    fn read(&self) -> Option<u32> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Number(number) => u32::try_from(*number).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Told {
        Told {
            endpoints: BTreeMap::new(),
            lacks_waiting: false,
        }
    }

    fn page(hosts: &str) -> String {
        format!(
            r#"{{"cluster_statuses": [{{"name": "other"}}, {{"name": "c", "host_statuses": [{hosts}],
                "observability_name": "c"}}]}}"#
        )
    }

    fn host(port: u16, stats: &str, health: &str) -> String {
        format!(
            r#"{{"address": {{"socket_address": {{"address": "127.0.0.1", "port_value": {port}}}}},
                "stats": [{{"name": "cx_total", "value": "7"}}, {stats}],
                "health_status": {{{health}}}, "weight": 1, "locality": {{}}}}"#
        )
    }

    #[test]
    fn what_waits_for_a_connection_is_in_flight_and_zero_is_left_out() {
        let busy = host(
            1,
            r#"{"type": "GAUGE", "name": "rq_active", "value": "3"},
               {"type": "GAUGE", "name": "rq_pending_active", "value": "2"}"#,
            r#""eds_health_status": "HEALTHY", "failed_active_health_check": true"#,
        );
        let idle = host(
            2,
            r#"{"type": "GAUGE", "name": "rq_active"}"#,
            r#""eds_health_status": "DRAINING""#,
        );
        let read = endpoints(page(&format!("{busy}, {idle}")).as_bytes(), "c").unwrap();
        assert!(read.lacks_waiting, "the second does not tell of it");
        let at = |port: u16| read.endpoints[&SocketAddr::from(([127, 0, 0, 1], port))];
        assert_eq!((at(1).in_flight, at(1).is_draining), (5, false));
        assert_eq!((at(2).in_flight, at(2).is_draining), (0, true));
    }

    #[test]
    fn a_cluster_without_endpoints_is_empty_and_one_that_is_not_there_is_unknown() {
        let empty = r#"{"cluster_statuses": [{"name": "c"}]}"#;
        assert_eq!(endpoints(empty.as_bytes(), "c"), Ok(none()));
        assert_eq!(
            endpoints(page("").as_bytes(), "d").unwrap_err(),
            "no cluster \"d\"; it has other, c"
        );
        assert_eq!(endpoints(b"{}", "d").unwrap_err(), "no cluster \"d\"");
        for text in [
            "",
            "{",
            "[]",
            "cluster_statuses",
            "{\"cluster_statuses\": 1}",
        ] {
            assert!(endpoints(text.as_bytes(), "c").is_err(), "{text}");
        }
    }

    #[test]
    fn a_count_that_is_none_makes_all_unknown() {
        for stats in [
            r#"{"name": "rq_total", "value": "1"}"#,
            r#"{"name": "rq_active", "value": "-1"}"#,
            r#"{"name": "rq_active", "value": "NaN"}"#,
            r#"{"name": "rq_active", "value": "18446744073709551615"}"#,
        ] {
            let text = page(&host(1, stats, ""));
            assert!(endpoints(text.as_bytes(), "c").is_err(), "{stats}");
        }
    }

    #[test]
    fn an_endpoint_that_envoy_was_told_to_remove_is_gone() {
        let host = host(
            1,
            r#"{"name": "rq_active"}"#,
            r#""eds_health_status": "DRAINING", "pending_dynamic_removal": true"#,
        );
        assert_eq!(endpoints(page(&host).as_bytes(), "c"), Ok(none()));
    }

    #[test]
    fn what_waits_is_told_of_where_it_is_zero_too() {
        let host = host(
            1,
            r#"{"name": "rq_active"}, {"name": "rq_pending_active"}"#,
            "",
        );
        assert!(
            !endpoints(page(&host).as_bytes(), "c")
                .unwrap()
                .lacks_waiting
        );
    }

    #[test]
    fn haste_is_over_after_five_seconds_and_one_that_fails_is_asked_more_rarely() {
        let first: Duration = (1..=TIMES_IN_HASTE).map(|n| pause_in_haste(n, false)).sum();
        assert_eq!(first, Duration::from_secs(5));
        let pause = |readings| pause_in_haste(readings, false).as_millis();
        assert_eq!([pause(101), pause(102), pause(105)], [100, 200, 1_600]);
        assert!(pause_in_haste(u32::MAX, true) >= Duration::from_secs(3_000));
        assert_eq!(pause_in_haste(1, true), FAILED_IN_HASTE);
        assert_eq!(pause_in_haste(105, true), Duration::from_millis(1_600));
    }

    #[tokio::test]
    async fn one_that_fails_ends_all_since_what_it_said_last_is_known_no_more() {
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("a fault of ours") });
        // Else this waits for ever.
        all("f", tasks).await;
    }

    #[test]
    fn one_cluster_is_asked_for_whatever_its_name() {
        assert_eq!(
            path("/", "a_b-1"),
            "/clusters?format=json&filter=%5Ea_b-1%24"
        );
        assert_eq!(
            path("/admin/", "a.b&c"),
            "/admin/clusters?format=json&filter=%5Ea%5Cx%7B2e%7Db%5Cx%7B26%7Dc%24"
        );
        assert_eq!(
            path("/", "\u{e9}"),
            "/clusters?format=json&filter=%5E%5Cx%7Be9%7D%24"
        );
    }
}
