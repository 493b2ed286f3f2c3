#!/usr/bin/env python3
"""One sequential client with 10 ms requests, slots 1: never more than one replica.

Under staffing, occupancy and concurrency (utilization 1.0, mean and peak): 60 s of requests; the
same with a shell loop of 1,000 curl calls and `peak`; and with pauses of 10, 30 and 50 s."""

import subprocess
import sys
import time

from harness import Product, Watch, fleet, load, mean_in_flight, tally

POLICIES = {
    "staffing": "policy: staffing",
    "occupancy": "policy: occupancy",
    "mean": "policy: concurrency, utilization: 1.0, measure: mean",
    "peak": "policy: concurrency, utilization: 1.0, measure: peak",
}
failed = False


def report(what, name, watch, since, note=""):
    global failed
    mean = since()
    samples = watch.stop()
    desired = sorted({sample[1] for sample in samples if sample[3] or sample[1]})
    ready = max(sample[2] for sample in samples)
    good = max(desired) == 1 and ready <= 1
    failed |= not good
    print(f"{'ok  ' if good else 'FAIL'} {what:28} {name:10} desired {desired} ready at most {ready}, "
          f"mean in flight {mean:.3f} {note}", flush=True)


def measure(product, what, drive, names):
    watches = {name: (Watch(product, name), mean_in_flight(product, name)) for name in names}
    notes = drive()
    for name in names:
        report(what, name, *watches[name], notes.get(name, ""))


with_ports = {name: fleet(name, slots=1, scaling=rule) for name, rule in POLICIES.items()}
ports = {name: port for name, (port, _) in with_ports.items()}


def loop(seconds):
    def drive():
        loads = {name: load(ports[name], 1, seconds) for name in POLICIES}
        tallies = {name: tally(process) for name, process in loads.items()}
        return {name: f"({t['requests']} requests, {t['lost']} lost)" for name, t in tallies.items()}
    return drive


def curl_loop():
    started = time.time()
    subprocess.run(
        ["sh", "-c", f"for i in $(seq 1000); do curl -sf -o /dev/null http://127.0.0.1:{ports['peak']}/ || exit 1; done"],
        check=True)
    return {"peak": f"(1000 curl calls in {time.time() - started:.0f} s)"}


def with_pauses():
    for pause in (10, 30, 50, 0):
        loop(5)()
        time.sleep(pause)
    return {}


with Product(*(text for _, text in with_ports.values())) as product:
    measure(product, "60 s without a pause", loop(60), POLICIES)
    measure(product, "1000 curl calls", curl_loop, ["peak"])
    measure(product, "pauses of 10, 30 and 50 s", with_pauses, POLICIES)
sys.exit(failed)
