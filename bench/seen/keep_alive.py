#!/usr/bin/env python3
"""20 keep-alive clients at 2,000 requests/s for 60 s: no failed request, and TIME_WAIT stays under 100, since
connections to replicas are kept and used again. Needs h2load (nghttp2-client)."""

import pathlib
import re
import subprocess
import sys
import threading

from harness import Product, fleet

SECONDS, CLIENTS, RATE = 60, 20, 2_000
TIME_WAIT = "06"


def time_wait():
    """Sockets of this machine in TIME_WAIT; the kernel's own table."""
    lines = [line for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return sum(line.split()[3] == TIME_WAIT for line in lines)


port, text = fleet("kept", slots=20, minimum=2, maximum=2, work="1ms")
with Product(text) as product:
    product.wait_until(lambda: product.fleet("kept")["replicas"]["ready"] == 2, 20, "at 2 replicas")
    before = time_wait()
    load = subprocess.Popen(["h2load", "--h1", "-c", str(CLIENTS), "-D", str(SECONDS), "--rps", str(RATE // CLIENTS),
                             f"http://127.0.0.1:{port}/"], stdout=subprocess.PIPE, text=True)
    most = before
    ended = threading.Event()
    threading.Thread(target=lambda: (load.wait(), ended.set())).start()
    while not ended.wait(0.25):
        most = max(most, time_wait())
    said = load.stdout.read()
    done, failed = re.search(r"(\d+) done, (?:\d+) succeeded, (\d+) failed", said).groups()
    errors = re.search(r"(\d+) errored, (\d+) timeout", said).groups()
    good = int(done) > 0.95 * RATE * SECONDS and failed == "0" and errors == ("0", "0") and most - before < 100
    print(f"{'ok  ' if good else 'FAIL'} {done} requests by {CLIENTS} clients in {SECONDS} s, failed {failed}, errored and "
          f"timed out {errors}; TIME_WAIT {before} before, at most {most}")
sys.exit(not good)
