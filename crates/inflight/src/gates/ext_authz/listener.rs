//! The socket that Envoys ask at: questions bounded in bytes and time.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response};
use inflight_proto::ext_authz::authorization_server::{Authorization, AuthorizationServer};
use inflight_proto::ext_authz::{CheckRequest, CheckResponse};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;

use super::question::Question;
use super::{ExtAuthzConfig, answer};
use crate::connections::grpc::{self, Askers, GrpcListener};
use crate::fleet::Fleet;

/// Connections at the same time: an Envoy has one for each of its threads.
const CONNECTIONS_MAX: usize = 4_096;
/// Calls at once on one connection, those that wait included. Envoy opens another beyond them.
const CALLS_PER_CONNECTION: u32 = 4_096;
/// Questions on one connection that may be given up before they were looked at.
const RESETS_MAX: usize = 4_096;
/// A question is the call's headers, which Envoy holds to 60 KiB, and its body where that is asked
/// for, which nothing here reads.
const QUESTION_BYTES_MAX: usize = 1 << 20;
/// How long a question may take to come in whole.
const QUESTION_WITHIN: Duration = Duration::from_secs(10);

/// Listens for Envoys.
#[derive(Debug)]
pub struct ExtAuthz {
    listener: GrpcListener,
    settings: watch::Sender<ExtAuthzConfig>,
}

impl ExtAuthz {
    /// Binds the address of the settings; port 0 takes any free port.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(config: ExtAuthzConfig) -> io::Result<Self> {
        Ok(Self::over(GrpcListener::bind(config.listen)?, config))
    }

    /// Goes on listening where another process of ours does.
    ///
    /// # Errors
    /// The socket is not one to listen on.
    pub fn adopt(config: ExtAuthzConfig, listener: StdListener) -> io::Result<Self> {
        Ok(Self::over(GrpcListener::adopt(listener)?, config))
    }

    fn over(listener: GrpcListener, config: ExtAuthzConfig) -> Self {
        Self {
            listener,
            settings: watch::Sender::new(config),
        }
    }

    /// Returns a copy of the listening socket.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn listener(&self) -> io::Result<OwnedFd> {
        self.listener.socket()
    }

    /// Returns where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Returns the way to other settings; where it listens stays.
    #[must_use]
    pub fn settings(&self) -> watch::Sender<ExtAuthzConfig> {
        self.settings.clone()
    }

    /// Answers for a fleet until `stop`; then refuses those that wait, and lets answers end.
    pub async fn serve(self, fleet: Arc<Fleet>, stop: impl Future<Output = ()>) {
        let (end, ending) = watch::channel(false);
        let gate = Gate {
            fleet,
            settings: self.settings.subscribe(),
            ending,
        };
        let service = AuthorizationServer::new(gate).max_decoding_message_size(QUESTION_BYTES_MAX);
        let connect = || {
            let service = service.clone();
            move |request| answer(service.clone(), request)
        };
        let mut protocol = grpc::protocol(CALLS_PER_CONNECTION);
        // Envoy gives questions up that are late: no reason to close a connection others wait on.
        protocol.max_pending_accept_reset_streams(RESETS_MAX);
        let askers = Askers {
            name: "Envoy",
            connections_max: CONNECTIONS_MAX,
            protocol,
        };
        self.listener.serve(askers, connect, end, stop).await;
    }
}

/// What one fleet answers.
#[derive(Debug)]
struct Gate {
    fleet: Arc<Fleet>,
    settings: watch::Receiver<ExtAuthzConfig>,
    ending: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl Authorization for Gate {
    async fn check(
        &self,
        request: tonic::Request<CheckRequest>,
    ) -> Result<tonic::Response<CheckResponse>, Status> {
        let Question { call, is_grpc } =
            Question::read(&request.into_inner(), &self.settings.borrow());
        let response = match self.fleet.check(call, self.ending.clone()).await {
            Ok(()) => answer::let_in(),
            Err(refusal) => answer::refused(&refusal, is_grpc, fastrand::u64(..)),
        };
        Ok(tonic::Response::new(response))
    }
}

/// Takes a question in, bounded in bytes and time, and answers it in whatever time that takes.
async fn answer(
    mut service: AuthorizationServer<Gate>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, QUESTION_BYTES_MAX).collect();
    let body: Bytes = match timeout(QUESTION_WITHIN, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return Ok(Status::invalid_argument("the question is too long").into_http()),
        Err(_) => return Ok(Status::deadline_exceeded("the question did not end").into_http()),
    };
    service
        .call(Request::from_parts(head, Full::new(body)))
        .await
}
