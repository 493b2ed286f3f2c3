//! Opening a TCP connection to a replica, and the task that drives what runs on it.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Endpoint;
use crate::gateway::fault::Fault;

/// The task of a connection. Dropping this ends the connection at once, whatever it does.
#[derive(Debug)]
pub(super) struct Driver(JoinHandle<()>);

impl Driver {
    pub(super) fn spawn<F>(connection: F) -> Self
    where
        F: Future<Output = Result<(), hyper::Error>> + Send + 'static,
    {
        Self(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a replica ended");
            }
        }))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) async fn connect(endpoint: &Endpoint) -> Result<Arc<TcpStream>, Fault> {
    let address = endpoint.bound.address;
    let after = endpoint.timeouts.connect;
    let stream = match timeout(after, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(source)) => return Err(Fault::Connect { address, source }),
        Err(_) => return Err(Fault::ConnectTimeout { address, after }),
    };
    stream
        .set_nodelay(true)
        .map_err(|source| Fault::Connect { address, source })?;
    Ok(Arc::new(stream))
}
