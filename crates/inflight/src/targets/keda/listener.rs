//! The socket that KEDA asks at: questions bounded in bytes and time.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use inflight_proto::externalscaler::external_scaler_server::{
    ExternalScalerServer, SERVICE_NAME as SCALER,
};
use inflight_proto::health::health_server::{HealthServer, SERVICE_NAME as HEALTH};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http::Response;

use super::service::Scaler;
use crate::connections::grpc::{self, Askers, GrpcListener};
use crate::fleet::Roster;

/// Connections at the same time; KEDA has one for all triggers, and probes come and go.
const CONNECTIONS_MAX: usize = 32;
/// Calls at once on one connection: all its streams, and questions beside them.
const CALLS_PER_CONNECTION: u32 = 2_560;
/// Questions are a few hundred bytes.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// Headers of a call, which KEDA has few of.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// Bytes that a connection may send ahead of us.
const WINDOW: u32 = 256 << 10;
/// How long a question may take to come in whole.
const QUESTION_WITHIN: Duration = Duration::from_secs(10);

/// Listens for KEDA.
#[derive(Debug)]
pub struct KedaListener {
    listener: GrpcListener,
    configured: SocketAddr,
}

impl KedaListener {
    /// Binds an address; port 0 takes any free port.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(configured: SocketAddr) -> io::Result<Self> {
        let listener = GrpcListener::bind(configured)?;
        Ok(Self {
            listener,
            configured,
        })
    }

    /// Goes on listening where another process of ours does.
    ///
    /// # Errors
    /// The socket is not one to listen on.
    pub fn adopt(configured: SocketAddr, listener: StdListener) -> io::Result<Self> {
        let listener = GrpcListener::adopt(listener)?;
        Ok(Self {
            listener,
            configured,
        })
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

    /// Answers for the fleets of the roster that are asked for here, until `stop`; then ends the
    /// streams, which have no end of their own, and lets answers that were begun end.
    pub async fn serve(self, roster: Arc<Roster>, stop: impl Future<Output = ()>) {
        let (end, ending) = watch::channel(false);
        let connect = || {
            let scaler = Scaler::new(Arc::clone(&roster), self.configured, ending.clone());
            let routes = Routes::new(scaler);
            move |request| routes.clone().answer(request)
        };
        let mut protocol = grpc::protocol(CALLS_PER_CONNECTION);
        protocol
            .max_header_list_size(HEADER_BYTES_MAX)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let askers = Askers {
            name: "KEDA",
            connections_max: CONNECTIONS_MAX,
            protocol,
        };
        self.listener.serve(askers, connect, end, stop).await;
    }
}

/// The services, as one connection has them.
#[derive(Clone, Debug)]
struct Routes {
    scaler: ExternalScalerServer<Scaler>,
    health: HealthServer<Scaler>,
}

impl Routes {
    fn new(scaler: Scaler) -> Self {
        let health = HealthServer::new(scaler.clone());
        let scaler = ExternalScalerServer::new(scaler);
        Self {
            scaler: scaler.max_decoding_message_size(QUESTION_BYTES_MAX),
            health: health.max_decoding_message_size(QUESTION_BYTES_MAX),
        }
    }

    async fn answer(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let service = request.uri().path().split('/').nth(1);
        let answer = match service {
            Some(SCALER) => self.scaler.call(request),
            Some(HEALTH) => self.health.call(request),
            _ => {
                let status = Status::unimplemented("no such service");
                return Ok(status.into_http());
            }
        };
        match timeout(QUESTION_WITHIN, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let status = Status::deadline_exceeded("the question did not end");
                Ok(status.into_http())
            }
        }
    }
}
