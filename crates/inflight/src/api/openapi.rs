//! The OpenAPI document. Its schemas are made from the wire types; a test holds the answers of every
//! route to it.

use std::sync::LazyLock;

use axum::Json;
use axum::http::Uri;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::query::parameters;
use super::wire;

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// Shows the document.
pub(super) async fn page(uri: Uri) -> Result<Json<&'static Value>, Failure> {
    parameters(&uri, &[])?;
    Ok(Json(&DOCUMENT))
}

/// Statuses of the errors that a route may answer.
const READ: &[&str] = &["400", "403"];
const READ_FLEET: &[&str] = &["400", "403", "404"];
const LISTEN: &[&str] = &["400", "403", "503"];
const RELEASE: &[&str] = &["400", "401", "403", "404", "503"];
const HOLD: &[&str] = &[
    "400", "401", "403", "404", "408", "413", "415", "422", "503",
];

/// Builds the document.
fn document() -> Value {
    let mut schemas = SchemaGenerator::new(
        schemars::generate::SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = "/components/schemas".into()),
    );
    let paths = paths(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "inflight",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Reads fleets and their decisions, and takes orders. Every answer with a \
                status of 400 or more is a Failure, 404, 405 and 414 on any path included. HEAD \
                works wherever GET does.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": { "token": {
                "type": "http", "scheme": "bearer",
                "description": "The token of admin.token_file. Without one, orders are taken on a \
                    loopback listener only, and need none.",
            } },
        },
    })
}

fn paths(schemas: &mut SchemaGenerator) -> Value {
    let text = json!({ "text/plain": { "schema": { "type": "string" } } });
    let events = json!({ "text/event-stream": {
        "schema": { "type": "string" },
        "x-data": schema::<wire::Event>(schemas),
    } });
    let readiness = json_of::<wire::Readiness>(schemas);
    let held = json_of::<wire::Held>(schemas);
    let document = json!({ "application/json": { "schema": { "type": "object" } } });
    let mut ready = get(
        schemas,
        "Whether every fleet listens and was decided about",
        readiness.clone(),
        &[],
    );
    ready["responses"]["503"] = json!({ "description": "What is missing", "content": readiness });
    let fleets = json_of::<wire::Fleets>(schemas);
    let fleet = json_of::<wire::Fleet>(schemas);
    let decisions = json_of::<wire::Decisions>(schemas);
    let mut decisions = get(
        schemas,
        "A fleet's last decisions, the newest first",
        decisions,
        READ_FLEET,
    );
    decisions["parameters"] = json!([{
        "name": "limit", "in": "query", "description": "How many at most",
        "schema": {
            "type": "integer", "minimum": 1, "maximum": crate::fleet::DECISIONS_KEPT, "default": 50
        },
    }]);
    let mut listen = get(
        schemas,
        "What happens, as server-sent events named decision, replica, \
        admission, hold, release, configured and error; `missed` says that some are forgotten",
        events,
        LISTEN,
    );
    listen["parameters"] = json!([{
        "name": "last-event-id", "in": "header", "schema": { "type": "string" },
        "description": "The id of the last event that was heard: goes on after it",
    }]);
    let pause = order(schemas, "Keeps the size as it is, for a time", &held, HOLD);
    let pause = with_body::<wire::PauseOrder>(schemas, pause, false);
    let size = order(schemas, "Sets the size, for a time", &held, HOLD);
    let size = with_body::<wire::SizeOrder>(schemas, size, true);
    json!({
        "/healthz": { "get": get(schemas, "Answers as long as the process runs", text.clone(), &[]) },
        "/readyz": { "get": ready },
        "/metrics": { "get": get(schemas, "Metrics in the Prometheus text format", text, &["500"]) },
        "/api/openapi.json": { "get": get(schemas, "This document", document, READ) },
        "/api/v1/fleets": { "get": get(schemas, "Every fleet", fleets, READ) },
        "/api/v1/fleets/{name}": of_fleet(json!({
            "get": get(schemas, "One fleet", fleet, READ_FLEET),
        })),
        "/api/v1/fleets/{name}/decisions": of_fleet(json!({ "get": decisions })),
        "/api/v1/fleets/{name}/pause": of_fleet(json!({
            "put": pause,
            "delete": order(schemas, "Ends a pause; a size that was set stays", &held, RELEASE),
        })),
        "/api/v1/fleets/{name}/size": of_fleet(json!({
            "put": size,
            "delete": order(schemas, "Ends a size that was set; a pause stays", &held, RELEASE),
        })),
        "/api/v1/events": { "get": listen },
    })
}

fn schema<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

fn json_of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    json!({ "application/json": { "schema": schema::<T>(schemas) } })
}

fn get(schemas: &mut SchemaGenerator, summary: &str, content: Value, errors: &[&str]) -> Value {
    let mut responses = Map::new();
    let answer = json!({ "description": summary, "content": content });
    responses.insert("200".to_owned(), answer);
    let failure = json_of::<wire::Failure>(schemas);
    for &status in errors {
        let answer = json!({ "description": "Why not", "content": failure });
        responses.insert(status.to_owned(), answer);
    }
    json!({ "summary": summary, "responses": responses })
}

fn order(schemas: &mut SchemaGenerator, summary: &str, held: &Value, errors: &[&str]) -> Value {
    let mut order = get(schemas, summary, held.clone(), errors);
    order["security"] = json!([{ "token": [] }, {}]);
    order
}

fn with_body<T: JsonSchema>(
    schemas: &mut SchemaGenerator,
    mut order: Value,
    required: bool,
) -> Value {
    order["requestBody"] = json!({ "required": required, "content": json_of::<T>(schemas) });
    order
}

fn of_fleet(mut path: Value) -> Value {
    path["parameters"] = json!([{
        "name": "name", "in": "path", "required": true, "schema": { "type": "string" },
        "description": "The fleet's name in the configuration",
    }]);
    path
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_in_the_document_and_every_path_of_it_is_a_route() {
        let routes: BTreeSet<_> = super::super::routes()
            .iter()
            .map(|(path, _)| (*path).to_owned())
            .collect();
        let document = document();
        let paths: BTreeSet<_> = document["paths"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(routes, paths);
    }
}
