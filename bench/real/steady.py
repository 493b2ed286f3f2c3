#!/usr/bin/env python3
"""Eight closed-loop gRPC clients through a real Envoy to two real Tritons with two slots each, in steady state:
what the product says is in flight against what the clients have open, and how many replicas are needed by the
product's sources against the queries that it prints, asked of a real Prometheus at the same moments, with the same
estimator.

  FOLDER/venv/bin/python steady.py [--window SECONDS] [--service MS] [--short]"""

import argparse
import contextlib
import sys
import time

import real
from harness import Product

LOADS = {
    "one model": {"fast": 8},
    "two models, one 25 times slower": {"fast": 5, "slow": 3},
}
ESTIMATORS = ("gauges", "time_sum")
SAMPLES = 10


def inputs(product, fleet):
    return (product.fleet(fleet)["decision"] or {"inputs": {}})["inputs"]


def mean(values):
    return sum(values) / len(values)


def off(value, truth):
    return 100.0 * (value - truth) / truth


def say(right, what, value, against, truth, most):
    print(f"{'ok  ' if right else 'FAIL'} {what}: {value:.3f}, {against} {truth:.3f}: {off(value, truth):+.2f} % "
          f"(at most {most} %)", flush=True)
    return right


def run(name, load, service_ms, window, loose):
    print(f"== {name}, {service_ms} ms, window {window} s", flush=True)
    with contextlib.ExitStack() as running:
        def start(component):
            return running.enter_context(component)
        tritons = [start(real.Triton({"fast": service_ms, "slow": 25 * service_ms}, slots=2)) for _ in range(2)]
        envoy = start(real.Envoy(tritons))
        prometheus = start(real.Prometheus([envoy], tritons))
        fleets = {estimator: real.fleet(estimator, [envoy], tritons, window, estimator) for estimator in ESTIMATORS}
        product = start(Product(*fleets.values()))
        clients = [start(real.Clients(envoy.listen, count, model)) for model, count in load.items()]
        queries = {estimator: real.rendered(fleet)["R_needed"] for estimator, fleet in fleets.items()}
        full = time.time() + window + 35   # the window is full, and the decision in force was made of it
        live = real.ask_about("".join(fleets.values()), "check", "--live")
        time.sleep(max(0, full - time.time()))
        marks = [one.mark() for one in clients]
        seen = {estimator: {"L": [], "R_needed": [], "PromQL": []} for estimator in ESTIMATORS}
        for _ in range(SAMPLES):
            time.sleep(window / SAMPLES)
            for estimator, of in seen.items():
                terms = inputs(product, estimator)
                of["L"].append(terms["in_flight"])
                of["R_needed"].append(terms["required"])
                of["PromQL"].append(prometheus.query(queries[estimator]))
        open_requests = sum(one.since(mark) for one, mark in zip(clients, marks))
        failed, answered = (sum(getattr(one, what) for one in clients) for what in ("failed", "answered"))
    all_right = live.returncode == 0
    for line in live.stdout.splitlines() if all_right else (live.stdout + live.stderr).splitlines():
        if line.startswith("  "):
            print(f"     check --live: {line.strip()}")
    value = mean(seen["gauges"]["L"])
    all_right &= say(abs(off(value, open_requests)) <= 5 * loose, "in flight by gauges", value, "clients", open_requests, 5 * loose)
    for estimator, of in seen.items():
        value, truth = mean(of["R_needed"]), mean(of["PromQL"])
        all_right &= say(abs(off(value, truth)) <= 3 * loose, f"R_needed by {estimator}", value, "PromQL", truth, 3 * loose)
    print(f"{'ok  ' if failed == 0 else 'FAIL'} {answered} requests answered, {failed} failed", flush=True)
    return all_right and failed == 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--window", type=int, default=60, help="the policy's window in seconds")
    # Clients count their own way to Envoy as open, which Envoy does not see: on a machine that is busy
    # otherwise this takes milliseconds, and the service must be long beside it.
    arguments.add_argument("--service", type=int, default=200, metavar="MS", help="what a request takes")
    arguments.add_argument("--short", action="store_true", help="one load only")
    arguments.add_argument("--loose", type=int, default=1, metavar="TIMES",
                           help="bounds so many times as wide, where the machine does other work")
    chosen = arguments.parse_args()
    loads = list(LOADS.items())[:1 if chosen.short else None]
    results = [run(name, load, chosen.service, chosen.window, chosen.loose) for name, load in loads]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
