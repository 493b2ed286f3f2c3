#!/usr/bin/env python3
"""What happens when a part of the measured system is gone: with two real Envoys, two Tritons and a Prometheus under
a steady load, one of each kind in turn is stopped (SIGSTOP) and continued, then killed and started again.

The load does not change, so the size must not either: it never shrinks while the part is gone, the API says which
peer fails and why, and when the part is back the size is what it was. Shrinking is not delayed here
(`down_window: 0s`), so that each wish shows.

  FOLDER/venv/bin/python outage.py [--seconds 120] [--window 20] [--only envoy,triton,prometheus]"""

import argparse
import contextlib
import signal
import sys
import threading
import time

import real
from harness import Product

CLIENTS = 10                   # 5 replicas needed at two slots each: far from an edge of threshold 2
SERVICE_MS = 200               # long beside the clients' own way to Envoy on a busy machine
SETTLE = 15                    # seconds: health checks and a decision or two


def fleets(envoys, tritons, prometheus, window):
    """Measured by the Envoys and Tritons themselves, and by queries of the same."""
    direct = real.fleet("direct", envoys, tritons, window, down_window="0s")
    queries = real.term_queries(window)
    return {"direct": direct, "queries": f"""
  - name: queries
    replicas: {{ min: 1, max: 20 }}
    source:
      prometheus:
        url: "{prometheus.url}"
        in_flight: '{queries["in_flight"]}'
        executing: '{queries["executing"]}'
        replicas: '{queries["replicas"]}'
        every: 1s
    scaling: {{ policy: occupancy, threshold: 2, down_window: 0s }}
"""}


class Sizes:
    """The sizes decided since `begin`, by fleet, and what was said of sources that fail."""

    def __init__(self, product, names):
        self._product, self._names = product, names
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.begin()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self):
        with self._lock:
            self.sizes = {name: [] for name in self._names}
            self.failures = {name: set() for name in self._names}
            self.reasons = {}

    def _run(self):
        while not self._stop.wait(0.25):
            for name in self._names:
                state = self._product.fleet(name)
                if not state:
                    continue
                size = state["replicas"]["desired"]
                with self._lock:
                    if size < min(self.sizes[name], default=size):
                        self.reasons[name] = state["decision"]["reason"]
                    self.sizes[name].append(size)
                    self.failures[name] |= {f"{one['kind']} {one['state']}: {one['failure']}" for one in state["sources"]
                                            if one["failure"]}

    def stop(self):
        self._stop.set()
        self._thread.join()


def outage(sizes, what, seconds, window, gone, back):
    """One part goes and comes back: the sizes before, meanwhile and afterwards."""
    def spans():
        return {name: (min(seen), max(seen)) for name, seen in sizes.sizes.items()}
    sizes.begin()
    time.sleep(SETTLE)
    before = spans()
    sizes.begin()
    gone()
    time.sleep(seconds)
    meanwhile, failures, reasons = spans(), sizes.failures, sizes.reasons
    sizes.begin()
    back()
    time.sleep(window + 2 * SETTLE)
    after = spans()
    all_right = True
    for name in before:
        right = meanwhile[name][0] >= before[name][0] and after[name][0] >= before[name][0] \
            and after[name][1] <= max(before[name][1], meanwhile[name][1])
        all_right &= right
        said = "; ".join(sorted(failures[name])) or "no source fails"
        print(f"{'ok  ' if right else 'FAIL'} {what:22} {name:8} size before {before[name]}, meanwhile "
              f"{meanwhile[name]}, afterwards {after[name]}; {said[:300]}", flush=True)
        for reason in (() if right else (reasons.get(name), sizes.reasons.get(name))):
            print(f"     {reason}", flush=True)
    return all_right


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=120, help="how long each part is gone")
    arguments.add_argument("--window", type=int, default=20, help="the policy's window in seconds")
    arguments.add_argument("--only", default="prometheus,envoy,triton", help="which parts")
    chosen = arguments.parse_args()
    with contextlib.ExitStack() as running:
        def start(component):
            return running.enter_context(component)
        tritons = [start(real.Triton({"fast": SERVICE_MS}, slots=2)) for _ in range(2)]
        envoys = [start(real.Envoy(tritons)) for _ in range(2)]
        prometheus = start(real.Prometheus(envoys, tritons))
        for envoy in envoys:
            start(real.Clients(envoy.listen, CLIENTS // 2))
        described = fleets(envoys, tritons, prometheus, chosen.window)
        product = start(Product(*described.values()))
        sizes = Sizes(product, list(described))
        running.callback(sizes.stop)
        time.sleep(chosen.window + SETTLE)
        parts = {"prometheus": prometheus, "envoy": envoys[0], "triton": tritons[0]}
        results = []
        for name in chosen.only.split(","):
            part = parts[name]
            results.append(outage(sizes, f"{name} stopped", chosen.seconds, chosen.window,
                                  lambda: part.signal(signal.SIGSTOP), lambda: part.signal(signal.SIGCONT)))
            results.append(outage(sizes, f"{name} killed", chosen.seconds, chosen.window, part.kill, part.start))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
