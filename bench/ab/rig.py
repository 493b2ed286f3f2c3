"""The components of one run: a Prometheus and an Envoy that learn from files which Tritons there are, the fleet, and
what sizes it."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "real"))

import hpa  # noqa: E402
import real  # noqa: E402
from harness import Product  # noqa: E402

# All intervals are a quarter of what they are elsewhere, so that half an hour passes in eight minutes.
SCALE = 0.25
START_DELAY = 60 * SCALE
# Of which a Triton takes so much by itself.
TRITON_START = 2
OLD_QUERY = ("sum(rate(nv_inference_queue_duration_us[7s500ms])) / "
             "(sum(rate(nv_inference_exec_count[7s500ms])) * 1000 + 0.001)")
OLD_TARGET, RATIO_TARGET = 100, 2
WINDOW = 60 * SCALE


class Envoy(real.Component):
    """Reads its endpoints from a file."""

    def __init__(self, endpoints):
        super().__init__("envoy")
        self.listen, self.admin = real.free_port(), real.free_port()
        (self.path / "envoy.yaml").write_text(real.fill(
            HERE / "envoy.yaml", admin=self.admin, listen=self.listen, cluster=real.CLUSTER, endpoints=endpoints))

    command, ready = real.Envoy.command, real.Envoy.ready

    def in_flight(self):
        page = real.get(f"http://127.0.0.1:{self.admin}/stats?filter=^cluster.{real.CLUSTER}.upstream_rq_"
                        "(pending_)?active$")
        return None if page is None else sum(int(line.split(": ")[1]) for line in page.splitlines())


class Prometheus(real.Prometheus):
    """Reads its Tritons from a file."""

    def __init__(self, envoy, targets):
        real.Component.__init__(self, "prometheus")
        self.port = real.free_port()
        (self.path / "prometheus.yaml").write_text(real.fill(
            HERE / "prometheus.yaml", admin=envoy.admin, targets=targets, cluster=real.CLUSTER))

    def ask(self, query):
        """The value of a query; None where it has none, or Prometheus does not answer."""
        try:
            return self.query(query)
        except OSError:
            return None


def models(folder, name, slots):
    """A repository with one model."""
    version = folder / "models" / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text((HERE / "model.py").read_text())
    (version.parent / "config.pbtxt").write_text(f"""backend: "python"
max_batch_size: 0
input [{{ name: "X" data_type: TYPE_FP32 dims: [1] }}]
output [{{ name: "Y" data_type: TYPE_FP32 dims: [1] }}]
instance_group [{{ count: {slots} kind: KIND_CPU }}]
""")
    return folder / "models"


class Fleet:
    """Tritons that inflight starts and stops, and names to Envoy and Prometheus; sized by its own policy, or by hand
    through its API."""

    def __init__(self, folder, repository, least, most, seed, delay):
        self.shared_memory = f"inflight_ab_{os.getpid()}_"
        self.journal, self.endpoints, self.targets = (
            folder / name for name in ("starts", "endpoints.json", "targets.json"))
        self.journal.touch()
        self.endpoints.write_text(json.dumps({"resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": real.CLUSTER, "endpoints": [{"lb_endpoints": []}]}]}))
        self.targets.write_text("[]")
        self.least, self.most, self.product = least, most, None
        self.command = [
            sys.executable, HERE / "replica.py", self.journal, seed, max(0, delay - TRITON_START), "--",
            real.REAL / "bin" / "tritonserver", f"--model-repository={repository}",
            "--http-address=127.0.0.1", "--http-port={port.http}", "--grpc-address=127.0.0.1", "--grpc-port={port}",
            "--metrics-address=127.0.0.1", "--metrics-port={port.metrics}", "--metrics-interval-ms=1000",
            "--http-thread-count=2", "--exit-timeout-secs=5",
            f"--backend-config=python,shm-region-prefix-name={self.shared_memory}{{port}}_"]

    def start(self, envoy, policy):
        self.product = Product(f"""
  - name: triton
    slots: 1
    replicas: {{ min: {self.least}, max: {self.most} }}
    source:
      envoy:
        admin: ["http://127.0.0.1:{envoy.admin}"]
        cluster: {real.CLUSTER}
        every: 250ms
        backend: {{ triton: {{ port: metrics }} }}
    target:
      process:
        command: {json.dumps([str(word) for word in self.command])}
        ports: [http, metrics]
        ready: {{ grpc: "", every: 100ms }}
        drain_timeout: 60s
        publish:
          envoy: {{ file: {self.endpoints} }}
          prometheus: {{ file: {self.targets}, port: metrics }}
    scaling: {{ {policy} }}
""")

    def status(self):
        fleet = self.product.fleet("triton")
        return fleet and fleet["replicas"]

    def reasons(self):
        """Why inflight's own policy changed the size, as it said it, and when."""
        answer = self.product.get("/api/v1/fleets/triton/decisions?limit=200") or {"decisions": []}
        return [[one["at"], one["current"], one["desired"], one["reason"]] for one in reversed(answer["decisions"])
                if one["current"] != one["desired"]]

    def resize(self, size):
        body = json.dumps({"replicas": size, "for": "1h"}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.product.admin_port}/api/v1/fleets/triton/size", body,
            {"content-type": "application/json"}, method="PUT")
        urllib.request.urlopen(request, timeout=5).close()

    def paid(self):
        """How many replicas were started and are not gone, by the processes themselves."""
        pids = [line.split()[1] for line in self.journal.read_text().splitlines()]
        return sum(is_alive(pid) for pid in pids)

    def stop(self):
        if self.product:
            self.product.__exit__()
        # A server that was killed leaves the memory it shared with its models.
        for left in pathlib.Path("/dev/shm").glob(f"{self.shared_memory}*"):
            left.unlink(missing_ok=True)


def is_alive(pid):
    try:
        return (pathlib.Path("/proc") / pid / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def rendered():
    """The query that inflight prints for KEDA, of the ratio over the scaled window."""
    return real.ask_about(f"""
  - name: triton
    replicas: {{ min: 1, max: 10 }}
    source:
      envoy:
        admin: ["http://127.0.0.1:1"]
        cluster: {real.CLUSTER}
        backend: {{ triton: {{ metrics: ["http://127.0.0.1:1/metrics"] }} }}
    scaling: {{ policy: occupancy, threshold: {RATIO_TARGET}, window: {WINDOW:g}s }}
""", "render", "promql", "--only", "scaler").stdout


def autoscaler(arm, prometheus, ratio_query, least, most):
    """What KEDA and the HPA do in an arm; None where inflight's own policy sizes the fleet."""
    common = {"poll": 30 * SCALE, "sync": 15 * SCALE, "least": least, "most": most}
    if arm == "queue-latency":
        return hpa.Keda(lambda: prometheus.ask(OLD_QUERY), "Value", OLD_TARGET, null_is_zero=True,
                        behavior=hpa.ONE_BY_ONE.times(SCALE), **common)
    if arm == "queue-latency-hpa":
        return hpa.Keda(lambda: prometheus.ask(OLD_QUERY), "Value", OLD_TARGET, null_is_zero=True,
                        behavior=hpa.DEFAULT.times(SCALE), **common)
    if arm == "occupancy":
        return hpa.Keda(lambda: prometheus.ask(ratio_query), "AverageValue", RATIO_TARGET, null_is_zero=False,
                        behavior=hpa.DEFAULT.times(SCALE), **common)
    return None


class Clients:
    """jobs.py as a process, with what it printed at its end."""

    def __init__(self, plan):
        self.process = subprocess.Popen([sys.executable, HERE / "jobs.py"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.seen = None
        self.thread = threading.Thread(target=self._talk, args=(json.dumps(plan),), daemon=True)
        self.thread.start()

    def _talk(self, plan):
        printed, _ = self.process.communicate(plan)
        self.seen = json.loads(printed) if self.process.returncode == 0 else None

    def is_running(self):
        return self.thread.is_alive()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.thread.join()


def cpu_times():
    """(busy, all) of the machine, in ticks since it started."""
    times = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


def wait_until(holds, seconds, what):
    end = time.time() + seconds
    while not holds():
        if time.time() > end:
            sys.exit(f"not {what} within {seconds} s")
        time.sleep(0.1)
