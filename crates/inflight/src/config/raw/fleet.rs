//! The keys of one fleet: what it is, where its requests come in, where they go.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use inflight_core::Bytes;

use super::gate::GateKeys;
use super::measured::{Envoy, Prometheus, Vllm};
use super::scaling::{Admission, Queue, Scaling};
use super::{
    Absent, DAY, HOUR, Items, KeyDoc, Keys, Located, MS, Node, Ports, Problems, SECOND, SectionDoc,
    Setting, absent, doc_text, document, key_name, mapping_of, range, section,
};
use crate::config::setting::{
    ARGUMENT, AUTHORITY, Advise, Choice, HEADER, HOST_PORT, JSON_FILE, NAME, Network, Nothing,
    OfTarget, Off, OneOf, Or, PAGE, PORT_NAME, SERVICE, URL_PATH,
};

section! {
    /// One fleet: all copies of a server that serve one thing.
    Fleet {
        /// Its name: in the API, in metric labels and in logs. Two fleets never share one.
        name: String = required, NAME;
        /// How many requests one replica executes at the same time. Needed unless each model says
        /// its own, or nothing needs them: policies `occupancy` and `metric` without a `gateway`. A
        /// server that takes more requests than it works on has as many slots as it works on.
        slots: u32 = ["that of the models, or 1 where nothing needs them"], 1..=100_000;
        /// The models that the fleet serves side by side, told apart by the request's path and
        /// headers. Bodies are never parsed. Empty: everything is one kind of request.
        models: Vec<Model> = "[]", Items { count: 0..=1_000, each: () };
        /// How small and how large the fleet may be.
        replicas: Bounds = required;
        /// Where the load is measured.
        source: Source = required;
        /// Where requests are sent: to the replicas that the target starts, to fixed addresses, or
        /// to the addresses of a name.
        endpoints: Or<OfTarget, EndpointsKeys> = "target";
        /// How it is found out that a replica does not answer any more. It then gets no further
        /// request until it answers again. `off`: a replica that was ready once stays so.
        health: Or<Off, Health> = "{}";
        /// What changes the number of replicas: `process` starts them on this machine; `keda` answers
        /// KEDA, whose autoscaler changes them; `advise` decides and tells, and changes nothing.
        target: Or<Advise, TargetKeys> = "advise";
        /// How the number of replicas is decided.
        scaling: Scaling = "{}";
        /// The gate that refuses new sessions while the fleet is overloaded.
        admission: Or<Off, Admission> = "{}";
        /// The queue that holds requests until a slot is free.
        queue: Queue = "{}";
        /// The gate before a fleet whose requests pass a proxy, which asks here.
        gate: GateKeys = unset;
    }
}

section! {
    /// One model of a fleet. A request belongs to the model whose `path` and `header` both fit. If
    /// several do, the longest path wins, then the most headers, then the first in the file. A
    /// request that fits none belongs to the first model; a model with neither key takes what no
    /// other does.
    Model {
        /// Its name, in metric labels and the API.
        name: String = required, NAME;
        /// How the paths of its requests begin, in whole segments.
        path: String = "/", URL_PATH;
        /// Headers that its requests carry, each with the value, which is compared as a whole. gRPC
        /// metadata are headers.
        header: BTreeMap<String, String> = "{}";
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
    /// here and what passes there, to the same replicas. The others are for a fleet whose requests
    /// do not pass inflight.
    Source {
        /// Our own gateway: requests pass through it, so it knows exactly what is in flight.
        gateway: Gateway = unset;
        /// Other instances of inflight whose gateways send requests to the same replicas: their
        /// exact counters are summed.
        inflight: Peers = unset;
        /// Envoy in front of the fleet, and the servers behind it. Not with `gateway` or
        /// `inflight`.
        envoy: Envoy = unset;
        /// vLLM servers, asked themselves. Not with any other.
        vllm: Vllm = unset;
        /// A Prometheus that knows the fleet. Not with any other.
        prometheus: Prometheus = unset;
    }
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
        /// A header that says how long its client waits for the answer: a whole number of
        /// milliseconds, or one with the unit `ms`, `s`, `m` or `h`. A request that waits longer
        /// than that is refused, as one with `grpc-timeout` is; what is malformed is not judged.
        deadline_header: Or<Nothing, String> = "none", HEADER;
        /// The proxies in front of us, whose `x-forwarded-*` and `forwarded` headers are believed
        /// and added to. What others say there is replaced by what we know.
        trusted_proxies: Vec<Network> = "[]", Items { count: 0..=100, each: () };
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
    /// Replicas which somebody else starts and stops. Either `static` or `dns`.
    EndpointsKeys {
        /// Their addresses. For names there is `dns`.
        r#static: Vec<SocketAddr> = unset, Items { count: 1..=10_000, each: Ports::Connect };
        /// A name and a port. Each address that the name has is one replica, up to 10000. The name
        /// is resolved again and again by the system's resolver (hosts file included). An address
        /// that is gone drains: it gets no further request and finishes those it has. While the
        /// name is not resolved, or has no address, the last known ones stay.
        dns: String = unset, HOST_PORT;
        /// With `dns`: how long after an answer to resolve again. The system's resolver does not
        /// tell how long an answer holds; 5 s is the time that Kubernetes' DNS gives its own.
        every: Duration = ["5s"], SECOND..=HOUR;
        /// With `dns`: which addresses count. A server that has one of each kind would be taken for
        /// two replicas, with twice its slots: choose one.
        family: OneOf<IpFamily> = ["`any`"];
    }
}

/// Which addresses of a name count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum IpFamily {
    Any,
    Ipv4,
    Ipv6,
}

impl Choice for IpFamily {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("any", Self::Any),
        ("ipv4", Self::Ipv4),
        ("ipv6", Self::Ipv6),
    ];
}

section! {
    /// How it is found out that a replica does not answer. Besides the checks, a replica at which
    /// three requests in a row fail (no connection, or it breaks off before it answers) gets no
    /// further request at once, unless it is the last one that is healthy, which is checked at once
    /// instead. A replica that was taken out is asked again after 1 s, doubled each time up to 60 s
    /// while it does not stay healthy for 60 s. When no replica is healthy requests wait in the
    /// queue, as they do for a start; there is no share below which unhealthy ones get requests.
    ///
    /// At most one of `path`, `grpc` and `tcp`; without one, replicas of a `process` target are
    /// asked as in its `ready`, and others by `tcp`.
    Health {
        /// An HTTP path that answers 200 to 299.
        path: String = unset, URL_PATH;
        /// The service to ask for by the gRPC health protocol.
        grpc: String = unset, SERVICE;
        /// The port takes connections. A server that hangs often still does.
        tcp: bool = unset;
        /// How long after an answer to ask again.
        every: Duration = "5s", MS..=HOUR;
        /// How long an answer may take. Long enough for a server that is busy, not for one that
        /// hangs.
        timeout: Duration = "2s", MS..=HOUR;
        /// How many checks in a row must fail. With the defaults a replica that hangs gets no
        /// further request after 16 to 21 s.
        unhealthy_after: u32 = "3", 1..=100;
        /// How many checks in a row must pass until an unhealthy replica gets requests again. The
        /// first check of a new one is enough.
        healthy_after: u32 = "2", 1..=100;
        /// With target `process`: how long a replica may be unhealthy before it is drained, stopped
        /// and started again, and counted as crashed. At most one in each such span, so that what
        /// fails everywhere at once does not stop everything. `off`: never.
        restart_after: Or<Off, Duration> = "60s", SECOND..=DAY;
    }
}

section! {
    /// What changes the number of replicas. One of these.
    TargetKeys {
        /// Each replica is a process on this machine.
        process: Process = unset;
        /// KEDA asks us, as its external scaler, and its autoscaler changes the fleet.
        keda: Keda = unset;
    }
    later kubernetes
}

section! {
    /// The external scaler that KEDA asks over gRPC.
    Keda {
        /// Where to listen. Fleets with the same address share it; a trigger's metadata `fleet`
        /// says which is meant.
        listen: SocketAddr = required, Ports::Listen;
    }
}

section! {
    /// How a replica is started and stopped. In `command` and in the values of `env`, `{port}`
    /// stands for the replica's port, `{port.NAME}` for one of its further ports and `{replica}` for
    /// its number, the lowest that is free from 0. The process also finds the first and the last in
    /// its environment, as `PORT` and `INFLIGHT_REPLICA`.
    Process {
        /// The program and its arguments. No shell is involved.
        command: Vec<String> = required, Items { count: 1..=1_000, each: ARGUMENT };
        /// Environment variables, added to our own.
        env: BTreeMap<String, String> = "{}";
        /// Names of further ports that each replica gets, for metrics and the like: a free one each.
        ports: Vec<String> = "[]", Items { count: 0..=16, each: PORT_NAME };
        /// How to tell that a replica is ready.
        ready: Ready = "{}";
        /// Without a `gateway`, whose `timeouts.drain` it is else: how long a replica that is to stop
        /// may keep its requests.
        drain_timeout: Duration = ["60s"], Duration::ZERO..=DAY;
        /// From the polite request to stop (SIGTERM) to the end by force (SIGKILL).
        stop_grace: Duration = "30s", Duration::ZERO..=HOUR;
        /// What becomes of replicas when inflight ends: `stop` stops them; `keep` leaves them
        /// running for the next inflight, which adopts them. `keep` needs `state.dir`.
        on_exit: OneOf<OnExit> = "stop";
        /// With `on_exit: keep`, how long replicas wait for the next inflight before they are
        /// stopped; also after ours was killed.
        orphan_grace: Duration = "10m", SECOND..=DAY;
        /// Files that tell other systems which replicas there are.
        publish: Publish = unset;
    }
}

section! {
    /// Files that tell other systems which replicas there are, each replaced as a whole by a rename.
    Publish {
        /// For an Envoy on this machine, in place of a `gateway`.
        envoy: PublishEnvoy = unset;
        /// For a Prometheus.
        prometheus: PublishPrometheus = unset;
    }
}

section! {
    /// The endpoints of a cluster of Envoy, as its EDS reads them from a file (`path_config_source`).
    /// A replica that is to stop is first marked as draining, then waited for until no Envoy has a
    /// request at it, then left out, and only then stopped.
    PublishEnvoy {
        /// The file. It is there before anything else happens: Envoy does not start without it.
        file: String = required, JSON_FILE;
        /// The cluster's name in Envoy.
        cluster: String = ["that of `source.envoy`"], ARGUMENT;
        /// The admin interfaces of all Envoys that read the file, each `http://HOST:PORT`.
        admin: Vec<String> = ["those of `source.envoy`"], Items { count: 1..=100, each: PAGE };
    }
}

section! {
    /// Scrape targets, as `file_sd_configs` read them: every replica that is ready or drains, with the
    /// labels `fleet` and `replica`.
    PublishPrometheus {
        /// The file.
        file: String = required, JSON_FILE;
        /// Which of its `ports` is scraped.
        port: String = ["the replica's own"], PORT_NAME;
    }
}

/// What becomes of replicas when we end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum OnExit {
    Stop,
    Keep,
}

impl Choice for OnExit {
    const WORDS: &'static [(&'static str, Self)] = &[("stop", Self::Stop), ("keep", Self::Keep)];
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
