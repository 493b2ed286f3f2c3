#!/usr/bin/env python3
"""Drives the gate before a real Envoy and real Tritons: who is refused and how a gRPC client sees it, what becomes
of calls when inflight is killed or frozen, and of first calls when no server runs.

  FOLDER/venv/bin/python gate.py [SCENE ...]          # refused, gone, zero, cost; all but cost unless named

The files say what was seen as they go; the exit code is 1 if anything was not as it has to be."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import threading
import time

import grpc

import real
from harness import Product, free_port

SERVICE = "/inference.GRPCInferenceService/"
INDEX, INFER, READY, LIVE = (SERVICE + name for name in ("RepositoryIndex", "ModelInfer", "ServerReady", "ServerLive"))
RESTART_GRACE = 60          # seconds for which sessions that are not known count as running
WITHIN = 1.0                # seconds within which a call is answered when inflight does not answer
SLACK = 0.5                 # what a busy machine may add to that
failures = []


def seen(is_right, what):
    print(f"{'ok  ' if is_right else 'FAIL'} {what}", flush=True)
    if not is_right:
        failures.append(what)


class Envoy(real.Printed):
    """An Envoy that asks at `gate`; `serve` says which Tritons it routes to."""

    def __init__(self, gate, allow=False):
        self.listen, self.admin = free_port(), free_port()
        self.folder_of_endpoints = tempfile.TemporaryDirectory()
        self.eds = pathlib.Path(self.folder_of_endpoints.name)
        self.serve([])
        more = "on_failure: open" if allow else ""
        super().__init__(
            fleet(gate, self, [1], maximum=1, more=more), self.listen, self.admin, real.CLUSTER,
            "--eds", self.eds / "endpoints.json", "--guard", INFER, "--guard", READY)

    def serve(self, tritons):
        """By rename: Envoy does not see a file that is written in place."""
        endpoints = [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": triton.grpc}}}}
                     for triton in tritons]
        answer = {"resources": [{"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
                                 "cluster_name": real.CLUSTER, "endpoints": [{"lb_endpoints": endpoints}]}]}
        (self.eds / "next.json").write_text(json.dumps(answer))
        os.replace(self.eds / "next.json", self.eds / "endpoints.json")


def fleet(gate, envoy, metrics, maximum, minimum=1, more="", admission=""):
    pages = ", ".join(f'"http://127.0.0.1:{port}/metrics"' for port in metrics)
    return f"""
  - name: triton
    replicas: {{ min: {minimum}, max: {maximum} }}
    source:
      envoy:
        admin: ["http://127.0.0.1:{envoy.admin}"]
        cluster: {real.CLUSTER}
        every: 500ms
        backend: {{ triton: {{ metrics: [{pages}] }} }}
    admission: {{ {admission} }}
    gate: {{ ext_authz: {{ listen: "127.0.0.1:{gate}", {more} }} }}
"""


def channel(port):
    """A connection of its own, which is a session of its own."""
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=[
        ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)])


class Answer:
    """One call of a session of its own: its status as the library reports it, and how long it took."""

    def __init__(self, port, path, message=b"", seconds=60):
        began = time.perf_counter()
        with channel(port) as connection:
            try:
                connection.unary_unary(path)(message, timeout=seconds, wait_for_ready=True)
                self.code, self.text, self.trailers = grpc.StatusCode.OK, "", {}
            except grpc.RpcError as error:
                self.code, self.text = error.code(), error.details()
                self.trailers = dict(error.trailing_metadata() or ())
        self.took = time.perf_counter() - began

    @property
    def retry_seconds(self):
        """The delay of google.rpc.RetryInfo in the details, which the message must equal that stands there."""
        details = self.trailers.get("grpc-status-details-bin", b"")
        message = re.match(rb"\x08(.)\x12(.)", details, re.S)
        if not message or details[4:4 + message.group(2)[0]].decode() != self.text \
                or message.group(1)[0] != self.code.value[0]:
            return None
        delay = re.search(rb"type\.googleapis\.com/google\.rpc\.RetryInfo\x12.\x0a.\x08([\x01-\x7f])", details, re.S)
        return delay.group(1)[0] if delay else None


def together(count, call, at_once=None):
    with concurrent.futures.ThreadPoolExecutor(at_once or count) as pool:
        return [answer.result() for answer in [pool.submit(call) for _ in range(count)]]


def wait(holds, seconds, what):
    end = time.time() + seconds
    while not holds():
        if time.time() > end:
            seen(False, f"{what} within {seconds} s")
            sys.exit(1)
        time.sleep(0.05)


def refused():
    """At the cap: 100 sessions that begin with an index call, and 100 that begin with an inference."""
    gate = free_port()
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(real.Triton({"fast": 50}))
        envoy = stack.enter_context(Envoy(gate))
        envoy.serve([triton])
        wait(lambda: envoy.healthy == 1, 10, "Envoy has a replica")
        product = stack.enter_context(Product(fleet(gate, envoy, [triton.metrics], maximum=1)))
        seen(not envoy.warnings(), f"check --envoy of what it dumps: {envoy.warnings() or 'nothing to warn of'}")
        began = time.time()
        clients = stack.enter_context(real.Clients(envoy.listen, 8))
        state = lambda: product.fleet("triton")["admission"]
        wait(lambda: not state()["open"], 30, "the gate closes")
        for what, path, message in (("index call", INDEX, b""), ("inference", INFER, real.infer_request("fast"))):
            if path == INFER:
                time.sleep(max(0.0, began + RESTART_GRACE + 2 - time.time()))
            before = clients.answered
            answers = together(100, lambda: Answer(envoy.listen, path, message), at_once=10)
            codes = {answer.code for answer in answers}
            seen(codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}, f"100 sessions that begin with an {what}: {codes}")
            waits = {answer.retry_seconds for answer in answers}
            seen(None not in waits and all(1 <= delay <= 75 for delay in waits),
                 f"each with RetryInfo: {sorted(map(str, waits))} s, message {answers[0].text!r}, pushback "
                 f"{answers[0].trailers.get('grpc-retry-pushback-ms')} ms")
            seen(clients.answered > before and clients.failed == 0,
                 f"meanwhile {clients.answered - before} calls of running sessions, {clients.failed} failed")
        clients.stop()
        time.sleep(1)
        denied = envoy.stat("http.in.ext_authz.first_calls.denied") + envoy.stat("http.in.ext_authz.others.denied")
        seen(denied == 200, f"Envoy counts {denied} denied")
        seen(abs(envoy.sent - clients.answered) <= 8,
             f"sent to Triton by Envoy: {envoy.sent}; answered to the running sessions: {clients.answered}")
        page = real.get(f"http://127.0.0.1:{triton.metrics}/metrics")
        served = int(float(re.search(r'nv_inference_request_success\{model="fast",version="1"\} (\S+)', page).group(1)))
        seen(served == envoy.sent, f"served by Triton: {served}")


def gone():
    """inflight killed or frozen: calls fail or pass as configured, within a second."""
    for allow in (False, True):
        expected = grpc.StatusCode.OK if allow else grpc.StatusCode.UNAVAILABLE
        word = "open" if allow else "closed"
        gate = free_port()
        with contextlib.ExitStack() as stack:
            triton = stack.enter_context(real.Triton({"fast": 5}))
            envoy = stack.enter_context(Envoy(gate, allow))
            envoy.serve([triton])
            wait(lambda: envoy.healthy == 1, 10, "Envoy has a replica")
            product = stack.enter_context(
                Product(fleet(gate, envoy, [triton.metrics], maximum=2, more=f"on_failure: {word}")))
            for path in (INDEX, READY):
                wait(lambda: Answer(envoy.listen, path).code == grpc.StatusCode.OK, 10, f"{path} passes")
            for what, number in (("frozen", signal.SIGSTOP), ("killed", signal.SIGKILL)):
                product.process.send_signal(number)
                for path in (INDEX, READY):
                    answers = together(10, lambda: Answer(envoy.listen, path, seconds=30))
                    slowest = max(answer.took for answer in answers)
                    codes = {answer.code for answer in answers}
                    seen(codes == {expected} and slowest <= WITHIN + SLACK,
                         f"{word}, {what}: {path.rsplit('/')[-1]} {codes}, the slowest after {slowest:.2f} s")
                if number == signal.SIGSTOP:
                    product.process.send_signal(signal.SIGCONT)
                    wait(lambda: Answer(envoy.listen, INDEX).code == grpc.StatusCode.OK, 20, "it answers again")
                    # A first call that waits when we freeze: none hangs.
                    envoy.serve([])
                    wait(lambda: envoy.healthy == 0, 10, "Envoy has no replica")
                    wait(lambda: product.fleet("triton")["replicas"]["ready"] == 0, 10, "that is seen")
                    waiting = threading.Thread(target=lambda: held.append(Answer(envoy.listen, INDEX)))
                    held = []
                    waiting.start()
                    wait(lambda: product.fleet("triton")["admission"]["held"] == 1, 10, "a first call waits")
                    product.process.send_signal(signal.SIGSTOP)
                    froze = time.perf_counter()
                    waiting.join()
                    took = time.perf_counter() - froze
                    # What passes finds no replica, which is UNAVAILABLE as well.
                    seen(held[0].code == grpc.StatusCode.UNAVAILABLE and took <= WITHIN + SLACK,
                         f"{word}, frozen: a call that waits ends after {took:.2f} s: {held[0].code} {held[0].text!r}")
                    envoy.serve([triton])
                    wait(lambda: envoy.healthy == 1, 10, "Envoy has a replica")


def zero():
    """No server runs: the index calls of 20 clients wake the fleet, wait, and are answered by it."""
    gate = free_port()
    with contextlib.ExitStack() as stack:
        envoy = stack.enter_context(Envoy(gate))
        triton = real.Triton({"fast": 5})
        product = stack.enter_context(Product(fleet(gate, envoy, [triton.metrics], maximum=3, minimum=0)))
        time.sleep(3)
        started = []

        def autoscaler():
            """Whoever changes the fleet, here: looks at what is wanted, starts it, and says where it is."""
            while not started:
                wanted = product.fleet("triton")["replicas"]["desired"]
                if wanted:
                    started.append(time.perf_counter())
                    stack.enter_context(triton)
                    started.append(time.perf_counter())
                    envoy.serve([triton])
                time.sleep(0.05)
        scaler = threading.Thread(target=autoscaler)
        scaler.start()
        began = time.perf_counter()
        answers = together(20, lambda: Answer(envoy.listen, INDEX))
        scaler.join()
        codes = {answer.code for answer in answers}
        took = sorted(answer.took for answer in answers)
        seen(codes == {grpc.StatusCode.OK}, f"20 index calls at zero: {codes} after {took[0]:.2f} to {took[-1]:.2f} s")
        seen(started[0] - began < 1, f"a replica is wanted after {started[0] - began:.2f} s")
        print(f"     Triton took {started[1] - started[0]:.2f} s to start; "
              f"the last call came {began + took[-1] - started[1]:.2f} s after that")
        seen(envoy.sent == 20, f"Envoy sent {envoy.sent} calls to Triton")
        state = product.fleet("triton")
        seen(state["replicas"]["desired"] == 1, f"still wanted: {state['decision']['reason']}")


def cost():
    """CPU of Envoy and of inflight for a call that is checked, against the same call that is not."""
    gate, calls = free_port(), 10_000
    with contextlib.ExitStack() as stack:
        triton = stack.enter_context(real.Triton({"fast": 5}))
        envoy = stack.enter_context(Envoy(gate))
        envoy.serve([triton])
        wait(lambda: envoy.healthy == 1, 10, "Envoy has a replica")
        product = stack.enter_context(
            Product(fleet(gate, envoy, [triton.metrics], maximum=2, admission="threshold: 1000")))

        def cpu(pid):
            """Seconds, user and system."""
            fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def run(path):
            before = cpu(envoy.process.pid), cpu(product.process.pid)
            with channel(envoy.listen) as connection:
                call = connection.unary_unary(path)
                for _ in range(calls // 20):
                    for future in [call.future(b"", timeout=30) for _ in range(20)]:
                        future.result()
            after = cpu(envoy.process.pid), cpu(product.process.pid)
            return [(new - old) / calls * 1e6 for old, new in zip(before, after)]
        run(LIVE)
        rounds = [(run(LIVE), run(READY)) for _ in range(5)]
        middle = lambda values: sorted(values)[len(values) // 2]
        plain, checked = (middle([one[kind][0] for one in rounds]) for kind in (0, 1))
        ours = middle([one[1][1] - one[0][1] for one in rounds])
        print(f"     Envoy {plain:.0f} us a call that is not checked, {checked:.0f} us one that is "
              f"({checked / plain:.2f} times); inflight {ours:.0f} us a check; medians of 5 times {calls} calls")


if __name__ == "__main__":
    scenes = {scene.__name__: scene for scene in (refused, gone, zero, cost)}
    for name in sys.argv[1:] or ("refused", "gone", "zero"):
        print(f"== {name}: {scenes[name].__doc__}", flush=True)
        scenes[name]()
    sys.exit(1 if failures else 0)
