//! What passes between the parts of the shell: orders to a control loop, a target's commands and
//! events.
//!
//! Sources, targets and the API never import each other; they meet the control loop through these
//! types. What finds endpoints, and what watches them, speaks the same language as a target.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use inflight_core::admission::{CheckConfig, GateConfig};
use inflight_core::scaling::{Held, Hold, PastScaler, ScalingConfig};
use inflight_core::{ReplicaId, Replicas};
use tokio::sync::oneshot;

/// What somebody other than its own clock asks of a control loop.
///
/// Each carries where its answer goes; whoever asked may have stopped listening.
#[derive(Debug)]
pub enum Order {
    /// From here on the fleet is run by these settings.
    Configure {
        /// All of them, changed or not.
        settings: Box<FleetSettings>,
        /// Sessions are known by something else than before: those that are running would seem
        /// new.
        forgets_sessions: bool,
        /// Told once they are in force.
        done: oneshot::Sender<()>,
    },
    /// Decide nothing more: another process of ours goes on from what is told.
    HandOver {
        /// Told what the scaler knows, once the target has stopped to change anything.
        done: oneshot::Sender<Box<PastScaler>>,
    },
    /// The other process is gone: decide again.
    TakeBack,
    /// The process that we took over from is gone: replicas may go.
    Alone,
    /// Hold the size by hand, in place of what held it before.
    Hold {
        /// What the size shall be.
        hold: Hold,
        /// For how long.
        span: Duration,
        /// Is told what holds the size afterwards.
        done: oneshot::Sender<Option<Held>>,
    },
    /// Give the size back to the policy, if a hold of this kind has it.
    Release {
        /// Which kind.
        kind: HoldKind,
        /// Is told what holds the size afterwards.
        done: oneshot::Sender<Option<Held>>,
    },
}

/// The two ways in which a person holds a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// It stays as it is.
    Pause,
    /// It is a given one.
    Size,
}

impl HoldKind {
    /// Returns the kind of a hold.
    #[must_use]
    pub const fn of(hold: Hold) -> Self {
        match hold {
            Hold::Pause => Self::Pause,
            Hold::Size(_) => Self::Size,
        }
    }

    /// Returns its word in the API and the metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Size => "size",
        }
    }
}

/// What of a fleet's configuration its control loop keeps.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSettings {
    /// How its requests are admitted, held and counted.
    pub gate: GateConfig,
    /// How proxies that ask are answered, where some do.
    pub checks: Option<CheckConfig>,
    /// How its size is decided.
    pub scaling: ScalingConfig,
}

/// What the control loop tells a target.
#[derive(Debug)]
pub enum TargetCommand {
    /// The size the fleet shall have, and which replicas go first if it is smaller.
    Size {
        /// How many replicas shall be starting or ready.
        desired: Replicas,
        /// The replicas to drain, first to go first.
        drain: Vec<ReplicaId>,
    },
    /// A draining replica holds no request any more.
    Drained(ReplicaId),
    /// A replica was unhealthy for too long: it is to be drained and ended, and counts as crashed.
    Replace(ReplicaId),
    /// Another process of ours decides from here on: nothing is started and nothing ended.
    HandOver {
        /// Told once the other finds every replica.
        done: oneshot::Sender<()>,
    },
    /// The other process is gone: all goes on as before.
    TakeBack,
    /// Everything ends: no start any more, each replica is stopped with its grace. After
    /// [`TargetCommand::HandOver`] replicas that outlive us are left as they are.
    Stop,
}

/// Ports of a replica beside the one that it serves at, by their names.
pub type NamedPorts = Arc<BTreeMap<String, u16>>;

/// What a target tells the control loop about one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetEvent {
    /// Which replica.
    pub replica: ReplicaId,
    /// Its number, the lowest that was free.
    pub index: u32,
    /// Where it listens, or will listen.
    pub address: SocketAddr,
    /// Its further ports, at the same host.
    pub ports: NamedPorts,
    /// What happened to it.
    pub change: ReplicaChange,
}

/// What one proxy has at the endpoints of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedReading {
    /// Its place among the proxies of the fleet.
    pub proxy: usize,
    /// The endpoints that it knows; or why it could not be asked, which makes them unknown.
    pub endpoints: Result<BTreeMap<SocketAddr, RoutedEndpoint>, String>,
}

/// An endpoint as a proxy sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoutedEndpoint {
    /// Requests that it has there, those included that wait for a connection.
    pub in_flight: u32,
    /// Whether it was told that the endpoint drains, and sends it no further request.
    pub is_draining: bool,
}

/// What happens to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaChange {
    /// It was asked for; it may wait for a back-off before its process starts.
    Starting,
    /// It takes requests.
    Ready {
        /// From the start of its process to ready; `None` when it came back from draining.
        took: Option<Duration>,
    },
    /// It was ready and does not answer: it gets no further request until it is ready again.
    Unhealthy {
        /// What it did, as one sentence.
        why: String,
    },
    /// It was unhealthy for too long; whoever started it is to replace it.
    GivenUp,
    /// It takes no further request; it is stopped after [`TargetCommand::Drained`] or the drain
    /// time-out. One that was not ready yet, and every one after [`TargetCommand::Stop`], is stopped
    /// at once.
    Draining,
    /// It is no more.
    Gone {
        /// What ended it, as one sentence.
        why: String,
        /// Whether nobody asked it to end.
        unexpected: bool,
    },
}

impl ReplicaChange {
    /// Returns the word of the state that the replica is in afterwards.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready { .. } => "ready",
            Self::Unhealthy { .. } => "unhealthy",
            Self::GivenUp => "given_up",
            Self::Draining => "draining",
            Self::Gone { .. } => "gone",
        }
    }
}
