//! KEDA's external scaler: the fleet is sized by an autoscaler that asks us, over gRPC.
//!
//! Nothing is decided here and nothing is kept: every answer is made of the fleet's last decisions
//! at the moment it is asked for. What is unknown for longer than `scaling.unknown.hold` is
//! answered UNAVAILABLE, never zero, so that KEDA keeps the size or takes its own fallback.

mod reading;
mod service;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use inflight_proto::externalscaler::external_scaler_server::ExternalScalerServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::fleet::Roster;

/// KEDA has one connection for a trigger and few calls at once on it.
const STREAMS_PER_CONNECTION: u32 = 1_024;
/// Questions are a few hundred bytes.
const QUESTION_BYTES_MAX: usize = 64 * 1024;
/// A peer that is gone without a word is found out after these two.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Listens for KEDA.
#[derive(Debug)]
pub struct KedaListener {
    listener: TcpListener,
}

impl KedaListener {
    /// Binds the address.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
        })
    }

    /// Returns where it listens.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers for the fleets of the roster that KEDA sizes, until `shutdown`.
    ///
    /// # Errors
    /// The server cannot go on.
    pub async fn serve(
        self,
        roster: Arc<Roster>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let (health, health_service) = tonic_health::server::health_reporter();
        // Streams have no end of their own and would keep the server.
        let (end, ending) = watch::channel(false);
        let scaler = ExternalScalerServer::new(service::Scaler::new(roster, ending))
            .max_decoding_message_size(QUESTION_BYTES_MAX);
        health
            .set_serving::<ExternalScalerServer<service::Scaler>>()
            .await;
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        Server::builder()
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_ANSWERED_WITHIN))
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .add_service(health_service)
            .add_service(scaler)
            .serve_with_incoming_shutdown(incoming, async {
                shutdown.await;
                end.send_replace(true);
            })
            .await
    }
}
