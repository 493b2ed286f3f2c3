#!/usr/bin/env python3
"""300 changes of the configuration under load, told by SIGHUP: nothing lost or refused, no replica restarted, every
request counted once, memory back at the start.

  bench/seen/reload.py            # RELOADS=300 by default; INFLIGHT names the binary"""

import os
import pathlib
import signal
import sys
import time

from harness import Product, fleet, load, replica_processes, tally

RELOADS = int(os.environ.get("RELOADS", 300))
WARM_UP = 20


def memory(product):
    for line in (pathlib.Path("/proc") / str(product.process.pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return None


def sockets(product):
    folder = pathlib.Path("/proc") / str(product.process.pid) / "fd"
    return sum(1 for entry in folder.iterdir() if os.path.islink(entry) and os.readlink(entry).startswith("socket:"))


def change(text, round_):
    """Slots, time-outs, policy, thresholds and bounds differ; every other round has a second fleet."""
    even = round_ % 2 == 0
    text = text.replace("slots: 4", f"slots: {4 + round_ % 3}")
    text = text.replace("scaling: {  }", "scaling: { policy: staffing }" if even else
                        "scaling: { policy: concurrency, bucket: 200ms }")
    text = text.replace("    target:\n", f"    queue: {{ requests: {1000 + round_} }}\n"
                        f"    admission: {{ threshold: {4 + round_ % 4} }}\n    target:\n")
    if not even:
        text += text[text.index("  - name: main"):].replace("name: main", f"name: passing-{round_}").replace(
            "min: 2", "min: 0").replace(f"127.0.0.1:{port}", "127.0.0.1:0")
    return text


port, yaml = fleet("main", slots=4, minimum=2, maximum=4, work="5ms")
with Product(yaml) as product:
    path = pathlib.Path(product.folder.name) / "inflight.yaml"
    original = path.read_text()
    product.wait_until(lambda: product.fleet("main")["replicas"]["ready"] >= 2, 60, "two replicas")

    def in_force():
        return product.metric('inflight_configuration_reloads_total{result="in_force"}')

    def reload(round_):
        before = in_force()
        path.write_text(change(original, round_))
        product.process.send_signal(signal.SIGHUP)
        product.wait_until(lambda: in_force() > before, 20, f"reload {round_} in force")

    seconds = int(RELOADS * 0.35) + 30
    running = [load(port, clients, seconds, think_ms=2) for clients in (4, 2)]
    for round_ in range(WARM_UP):
        reload(round_)
    start_replicas, start_memory, start_sockets = replica_processes(product)[:], memory(product), sockets(product)
    start = [command for _, command in start_replicas if "passing" not in command]
    began = time.time()
    for round_ in range(RELOADS):
        reload(round_)
    took = time.time() - began
    path.write_text(original)
    product.process.send_signal(signal.SIGHUP)
    tallies = [tally(process) for process in running]
    time.sleep(3)
    crashes = product.metric('inflight_replica_crashes_total{fleet="main"}')
    replicas = {pid for pid, _ in start_replicas} & {pid for pid, _ in replica_processes(product)}
    requests = sum(one["requests"] for one in tallies)
    lost = sum(one["lost"] for one in tallies)
    refused = sum(one["refused"] for one in tallies)
    page = product.get("/metrics")
    counted = sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
                  if line.startswith('inflight_requests_total{fleet="main"'))
    refusals = product.metric('inflight_configuration_reloads_total{result="refused"}')
    end_memory, end_sockets = memory(product), sockets(product)
    print(f"{RELOADS} reloads in {took:.1f} s; {requests} requests, {lost} lost, {refused} refused; counted {counted:.0f}")
    print(f"replicas kept {len(replicas)} of {len(start_replicas)}, crashes {crashes:.0f}; files refused {refusals:.0f}")
    print(f"memory {start_memory:.1f} -> {end_memory:.1f} MB; sockets {start_sockets} -> {end_sockets}; "
          f"series of passing fleets {page.count('passing-')}")
    right = (lost == refused == 0 and counted == requests and crashes == 0 and refusals == 0
             and len(replicas) == len(start_replicas) and "passing-" not in page
             and end_memory < start_memory * 1.05 + 1)
    sys.exit(0 if right else 1)
