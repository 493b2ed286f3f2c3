//! KEDA's five questions, answered from a fleet's board, and those of a health check.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use inflight_core::Decision;
use inflight_proto::externalscaler::external_scaler_server::{
    ExternalScaler, SERVICE_NAME as SCALER,
};
use inflight_proto::externalscaler::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricValue,
    ScaledObjectRef,
};
use inflight_proto::health::health_check_response::ServingStatus;
use inflight_proto::health::health_server::Health;
use inflight_proto::health::{HealthCheckRequest, HealthCheckResponse};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::sleep;
use tonic::{Code, Request, Response, Status};

use super::reading::{self, Reading};
use super::trigger::{self, METRIC, Trigger, shown, whole};
use crate::fleet::{Question, Roster, Unanswered};

/// Streams that are open on one connection: KEDA opens two for a trigger, and has one connection for
/// all of them. Fewer than the calls that a connection takes, so that questions always have room.
const STREAMS_PER_CONNECTION: usize = 2_048;

/// How often a stream looks at its fleet when nothing was decided: first requests, ages, a reload.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Answers for the fleets that are asked for at one address, on one connection.
#[derive(Clone, Debug)]
pub(super) struct Scaler {
    roster: Arc<Roster>,
    /// The address, as the fleets say it.
    listen: SocketAddr,
    streams: Arc<Semaphore>,
    ending: watch::Receiver<bool>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Metadata = HashMap<String, String>;

impl Scaler {
    pub(super) fn new(
        roster: Arc<Roster>,
        listen: SocketAddr,
        ending: watch::Receiver<bool>,
    ) -> Self {
        Self {
            roster,
            listen,
            streams: Arc::new(Semaphore::new(STREAMS_PER_CONNECTION)),
            ending,
        }
    }

    /// Answers a question about the fleet of a trigger, and counts it there.
    fn answer<T>(
        &self,
        question: Question,
        metadata: &Metadata,
        answer: impl FnOnce(Trigger) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        let fleet = trigger::fleet_of(&self.roster, self.listen, metadata)?;
        let asked = Trigger::new(Arc::clone(&fleet), metadata);
        let answer = asked.and_then(answer);
        let result = answer.as_ref().map(|_| ()).map_err(reason);
        fleet.board().asked.count(question, result);
        answer.map(Response::new)
    }

    /// Opens a stream of what `look` finds for a trigger, which is found anew each time: a reload
    /// may have changed its fleet.
    fn stream<T: PartialEq + Clone + Send + 'static>(
        &self,
        question: Question,
        metadata: Metadata,
        look: impl Fn(&Trigger) -> Option<T> + Send + 'static,
    ) -> Result<Response<Answers<T>>, Status> {
        self.answer(question, &metadata.clone(), |trigger| {
            let listener = trigger.fleet.board().listen();
            let watch = self.watch(Some(listener))?;
            let (roster, listen) = (Arc::clone(&self.roster), self.listen);
            let look = move || {
                let fleet = trigger::fleet_of(&roster, listen, &metadata)?;
                Ok(look(&Trigger::new(fleet, &metadata)?))
            };
            Ok(follow(watch, look))
        })
    }

    /// # Errors
    /// Too many streams are open.
    fn watch<T>(&self, decided: Option<broadcast::Receiver<Decision>>) -> Result<Watch<T>, Status> {
        let place = Arc::clone(&self.streams).try_acquire_owned();
        let place = place.map_err(|_| {
            let most = STREAMS_PER_CONNECTION;
            Status::resource_exhausted(format!("{most} streams are open on this connection"))
        })?;
        Ok(Watch {
            decided,
            told: None,
            ending: self.ending.clone(),
            _place: place,
        })
    }

    /// Tells how the server or one fleet stands; `None` where there is no such fleet.
    fn health(&self, service: &str) -> Option<ServingStatus> {
        if service.is_empty() || service == SCALER {
            return Some(ServingStatus::Serving);
        }
        let metadata = Metadata::from([(trigger::FLEET.to_owned(), service.to_owned())]);
        let fleet = trigger::fleet_of(&self.roster, self.listen, &metadata).ok()?;
        Some(match reading::read(&fleet, 1.0) {
            Ok(_) => ServingStatus::Serving,
            Err(_) => ServingStatus::NotServing,
        })
    }
}

fn read(trigger: &Trigger) -> Result<Reading, Status> {
    reading::read(&trigger.fleet, trigger.target)
        .map_err(|why| Status::unavailable(why.to_string()))
}

fn reason(status: &Status) -> Unanswered {
    if status.code() == Code::Unavailable {
        Unanswered::Unknown
    } else if status.code() == Code::ResourceExhausted {
        Unanswered::Full
    } else {
        Unanswered::Invalid
    }
}

fn activity(reading: Reading) -> IsActiveResponse {
    IsActiveResponse {
        result: reading.is_active,
    }
}

/// A stream's caller and what it was told last.
struct Watch<T> {
    /// `None`: it looks from time to time only.
    decided: Option<broadcast::Receiver<Decision>>,
    told: Option<T>,
    ending: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

/// Tells what `look` finds at once and whenever that changes, until we end or looking fails: then
/// the caller is told why and asks again. Looks only when the caller takes more, so that nothing
/// piles up for a slow one, which finds the newest.
fn follow<T, L>(watch: Watch<T>, look: L) -> Answers<T>
where
    T: PartialEq + Clone + Send + 'static,
    L: Fn() -> Result<Option<T>, Status> + Send + 'static,
{
    let states = stream::unfold(Some((watch, look)), |state| async {
        let (mut watch, look) = state?;
        loop {
            if *watch.ending.borrow() {
                return Some((Err(Status::unavailable("inflight ends: ask again")), None));
            }
            match look() {
                Ok(Some(found)) if watch.told.as_ref() != Some(&found) => {
                    watch.told = Some(found.clone());
                    return Some((Ok(found), Some((watch, look))));
                }
                Ok(_) => {}
                Err(status) => return Some((Err(status), None)),
            }
            if watch.changed().await.is_err() {
                let status = Status::unavailable("the fleet was taken away: ask again");
                return Some((Err(status), None));
            }
        }
    });
    Box::pin(states)
}

impl<T> Watch<T> {
    /// Waits until it is worth to look again.
    ///
    /// # Errors
    /// The fleet is gone, or was replaced by another of its name.
    async fn changed(&mut self) -> Result<(), RecvError> {
        let decided = async {
            match &mut self.decided {
                Some(decided) => decided.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            decided = decided => match decided {
                Err(RecvError::Closed) => Err(RecvError::Closed),
                // One that lags missed what it would not have told either.
                Ok(_) | Err(RecvError::Lagged(_)) => Ok(()),
            },
            _ = self.ending.changed() => Ok(()),
            () = sleep(LOOK_EVERY) => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    type StreamIsActiveStream = Answers<IsActiveResponse>;
    type StreamMetricSpecStream = Answers<GetMetricSpecResponse>;

    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        let metadata = request.into_inner().scaler_metadata;
        self.answer(Question::IsActive, &metadata, |trigger| {
            read(&trigger).map(activity)
        })
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let metadata = request.into_inner().scaler_metadata;
        // While nothing is known nothing changes.
        self.stream(Question::StreamIsActive, metadata, |trigger| {
            read(trigger).ok().map(activity)
        })
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        let metadata = request.into_inner().scaler_metadata;
        self.answer(Question::GetMetricSpec, &metadata, |trigger| {
            Ok(trigger.spec())
        })
    }

    async fn stream_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        let metadata = request.into_inner().scaler_metadata;
        self.stream(Question::StreamMetricSpec, metadata, |trigger| {
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
        let metadata = scaled_object_ref.unwrap_or_default().scaler_metadata;
        self.answer(Question::GetMetrics, &metadata, |trigger| {
            if metric_name != METRIC {
                let name = shown(&metric_name);
                let why = format!("metricName is {name}, the metric is {METRIC:?}");
                return Err(Status::not_found(why));
            }
            let reading = read(&trigger)?;
            Ok(GetMetricsResponse {
                metric_values: vec![MetricValue {
                    metric_name,
                    metric_value: whole(reading.total),
                    metric_value_float: reading.total,
                }],
            })
        })
    }
}

#[tonic::async_trait]
impl Health for Scaler {
    type WatchStream = Answers<HealthCheckResponse>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        let status = self.health(&service).ok_or_else(|| {
            let name = shown(&service);
            Status::not_found(format!(
                "service is {name}, allowed is \"\", {SCALER:?} or a fleet"
            ))
        })?;
        Ok(Response::new(health(status)))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let service = request.into_inner().service;
        let (scaler, watch) = (self.clone(), self.watch(None)?);
        let look = move || {
            let status = scaler.health(&service);
            Ok(Some(health(
                status.unwrap_or(ServingStatus::ServiceUnknown),
            )))
        };
        Ok(Response::new(follow(watch, look)))
    }
}

fn health(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}
