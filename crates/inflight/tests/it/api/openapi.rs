//! The OpenAPI document says what is really answered.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::instance::{Instance, decision, estimate};

const KNOWN: [&str; 16] = [
    "$ref",
    "$schema",
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maximum",
    "minimum",
    "oneOf",
    "properties",
    "required",
    "type",
];

/// Returns what of a value its schema does not allow. Of JSON Schema it knows what ours use, and
/// fails on any other word. What a schema does not name is wrong as well: the document shall be
/// complete.
fn faults(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let Some(schema) = schema.as_object() else {
        return Vec::new();
    };
    for word in schema.keys() {
        assert!(
            KNOWN.contains(&word.as_str()) || word == "title",
            "{at}: {word}"
        );
    }
    let mut faults = Vec::new();
    if let Some(path) = schema.get("$ref") {
        let pointer = path.as_str().unwrap().strip_prefix('#').unwrap();
        let schema = document.pointer(pointer).unwrap();
        faults.extend(self::faults(document, schema, value, at));
    }
    for key in ["anyOf", "oneOf"] {
        let Some(choices) = schema.get(key) else {
            continue;
        };
        let choices = choices.as_array().unwrap();
        // Each choice is judged with what stands beside it.
        let beside = properties(schema);
        let judged = choices.iter().map(|choice| {
            let mut choice = choice.clone();
            if let (Some(choice), false) = (choice.as_object_mut(), beside.is_empty()) {
                let mut all = properties(choice);
                all.extend(beside.clone());
                choice.insert("properties".to_owned(), Value::Object(all));
            }
            self::faults(document, &choice, value, at)
        });
        let judged: Vec<_> = judged.collect();
        if !judged.iter().any(Vec::is_empty) {
            faults.push(format!("{at}: {value} is none of {key}: {judged:?}"));
        }
    }
    if let Some(kinds) = schema.get("type") {
        let kinds = kinds
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![kinds.clone()]);
        if !kinds
            .iter()
            .any(|kind| is_of(value, kind.as_str().unwrap()))
        {
            faults.push(format!("{at}: {value} is not {kinds:?}"));
        }
    }
    if schema.get("const").is_some_and(|only| only != value) {
        faults.push(format!("{at}: {value} is not {:?}", schema["const"]));
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        faults.push(format!("{at}: {value} is not one of {allowed:?}"));
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for (index, value) in values.iter().enumerate() {
            faults.extend(self::faults(
                document,
                items,
                value,
                &format!("{at}[{index}]"),
            ));
        }
    }
    if let Some(values) = value.as_object() {
        faults.extend(faults_of_keys(document, schema, values, at));
    }
    faults
}

fn faults_of_keys(
    document: &Value,
    schema: &Map<String, Value>,
    values: &Map<String, Value>,
    at: &str,
) -> Vec<String> {
    let mut faults = Vec::new();
    let required = schema.get("required").and_then(Value::as_array);
    for key in required.into_iter().flatten().filter_map(Value::as_str) {
        if !values.contains_key(key) {
            faults.push(format!("{at}: lacks {key}"));
        }
    }
    let properties = properties(schema);
    let is_closed = !properties.is_empty() && !schema.contains_key("oneOf");
    for (key, value) in values {
        let at = format!("{at}.{key}");
        match properties.get(key).or(schema.get("additionalProperties")) {
            Some(schema) => faults.extend(self::faults(document, schema, value, &at)),
            None if is_closed => faults.push(format!("{at}: is not in the document")),
            None => {}
        }
    }
    faults
}

fn properties(schema: &Map<String, Value>) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.cloned().unwrap_or_default()
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no kind of JSON: {other}"),
    }
}

async fn document(instance: &Instance) -> Value {
    instance.get("/api/openapi.json").await.json()
}

/// Asks, and holds the answer to what the document says of this path, method and status.
async fn check(instance: &Instance, method: &str, path: &str, body: &str, status: u16) {
    let document = document(instance).await;
    let (name, _) = path.split_once('?').unwrap_or((path, ""));
    let name = name
        .replace("/hello", "/{name}")
        .replace("/nobody", "/{name}");
    let answer = match body {
        "" => instance.request(method, path).await,
        body => instance.order(method, path, body).await,
    };
    let what = format!("{method} {path} {body}");
    assert_eq!(answer.status.as_u16(), status, "{what}: {}", answer.body);
    let said = &document["paths"][&name][method.to_lowercase()]["responses"][status.to_string()];
    let kind = answer.content_type.split(';').next().unwrap();
    let schema = &said["content"][kind]["schema"];
    assert!(
        schema.is_object(),
        "{what}: {status} with {kind} is not in the document"
    );
    let value = if kind == "application/json" {
        answer.json()
    } else {
        answer.body.clone().into()
    };
    let faults = faults(&document, schema, &value, "");
    assert!(faults.is_empty(), "{what}: {faults:#?}");
}

#[tokio::test]
async fn every_route_answers_what_the_document_says() {
    const FLEET: &str = "/api/v1/fleets/hello";
    let mut instance = Instance::start(&["hello"]).await;
    check(&instance, "GET", "/readyz", "", 503).await;
    check(&instance, "GET", FLEET, "", 200).await;
    let control = instance.control();
    instance.fleet(0).board().is_listening = true;
    instance.decide(0, decision(2, 3), estimate());
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/openapi.json",
        "/api/v1/fleets",
        FLEET,
    ] {
        check(&instance, "GET", path, "", 200).await;
    }
    let decisions = format!("{FLEET}/decisions");
    check(&instance, "GET", &decisions, "", 200).await;
    check(&instance, "GET", &format!("{decisions}?limit=x"), "", 400).await;
    check(&instance, "GET", "/api/v1/fleets/nobody", "", 404).await;
    check(&instance, "GET", "/api/v1/fleets?x=1", "", 400).await;
    for (kind, body) in [("pause", "{}"), ("size", r#"{"replicas":2}"#)] {
        let path = format!("{FLEET}/{kind}");
        check(&instance, "PUT", &path, body, 200).await;
        check(&instance, "GET", FLEET, "", 200).await;
        check(&instance, "PUT", &path, "{", 400).await;
        check(&instance, "PUT", &path, r#"{"no":1}"#, 422).await;
        check(
            &instance,
            "PUT",
            &format!("/api/v1/fleets/nobody/{kind}"),
            body,
            404,
        )
        .await;
        check(&instance, "DELETE", &path, "", 200).await;
    }
    control.end().await;
    check(&instance, "DELETE", &format!("{FLEET}/size"), "", 503).await;
}

#[tokio::test]
async fn events_are_what_the_document_says() {
    let instance = Instance::start(&["hello"]).await;
    let document = document(&instance).await;
    let of = &document["paths"]["/api/v1/events"]["get"]["responses"]["200"];
    let schema = &of["content"]["text/event-stream"]["x-data"];
    let decision = json!({
        "at": "t", "current": 1, "wanted": null, "desired": 1, "at_max": false, "reason": "r",
        "finding": "f", "limits": ["l"], "inputs": { "executing": 1.5, "queued": null },
        "thresholds": { "unit": "slots", "up": 1.0, "grows_above": 2.1, "down": 1.0,
            "shrinks_at": null },
    });
    let hold = json!({ "kind": "pause", "replicas": null, "until": "t", "left_seconds": 1.0 });
    let replica = json!({
        "index": 0, "address": "a", "state": "gone", "start_seconds": null, "why": "w",
        "unexpected": true,
    });
    let events = [
        json!({ "event": "decision", "decision": decision }),
        json!({ "event": "replica", "replica": replica }),
        json!({ "event": "admission", "open": true }),
        json!({ "event": "hold", "hold": hold }),
        json!({ "event": "release", "by_hand": true }),
        json!({ "event": "configured" }),
        json!({ "event": "error", "error": "e" }),
    ];
    for mut event in events {
        for key in ["id", "at", "fleet"] {
            event[key] = key.into();
        }
        // The wire type is what a listener gets; the document must allow just that.
        let typed: inflight::api::wire::Event = serde_json::from_value(event.clone()).unwrap();
        assert_eq!(serde_json::to_value(&typed).unwrap(), event);
        let faults = faults(&document, schema, &event, "");
        assert!(faults.is_empty(), "{event}: {faults:#?}");
    }
    let faults = faults(&document, schema, &json!({ "event": "other" }), "");
    assert!(!faults.is_empty(), "the judge finds faults");
}

#[tokio::test]
async fn every_path_of_the_document_is_in_the_page_and_the_other_way_round() {
    let page = include_str!("../../../../../docs/api.md");
    let instance = Instance::start(&["hello"]).await;
    let document = document(&instance).await;
    let mut paths = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters")
        {
            paths.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let lines = page.lines().filter_map(|line| line.strip_prefix("## "));
    let headings = lines.filter(|line| line.contains(" `/"));
    let documented: BTreeSet<_> = headings
        .flat_map(|line| {
            let (methods, path) = line.split_once(" `").unwrap();
            let path = path
                .trim_end_matches('`')
                .split('?')
                .next()
                .unwrap()
                .to_owned();
            let methods = methods.split(", ");
            methods
                .map(move |method| format!("{method} {path}"))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(documented, paths);
}
