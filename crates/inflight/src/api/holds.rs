//! Orders of people: pause a fleet, or give it a size, for a time.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use inflight_core::Replicas;
use inflight_core::scaling::{Held, Hold};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::failure::Failure;
use super::fleets::path;
use super::query::parameters;
use super::{Shared, mapping, wire};
use crate::config::span_of;
use crate::fleet::Member;
use crate::ports::{HoldKind, Order};

/// How long a hold lasts when the request does not say.
const SPAN_DEFAULT: Duration = Duration::from_secs(3_600);

/// How long a hold may last. A longer one belongs into the configuration.
const SPAN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

/// The longest body; a real one has fifty bytes.
const BODY_MAX: usize = 4096;

/// How long a body may take to arrive.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// How long a control loop may take to carry an order out; it takes microseconds.
const ORDER_WAIT: Duration = Duration::from_secs(5);

type Answer = Result<Json<wire::Held>, Failure>;
type Name = Result<Path<String>, PathRejection>;

/// Keeps the size as it is.
pub(super) async fn pause(
    State(shared): State<Arc<Shared>>,
    name: Name,
    request: Request,
) -> Answer {
    let (member, fields) = order(&shared, name, request, &["for"]).await?;
    hold(&shared, &member, Hold::Pause, span(&fields)?).await
}

/// Gives the fleet a size.
pub(super) async fn size(
    State(shared): State<Arc<Shared>>,
    name: Name,
    request: Request,
) -> Answer {
    let (member, fields) = order(&shared, name, request, &["replicas", "for"]).await?;
    let (min, max) = {
        let board = member.fleet.board();
        (board.min, board.max)
    };
    let size = replicas(&fields, min, max)?;
    hold(&shared, &member, Hold::Size(size), span(&fields)?).await
}

/// Ends a pause.
pub(super) async fn end_pause(
    State(shared): State<Arc<Shared>>,
    name: Name,
    request: Request,
) -> Answer {
    release(&shared, name, request, HoldKind::Pause).await
}

/// Ends a size given by hand.
pub(super) async fn end_size(
    State(shared): State<Arc<Shared>>,
    name: Name,
    request: Request,
) -> Answer {
    release(&shared, name, request, HoldKind::Size).await
}

/// Judges an order as far as all have it in common, and returns whom it is to and what it says.
async fn order(
    shared: &Shared,
    name: Name,
    request: Request,
    known: &[&'static str],
) -> Result<(Member, Map<String, Value>), Failure> {
    let (head, body) = request.into_parts();
    shared.api.access.authorize(&head.headers).await?;
    parameters(&head.uri, &[])?;
    let member = shared.api.member(&path(name)?)?;
    let fields = fields(&head.headers, body, known).await?;
    Ok((member, fields))
}

async fn hold(shared: &Shared, member: &Member, hold: Hold, span: Duration) -> Answer {
    tell(shared, member, |done| Order::Hold { hold, span, done }).await
}

async fn release(shared: &Shared, name: Name, request: Request, kind: HoldKind) -> Answer {
    shared.api.access.authorize(request.headers()).await?;
    parameters(request.uri(), &[])?;
    let member = shared.api.member(&path(name)?)?;
    tell(shared, &member, |done| Order::Release { kind, done }).await
}

/// Gives an order and waits until it is carried out.
async fn tell(
    shared: &Shared,
    member: &Member,
    order: impl FnOnce(oneshot::Sender<Option<Held>>) -> Order,
) -> Answer {
    let name = member.fleet.name();
    let busy = |_| Failure::unavailable(format!("fleet {name} takes no orders: it is ending"));
    let (done, is_done) = oneshot::channel();
    member.orders.try_send(order(done)).map_err(busy)?;
    let held = timeout(ORDER_WAIT, is_done)
        .await
        .map_err(|_| Failure::unavailable(format!("fleet {name} did not answer in time")))?
        .map_err(|_| Failure::unavailable(format!("fleet {name} is ending")))?;
    let clock = shared.api.clock;
    Ok(Json(wire::Held {
        fleet: name.to_owned(),
        hold: held.map(|held| mapping::hold(held, clock)),
    }))
}

/// Reads a body of known keys. Without a body there are none; no type is needed then.
async fn fields(
    headers: &HeaderMap,
    body: Body,
    known: &[&'static str],
) -> Result<Map<String, Value>, Failure> {
    let body = timeout(BODY_WAIT, to_bytes(body, BODY_MAX))
        .await
        .map_err(|_| {
            let text = format!("the body did not arrive within {} s", BODY_WAIT.as_secs());
            Failure::new(StatusCode::REQUEST_TIMEOUT, text)
        })?
        .map_err(|_| {
            let text = format!("the body is cut, or longer than {BODY_MAX} bytes");
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        })?;
    if body.is_empty() {
        return Ok(Map::new());
    }
    if !is_json(headers) {
        return Err(Failure::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body needs the header `content-type: application/json`".to_owned(),
        ));
    }
    let value = serde_json::from_slice(&body)
        .map_err(|error| Failure::bad_request(format!("the body is not JSON: {error}")))?;
    let Value::Object(fields) = value else {
        let text = format!(
            "the body is {value}, allowed is an object with {}",
            known.join(", ")
        );
        return Err(Failure::unprocessable(text));
    };
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(Failure::unprocessable(format!(
            "{key:?} is an unknown key; known: {}",
            known.join(", ")
        ))),
        None => Ok(fields),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn span(fields: &Map<String, Value>) -> Result<Duration, Failure> {
    const ALLOWED: &str = "a duration, 1s to 7d";
    match fields.get("for") {
        None => Ok(SPAN_DEFAULT),
        Some(Value::String(text)) => span_of(text, &SPAN).map_err(|why| {
            Failure::unprocessable(format!("for: {text:?} {why}, allowed is {ALLOWED}"))
        }),
        Some(other) => Err(Failure::unprocessable(format!(
            "for: {other} is no duration, allowed is {ALLOWED}"
        ))),
    }
}

fn replicas(
    fields: &Map<String, Value>,
    min: Replicas,
    max: Replicas,
) -> Result<Replicas, Failure> {
    let allowed =
        format!("a whole number, {min} to {max} (the fleet's replicas.min and replicas.max)");
    let Some(value) = fields.get("replicas") else {
        let text = format!("replicas: is missing, allowed is {allowed}");
        return Err(Failure::unprocessable(text));
    };
    value
        .as_u64()
        .and_then(|count| u32::try_from(count).ok())
        .map(Replicas::new)
        .filter(|size| (min..=max).contains(size))
        .ok_or_else(|| Failure::unprocessable(format!("replicas: {value}, allowed is {allowed}")))
}
