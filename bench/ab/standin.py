"""A small replica manager that stands for target `process` with `publish`: starts Tritons, names them to Envoy and to
Prometheus in files written by rename, and drains what it takes away."""

import json
import os
import signal
import subprocess
import threading
import time

import real
from harness import Product
from rig import Fleet


class Replica:
    def __init__(self, ports, command, log):
        self.ports = ports
        self.grpc, self.http, self.metrics = ports
        self.state, self.began = "starting", time.time()
        self.process = subprocess.Popen(command(self), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                        start_new_session=True)


def write(path, content):
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content))
    os.replace(new, path)


class StandIn:
    def __init__(self, command, folder, endpoints, targets, envoy_admin, ports):
        self.command, self.endpoints, self.targets, self.admin = command, endpoints, targets, envoy_admin
        self.replicas, self.desired = [], 1
        self.ports = ports
        self.log = open(folder / "tritons.log", "a")
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def resize(self, size):
        self.desired = size

    def status(self):
        states = [one.state for one in list(self.replicas)]
        return {"desired": self.desired, **{state: states.count(state) for state in ("ready", "starting", "draining")}}

    def _run(self):
        while not self.stopping.wait(0.1):
            before = [(one, one.state) for one in self.replicas]
            self._step()
            if [(one, one.state) for one in self.replicas] != before:
                self._publish()

    def _step(self):
        for one in self.replicas:
            if one.process.poll() is not None and one.state != "gone":
                raise RuntimeError(f"replica {one.ports} ended")
            if one.state == "starting" and real.get(f"http://127.0.0.1:{one.http}/v2/health/ready", 1) is not None:
                one.state = "ready"
        kept = [one for one in self.replicas if one.state in ("starting", "ready")]
        for _ in range(self.desired - len(kept)):
            taken = [one.ports for one in self.replicas]
            free = next(ports for ports in self.ports if ports not in taken)
            self.replicas.append(Replica(free, self.command, self.log))
        active = self._active() if len(kept) > self.desired or any(one.state == "draining" for one in self.replicas) else {}
        order = sorted(kept, key=lambda one: (one.state == "ready", active.get(one.grpc, 0), -one.began))
        for one in order[:max(0, len(kept) - self.desired)]:
            one.state = "gone" if one.state == "starting" else "draining"
        for one in [one for one in self.replicas if one.state == "draining" and active.get(one.grpc, 1) == 0]:
            one.state = "gone"
        gone = [one for one in self.replicas if one.state == "gone"]
        if gone:
            self.replicas = [one for one in self.replicas if one.state != "gone"]
            self._publish()
            for one in gone:
                os.killpg(one.process.pid, signal.SIGTERM)
                self.ports = [ports for ports in self.ports if ports != one.ports] + [one.ports]
                threading.Thread(target=one.process.wait, daemon=True).start()

    def _active(self):
        page = json.loads(real.get(f"http://127.0.0.1:{self.admin}/clusters?format=json") or "{}")
        active = {}
        for cluster in page.get("cluster_statuses", []):
            for host in cluster.get("host_statuses", []):
                stats = {stat["name"]: int(stat.get("value", 0)) for stat in host["stats"]}
                active[host["address"]["socket_address"]["port_value"]] = stats.get("rq_active", 0)
        return active

    def _publish(self):
        def endpoint(one):
            address = {"socket_address": {"address": "127.0.0.1", "port_value": one.grpc}}
            return {"endpoint": {"address": address},
                    "health_status": "DRAINING" if one.state == "draining" else "HEALTHY"}
        routed = [one for one in self.replicas if one.state in ("ready", "draining")]
        write(self.endpoints, {"resources": [{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": real.CLUSTER, "endpoints": [{"lb_endpoints": [endpoint(one) for one in routed]}]}]})
        write(self.targets, [{"targets": [f"127.0.0.1:{one.metrics}" for one in routed]}])

    def stop(self):
        self.stopping.set()
        self.thread.join()
        for one in self.replicas:
            os.killpg(one.process.pid, signal.SIGTERM)
        end = time.time() + 8
        for one in self.replicas:
            try:
                one.process.wait(max(0.1, end - time.time()))
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(one.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            one.process.wait()
        self.log.close()


class StandInFleet(Fleet):
    """The same fleet by the stand-in; inflight only says how large it is to be."""

    def start(self, envoy, policy):
        ports = [tuple(real.free_port() for _ in range(3)) for _ in range(self.most + 3)]
        pages = ", ".join(f'"http://127.0.0.1:{metrics}/metrics"' for _, _, metrics in ports)

        def command(one):
            fill = {"{port}": one.grpc, "{port.http}": one.http, "{port.metrics}": one.metrics}
            words = [str(word) for word in self.command]
            for name, port in fill.items():
                words = [word.replace(name, str(port)) for word in words]
            return words
        self.stand_in = StandIn(command, self.endpoints.parent, self.endpoints, self.targets, envoy.admin, ports)
        self.held = False
        self.product = Product(f"""
  - name: triton
    slots: 1
    replicas: {{ min: {self.least}, max: {self.most} }}
    source:
      envoy:
        admin: ["http://127.0.0.1:{envoy.admin}"]
        cluster: {real.CLUSTER}
        every: 250ms
        backend: {{ triton: {{ metrics: [{pages}] }} }}
    scaling: {{ {policy} }}
""")

    def status(self):
        if not self.held:
            wished = (self.product.fleet("triton") or {"replicas": {"desired": None}})["replicas"]["desired"]
            if wished:
                self.stand_in.resize(wished)
        return self.stand_in.status()

    def resize(self, size):
        self.held = True
        self.stand_in.resize(size)

    def stop(self):
        if self.product:
            self.stand_in.stop()
        super().stop()
