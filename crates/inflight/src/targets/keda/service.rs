//! KEDA's five questions, answered from a fleet's board.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use inflight_core::Decision;
use inflight_proto::externalscaler::external_scaler_server::ExternalScaler;
use inflight_proto::externalscaler::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec,
    MetricValue, ScaledObjectRef,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::sleep;
use tonic::{Request, Response, Status};

use super::reading::{self, Reading};
use crate::fleet::{Fleet, Roster};

/// The one metric that a fleet has. KEDA puts the trigger's number before it and takes it away
/// again; it is lower case, since a name that is not does not match its own lower-cased label.
pub(super) const METRIC: &str = "inflight";

/// Names the fleet in a trigger's metadata, where we have several.
const FLEET_KEY: &str = "fleet";
/// Replaces the target of `occupancy` and `metric` in a trigger's metadata.
const THRESHOLD_KEY: &str = "threshold";
/// The least target: KEDA prints three decimals, so that smaller ones would become zero.
const TARGET_MIN: f64 = 1e-3;
const TARGET_MAX: f64 = 1e15;

/// Streams that are open at once over all callers: KEDA opens two for a scaled object.
const STREAMS_MAX: usize = 4_096;
/// How often a stream looks at its fleet when nothing was decided: ages, a reload.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Answers KEDA for the fleets that are sized by it.
#[derive(Clone, Debug)]
pub(super) struct Scaler {
    roster: Arc<Roster>,
    streams: Arc<Semaphore>,
    ending: watch::Receiver<bool>,
}

/// What a trigger asks of which fleet.
#[derive(Clone, Debug)]
struct Trigger {
    fleet: Arc<Fleet>,
    target: f64,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Scaler {
    pub(super) fn new(roster: Arc<Roster>, ending: watch::Receiver<bool>) -> Self {
        Self {
            roster,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            ending,
        }
    }

    /// Finds the fleet that a trigger names, or the only one.
    fn trigger(&self, metadata: &HashMap<String, String>) -> Result<Trigger, Status> {
        let mut fleets = self.roster.fleets();
        fleets.retain(|fleet| fleet.board().external.is_some());
        let names = || {
            let names: Vec<_> = fleets.iter().map(|fleet| fleet.name()).collect();
            names.join(", ")
        };
        let fleet = match (metadata.get(FLEET_KEY), fleets.as_slice()) {
            (Some(name), fleets) => {
                (fleets.iter().find(|fleet| fleet.name() == name)).ok_or_else(|| {
                    let names = names();
                    Status::not_found(format!(
                        "no fleet {name:?} with target keda: metadata.fleet is one of {names}"
                    ))
                })?
            }
            (None, [fleet]) => fleet,
            (None, _) => {
                return Err(Status::invalid_argument(format!(
                    "metadata.fleet is missing: one of {}",
                    names()
                )));
            }
        };
        Ok(Trigger {
            target: target(fleet, metadata.get(THRESHOLD_KEY))?,
            fleet: Arc::clone(fleet),
        })
    }

    /// Opens a stream of what `look` finds for a trigger, which is found anew each time: a reload
    /// may have changed its fleet.
    fn stream<T: PartialEq + Clone + Send + 'static>(
        &self,
        metadata: HashMap<String, String>,
        look: impl Fn(&Trigger) -> Option<T> + Send + 'static,
    ) -> Result<Response<Answers<T>>, Status> {
        let fleet = self.trigger(&metadata)?.fleet;
        let full = |_| Status::resource_exhausted(format!("{STREAMS_MAX} streams are open"));
        let watch = Watch {
            decided: fleet.board().listen(),
            told: None,
            ending: self.ending.clone(),
            _permit: Arc::clone(&self.streams)
                .try_acquire_owned()
                .map_err(full)?,
        };
        let scaler = self.clone();
        let look = move || Ok(look(&scaler.trigger(&metadata)?));
        Ok(Response::new(follow(watch, look)))
    }
}

/// Returns what one replica is to carry: the trigger's threshold, or the fleet's.
fn target(fleet: &Fleet, threshold: Option<&String>) -> Result<f64, Status> {
    let board = fleet.board();
    let (policy, configured) = (board.policy, board.external.map_or(1.0, |own| own.target));
    drop(board);
    let Some(text) = threshold else {
        return Ok(configured);
    };
    let wrong = |why: &str| Status::invalid_argument(format!("metadata.threshold {text:?} {why}"));
    if !matches!(policy, "occupancy" | "metric") {
        return Err(wrong(&format!(
            "means nothing under the policy {policy}, which decides the size itself: leave it out"
        )));
    }
    let target: f64 = text.parse().map_err(|_| wrong("is not a number"))?;
    if !(TARGET_MIN..=TARGET_MAX).contains(&target) {
        return Err(wrong("is not from 0.001 to 10^15"));
    }
    Ok(target)
}

impl Trigger {
    fn read(&self) -> Result<Reading, Status> {
        let now = self.fleet.clock().now();
        let board = self.fleet.board();
        let hold = board.external.map_or(Duration::ZERO, |own| own.hold);
        reading::read(board.decisions(), now, hold, self.target)
            .map_err(|why| Status::unavailable(why.to_string()))
    }

    fn spec(&self) -> GetMetricSpecResponse {
        GetMetricSpecResponse {
            metric_specs: vec![MetricSpec {
                metric_name: METRIC.to_owned(),
                target_size: whole(self.target),
                target_size_float: self.target,
            }],
        }
    }
}

/// KEDA takes the whole number where the other one is not above zero; an old KEDA knows no other.
fn whole(value: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, which is what is wanted"
    )]
    let whole = value.ceil() as i64;
    whole
}

/// A stream's caller and what it was told last.
struct Watch<T> {
    decided: broadcast::Receiver<Decision>,
    told: Option<T>,
    ending: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

/// Tells what `look` finds at once and whenever that changes, until we end or looking fails: then
/// the caller is told why and asks again.
fn follow<T, L>(watch: Watch<T>, look: L) -> Answers<T>
where
    T: PartialEq + Clone + Send + 'static,
    L: Fn() -> Result<Option<T>, Status> + Send + 'static,
{
    let states = stream::unfold(Some((watch, look)), |state| async {
        let (mut watch, look) = state?;
        loop {
            if *watch.ending.borrow() {
                return Some((Err(Status::unavailable("inflight ends")), None));
            }
            match look() {
                Ok(Some(found)) if watch.told.as_ref() != Some(&found) => {
                    watch.told = Some(found.clone());
                    return Some((Ok(found), Some((watch, look))));
                }
                Ok(_) => {}
                Err(status) => return Some((Err(status), None)),
            }
            let decided = tokio::select! {
                decided = watch.decided.recv() => decided,
                _ = watch.ending.changed() => continue,
                () = sleep(LOOK_EVERY) => continue,
            };
            if let Err(RecvError::Closed) = decided {
                let status = Status::unavailable("the fleet was taken away: ask again");
                return Some((Err(status), None));
            }
        }
    });
    Box::pin(states)
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    type StreamIsActiveStream = Answers<IsActiveResponse>;
    type StreamMetricSpecStream = Answers<GetMetricSpecResponse>;

    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        let reading = self.trigger(&request.get_ref().scaler_metadata)?.read()?;
        Ok(Response::new(IsActiveResponse {
            result: reading.is_active,
        }))
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        // While nothing is known nothing changes.
        self.stream(request.into_inner().scaler_metadata, |trigger| {
            let reading = trigger.read().ok()?;
            Some(IsActiveResponse {
                result: reading.is_active,
            })
        })
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        let trigger = self.trigger(&request.get_ref().scaler_metadata)?;
        Ok(Response::new(trigger.spec()))
    }

    async fn stream_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        self.stream(request.into_inner().scaler_metadata, |trigger| {
            Some(trigger.spec())
        })
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let GetMetricsRequest {
            scaled_object_ref,
            metric_name,
        } = request.into_inner();
        if metric_name != METRIC {
            return Err(Status::invalid_argument(format!(
                "no metric {metric_name:?}: it is {METRIC:?}"
            )));
        }
        let metadata = scaled_object_ref.unwrap_or_default().scaler_metadata;
        let reading = self.trigger(&metadata)?.read()?;
        Ok(Response::new(GetMetricsResponse {
            metric_values: vec![MetricValue {
                metric_name: METRIC.to_owned(),
                metric_value: whole(reading.total),
                metric_value_float: reading.total,
            }],
        }))
    }
}
