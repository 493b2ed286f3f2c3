"""Starts the product with a configuration, asks its admin API, and ends it: shared by the scripts
beside this file. Python's standard library only; everything stays on the loopback."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("INFLIGHT", ROOT / "target" / "release" / "inflight"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fleet(name, slots=1, minimum=0, maximum=16, work="10ms", start_delay="0ms", scaling="", more="",
          target_more=""):
    """One fleet of the product's own small servers, as YAML, and the port of its gateway."""
    port = free_port()
    return port, f"""
  - name: {name}
    slots: {slots}
    replicas: {{ min: {minimum}, max: {maximum} }}
    source: {{ gateway: {{ listen: "127.0.0.1:{port}" }} }}
    target:
      process:
        command: ["{BINARY}", "__serve", "--port", "{{port}}", "--work", "{work}", "--start-delay", "{start_delay}"]
        ready: {{ path: /healthz }}
{target_more}
    scaling: {{ {scaling} }}
{more}
"""


class Product:
    """`inflight run` with the given fleets; a context manager that leaves nothing behind."""

    def __init__(self, *fleets, log=None, admin_port=None):
        self.admin_port = admin_port or free_port()
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / "inflight.yaml"
        path.write_text(f'version: 1\nadmin: {{ listen: "127.0.0.1:{self.admin_port}" }}\nfleets:\n' + "".join(fleets))
        self.log_path = pathlib.Path(log or pathlib.Path(self.folder.name) / "log")
        self.log = open(self.log_path, "w")
        self.mark = f"INFLIGHT_SEEN={self.folder.name}"
        self.process = subprocess.Popen([BINARY, "run", "-c", path], stdout=self.log, stderr=self.log,
                                        env={**os.environ, "INFLIGHT_SEEN": self.folder.name})
        self.wait_until(lambda: self.get("/readyz") is not None, 20, "ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return None
        return json.loads(text) if text.startswith(("{", "[")) else text

    def fleet(self, name):
        return self.get(f"/api/v1/fleets/{name}")

    def metric(self, series):
        for line in self.get("/metrics").splitlines():
            if line.startswith(series + " "):
                return float(line.rsplit(" ", 1)[1])
        return None

    def wait_until(self, holds, seconds, what):
        end = time.time() + seconds
        while time.time() < end:
            if self.process.poll() is not None:
                sys.exit(f"inflight ended with {self.process.returncode}:\n{self.log_path.read_text()[-3000:]}")
            if holds():
                return
            time.sleep(0.05)
        sys.exit(f"not {what} within {seconds} s:\n{self.log_path.read_text()[-3000:]}")


class Watch:
    """Samples a fleet's desired and ready replicas until stopped."""

    def __init__(self, product, name, every=0.25):
        self.samples = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(product, name, every))
        self._thread.start()

    def _run(self, product, name, every):
        while not self._stop.wait(every):
            state = product.fleet(name)
            if state:
                replicas = state["replicas"]
                self.samples.append((time.time(), replicas["desired"], replicas["ready"], state["load"]["in_flight"]))

    def stop(self):
        self._stop.set()
        self._thread.join()
        return self.samples


def load(port, clients, seconds, path="/", think_ms=0):
    """Closed-loop clients of the product's own load generator; a handle whose `tally` is a dict."""
    process = subprocess.Popen(
        [BINARY, "__load", "--address", f"127.0.0.1:{port}", "--clients", str(clients), "--seconds", str(seconds),
         "--path", path, "--think-ms", str(think_ms)],
        stdout=subprocess.PIPE, text=True)
    return process


def tally(process):
    return json.loads(process.communicate()[0])


def mean_in_flight(product, name):
    """A function that answers the exact mean number in flight since its last call."""
    series = f'inflight_request_seconds_total{{fleet="{name}"}}'
    last = [time.time(), product.metric(series)]

    def since_last():
        now, total = time.time(), product.metric(series)
        mean = (total - last[1]) / (now - last[0])
        last[:] = [now, total]
        return mean

    return since_last


def replica_processes(product):
    """The command lines of what this product started and is alive: all carry its mark."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            marked = product.mark.encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if marked and words[0] and int(entry.name) != product.process.pid:
            found.append((int(entry.name), b" ".join(words).decode()))
    return found
