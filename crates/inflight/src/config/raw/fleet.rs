//! The keys of one fleet: what it is, where its requests come in, where they go.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use inflight_core::Bytes;

use super::scaling::{Admission, Queue, Scaling};
use super::{
    Absent, DAY, HOUR, Items, KeyDoc, Keys, Located, MS, Node, Ports, Problems, SECOND, SectionDoc,
    Setting, absent, doc_text, document, key_name, mapping_of, range, section,
};
use crate::config::setting::{
    ARGUMENT, AUTHORITY, Advise, Choice, NAME, OfTarget, Off, OneOf, Or, SERVICE, URL_PATH,
};

section! {
    /// One fleet: all copies of a server that serve one thing.
    Fleet {
        /// Its name: in the API, in metric labels and in logs. Two fleets never share one.
        name: String = required, NAME;
        /// How many requests one replica executes at the same time. Needed unless each model says
        /// its own. A server that takes more requests than it works on has as many slots as it
        /// works on.
        slots: u32 = ["that of the models"], 1..=100_000;
        /// The models that the fleet serves side by side, told apart by the request's path. Bodies
        /// are never parsed. Empty: everything is one kind of request.
        models: Vec<Model> = "[]", Items { count: 0..=1_000, each: () };
        /// How small and how large the fleet may be.
        replicas: Bounds = required;
        /// Where the load is measured.
        source: Source = required;
        /// Where requests are sent: to the replicas that the target starts, or to fixed addresses.
        endpoints: Or<OfTarget, EndpointsKeys> = "target";
        /// What changes the number of replicas: `process` starts them on this machine; `advise`
        /// decides and tells, and changes nothing.
        target: Or<Advise, TargetKeys> = "advise";
        /// How the number of replicas is decided.
        scaling: Scaling = "{}";
        /// The gate that refuses new sessions while the fleet is overloaded.
        admission: Or<Off, Admission> = "{}";
        /// The queue that holds requests until a slot is free.
        queue: Queue = "{}";
    }
    later gate
}

section! {
    /// One model of a fleet.
    Model {
        /// Its name.
        name: String = required, NAME;
        /// How the paths of its requests begin, in whole segments; the longest that fits wins. A
        /// request that fits none belongs to the first model.
        path: String = "/", URL_PATH;
        /// How many requests for this model one replica executes at the same time.
        slots: u32 = ["that of the fleet"], 1..=100_000;
    }
}

section! {
    /// The bounds of a fleet's size.
    Bounds {
        /// The fewest replicas. With 0 an idle fleet is stopped altogether, and the first request
        /// waits for a start.
        min: u32 = "1", 0..=100_000;
        /// The most replicas.
        max: u32 = required, 1..=100_000;
    }
}

section! {
    /// Where the load is measured. With `gateway` and `inflight` it is the sum of both: what passes
    /// here and what passes there, to the same replicas.
    Source {
        /// Our own gateway: requests pass through it, so it knows exactly what is in flight.
        gateway: Gateway = unset;
        /// Other instances of inflight whose gateways send requests to the same replicas: their
        /// exact counters are summed.
        inflight: Peers = unset;
    }
    later envoy prometheus
}

section! {
    /// Other instances of inflight, read at their admin address. An instance counts once, by however
    /// many addresses it is read, and this one counts once if it is listed itself: every instance
    /// may have the same list. One that does not answer keeps its last values for 30 s; then, unless
    /// its name lost that address, the sum is partial, which may grow the fleet and never shrinks it.
    Peers {
        /// Their admin addresses.
        peers: Vec<String> = "[]", Items { count: 0..=100, each: AUTHORITY };
        /// A DNS name with a port. Each address of it is a peer; it is resolved again every 5 s.
        dns: String = unset, AUTHORITY;
        /// The fleet's name there.
        fleet: String = ["the name of this fleet"], NAME;
        /// How often each is asked.
        every: Duration = "1s", Duration::from_millis(100)..=Duration::from_secs(5);
        /// How long an answer may take, connecting included.
        timeout: Duration = "2s", Duration::from_millis(10)..=Duration::from_secs(10);
    }
}

section! {
    /// A gateway that clients talk to instead of the fleet.
    Gateway {
        /// Where to listen. HTTP/1.1 and HTTP/2 (also without TLS) are told apart by themselves.
        listen: SocketAddr = required, Ports::Listen;
        /// How to talk to replicas. `auto` uses HTTP/2 for gRPC and for clients that use it, else
        /// HTTP/1.1.
        upstream: OneOf<Protocol> = "auto";
        /// How long to wait for what.
        timeouts: Timeouts = "{}";
        /// How much to take from clients.
        limits: Limits = "{}";
        /// Paths of health checks and the like, each the whole path: passed on, but neither
        /// counted nor a reason to start a replica.
        ignore_paths: Vec<String> = "[]", Items { count: 0..=100, each: URL_PATH };
        /// Whether a replica stops working on a request whose client left. `false` keeps the slot
        /// taken until the replica has answered or closed the connection, so that it never works
        /// on more than its slots.
        cancellable: bool = "true";
    }
}

/// What replicas are talked to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Protocol {
    Auto,
    Http1,
    Http2,
}

impl Choice for Protocol {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("http1", Self::Http1),
        ("http2", Self::Http2),
    ];
}

section! {
    /// The gateway's time limits.
    Timeouts {
        /// From a connection's opening, or a request's first byte, to the end of its headers.
        head: Duration = "10s", MS..=HOUR;
        /// For a connection to a replica to open.
        connect: Duration = "2s", MS..=HOUR;
        /// From a request's last byte sent to the answer's first.
        first_byte: Duration = "10m", MS..=DAY;
        /// For a connection on which nothing moves.
        idle: Duration = "5m", SECOND..=DAY;
        /// For requests that run when their replica, or inflight itself, is to stop.
        drain: Duration = "60s", Duration::ZERO..=DAY;
    }
}

section! {
    /// The gateway's limits on clients.
    Limits {
        /// The bytes of a request's head, its line and all headers.
        head: Bytes = "64KB", 16_000..=16_000_000;
        /// The number of a request's headers.
        headers: u32 = "100", 10..=10_000;
        /// The number of connections open at the same time.
        connections: u32 = "20000", 1..=1_000_000;
    }
}

section! {
    /// Replicas at fixed addresses, which somebody else starts and stops.
    EndpointsKeys {
        /// Their addresses.
        r#static: Vec<SocketAddr> = required, Items { count: 1..=10_000, each: Ports::Connect };
    }
    later dns
}

section! {
    /// What changes the number of replicas.
    TargetKeys {
        /// Each replica is a process on this machine.
        process: Process = required;
    }
    later keda kubernetes
}

section! {
    /// How a replica is started and stopped. In `command` and in the values of `env`, `{port}`
    /// stands for the replica's port and `{replica}` for its number, the lowest that is free from
    /// 0. The process also finds them in its environment, as `PORT` and `INFLIGHT_REPLICA`.
    Process {
        /// The program and its arguments. No shell is involved.
        command: Vec<String> = required, Items { count: 1..=1_000, each: ARGUMENT };
        /// Environment variables, added to our own.
        env: BTreeMap<String, String> = "{}";
        /// How to tell that a replica is ready.
        ready: Ready = "{}";
        /// From the polite request to stop (SIGTERM) to the end by force (SIGKILL).
        stop_grace: Duration = "30s", Duration::ZERO..=HOUR;
    }
    later on_exit orphan_grace
}

section! {
    /// How to tell that a replica is ready. At most one of `path`, `grpc` and `tcp`; without one,
    /// `tcp`. A server that opens its port before it can work needs `path` or `grpc`.
    Ready {
        /// An HTTP path that answers 200 to 299 when the replica is ready.
        path: String = unset, URL_PATH;
        /// The service to ask for by the gRPC health protocol.
        grpc: String = unset, SERVICE;
        /// The replica is ready when its port takes connections.
        tcp: bool = unset;
        /// How often to ask.
        every: Duration = "20ms", MS..=HOUR;
        /// How long a replica may take from its start to ready; then it is stopped and started
        /// again, each time after a longer pause.
        timeout: Duration = "10m", SECOND..=DAY;
    }
}
