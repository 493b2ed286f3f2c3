//! The least that hyper needs to be a proxy: the yardstick of `bench/gateway`, and no more.
//!
//! One thread, a server and a pooled client. It counts nothing, holds nothing, edits no header and
//! limits nothing: what our gateway costs beyond this is what its features cost.

use std::net::SocketAddr;

use anyhow::Context as _;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Usage: `bare_proxy LISTEN BACKEND http1|http2`.
fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |name| {
        arguments
            .next()
            .with_context(|| format!("{name} is missing"))
    };
    let listen: SocketAddr = next("LISTEN")?.parse()?;
    let backend: Authority = next("BACKEND")?.parse()?;
    let is_http2 = next("http1 or http2")? == "http2";
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(listen, backend, is_http2))
}

async fn serve(listen: SocketAddr, backend: Authority, is_http2: bool) -> anyhow::Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new())
        .http2_only(is_http2)
        .build(connector);
    let listener = TcpListener::bind(listen).await?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let connection = connection(stream, client.clone(), backend.clone(), is_http2);
        connections.spawn(connection);
    }
}

async fn connection(
    stream: TcpStream,
    client: Client<HttpConnector, Incoming>,
    backend: Authority,
    is_http2: bool,
) {
    let service = service_fn(move |request| client.request(forward(request, &backend, is_http2)));
    let nodelay = stream.set_nodelay(true);
    let io = TokioIo::new(stream);
    let served = if is_http2 {
        let server = http2::Builder::new(TokioExecutor::new());
        server.serve_connection(io, service).await
    } else {
        http1::Builder::new().serve_connection(io, service).await
    };
    // Clients that leave are how a run ends.
    nodelay.ok();
    served.ok();
}

/// Points a request at the backend.
fn forward(request: Request<Incoming>, backend: &Authority, is_http2: bool) -> Request<Incoming> {
    let (mut head, body) = request.into_parts();
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(backend.clone());
    let path = head.uri.path_and_query().cloned();
    uri.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    head.uri = Uri::from_parts(uri).unwrap_or_default();
    head.version = if is_http2 {
        Version::HTTP_2
    } else {
        Version::HTTP_11
    };
    Request::from_parts(head, body)
}
