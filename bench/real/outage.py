#!/usr/bin/env python3
"""What happens when a part of the measured system is gone: with two real Envoys, two Tritons and a Prometheus under
a steady load, one of each kind in turn is stopped (SIGSTOP) and continued, then killed and started again.

The load does not change, so the size must not either: it never shrinks while the part is gone and the API says which
peer fails and why. When the part is back nobody wishes for less than before or for more than while it was gone, and at
the end the wish is what it was. Shrinking is not delayed here (`down_window: 0s`), so that each wish shows.

  FOLDER/venv/bin/python outage.py [--seconds 120] [--window 20] [--only envoy,triton,prometheus] [--trace]"""

import argparse
import contextlib
import json
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
    """Measured by the Envoys and Tritons themselves; by queries of the same terms; by the query that the product
    prints for KEDA."""
    def queried(name, scaling, queries):
        asked = "".join(f"        {key}: {json.dumps(query)}\n" for key, query in queries.items())
        return f"""
  - name: {name}
    replicas: {{ min: 1, max: 20 }}
    source:
      prometheus:
        url: "{prometheus.url}"
        every: 1s
{asked}    scaling: {{ {scaling}, down_window: 0s }}
"""
    direct = real.fleet("direct", envoys, tritons, window, down_window="0s")
    return {
        "direct": direct,
        "terms": queried("terms", f"policy: occupancy, threshold: 2, window: {window}s", real.term_queries(direct, window)),
        "rendered": queried("rendered", "policy: metric, target: 2", {"query": real.rendered(direct)["R_needed"]}),
    }


class Watched:
    """What was decided since `begin`, by fleet, and what was said of sources that fail."""

    def __init__(self, product, names, trace):
        self._product, self._names, self._trace = product, names, trace
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._said = {}
        self.begin()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self):
        """Forgets what was seen, and returns it: of each fleet the decisions and the failures."""
        with self._lock:
            seen = getattr(self, "_seen", None)
            self._seen = {name: ([], set()) for name in self._names}
        return seen

    def _run(self):
        begun = time.time()
        while not self._stop.wait(0.25):
            for name in self._names:
                state = self._product.fleet(name)
                if not state or not state["decision"]:
                    continue
                decision = state["decision"]
                with self._lock:
                    decisions, failures = self._seen[name]
                    decisions.append(decision)
                    failures |= {f"{one['kind']} {one['state']}: {one['failure']}" for one in state["sources"]
                                 if one["failure"]}
                said = (decision["wanted"], decision["desired"])
                if self._trace and self._said.get(name) != said:
                    self._said[name] = said
                    print(f"     {time.time() - begun:6.1f} s {name}: {decision['desired']}; {decision['reason']}",
                          flush=True)

    def stop(self):
        self._stop.set()
        self._thread.join()


def span(decisions, what):
    """The least and the most of a number that is not always known; (None, None) when it never is."""
    known = [one[what] for one in decisions if one[what] is not None]
    return min(known, default=None), max(known, default=None)


def judge(before, meanwhile, after):
    """What is wrong with the decisions before, while and after a part was gone."""
    (least, most), (_, most_meanwhile) = span(before, "desired"), span(meanwhile, "desired")
    if span(meanwhile, "desired")[0] < least:
        yield "it shrank while the part was gone"
    if span(after, "desired")[0] < least:
        yield "it shrank when the part was back"
    wishes = span(before, "wanted")[1], span(meanwhile, "wanted")[1] or 0, span(after, "wanted")[1] or 0
    if span(after, "desired")[1] > max(most, most_meanwhile) or wishes[2] > max(wishes[:2]):
        yield "it jumped when the part was back"
    low, high = span(before, "wanted")
    last = after[-1]["wanted"]
    if last is None or not low <= last <= high:
        yield f"in the end the wish is {last}"


def outage(watched, what, seconds, window, gone, back):
    """One part goes and comes back: what was decided before, meanwhile and afterwards."""
    watched.begin()
    time.sleep(SETTLE)
    before = watched.begin()
    gone()
    time.sleep(seconds)
    meanwhile = watched.begin()
    back()
    time.sleep(window + 2 * SETTLE)
    after = watched.begin()
    all_right = True
    for name in before:
        parts = [seen[name][0] for seen in (before, meanwhile, after)]
        faults = list(judge(*parts))
        all_right &= not faults
        sizes = ", ".join("{} to {} (wish {} to {}{})".format(
            *span(part, "desired"), *span(part, "wanted"),
            ", or unknown" if any(one["wanted"] is None for one in part) else "") for part in parts)
        said = "; ".join(sorted(meanwhile[name][1])) or "no source fails"
        print(f"{'FAIL' if faults else 'ok  '} {what:18} {name:8} before, meanwhile, afterwards: {sizes}; {said[:300]}"
              + "".join(f"\n     {fault}" for fault in faults), flush=True)
        worst = min(meanwhile[name][0] + after[name][0], key=lambda one: one["desired"])
        for reason in ({worst["reason"], after[name][0][-1]["reason"]} if faults else ()):
            print(f"     {reason}", flush=True)
    return all_right


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=120, help="how long each part is gone")
    arguments.add_argument("--window", type=int, default=20, help="the policy's window in seconds")
    arguments.add_argument("--only", default="prometheus,envoy,triton", help="which parts")
    arguments.add_argument("--trace", action="store_true", help="print every decision that differs from the one before")
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
        watched = Watched(product, list(described), chosen.trace)
        running.callback(watched.stop)
        time.sleep(chosen.window + SETTLE)
        parts = {"prometheus": prometheus, "envoy": envoys[0], "triton": tritons[0]}
        results = []
        for name in chosen.only.split(","):
            part = parts[name]
            results.append(outage(watched, f"{name} stopped", chosen.seconds, chosen.window,
                                  lambda: part.signal(signal.SIGSTOP), lambda: part.signal(signal.SIGCONT)))
            results.append(outage(watched, f"{name} killed", chosen.seconds, chosen.window, part.kill, part.start))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
