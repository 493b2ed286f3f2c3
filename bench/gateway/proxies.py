"""How each proxy and backend of the comparison is configured and started. Ports are fixed, on the
loopback only; everything is one thread, without access logs, with keep-alive on both sides."""

import glob
import os
import pathlib
import resource
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
INFLIGHT = pathlib.Path(os.environ.get("INFLIGHT", TARGET / "inflight"))
BARE = pathlib.Path(os.environ.get("BARE_PROXY", TARGET / "examples" / "bare_proxy"))
# Other builds of ours to compare with: NAME=BINARY, separated by commas.
OTHERS = dict(pair.split("=") for pair in os.environ.get("INFLIGHT_OTHERS", "").split(",") if pair)

FAST, SLOW, FAST_H2 = 24000, 24001, 24002
BODY = '{"id":"x","out":[1,2,3,4,5,6,7,8,9,10],"pad":"' + "a" * 53 + '"}'


def nginx(folder, name, http):
    path = folder / f"{name}.conf"
    temp = "".join(f" {kind}_temp_path {folder}/{name}-t;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path.write_text(
        f"worker_processes 1; error_log {folder}/{name}.err; pid {folder}/{name}.pid; daemon off; master_process off;\n"
        "worker_rlimit_nofile 30000; events { worker_connections 25000; }\n"
        f"http {{ access_log off; keepalive_requests 100000000; keepalive_timeout 3600s;{temp}\n{http} }}\n")
    return ["nginx", "-c", str(path), "-p", str(folder)]


def backends(folder):
    """The three backends: 100 bytes at once over HTTP/1.1, the same over HTTP/2, and after 5 ms."""
    answer = f"location / {{ default_type application/json; return 200 '{BODY}'; }}"
    fast = nginx(folder, "backend", f"""
 server {{ listen 127.0.0.1:{FAST} backlog=4096; {answer} }}
 server {{ listen 127.0.0.1:{FAST_H2} http2 backlog=4096; http2_max_concurrent_streams 4096; {answer} }}""")
    slow = [str(INFLIGHT), "__serve", "--port", str(SLOW), "--work", "5ms", "--slots", "1000"]
    return [fast, slow]


def bare(folder, port, backend, is_http2):
    return [str(BARE), f"127.0.0.1:{port}", f"127.0.0.1:{backend}", "http2" if is_http2 else "http1"]


def inflight(binary, folder, port, backend, is_http2):
    path = folder / f"inflight-{port}.yaml"
    path.write_text(f"""version: 1
admin: {{ listen: "127.0.0.1:{port + 500}" }}
fleets:
  - name: bench
    slots: 256
    replicas: {{ min: 1, max: 4 }}
    source: {{ gateway: {{ listen: "127.0.0.1:{port}" }} }}
    endpoints: {{ static: ["127.0.0.1:{backend}"] }}
    target: advise
""")
    return [str(binary), "run", "-c", str(path)]


def nginx_proxy(folder, port, backend, is_http2):
    upstream = f"upstream b {{ server 127.0.0.1:{backend}; keepalive 512; keepalive_requests 100000000; keepalive_timeout 3600s; }}"
    if is_http2:
        server = (f"server {{ listen 127.0.0.1:{port} http2 backlog=4096; http2_max_concurrent_streams 1000; "
                  "location / { grpc_pass grpc://b; } }")
    else:
        server = (f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://b; "
                  'proxy_http_version 1.1; proxy_set_header Connection ""; } }')
    return nginx(folder, f"nginx-{port}", f" {upstream}\n {server}")


def haproxy(folder, port, backend, is_http2):
    path, proto = folder / f"haproxy-{port}.cfg", " proto h2" if is_http2 else ""
    # It does not start without two files for each connection that it may have.
    connections = min(12_000, (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 100) // 2)
    path.write_text(f"""global
  nbthread 1
  maxconn {connections}
defaults
  mode http
  timeout connect 1s
  timeout client 300s
  timeout server 300s
  http-reuse always
frontend f
  bind 127.0.0.1:{port}{proto}
  default_backend b
backend b
  server s 127.0.0.1:{backend}{proto}
""")
    return ["haproxy", "-f", str(path), "-db"]


def envoy_binary():
    """The binary itself: the pip package's command is a Python wrapper around it."""
    named = os.environ.get("ENVOY") or shutil.which("envoy")
    if named:
        inside = glob.glob(f"{pathlib.Path(named).resolve().parent.parent}/lib/python3*/site-packages/envoy/_bin/envoy")
        return inside[0] if inside else named
    return None


def envoy(folder, port, backend, is_http2):
    types = "type.googleapis.com/envoy.extensions"
    http2 = (f'typed_extension_protocol_options: {{envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {{"@type": '
             f"{types}.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {{http2_protocol_options: {{}}}}}}}}") if is_http2 else ""
    path = folder / f"envoy-{port}.yaml"
    path.write_text(f"""static_resources:
  listeners:
  - name: l
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {types}.filters.network.http_connection_manager.v3.HttpConnectionManager
          codec_type: AUTO
          stat_prefix: i
          route_config: {{virtual_hosts: [{{name: all, domains: ["*"], routes: [{{match: {{prefix: "/"}}, route: {{cluster: b, timeout: 60s}}}}]}}]}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": {types}.filters.http.router.v3.Router}}
  clusters:
  - name: b
    type: STATIC
    connect_timeout: 1s
    lb_policy: LEAST_REQUEST
    {http2}
    circuit_breakers: {{thresholds: [{{max_connections: 8192, max_requests: 8192, max_pending_requests: 8192}}]}}
    load_assignment: {{cluster_name: b, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {backend}}}}}}}}}]}}]}}
""")
    return [envoy_binary(), "-c", str(path), "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]


def installed():
    """The proxies that are on this machine, by name, the yardstick first."""
    found = {"bare hyper": bare, "inflight": lambda *a: inflight(INFLIGHT, *a)}
    for name, binary in OTHERS.items():
        found[name] = lambda *a, binary=binary: inflight(binary, *a)
    if shutil.which("nginx"):
        found["nginx"] = nginx_proxy
    if shutil.which("haproxy"):
        found["HAProxy"] = haproxy
    if envoy_binary():
        found["Envoy"] = envoy
    return found


def start(command, cpu, folder, name):
    with open(folder / f"{name}.log", "w") as log:
        return subprocess.Popen(["taskset", "-c", str(cpu), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                start_new_session=True)
