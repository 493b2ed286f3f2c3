//! What the command line says of proxies.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::config::{OnFailure, span_of};
use crate::render::{Address, EnvoyPlaces, LuaPlaces, Protocol, Server};

/// The name of Prometheus' cluster in Envoy, where nothing else is said.
const CLUSTER: &str = "prometheus";
const TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// What a filter asks, and what it does with the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(super) struct LuaArgs {
    /// Where Prometheus is, as Envoy sees it; without TLS.
    #[arg(long, value_name = "URL")]
    prometheus: Option<Server>,
    /// The name of Prometheus' cluster in Envoy [default: prometheus].
    #[arg(long, value_name = "NAME")]
    prometheus_cluster: Option<String>,
    /// How long an answer of Prometheus may take [default: 1s].
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    timeout: Option<Duration>,
    /// When those who are refused are told to come again [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = retry_after)]
    retry_after: Option<Duration>,
    /// A path with which clients begin; may be repeated. By default those of the file, else what
    /// clients of Triton begin with.
    #[arg(long, value_name = "PATH", value_parser = path)]
    first_call: Vec<String>,
    /// Whether clients pass while the load is unknown. By default as `gate.ext_authz.on_failure`
    /// says, else closed.
    #[arg(long, value_name = "WORD", value_enum)]
    on_failure: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Failure {
    /// They are refused.
    Closed,
    /// They pass.
    Open,
}

impl LuaArgs {
    pub(super) fn places(&self) -> LuaPlaces {
        LuaPlaces {
            prometheus: self.prometheus.clone(),
            cluster: (self.prometheus_cluster.clone()).unwrap_or_else(|| CLUSTER.to_owned()),
            timeout: self.timeout.unwrap_or(TIMEOUT),
            retry_after: self.retry_after.unwrap_or(RETRY_AFTER),
            first_calls: self.first_call.clone(),
            on_failure: self.on_failure.map(|word| match word {
                Failure::Closed => OnFailure::Closed,
                Failure::Open => OnFailure::Open,
            }),
        }
    }
}

/// Where Envoy is, and what is around it.
#[derive(Clone, Debug, Args)]
pub(super) struct EnvoyArgs {
    /// Where clients connect.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10000")]
    listen: SocketAddr,
    /// Envoy's admin interface, which can stop it; by default on the loopback, at the port where the
    /// file reads Envoy.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// A server, or a name each address of which is one; may be repeated.
    #[arg(long, value_name = "HOST:PORT")]
    server: Vec<Address>,
    /// The file in which the servers' addresses are told, replaced by rename, instead.
    #[arg(long, value_name = "FILE", conflicts_with = "server", value_parser = endpoints)]
    eds: Option<String>,
    /// What is spoken with the servers; by default gRPC, and HTTP/1.1 with vLLM.
    #[arg(long, value_name = "WORD", value_enum)]
    protocol: Option<Spoken>,
    /// Where inflight's gate is, as Envoy sees it.
    #[arg(long, value_name = "HOST:PORT")]
    gate: Option<Address>,
    /// A path that the gate judges beside the first calls; may be repeated.
    #[arg(long, value_name = "PATH", value_parser = path)]
    guard: Vec<String>,
    /// The filter of `render lua` instead of the gate.
    #[arg(long)]
    lua: bool,
    #[command(flatten)]
    filter: LuaArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Spoken {
    /// HTTP/2 without TLS, with the health checks of gRPC.
    Grpc,
    /// HTTP/1.1, with a health check at /health.
    Http1,
}

impl EnvoyArgs {
    /// *Errors*: something is said of a filter that is not wanted.
    pub(super) fn places(&self) -> Result<EnvoyPlaces> {
        if !self.lua && self.filter != LuaArgs::default() {
            bail!("what is said of the filter in Lua needs --lua");
        }
        if self.lua && !self.guard.is_empty() {
            bail!("--guard is of the gate: the filter in Lua judges first calls alone");
        }
        Ok(EnvoyPlaces {
            listen: self.listen,
            admin: self.admin,
            servers: self.server.clone(),
            eds: self.eds.clone(),
            protocol: self.protocol.map(|word| match word {
                Spoken::Grpc => Protocol::Grpc,
                Spoken::Http1 => Protocol::Http1,
            }),
            gate: self.gate.clone(),
            guard: self.guard.clone(),
            lua: self.lua.then(|| self.filter.places()),
        })
    }
}

fn timeout(text: &str) -> Result<Duration, &'static str> {
    span_of(text, &(Duration::from_millis(10)..=Duration::from_secs(60)))
}

fn retry_after(text: &str) -> Result<Duration, &'static str> {
    span_of(text, &(Duration::from_secs(1)..=Duration::from_secs(3600)))
}

fn path(text: &str) -> Result<String, &'static str> {
    let is_path = text.starts_with('/')
        && !text.contains(['?', '#'])
        && http::uri::PathAndQuery::try_from(text).is_ok();
    if is_path {
        Ok(text.to_owned())
    } else {
        Err("is no path that begins with `/`, without `?` or `#`")
    }
}

fn endpoints(text: &str) -> Result<String, &'static str> {
    let is_named = [".json", ".yaml"].iter().any(|end| text.ends_with(end));
    if is_named && text.contains('/') {
        Ok(text.to_owned())
    } else {
        Err("is no file that Envoy takes: in a folder that is named, ending in .json or .yaml")
    }
}
