//! Source `prometheus`: answers of queries, the user's own.
//!
//! All queries of a fleet are asked for one moment, which the first answer names: the other's clock
//! alone is used, ours may be wrong. Each is asked by POST, which nobody between keeps an answer of,
//! so that an answer is as old as its question.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use inflight_core::Timestamp;
use inflight_core::load::{Answer, Answered, Missing, PeerId};
use serde::Deserialize;
use tokio::sync::oneshot;

use super::fetch::{Client, FetchError};
use super::follow::{Asked, Follow, Reader};
use crate::config::{PagesSettings, PrometheusSettings, Queries};
use crate::fleet::{Fleet, PeerKind};

/// The characters of another's words that are passed on.
const WORDS_MAX: usize = 300;

/// Asks the queries of one fleet.
pub struct PrometheusSource {
    fleet: Arc<Fleet>,
    settings: PrometheusSettings,
}

impl PrometheusSource {
    /// Builds a source.
    #[must_use]
    pub const fn new(fleet: Arc<Fleet>, settings: PrometheusSettings) -> Self {
        Self { fleet, settings }
    }

    /// Asks until `stop` fires.
    pub async fn run(self, stop: oneshot::Receiver<()>) {
        let settings = self.settings;
        let asked = Asked {
            kind: PeerKind::Prometheus,
            pages: PagesSettings {
                listed: vec![settings.url],
                dns: None,
                port: None,
            },
            most: 1,
            every: settings.every,
            timeout: settings.timeout,
            is_marked: false,
        };
        let reader = |path: &str| {
            let reader = QueryReader {
                queries: settings.queries.clone(),
                timeout: settings.timeout,
            };
            (reader, question_path(path))
        };
        Follow::new(self.fleet, asked, reader).run(stop).await;
    }
}

/// Returns what a query is asked by where nothing but a GET can be sent, below the path of an API.
#[must_use]
pub fn query_target(path: &str, query: &str) -> String {
    let path = question_path(path);
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{}", form_urlencoded_pair("query", query))
}

/// Returns the number that a query was answered with; `None` where there is not one.
#[must_use]
pub fn query_number(body: &str) -> Option<f64> {
    let (_, answered) = read(StatusCode::OK, body.as_bytes()).ok()?;
    answered.ok()
}

/// Returns where queries are asked, below the prefix of the API and before parameters of its own.
fn question_path(path: &str) -> String {
    let (prefix, parameters) = match path.split_once('?') {
        Some((prefix, parameters)) => (prefix, format!("?{parameters}")),
        None => (path, String::new()),
    };
    format!("{}/api/v1/query{parameters}", prefix.trim_end_matches('/'))
}

struct QueryReader {
    queries: Queries,
    timeout: Duration,
}

impl Reader for QueryReader {
    async fn read(
        &mut self,
        client: &mut Client,
        fleet: &Fleet,
        peer: PeerId,
    ) -> Result<(), String> {
        let mut asking = Asking {
            client,
            timeout: self.timeout,
            moment: None,
            at: None,
            whys: Vec::new(),
        };
        let answer = match &self.queries {
            Queries::Terms {
                in_flight,
                executing,
                replicas,
            } => Answer::Terms {
                in_flight: asking.ask("in_flight", in_flight).await?,
                executing: asking.ask("executing", executing).await?,
                replicas: asking.ask("replicas", replicas).await?,
            },
            Queries::Metric { query, replicas } => Answer::Metric {
                metric: asking.ask("query", query).await?,
                replicas: match replicas {
                    Some(replicas) => asking.ask("replicas", replicas).await?,
                    None => Err(Missing::NotOffered),
                },
            },
        };
        if let Some(at) = asking.at {
            let is_whole = asking.whys.is_empty();
            fleet.on_peer(|peers| peers.on_answer(at, peer, answer, is_whole));
        }
        match asking.whys.as_slice() {
            [] => Ok(()),
            whys => Err(whys.join("; ")),
        }
    }
}

/// The questions of one reading.
struct Asking<'a> {
    client: &'a mut Client,
    timeout: Duration,
    /// The moment that the first answer is for, by the other's clock.
    moment: Option<f64>,
    /// The moment of the first question, by ours.
    at: Option<Timestamp>,
    /// Why answers are unknown.
    whys: Vec<String>,
}

impl Asking<'_> {
    /// Asks one query. What is answered with no number is unknown for a reason.
    ///
    /// *Errors*: it was not answered.
    async fn ask(&mut self, what: &str, query: &str) -> Result<Answered, String> {
        let form = question(query, self.timeout, self.moment);
        let told = |error: String| format!("{what}: {error}");
        let (at, status, body) =
            (self.client.post(form).await).map_err(|error: FetchError| told(error.to_string()))?;
        let (moment, answered) = read(status, &body).map_err(told)?;
        self.moment = self.moment.or(moment);
        self.at = self.at.or(Some(at));
        if let Err(missing) = answered {
            self.whys.push(format!("{what}: {missing}"));
        }
        Ok(answered)
    }
}

/// Writes a question. Its time-out is a number of seconds, which may be a fraction; with a unit it
/// may not (Prometheus refuses `5.000s`).
fn question(query: &str, timeout: Duration, moment: Option<f64>) -> String {
    let mut form = form_urlencoded_pair("query", query);
    let seconds = timeout.as_secs_f64();
    form.push_str(&format!("&timeout={seconds:.3}"));
    if let Some(moment) = moment {
        form.push_str(&format!("&time={moment:.3}"));
    }
    form
}

/// The envelope of every answer. What else is in it, warnings among it, changes no number.
#[derive(Deserialize)]
struct Envelope {
    status: String,
    #[serde(default)]
    data: Option<Outcome>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Outcome {
    Scalar(Sample),
    Vector(Vec<Row>),
    Matrix(serde::de::IgnoredAny),
    String(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Row {
    /// Not there where the row is a histogram.
    #[serde(default)]
    value: Option<Sample>,
}

/// A moment in seconds, and a number as a text.
#[derive(Deserialize)]
struct Sample(f64, String);

/// Takes the number out of an answer, and the moment that it is for.
///
/// *Errors*: it is no answer; then what it is, for people.
fn read(status: StatusCode, body: &[u8]) -> Result<(Option<f64>, Answered), String> {
    let Ok(envelope) = serde_json::from_slice::<Envelope>(body) else {
        return Err(match status {
            StatusCode::OK => "the answer is not of the query API".to_owned(),
            status => format!("HTTP status {status}"),
        });
    };
    match (envelope.status.as_str(), envelope.data) {
        ("success", Some(outcome)) if status == StatusCode::OK => match outcome {
            Outcome::Scalar(sample) => Ok(number(&sample)),
            Outcome::Vector(rows) => Ok(match rows.as_slice() {
                [] => (None, Err(Missing::NoRow)),
                [
                    Row {
                        value: Some(sample),
                    },
                ] => number(sample),
                [Row { value: None }] => (None, Err(Missing::NotANumber)),
                [first, ..] => (
                    first.value.as_ref().map(|sample| sample.0),
                    Err(Missing::SeveralRows),
                ),
            }),
            Outcome::Matrix(_) | Outcome::String(_) => {
                Err("the query gives neither a vector nor a number".to_owned())
            }
        },
        _ => {
            let words = envelope.error.unwrap_or_default();
            let words: String = words.chars().take(WORDS_MAX).collect();
            Err(format!("HTTP status {status}: {words}"))
        }
    }
}

fn number(Sample(moment, text): &Sample) -> (Option<f64>, Answered) {
    let value = text.parse::<f64>().ok();
    let is_one = |value: &f64| value.is_finite();
    let answered = value.filter(is_one).ok_or(Missing::NotANumber);
    (Some(*moment), answered)
}

/// Spells a pair of a form; only what has no meaning there stays as it is.
fn form_urlencoded_pair(name: &str, value: &str) -> String {
    let mut pair = format!("{name}=");
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                pair.push(char::from(byte));
            }
            byte => pair.push_str(&format!("%{byte:02X}")),
        }
    }
    pair
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_as_a_real_prometheus_takes_it() {
        let timeout = Duration::from_millis(2_500);
        assert_eq!(question("up", timeout, None), "query=up&timeout=2.500");
        let at = question("a b", timeout, Some(7.25));
        assert_eq!(at, "query=a%20b&timeout=2.500&time=7.250");
    }

    fn answered(body: &str) -> Result<Answered, String> {
        read(StatusCode::OK, body.as_bytes()).map(|(_, answered)| answered)
    }

    fn vector(value: &str) -> String {
        format!(
            "{{\"status\":\"success\",\"warnings\":[\"slow\"],\"data\":{{\"resultType\":\"vector\",\
             \"result\":[{{\"metric\":{{\"a\":\"b\"}},\"value\":[1732968000.781,{value}]}}]}}}}"
        )
    }

    #[test]
    fn b13_what_is_no_number_is_unknown() {
        for bad in ["NaN", "+Inf", "-Inf", "Inf", "1e400", "0x1p3", "", "five"] {
            let told = answered(&vector(&format!("\"{bad}\"")));
            assert_eq!(told, Ok(Err(Missing::NotANumber)), "{bad}");
        }
        assert_eq!(answered(&vector("\"1.5e2\"")), Ok(Ok(150.0)));
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1.5,"2"]}}"#;
        assert_eq!(
            read(StatusCode::OK, scalar.as_bytes()),
            Ok((Some(1.5), Ok(2.0)))
        );
    }

    #[test]
    fn b15_an_empty_answer_is_unknown_and_so_are_several_rows() {
        let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        assert_eq!(answered(empty), Ok(Err(Missing::NoRow)));
        let row = r#"{"metric":{},"value":[1,"2"]}"#;
        let two = format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{row},{row}]}}}}"#
        );
        assert_eq!(answered(&two), Ok(Err(Missing::SeveralRows)));
        let histogram = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}"#;
        assert_eq!(answered(histogram), Ok(Err(Missing::NotANumber)));
    }

    #[test]
    fn what_went_wrong_there_is_told_in_its_own_words() {
        let error = r#"{"status":"error","errorType":"bad_data","error":"parse error: x"}"#;
        assert_eq!(
            read(StatusCode::BAD_REQUEST, error.as_bytes()).unwrap_err(),
            "HTTP status 400 Bad Request: parse error: x"
        );
        let page = read(StatusCode::BAD_GATEWAY, b"<html>").unwrap_err();
        assert_eq!(page, "HTTP status 502 Bad Gateway");
        let long = format!(r#"{{"status":"error","error":"{}"}}"#, "x".repeat(100_000));
        assert!(answered(&long).unwrap_err().len() < 400);
        for nonsense in [
            "",
            "{",
            "[]",
            "{\"status\":\"success\"}",
            "null",
            "{\"status\":1}",
        ] {
            answered(nonsense).unwrap_err();
        }
        let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        answered(matrix).unwrap_err();
    }

    #[test]
    fn the_question_goes_below_the_prefix_and_any_query_is_one_field() {
        assert_eq!(question_path("/"), "/api/v1/query");
        assert_eq!(question_path("/prefix/?a=b"), "/prefix/api/v1/query?a=b");
        assert_eq!(
            query_target("/p", "a[1m]"),
            "/p/api/v1/query?query=a%5B1m%5D"
        );
        let own = query_target("/p?tenant=a", "b");
        assert_eq!(own, "/p/api/v1/query?tenant=a&query=b");
        let pair = form_urlencoded_pair("query", "a{b=\"c&d=é\"} + 1");
        assert_eq!(pair, "query=a%7Bb%3D%22c%26d%3D%C3%A9%22%7D%20%2B%201");
    }
}
