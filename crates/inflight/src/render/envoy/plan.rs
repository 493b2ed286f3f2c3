//! What an Envoy before a fleet needs: from the file what that says, from the command line the rest,
//! and what neither says as a guess that is told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::Others;
use crate::config::{
    ExtAuthzSettings, FleetConfig, GateMode, MeasuredSettings, PageUrl, PagesSettings, ServerKind,
};
use crate::render::lua::{Filter, LuaPlaces};
use crate::render::{Address, RenderError, Selector};

/// Where an Envoy has its admin interface, and Triton its gRPC, unless told otherwise.
const ADMIN_PORT: u16 = 9901;
const TRITON_PORT: u16 = 8001;
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What the file does not say of an Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyPlaces {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Its admin interface.
    pub admin: Option<SocketAddr>,
    /// The servers.
    pub servers: Vec<Address>,
    /// The file that tells the servers, instead.
    pub eds: Option<String>,
    /// What is spoken with them.
    pub protocol: Option<Protocol>,
    /// Where our gate is, as Envoy sees it.
    pub gate: Option<Address>,
    /// Paths that the gate judges beside first calls.
    pub guard: Vec<String>,
    /// The filter in Lua, instead of the gate.
    pub lua: Option<LuaPlaces>,
}

/// What is spoken with servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC, over HTTP/2 without TLS.
    Grpc,
    /// HTTP/1.1.
    Http1,
}

impl Protocol {
    pub(super) const fn options(self) -> &'static str {
        match self {
            Self::Grpc => "http2_protocol_options",
            Self::Http1 => "http_protocol_options",
        }
    }

    pub(super) const fn health_check(self) -> &'static str {
        match self {
            Self::Grpc => "grpc_health_check: {}",
            Self::Http1 => "http_health_check: { path: /health }",
        }
    }
}

/// Everything that is printed.
pub(super) struct Plan<'a> {
    pub(super) cluster: String,
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    /// Where others read what the admin interface tells, where that is not for them.
    pub(super) stats: Option<SocketAddr>,
    pub(super) servers: Servers,
    pub(super) protocol: Protocol,
    pub(super) guard: Guard<'a>,
}

/// Where the servers are.
pub(super) enum Servers {
    Listed(Vec<Address>),
    /// In a file that is replaced.
    File(String),
}

/// Who judges new clients.
pub(super) enum Guard<'a> {
    Nobody,
    Gate {
        gate: &'a ExtAuthzSettings,
        at: Address,
        others: Others,
    },
    Lua {
        program: String,
        prometheus: Address,
        cluster: String,
    },
}

impl<'a> Plan<'a> {
    /// *Errors*: no Envoy is before the fleet, or there is no filter in Lua for it.
    pub(super) fn settle(
        fleet: &'a FleetConfig,
        selector: &Selector,
        places: &EnvoyPlaces,
        warnings: &mut Vec<String>,
    ) -> Result<Self, RenderError> {
        let Some(measured) = &fleet.measured else {
            return Err(RenderError::NoEnvoy(fleet.name.clone()));
        };
        let (cluster, page) = match (measured, fleet.endpoints_file()) {
            (MeasuredSettings::Envoy(envoy), _) => (&envoy.cluster, first(&envoy.admin)),
            (_, Some(endpoints)) => (&endpoints.cluster, endpoints.admin.first()),
            (MeasuredSettings::Vllm(_) | MeasuredSettings::Prometheus(_), None) => {
                (&fleet.name, None)
            }
        };
        let (admin, stats) = admin(page, places);
        Ok(Self {
            cluster: cluster.clone(),
            listen: places.listen,
            admin,
            stats,
            servers: servers(fleet, measured, places, warnings),
            protocol: places.protocol.unwrap_or_else(|| protocol(measured)),
            guard: guard(fleet, selector, places, warnings)?,
        })
    }
}

/// Returns the admin interface, and where others read it: at the page that the file reads, which is
/// not to be that of the interface itself unless it is on the loopback.
fn admin(page: Option<&PageUrl>, places: &EnvoyPlaces) -> (SocketAddr, Option<SocketAddr>) {
    let read = page.and_then(Address::of_page);
    let port = read.as_ref().map_or(ADMIN_PORT, |read| read.port);
    let is_local = read.is_none_or(|read| {
        read.host == "localhost" || read.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    });
    let beside = if is_local {
        port
    } else {
        port.checked_add(1).unwrap_or(ADMIN_PORT)
    };
    let admin = places.admin.unwrap_or(SocketAddr::new(LOOPBACK, beside));
    let stats = SocketAddr::new(ANY, port);
    (admin, (!is_local && admin.port() != port).then_some(stats))
}

/// Returns a page of them that is named.
fn first(pages: &PagesSettings) -> Option<&PageUrl> {
    pages.listed.first().or(pages.dns.as_ref())
}

fn backend(measured: &MeasuredSettings) -> Option<(&PagesSettings, &ServerKind)> {
    match measured {
        MeasuredSettings::Envoy(envoy) => Some((&envoy.backend.metrics, &envoy.backend.kind)),
        MeasuredSettings::Vllm(servers) => Some((&servers.metrics, &servers.kind)),
        MeasuredSettings::Prometheus(_) => None,
    }
}

fn protocol(measured: &MeasuredSettings) -> Protocol {
    match backend(measured) {
        Some((_, ServerKind::Vllm { .. })) => Protocol::Http1,
        Some((_, ServerKind::Triton { .. } | ServerKind::Custom(_))) | None => Protocol::Grpc,
    }
}

fn servers(
    fleet: &FleetConfig,
    measured: &MeasuredSettings,
    places: &EnvoyPlaces,
    warnings: &mut Vec<String>,
) -> Servers {
    if let Some(file) = &places.eds {
        return Servers::File(file.clone());
    }
    if !places.servers.is_empty() {
        return Servers::Listed(places.servers.clone());
    }
    if let Some(endpoints) = fleet.endpoints_file() {
        return Servers::File(endpoints.file.to_string_lossy().into_owned());
    }
    let guess = guessed(fleet, measured);
    let all: Vec<String> = guess.iter().map(ToString::to_string).collect();
    warnings.push(format!(
        "fleet {}: the servers are taken to be at {}; --server says where they are, or --eds a file \
         that tells it",
        fleet.name,
        all.join(", ")
    ));
    Servers::Listed(guess)
}

/// Guesses the servers' addresses from those of their metric pages.
fn guessed(fleet: &FleetConfig, measured: &MeasuredSettings) -> Vec<Address> {
    let mut servers: Vec<Address> = Vec::new();
    if let Some((pages, kind)) = backend(measured) {
        for mut server in (pages.listed.iter().chain(&pages.dns)).filter_map(Address::of_page) {
            if matches!(kind, ServerKind::Triton { .. }) {
                server.port = TRITON_PORT;
            }
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
    }
    if servers.is_empty() {
        servers.push(Address {
            host: fleet.name.clone(),
            port: TRITON_PORT,
        });
    }
    servers
}

fn guard<'a>(
    fleet: &'a FleetConfig,
    selector: &Selector,
    places: &EnvoyPlaces,
    warnings: &mut Vec<String>,
) -> Result<Guard<'a>, RenderError> {
    if let Some(wanted) = &places.lua {
        let filter = Filter::new(fleet, selector, wanted)?;
        warnings.extend(filter.warnings);
        return Ok(Guard::Lua {
            program: filter.text,
            prometheus: filter.prometheus,
            cluster: wanted.cluster.clone(),
        });
    }
    let Some(gate) = &fleet.ext_authz else {
        warnings.push(format!(
            "fleet {}: nobody is refused: it has no `gate.ext_authz`, and --lua is not given",
            fleet.name
        ));
        return Ok(Guard::Nobody);
    };
    let others = match gate.mode {
        GateMode::NewSessions => Others::Paths(places.guard.clone()),
        GateMode::EveryRequest => Others::All,
    };
    Ok(Guard::Gate {
        gate,
        at: gate_address(fleet, gate, places, warnings),
        others,
    })
}

fn gate_address(
    fleet: &FleetConfig,
    gate: &ExtAuthzSettings,
    places: &EnvoyPlaces,
    warnings: &mut Vec<String>,
) -> Address {
    let listen = gate.listen.value;
    if let Some(said) = &places.gate {
        return said.clone();
    }
    if !listen.ip().is_unspecified() {
        return listen.into();
    }
    let guess = Address::from(SocketAddr::new(LOOPBACK, listen.port()));
    warnings.push(format!(
        "fleet {}: the gate is taken to be at {guess}; --gate says where it is, as Envoy sees it",
        fleet.name
    ));
    guess
}
