#!/usr/bin/env python3
"""Upgrades and restarts of ours under load, with `on_exit: keep`.

50 times a successor takes over from the running process (`run --take-over`): nothing is lost or
refused, no replica is restarted, sessions stay known, the counters never fall, memory and
descriptors of the last process are those of the first. Then our process is killed, and told to
stop, and started again: the same replicas serve, though nobody listens in between."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from harness import BINARY, Product, fleet, load, replica_processes, tally

TAKE_OVERS = int(os.environ.get("TAKE_OVERS", "50"))
SECONDS = float(os.environ.get("SECONDS_BETWEEN", "1.5"))
failed = False


def say(good, text):
    global failed
    failed |= not good
    print(f"{'ok  ' if good else 'FAIL'} {text}", flush=True)


def servers(product):
    """The ids of the replicas' own processes, shims left out."""
    return sorted(pid for pid, command in replica_processes(product)
                  if "__serve" in command and "__replica" not in command)


def spawn(product, *arguments):
    path = pathlib.Path(product.folder.name) / "inflight.yaml"
    return subprocess.Popen([BINARY, "run", "-c", path, *arguments], stdout=product.log, stderr=product.log,
                            env={**os.environ, "INFLIGHT_SEEN": product.folder.name})


def succeed(product):
    """Lets a new process take over, and waits until the old one has ended."""
    old, product.process = product.process, spawn(product, "--take-over")
    return old.wait(90)


def counter(product, name):
    page = product.get("/metrics") or ""
    lines = [line for line in page.splitlines() if line.startswith(name + "{") and "completed" in line]
    return float(lines[0].rsplit(" ", 1)[1]) if lines else 0.0


def memory(product):
    status = pathlib.Path(f"/proc/{product.process.pid}/status").read_text()
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return kilobytes / 1024, len(list(pathlib.Path(f"/proc/{product.process.pid}/fd").iterdir()))


def again(product, what):
    """Starts the process again after it has ended, and checks that the same replicas serve."""
    before = servers(product)
    begin = time.time()
    product.process = spawn(product)
    product.wait_until(lambda: (product.fleet("kept") or {"replicas": {"ready": 0}})["replicas"]["ready"] == 3, 30, "ready again")
    took = time.time() - begin
    seen = tally(load(port, 6, 2))
    good = servers(product) == before and len(before) == 3 and seen["lost"] + seen["refused"] == 0
    say(good, f"{what} and start: ready again after {took:.2f} s with the same replicas {before}, "
              f"{seen['requests']} requests, {seen['lost']} lost, {seen['refused']} refused")


state = tempfile.TemporaryDirectory()
port, text = fleet("kept", slots=2, minimum=3, maximum=3, work="20ms",
                   target_more="        on_exit: keep\n        orphan_grace: 20s",
                   more="    admission: { threshold: 3, reopen: 2.4, when: always }")
with Product(text, top=f"state: {{ dir: {state.name}/inflight }}\n") as product:
    product.wait_until(lambda: product.fleet("kept")["replicas"]["ready"] == 3, 30, "at 3 replicas")
    before = servers(product)
    running = load(port, 6, int(TAKE_OVERS * (SECONDS + 1.5)))
    time.sleep(1)
    first = memory(product)
    codes, arrivals, fell = [], 0.0, 0
    for number in range(TAKE_OVERS):
        codes.append(succeed(product))
        product.wait_until(lambda: product.get("/readyz") is not None, 20, "ready")
        now = counter(product, "inflight_requests_total")
        fell += now < arrivals
        arrivals = now
        time.sleep(SECONDS)
    last = memory(product)
    running_at_end = running.poll() is None
    seen = tally(running)
    say(set(codes) == {0}, f"{TAKE_OVERS} take-overs, exit codes {sorted(set(codes))}")
    say(running_at_end, "the load lasted until after the last one")
    say(seen["lost"] == 0 and seen["refused"] == 0,
        f"{seen['requests']} requests: {seen['lost']} lost ({seen['broken']} of them broken), {seen['refused']} refused")
    say(servers(product) == before, f"the same replicas: {before}, {servers(product)}")
    say(fell == 0 and arrivals > 0, f"completed requests counted on: {arrivals:.0f}, fell {fell} times")
    say(last[0] < first[0] * 1.3 + 5 and last[1] <= first[1] + 10,
        f"memory {first[0]:.1f} MB at first, {last[0]:.1f} MB at last; descriptors {first[1]} and {last[1]}")

    product.process.kill()
    product.process.wait()
    again(product, "SIGKILL")
    product.process.send_signal(signal.SIGTERM)
    say(product.process.wait(90) == 0 and servers(product) == before, "SIGTERM leaves the replicas")
    again(product, "SIGTERM")
    product.process.kill()
    product.process.wait()
    end = time.time() + 30
    while servers(product) and time.time() < end:
        time.sleep(0.2)
    say(servers(product) == [], f"nobody came back: the replicas end after {time.time() - (end - 30):.1f} s of 20 s grace")
state.cleanup()
sys.exit(failed)
