#!/usr/bin/env python3
"""Runs real Tritons as replicas of inflight behind a real Envoy that is told of them by a file: none of the
clients' requests may fail while replicas come and go.

  FOLDER/venv/bin/python eds.py [--changes N] [SCENE ...]          # changes, killed, zero

It says what was seen as it goes; the exit code is 1 if anything was not as it has to be."""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
import urllib.request

import grpc

import gate
import real
from gate import INDEX, INFER, Answer, seen, together, wait
from harness import Product, free_port

CLIENTS = 8
MAXIMUM = 4
SERVICE_MS = 30


class Envoy(real.Printed):
    """The Envoy that is printed for a fleet whose replicas are told in `file`, which has to be there."""

    workers = 2

    def __init__(self, triton, file):
        self.file, admin = file, free_port()
        super().__init__(fleet(triton, admin, file, 1), free_port(), admin, real.CLUSTER)


class Template(real.Triton):
    """A Triton that inflight starts: its command has the placeholders of the ports."""

    def __init__(self):
        super().__init__({"fast": SERVICE_MS})
        self.grpc, self.http, self.metrics = "{port}", "{port.http}", "{port.metrics}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()
        # A server that was killed leaves the memory it shared with its models.
        for left in pathlib.Path("/dev/shm").glob(f"inflight_real_{os.getpid()}_*"):
            left.unlink(missing_ok=True)


class Clients(real.Clients):
    """Those of real.py, each of which is connected to Envoy before it begins; the connection is not what is tested."""

    def _run(self, port, request):
        with gate.channel(port) as connection:
            grpc.channel_ready_future(connection).result(60)
            infer = connection.unary_unary(INFER)
            while not self._stop.is_set():
                try:
                    infer(request, timeout=60)
                    failure = None
                except grpc.RpcError as error:
                    failure = error
                with self._lock:
                    self.failed += failure is not None
                    self.answered += failure is None
                    self.last_failure = failure or self.last_failure
                    self.failed_at = time.perf_counter() if failure else self.failed_at
                if failure is not None:
                    self._stop.wait(0.02)

    failed_at = None


def fleet(triton, admin, file, minimum, more=""):
    command = json.dumps([str(word) for word in triton.command()])
    return f"""
  - name: triton
    replicas: {{ min: {minimum}, max: {MAXIMUM} }}
    slots: 1
    source:
      envoy:
        admin: ["http://127.0.0.1:{admin}"]
        cluster: {real.CLUSTER}
        every: 500ms
        backend: {{ triton: {{ port: metrics }} }}
    target:
      process:
        command: {command}
        ports: [http, metrics]
        ready: {{ grpc: "", every: 100ms }}
        drain_timeout: 20s
        stop_grace: 20s
        publish:
          envoy: {{ file: {file} }}
{more}"""


def resize(product, replicas):
    order = urllib.request.Request(
        f"http://127.0.0.1:{product.admin_port}/api/v1/fleets/triton/size", method="PUT",
        data=json.dumps({"replicas": replicas, "for": "1h"}).encode(), headers={"content-type": "application/json"})
    urllib.request.urlopen(order, timeout=5).read()


def settled(product, replicas):
    def holds():
        now = product.fleet("triton")["replicas"]
        return now["ready"] == replicas and now["starting"] == now["draining"] == 0
    return holds


def listed(file):
    """The endpoints of the file by their ports, each with what is said of it."""
    endpoints = json.loads(file.read_text())["resources"][0]["endpoints"][0]["lb_endpoints"]
    return {one["endpoint"]["address"]["socket_address"]["port_value"]: one["health_status"] for one in endpoints}


@contextlib.contextmanager
def running(minimum=1, more=""):
    """A fleet, and then an Envoy, which would not start without the file."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        triton = stack.enter_context(Template())
        envoy = Envoy(triton, folder / "triton.json")
        product = stack.enter_context(Product(fleet(triton, envoy.admin, envoy.file, minimum, more)))
        seen(envoy.file.exists(), "the file is there before Envoy is")
        stack.enter_context(envoy)
        wait(lambda: envoy.healthy == minimum, 60, f"Envoy has {minimum} replicas")
        seen(not envoy.warnings(), f"check --envoy of what it dumps: {envoy.warnings() or 'nothing to warn of'}")
        yield product, envoy


def changes(count):
    """Replicas come and go, by what a person says, under clients that never wait."""
    chance = random.Random(6)
    with running() as (product, envoy), Clients(envoy.listen, CLIENTS) as clients:
        size, changed, taken_back = 1, 0, 0
        while changed < count:
            to = chance.choice([one for one in range(1, MAXIMUM + 1) if one != size])
            resize(product, to)
            if to < size and chance.random() < 0.3:
                # Somebody thinks again while replicas drain.
                resize(product, size)
                taken_back += 1
                to = size
            wait(settled(product, to), 90, f"{size} become {to} replicas")
            changed += abs(to - size)
            size = to
        clients.stop()
        seen(clients.failed == 0, f"{clients.answered} requests answered and {clients.failed} failed in {changed} "
             f"changes; {taken_back} times replicas were wanted again at once"
             + (f": {clients.last_failure.details()}" if clients.failed else ""))
        state = product.fleet("triton")
        seen(state["crashes"] == 0 and len(listed(envoy.file)) == size, f"{size} replicas, {state['crashes']} crashes")
        pages = lambda: [source["state"] for source in product.fleet("triton")["sources"] if source["kind"] == "triton"]
        wait(lambda: pages() == ["read"] * size, 20, "the page of each replica is read, and no other")
        clients = Clients(envoy.listen, CLIENTS)
        time.sleep(1)
        product.process.send_signal(signal.SIGTERM)
        product.process.wait(60)
        clients.stop()
        text = str(clients.last_failure and clients.last_failure.details())
        seen("no healthy upstream" in text, f"inflight ends: {clients.answered} answered, then {text!r}")
        seen(listed(envoy.file) == {}, "the file is there, without endpoints")
        resets = envoy.stat(f"cluster.{real.CLUSTER}.upstream_rq_rx_reset") \
            + envoy.stat(f"cluster.{real.CLUSTER}.upstream_cx_destroy_remote_with_active_rq")
        seen(resets == 0, f"{resets} requests broken off by a Triton that ended")


def killed(_):
    """One replica is killed: what it had fails, and nothing after that."""
    with running(2) as (product, envoy), Clients(envoy.listen, CLIENTS) as clients:
        time.sleep(2)
        port = next(iter(listed(envoy.file)))
        before = clients.failed
        pid = of_port(product, port)
        os.kill(pid, signal.SIGKILL)
        killed_at = time.perf_counter()
        while port in listed(envoy.file):
            time.sleep(0.005)
        out = time.perf_counter() - killed_at
        wait(settled(product, 2), 60, "another one is ready")
        time.sleep(1)
        last = (clients.failed_at or killed_at) - killed_at
        seen(before == 0 and clients.failed <= 2 * CLIENTS and last < out + 0.25,
             f"{clients.failed} requests failed, the last after {last * 1000:.0f} ms, and {clients.answered} were "
             f"answered; out of the file after {out * 1000:.0f} ms")
        seen(product.fleet("triton")["crashes"] == 1, "it is counted as crashed")


def of_port(product, port):
    """The process of a replica, by its command line."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[0].endswith(b"tritonserver") and f"--grpc-port={port}".encode() in words:
                return int(path.parent.name)
    sys.exit(f"no Triton at {port}")


def zero(_):
    """No server runs: the index calls of 20 clients wake the fleet, wait, and are answered by it."""
    asked = free_port()
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(Template())
        envoy = stack.enter_context(gate.Envoy(asked))
        file = envoy.eds / "endpoints.json"
        product = stack.enter_context(Product(fleet(
            triton, envoy.admin, file, 0, f'    gate: {{ ext_authz: {{ listen: "127.0.0.1:{asked}" }} }}')))
        time.sleep(2)
        seen(product.fleet("triton")["replicas"]["ready"] == 0, "no replica runs")
        answers = together(20, lambda: Answer(envoy.listen, INDEX))
        codes = {answer.code for answer in answers}
        took = sorted(answer.took for answer in answers)
        seen(codes == {grpc.StatusCode.OK}, f"20 index calls at zero: {codes} after {took[0]:.2f} to {took[-1]:.2f} s")
        seen(envoy.sent == 20, f"Envoy sent {envoy.sent} calls to Triton")
        state = product.fleet("triton")
        seen(state["replicas"]["desired"] == 1, f"still wanted: {state['decision']['reason']}")


if __name__ == "__main__":
    scenes = {scene.__name__: scene for scene in (changes, killed, zero)}
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("scenes", nargs="*", default=list(scenes), metavar="SCENE")
    words.add_argument("--changes", type=int, default=100)
    words = words.parse_args()
    for name in words.scenes:
        print(f"== {name}: {scenes[name].__doc__}", flush=True)
        scenes[name](words.changes)
    sys.exit(1 if gate.failures else 0)
