"""Starts real Envoys, Tritons and a Prometheus on free ports of the loopback, drives them with gRPC clients
that know what they have open, and ends everything it started, by its process group.

install.sh says where the components are; run the scripts with FOLDER/venv/bin/python."""

import json
import os
import pathlib
import re
import signal
import string
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "seen"))

from harness import BINARY, ROOT, free_port  # noqa: E402

REAL = pathlib.Path(os.environ.get(
    "INFLIGHT_REAL", pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "real"))
CLUSTER = "triton_grpc_service"


def get(url, seconds=3):
    """The text of an answer with 200; None where there is none."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return answer.read().decode()
    except OSError:
        return None


def fill(template, **values):
    return string.Template((HERE / template).read_text()).substitute(values)


class Component:
    """A process of its own group with a scratch folder; `ready` is asked until it holds."""

    def __init__(self, name):
        self.name = name
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.process = None

    def start(self):
        if not (REAL / "bin").is_dir():
            sys.exit(f"the real components are not in {REAL}: run {HERE / 'install.sh'}, or set INFLIGHT_REAL")
        self.log = open(self.path / "log", "a")
        self.process = subprocess.Popen([str(word) for word in self.command()], stdout=self.log, stderr=self.log,
                                        stdin=subprocess.DEVNULL, start_new_session=True)
        end = time.time() + 60
        while not self.ready():
            if self.process.poll() is not None or time.time() > end:
                self.stop()
                sys.exit(f"{self.name} is not ready:\n{(self.path / 'log').read_text()[-3000:]}")
            time.sleep(0.1)

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def kill(self):
        """As a machine that is gone: no word of farewell."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        if self.process:
            try:
                self.signal(signal.SIGKILL)   # and whatever is left of its group
            except ProcessLookupError:
                pass
            self.process.wait()
            self.log.close()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()


class Triton(Component):
    """One replica: each model serves `slots` requests at a time, each for `models[name]` milliseconds."""

    def __init__(self, models=None, slots=1):
        super().__init__("triton")
        self.grpc, self.http, self.metrics = free_port(), free_port(), free_port()
        for name, service_ms in (models or {"fast": 30}).items():
            version = self.path / "models" / name / "1"
            version.mkdir(parents=True)
            (version / "model.py").write_text((HERE / "model.py").read_text())
            (version.parent / "config.pbtxt").write_text(f"""backend: "python"
max_batch_size: 0
input [{{ name: "X" data_type: TYPE_FP32 dims: [1] }}]
output [{{ name: "Y" data_type: TYPE_FP32 dims: [1] }}]
instance_group [{{ count: {slots} kind: KIND_CPU }}]
parameters {{ key: "service_ms" value: {{ string_value: "{service_ms}" }} }}
""")

    def command(self):
        return [REAL / "bin" / "tritonserver", f"--model-repository={self.path / 'models'}",
                "--http-address=127.0.0.1", f"--http-port={self.http}",
                "--grpc-address=127.0.0.1", f"--grpc-port={self.grpc}",
                "--metrics-address=127.0.0.1", f"--metrics-port={self.metrics}", "--metrics-interval-ms=1000",
                f"--backend-config=python,shm-region-prefix-name={self._shared_memory()}"]

    def ready(self):
        return get(f"http://127.0.0.1:{self.http}/v2/health/ready") is not None

    def stop(self):
        super().stop()
        # A server that was killed leaves the memory it shared with its models.
        for left in pathlib.Path("/dev/shm").glob(f"{self._shared_memory()}*"):
            left.unlink(missing_ok=True)

    def _shared_memory(self):
        return f"inflight_real_{os.getpid()}_{self.grpc}_"


class Envoy(Component):
    def __init__(self, tritons, cluster=CLUSTER):
        super().__init__("envoy")
        self.listen, self.admin = free_port(), free_port()
        endpoints = "\n".join(
            f"        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {triton.grpc}}}}}}}"
            for triton in tritons)
        (self.path / "envoy.yaml").write_text(
            fill("envoy.yaml", admin=self.admin, listen=self.listen, cluster=cluster, endpoints=endpoints))

    def command(self):
        return [REAL / "bin" / "envoy", "-c", self.path / "envoy.yaml", "--concurrency", "1",
                "--disable-hot-restart", "--log-level", "warning"]

    def ready(self):
        return get(f"http://127.0.0.1:{self.admin}/ready") is not None


class Printed(Component):
    """The Envoy that `inflight render envoy` prints for a fleet, with nothing changed in it."""

    workers = 1

    def __init__(self, fleet, listen, admin, cluster, *flags):
        super().__init__("envoy")
        self.listen, self.admin, self.cluster, self.fleet = listen, admin, cluster, fleet
        (self.path / "envoy.yaml").write_text(ask_about(
            fleet, "render", "envoy", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}", *flags).stdout)

    def command(self):
        return [REAL / "bin" / "envoy", "-c", self.path / "envoy.yaml", "--concurrency", str(self.workers),
                "--disable-hot-restart", "--log-level", "warning"]

    def ready(self):
        return get(f"http://127.0.0.1:{self.admin}/ready") is not None

    def stat(self, name):
        page = get(f"http://127.0.0.1:{self.admin}/stats?filter=^{re.escape(name)}$") or ""
        found = re.search(r": (\d+)", page)
        return int(found.group(1)) if found else 0

    def warnings(self):
        """What `inflight check --envoy` says of what runs."""
        dump = self.path / "dump.json"
        dump.write_text(get(f"http://127.0.0.1:{self.admin}/config_dump"))
        checked = ask_about(self.fleet, "check", "--envoy", dump).stdout.splitlines()
        return [line for line in checked if " envoy " in line and "nothing to warn of" not in line]

    @property
    def healthy(self):
        return self.stat(f"cluster.{self.cluster}.membership_healthy")

    @property
    def sent(self):
        return self.stat(f"cluster.{self.cluster}.upstream_rq_total")


class Prometheus(Component):
    """Scrapes what it is given once a second; or serves the blocks that are in `data`."""

    def __init__(self, envoys=(), tritons=()):
        super().__init__("prometheus")
        self.port = free_port()
        (self.path / "prometheus.yaml").write_text(
            fill("prometheus.yaml",
                 envoys=", ".join(f'"127.0.0.1:{envoy.admin}"' for envoy in envoys),
                 tritons=", ".join(f'"127.0.0.1:{triton.metrics}"' for triton in tritons)))

    def command(self):
        return [REAL / "bin" / "prometheus", f"--config.file={self.path / 'prometheus.yaml'}",
                f"--storage.tsdb.path={self.path / 'data'}", "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]

    def ready(self):
        return get(f"http://127.0.0.1:{self.port}/-/ready") is not None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def query(self, text, at=None):
        """The one value of a query; None where its answer is empty. More than one element is an error."""
        words = {"query": text, **({} if at is None else {"time": repr(at)})}
        body = urllib.parse.urlencode(words).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", data=body, timeout=10) as answer:
            data = json.loads(answer.read())["data"]
        if data["resultType"] == "scalar":
            return float(data["result"][1])
        if len(data["result"]) > 1:
            raise ValueError(f"{len(data['result'])} elements from {text}")
        return float(data["result"][0]["value"][1]) if data["result"] else None


def fleet(name, envoys, tritons, window=60, estimator="gauges", down_window="auto"):
    """A fleet that Envoys and Tritons measure, as YAML; nothing is changed by what is decided."""
    admin = ", ".join(f'"http://127.0.0.1:{envoy.admin}"' for envoy in envoys)
    metrics = ", ".join(f'"http://127.0.0.1:{triton.metrics}/metrics"' for triton in tritons)
    return f"""
  - name: {name}
    replicas: {{ min: 1, max: 20 }}
    source:
      envoy:
        admin: [{admin}]
        cluster: {CLUSTER}
        estimator: {estimator}
        backend: {{ triton: {{ metrics: [{metrics}] }} }}
    scaling: {{ policy: occupancy, threshold: 2, window: {window}s, down_window: {down_window} }}
"""


def term_queries(fleet, window):
    """The terms of the rule for a fleet, as the product records them: unknown while a proxy is not scraped."""
    rules = ask_about(fleet, "render", "prometheus", "--rules").stdout
    terms = {}
    for rule in rules.split("- record: inflight:")[1:]:
        name, text = rule.split("\n", 1)
        block = text.split("expr: ", 1)[1].split("\n      -", 1)[0].split("\n  -", 1)[0]
        terms[name] = json.loads(block.splitlines()[0]) if block.startswith('"') else block.split("\n", 1)[1]
    asked = {name: " ".join(terms[name].split()) for name in ("in_flight", "executing", "replicas")}
    # Recorded as they are now; over the window, as what is executed, it must be said.
    asked["replicas"] = f'max(avg_over_time(envoy_cluster_membership_healthy{{envoy_cluster_name="{CLUSTER}"}}[{window}s]))'
    return asked


def rendered(fleet):
    """The queries that the product prints for a fleet: of the scaler and of the gate."""
    return {form: ask_about(fleet, "render", "promql", "--only", who).stdout
            for form, who in (("R_needed", "scaler"), ("ratio", "gate"))}


def ask_about(fleets, *command):
    """Runs a command of the product on a configuration with these fleets."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(f"version: 1\nadmin: {{ listen: \"127.0.0.1:0\" }}\nfleets:{fleets}")
        file.flush()
        done = subprocess.run([BINARY, *command, "-c", file.name], capture_output=True, text=True, timeout=60)
    if done.returncode == 2:
        sys.exit(f"inflight {' '.join(command)}: {done.stderr}")
    return done


def infer_request(model, number=1.0):
    """An `inference.ModelInferRequest` with one number, as it goes over the wire."""
    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content
    tensor = field(1, b"X") + field(2, b"FP32") + field(3, b"\x01")
    return field(1, model.encode()) + field(5, tensor) + field(7, struct.pack("<f", number))


class Clients:
    """Closed-loop gRPC clients, each with its own connection, which come again at once. They know exactly how
    many requests they have open: `since(mark)` is the mean, weighted by time."""

    def __init__(self, port, count, model="fast"):
        self.answered = self.failed = 0
        self.last_failure = None
        self._open, self._integral, self._changed = 0, 0.0, time.perf_counter()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(port, infer_request(model)), daemon=True)
                         for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, port, request):
        import grpc
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500),
                   ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            while not self._stop.is_set():
                self._count(1)
                call = infer.future(request)
                while not call.done() and not self._stop.is_set():
                    try:
                        call.result(timeout=1)
                    except (grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError):
                        pass
                failure = call.exception() if call.done() else call.cancel()
                self._count(-1)
                if not call.done() or self._stop.is_set():
                    continue
                with self._lock:
                    self.failed += failure is not None
                    self.answered += failure is None
                    self.last_failure = failure or self.last_failure
                if failure is not None:
                    self._stop.wait(0.05)

    def _count(self, by):
        with self._lock:
            self._advance()
            self._open += by

    def _advance(self):
        now = time.perf_counter()
        self._integral += self._open * (now - self._changed)
        self._changed = now

    def mark(self):
        with self._lock:
            self._advance()
            return self._changed, self._integral

    def since(self, mark):
        now, integral = self.mark()
        return (integral - mark[1]) / (now - mark[0])

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
