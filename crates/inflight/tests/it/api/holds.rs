//! Pausing a fleet and setting its size, by those who may.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::StatusCode;
use inflight::api::{Access, wire};
use serde_json::Value;

use super::instance::Instance;

const PAUSE: &str = "/api/v1/fleets/hello/pause";
const SIZE: &str = "/api/v1/fleets/hello/size";
const PATIENCE: Duration = Duration::from_secs(60);

async fn fleet(instance: &Instance) -> wire::Fleet {
    let answer = instance.get("/api/v1/fleets/hello").await;
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test]
async fn a_size_is_held_and_told_until_it_is_released() {
    let mut instance = Instance::start(&["hello"]).await;
    let control = instance.control();
    let body = r#"{"replicas": 5, "for": "30m"}"#;
    let answer = instance.order("PUT", SIZE, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let held: wire::Held = serde_json::from_str(&answer.body).unwrap();
    let hold = held.hold.unwrap();
    assert_eq!((hold.kind.as_str(), hold.replicas), ("size", Some(5)));
    assert!(hold.left_seconds > 1700.0 && hold.left_seconds <= 1800.0);

    let shown = fleet(&instance).await;
    assert_eq!(shown.replicas.desired, Some(5));
    assert_eq!(shown.hold.unwrap().replicas, Some(5));
    let decision = shown.decision.unwrap();
    assert!(
        decision.reason.contains("set to 5 by hand, 1800 s left"),
        "{}",
        decision.reason
    );
    let held = instance.samples().await;
    let held = |kind| held[&format!("inflight_held{{fleet=\"hello\",kind=\"{kind}\"}}")];
    assert!(held("size") > 0.5 && held("pause") < 0.5);

    let answer = instance.request("DELETE", PAUSE).await;
    assert_eq!(answer.json()["hold"]["replicas"], 5, "no pause holds it");
    let answer = instance.request("DELETE", SIZE).await;
    assert_eq!(answer.json()["hold"], Value::Null);
    assert_eq!(fleet(&instance).await.hold, None);
    control.end().await;
}

#[tokio::test]
async fn a_pause_takes_the_place_of_a_size_keeps_it_and_ends_by_itself() {
    let mut instance = Instance::start(&["hello"]).await;
    let control = instance.control();
    instance.order("PUT", SIZE, r#"{"replicas": 4}"#).await;
    let answer = instance.request("PUT", PAUSE).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let answer = instance.order("PUT", PAUSE, r#"{"for": "1s"}"#).await;
    assert_eq!(answer.json()["hold"]["kind"], "pause");
    let shown = fleet(&instance).await;
    assert_eq!(shown.replicas.desired, Some(4));
    assert!(shown.decision.unwrap().reason.contains("paused by hand"));
    let begin = Instant::now();
    while fleet(&instance).await.hold.is_some() {
        assert!(begin.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    control.end().await;
}

#[tokio::test]
async fn a_fleet_held_at_zero_does_not_decide_for_each_request() {
    let mut instance = Instance::start(&["hello"]).await;
    let control = instance.control();
    instance.order("PUT", SIZE, r#"{"replicas": 0}"#).await;
    let waiting = instance.fleet(0).arrive(super::arrival()).unwrap();
    let shown = fleet(&instance).await;
    assert_eq!(shown.replicas.desired, Some(0));
    instance.request("DELETE", SIZE).await;
    let shown = fleet(&instance).await;
    let reason = shown.decision.unwrap().reason;
    assert_eq!(shown.replicas.desired, Some(1), "{reason}");
    assert!(reason.contains("a request woke the fleet"), "{reason}");
    drop(waiting);
    control.end().await;
}

#[tokio::test]
async fn a_bad_order_says_which_key_is_wrong_and_what_is_allowed() {
    let mut instance = Instance::start(&["hello"]).await;
    let control = instance.control();
    let cases = [
        (SIZE, "", 422),
        (SIZE, "{", 400),
        (SIZE, "[5]", 422),
        (SIZE, r#"{"replicas": 9}"#, 422),
        (SIZE, r#"{"replicas": -1}"#, 422),
        (SIZE, r#"{"replicas": 1.5}"#, 422),
        (SIZE, r#"{"replicas": "5"}"#, 422),
        (SIZE, r#"{"replicas": 5, "four": "1h"}"#, 422),
        (SIZE, r#"{"replicas": 5, "for": "30"}"#, 422),
        (SIZE, r#"{"replicas": 5, "for": 30}"#, 422),
        (PAUSE, r#"{"for": "0s"}"#, 422),
        (PAUSE, r#"{"for": "8d"}"#, 422),
        (PAUSE, r#"{"for": "soon"}"#, 422),
        (PAUSE, r#"{"replicas": 5}"#, 422),
        ("/api/v1/fleets/nobody/pause", "{}", 404),
        ("/api/v1/fleets/hello/pause?for=1h", "{}", 400),
    ];
    let mut said = String::new();
    for (path, body, status) in cases {
        let answer = instance.order("PUT", path, body).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {body}");
        said += &format!("{path} {body}\n  {}\n", answer.body);
    }
    insta::assert_snapshot!("bad_orders", said);

    let long = format!("{{\"for\": \"{}\"}}", "1".repeat(5000));
    let answer = instance.order("PUT", PAUSE, &long).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.content_type, "application/json");
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let headers = [("content-type", kind)];
        let answer = instance.send("PUT", PAUSE, &headers, "{}").await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    assert_eq!(fleet(&instance).await.hold, None, "nothing was carried out");
    control.end().await;
}

#[tokio::test]
async fn an_order_to_a_fleet_that_is_ending_is_refused() {
    let mut instance = Instance::start(&["hello"]).await;
    instance.control().end().await;
    let answer = instance.request("PUT", PAUSE).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_page_in_a_browser_gets_nowhere_under_a_name_of_its_own() {
    let instance = Instance::start(&["hello"]).await;
    let headers = [("host", "rebound.example:9900")];
    for (method, path) in [("PUT", PAUSE), ("DELETE", SIZE), ("GET", "/api/v1/fleets")] {
        let answer = instance.send(method, path, &headers, "").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method} {path}");
        assert!(answer.body.contains("rebound.example"), "{}", answer.body);
    }
    let probe = instance.send("GET", "/healthz", &headers, "").await;
    assert_eq!(probe.status, StatusCode::OK);
    // A browser asks first, and is not answered what it wants to hear.
    let asked = [("origin", "http://rebound.example")];
    let answer = instance.send("OPTIONS", PAUSE, &asked, "").await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    let headers = answer.headers.keys();
    assert!(
        headers
            .into_iter()
            .all(|name| !name.as_str().starts_with("access-control"))
    );
}

struct TokenFile(PathBuf);

impl TokenFile {
    fn new(name: &str) -> Self {
        let name = format!("inflight-token-{}-{name}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write("first\n", 0o600);
        file
    }

    fn write(&self, token: &str, mode: u32) {
        fs::write(&self.0, token).unwrap();
        fs::set_permissions(&self.0, Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

async fn pause_with(instance: &Instance, token: Option<&str>) -> StatusCode {
    let value = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = value
        .iter()
        .map(|value| ("authorization", value.as_str()))
        .collect();
    let answer = instance.send("PUT", PAUSE, &headers, "").await;
    assert_eq!(answer.content_type, "application/json");
    let asks = answer.headers.contains_key("www-authenticate");
    assert_eq!(asks, answer.status == StatusCode::UNAUTHORIZED);
    answer.status
}

#[tokio::test]
async fn orders_need_the_token_and_follow_its_file() {
    let file = TokenFile::new("follows");
    let access = |address| Access::new(address, Some(file.0.clone()));
    let mut instance = Instance::start_with(&["hello"], access).await;
    let control = instance.control();
    let cases = [
        (None, 401),
        (Some(""), 401),
        (Some("firs"), 401),
        (Some("first2"), 401),
        (Some("first"), 200),
    ];
    for (token, status) in cases {
        assert_eq!(pause_with(&instance, token).await, status, "{token:?}");
    }
    file.write("second", 0o600);
    assert_eq!(pause_with(&instance, Some("first")).await, 401);
    assert_eq!(pause_with(&instance, Some("second")).await, 200);
    for (token, mode) in [("second", 0o640), ("second", 0o604), ("", 0o600)] {
        file.write(token, mode);
        assert_eq!(pause_with(&instance, Some("second")).await, 503);
    }
    fs::remove_file(&file.0).unwrap();
    assert_eq!(pause_with(&instance, Some("second")).await, 503);
    // Reading needs none, under whatever name.
    let headers = [("host", "gpu-7.example")];
    let answer = instance.send("GET", "/api/v1/fleets", &headers, "").await;
    assert_eq!(answer.status, StatusCode::OK);
    control.end().await;
}

#[tokio::test]
async fn without_a_token_orders_from_outside_are_refused() {
    let outside: SocketAddr = "0.0.0.0:9900".parse().unwrap();
    let mut instance = Instance::start_with(&["hello"], |_| Access::new(outside, None)).await;
    let control = instance.control();
    assert_eq!(pause_with(&instance, None).await, 403);
    assert_eq!(pause_with(&instance, Some("any")).await, 403);
    control.end().await;
}
