//! The admin API and `inflight status` over real HTTP.

mod documents;
mod events;
mod holds;
pub(crate) mod instance;
mod openapi;

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use inflight::api::{AdminListener, ListenError, wire};
use inflight::cli::explain::{ExplainArgs, explain};
use inflight::cli::status::watch::{Screen, watch};
use inflight::cli::status::{StatusArgs, status};
use inflight_core::admission::{Arrival, Outcome};
use inflight_core::load::ReplicaState;
use inflight_core::{ReplicaId, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use instance::{Instance, arrival, decision, decisions_before, estimate, redacted};

#[tokio::test]
async fn a_fleet_has_the_documented_shape() {
    let instance = Instance::start(&["hello"]).await;
    let fleet = instance.fleet(0);
    fleet.set_endpoint(ReplicaId(1), instance::NOWHERE, ReplicaState::Ready);
    fleet.set_endpoint(ReplicaId(2), instance::NOWHERE, ReplicaState::Starting);
    instance.decide(0, decision(2, 3), estimate());
    let permit = fleet.arrive(arrival()).unwrap();

    let answer = instance.get("/api/v1/fleets/hello").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.content_type, "application/json");
    insta::assert_snapshot!("fleet", redacted(&answer.json()));
    drop(permit);
}

#[tokio::test]
async fn what_is_unknown_is_null() {
    let instance = Instance::start(&["hello"]).await;
    let answer = instance.get("/api/v1/fleets/hello").await;
    insta::assert_snapshot!("fleet_before_the_first_decision", redacted(&answer.json()));
}

#[tokio::test]
async fn fleets_come_in_the_order_of_the_configuration() {
    let instance = Instance::start(&["zebra", "ant"]).await;
    let answer = instance.get("/api/v1/fleets").await;
    let fleets: wire::Fleets = serde_json::from_str(&answer.body).unwrap();
    let names: Vec<_> = fleets
        .fleets
        .iter()
        .map(|fleet| fleet.name.as_str())
        .collect();
    assert_eq!(names, ["zebra", "ant"]);
}

#[tokio::test]
async fn decisions_come_newest_first_and_as_many_as_asked_for() {
    let instance = Instance::start(&["hello"]).await;
    decisions_before(&instance, 60);
    let read = async |query: &str| {
        let answer = instance
            .get(&format!("/api/v1/fleets/hello/decisions{query}"))
            .await;
        let answer: wire::Decisions = serde_json::from_str(&answer.body).unwrap();
        answer
            .decisions
            .iter()
            .map(|decision| decision.desired)
            .collect::<Vec<_>>()
    };
    assert_eq!(read("?limit=3").await, [59, 58, 57]);
    assert_eq!(read("").await.len(), 50);
    assert_eq!(read("?limit=200").await.len(), 60);
}

#[tokio::test]
async fn a_bad_request_says_what_is_allowed() {
    let instance = Instance::start(&["hello", "triton"]).await;
    let cases = [
        ("/api/v1/fleets/hello/decisions?limit=0", 400),
        ("/api/v1/fleets/hello/decisions?limit=201", 400),
        ("/api/v1/fleets/hello/decisions?limit=many", 400),
        ("/api/v1/fleets/hello/decisions?limt=5", 400),
        ("/api/v1/fleets/hello/decisions?limit=5&limit=6", 400),
        ("/api/v1/fleets?all", 400),
        ("/api/v1/fleets/nobody", 404),
        ("/api/v1/fleets/nobody/decisions", 404),
        ("/api/v2/fleets", 404),
        ("/", 404),
    ];
    let mut said = String::new();
    for (path, status) in cases {
        let answer = instance.get(path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        assert_eq!(answer.content_type, "application/json", "{path}");
        said += &format!("{path}\n  {}\n", answer.body);
    }
    insta::assert_snapshot!("bad_requests", said);
    let answer = instance.request("DELETE", "/api/v1/fleets").await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(answer.content_type, "application/json");
    assert_eq!(answer.headers["allow"], "GET,HEAD");
    let long = format!("/api/v1/fleets?x={}", "y".repeat(9000));
    let answer = instance.get(&long).await;
    assert_eq!(answer.status, StatusCode::URI_TOO_LONG);
    assert_eq!(answer.content_type, "application/json");
}

#[tokio::test]
async fn head_answers_what_get_does_without_the_body() {
    let instance = Instance::start(&["hello"]).await;
    for path in [
        "/healthz",
        "/metrics",
        "/api/v1/fleets",
        "/api/openapi.json",
    ] {
        let (get, head) = (
            instance.get(path).await,
            instance.request("HEAD", path).await,
        );
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.content_type, get.content_type, "{path}");
        assert_eq!(head.body, "", "{path}");
    }
}

#[tokio::test]
async fn idle_connections_never_lock_a_probe_out() {
    let instance = Instance::start(&["hello"]).await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(TcpStream::connect(instance.address).await.unwrap());
    }
    let probe = tokio::time::timeout(Duration::from_secs(30), instance.get("/healthz"));
    assert_eq!(probe.await.unwrap().status, StatusCode::OK);
    // The first to come was silent for longest.
    let ended = idle[0].read(&mut [0]).await;
    assert!(matches!(ended, Ok(0) | Err(_)));
}

#[tokio::test]
async fn it_is_ready_once_it_listens_and_has_decided() {
    let instance = Instance::start(&["hello"]).await;
    assert_eq!(instance.get("/healthz").await.status, StatusCode::OK);
    let before = instance.get("/readyz").await;
    assert_eq!(before.status, StatusCode::SERVICE_UNAVAILABLE);
    insta::assert_snapshot!(before.body, @r#"{"ready":false,"missing":[{"fleet":"hello","reason":"its gateway does not listen"},{"fleet":"hello","reason":"its first decision was not made"}]}"#);

    instance.fleet(0).board().is_listening = true;
    assert_eq!(
        instance.get("/readyz").await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    instance.decide(0, decision(0, 1), estimate());
    let after = instance.get("/readyz").await;
    assert_eq!(after.status, StatusCode::OK);
    insta::assert_snapshot!(after.body, @r#"{"ready":true,"missing":[]}"#);
}

#[tokio::test]
async fn the_metrics_page_has_every_series_from_the_start() {
    let instance = Instance::start(&["hello"]).await;
    let answer = instance.get("/metrics").await;
    assert_eq!(
        answer.content_type,
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let (page, uptime) = answer
        .body
        .split_once("\ninflight_uptime_seconds ")
        .unwrap();
    let (uptime, end) = uptime.split_once('\n').unwrap();
    assert!(uptime.parse::<f64>().unwrap() > 0.0);
    let page = format!("{page}\ninflight_uptime_seconds (varies)\n{end}");
    insta::assert_snapshot!("metrics", page);
}

#[tokio::test]
async fn counters_never_fall_and_time_advances_while_a_request_is_open() {
    let instance = Instance::start(&["hello"]).await;
    let fleet = instance.fleet(0);
    let held = fleet.arrive(arrival()).unwrap();
    fleet.set_endpoint(ReplicaId(1), instance::NOWHERE, ReplicaState::Ready);
    let first = instance.samples().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = instance.samples().await;

    let counters = |samples: &BTreeMap<String, f64>| {
        let is_counter = |name: &&String| name.contains("_total{") || name.contains("_count{");
        samples
            .keys()
            .filter(is_counter)
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(counters(&first), counters(&second));
    for name in counters(&first) {
        assert!(second[&name] >= first[&name], "{name}");
    }
    for name in [
        "inflight_request_seconds_total",
        "inflight_executing_seconds_total",
    ] {
        let name = format!("{name}{{fleet=\"hello\"}}");
        assert!(
            second[&name] > first[&name],
            "{name} advances although nothing completes"
        );
    }
    drop(held);
}

#[tokio::test]
async fn a_request_that_ended_is_counted_by_its_outcome() {
    let instance = Instance::start(&["hello"]).await;
    let fleet = instance.fleet(0);
    fleet.set_endpoint(ReplicaId(1), instance::NOWHERE, ReplicaState::Ready);
    let mut permit = fleet.arrive(arrival()).unwrap();
    permit.bound().await.unwrap();
    permit.finish(Outcome::Completed);
    drop(fleet.arrive(arrival()).unwrap());
    let late = Arrival {
        deadline: Some(Timestamp::ORIGIN),
        ..arrival()
    };
    assert!(fleet.arrive(late).is_err());

    let samples = instance.samples().await;
    let counted = |name: &str| samples[name];
    let expected = [
        (
            r#"inflight_requests_total{fleet="hello",outcome="completed"}"#,
            1.0,
        ),
        (
            r#"inflight_requests_total{fleet="hello",outcome="client_gone"}"#,
            1.0,
        ),
        (
            r#"inflight_refused_total{fleet="hello",reason="deadline_expired"}"#,
            1.0,
        ),
        (
            r#"inflight_request_duration_seconds_count{fleet="hello"}"#,
            2.0,
        ),
        (
            r#"inflight_wait_duration_seconds_count{fleet="hello"}"#,
            2.0,
        ),
        (r#"inflight_requests{fleet="hello",state="executing"}"#, 0.0),
    ];
    for (name, value) in expected {
        assert!(
            (counted(name) - value).abs() < f64::EPSILON,
            "{name} {}",
            counted(name)
        );
    }
}

#[tokio::test]
async fn an_address_in_use_is_named_with_the_cause() {
    let instance = Instance::start(&["hello"]).await;
    let ListenError::Bind { address, .. } =
        AdminListener::bind(instance.address).await.unwrap_err();
    assert_eq!(address, instance.address);
    let text = AdminListener::bind(instance.address)
        .await
        .unwrap_err()
        .to_string();
    let expected = format!("admin.listen: cannot listen on {address}: Address already in use");
    assert!(text.starts_with(&expected), "{text}");
}

#[tokio::test]
async fn a_stop_ends_serving_although_a_client_keeps_its_connection() {
    let instance = Instance::start(&["hello"]).await;
    let idle = TcpStream::connect(instance.address).await.unwrap();
    assert_eq!(instance.get("/healthz").await.status, StatusCode::OK);
    let address = instance.address;
    instance.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
    drop(idle);
}

#[tokio::test]
async fn status_shows_a_table_or_the_answer_itself() {
    let instance = Instance::start(&["hello", "triton"]).await;
    let fleet = instance.fleet(0);
    fleet.set_endpoint(ReplicaId(1), instance::NOWHERE, ReplicaState::Ready);
    instance.decide(0, decision(2, 3), estimate());
    let permit = fleet.arrive(arrival()).unwrap();

    let mut args = StatusArgs {
        admin: instance.url().parse().unwrap(),
        json: false,
        watch: false,
    };
    let table = status(&args).await.unwrap();
    insta::assert_snapshot!("status", instance::without_times(&table));
    args.json = true;
    let fleets: wire::Fleets = serde_json::from_str(&status(&args).await.unwrap()).unwrap();
    assert_eq!(fleets.fleets.len(), 2);
    drop(permit);
}

#[tokio::test]
async fn status_says_clearly_that_nobody_listens() {
    let instance = Instance::start(&["hello"]).await;
    let url = instance.url();
    instance.stop().await;
    let args = StatusArgs {
        admin: url.parse().unwrap(),
        json: false,
        watch: false,
    };
    let text = status(&args).await.unwrap_err().to_string();
    assert!(
        text.starts_with(&format!("nobody answers at {url}: ")),
        "{text}"
    );
    assert!(text.contains("--admin"), "{text}");
}

#[tokio::test]
async fn status_says_that_who_listens_is_no_instance_of_ours() {
    let cases = [
        ("SSH-2.0-x\r\n\r\n", "gave no HTTP answer: "),
        ("", "gave no HTTP answer: "),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            "not a list of fleets: ",
        ),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\ngone",
            "answered 404 Not Found: gone",
        ),
    ];
    for (answer, expected) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stranger = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Closing with unread bytes would reset the connection and lose the answer.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let args = StatusArgs {
            admin: url.parse().unwrap(),
            json: false,
            watch: false,
        };
        let text = status(&args).await.unwrap_err().to_string();
        assert!(text.starts_with(&url) && text.contains(expected), "{text}");
        stranger.await.unwrap();
    }
}

#[tokio::test]
async fn a_watch_outlives_the_instance_and_says_since_when_it_is_gone() {
    let instance = Instance::start(&["hello"]).await;
    instance.decide(0, decision(2, 3), estimate());
    let address = instance.url().parse().unwrap();
    for in_place in [false, true] {
        let screen = Screen {
            in_place,
            every: Duration::from_millis(20),
        };
        let mut out = Vec::new();
        let stop = tokio::time::sleep(Duration::from_millis(200));
        watch(&address, screen, &mut out, stop).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.starts_with("\x1b[H\x1b[J"), in_place, "{text}");
        assert!(text.contains("hello") && text.contains("3"), "{text}");
    }
    instance.stop().await;
    let screen = Screen {
        in_place: false,
        every: Duration::from_millis(20),
    };
    let mut out = Vec::new();
    let stop = tokio::time::sleep(Duration::from_millis(200));
    watch(&address, screen, &mut out, stop).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 1, "told once: {text}");
    assert!(text.contains(" not reachable since 20"), "{text}");
}

#[tokio::test]
async fn an_explanation_tells_inputs_limits_and_what_would_change_the_size() {
    let instance = Instance::start(&["hello"]).await;
    let mut args = ExplainArgs {
        fleet: "hello".to_owned(),
        admin: instance.url().parse().unwrap(),
        last: 2,
    };
    let text = explain(&args).await.unwrap();
    assert!(text.contains("no decision was made"), "{text}");
    decisions_before(&instance, 3);
    let mut last = decision(2, 3);
    last.reason.limits = vec![inflight_core::Limit::StepUp, inflight_core::Limit::Max];
    instance.decide(0, last, estimate());
    let text = explain(&args).await.unwrap();
    let decided = instance.get("/api/v1/fleets/hello").await.json();
    let at = decided["decision"]["at"].as_str().unwrap();
    insta::assert_snapshot!("explain", text.replace(at, "TIME"));
    args.fleet = "no body/é".to_owned();
    let error = explain(&args).await.unwrap_err().to_string();
    assert!(
        error.contains("no fleet \"no body/é\"; the fleets are: hello"),
        "{error}"
    );
}
