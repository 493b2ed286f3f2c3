#!/usr/bin/env python3
"""Scale-down from 6 to 1 while 10 s requests run: none is lost, and each ends on the replica that
it began on (a request that began again elsewhere would be counted by a second replica)."""

import concurrent.futures
import json
import sys
import time
import urllib.request

from harness import Product, Watch, fleet, load, tally

port, text = fleet("shrink", slots=2, minimum=1, maximum=6, work="100ms",
                   scaling="policy: staffing, down_window: 5s, idle: { grace: 5s }")


def long_request(_):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/?work=10s", timeout=60) as answer:
        return json.loads(answer.read())


with Product(text) as product:
    warm = load(port, 12, 30)
    product.wait_until(lambda: product.fleet("shrink")["replicas"]["ready"] == 6, 60, "at 6 replicas")
    tally(warm)
    watch = Watch(product, "shrink")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        rounds = []
        for _ in range(3):
            rounds += list(pool.map(long_request, range(6)))
    product.wait_until(lambda: product.fleet("shrink")["replicas"]["ready"] <= 1
                       and product.fleet("shrink")["replicas"]["draining"] == 0, 120, "down to 1")
    samples = watch.stop()
    counts = product.get("/metrics")
    bad = [line for line in counts.splitlines()
           if line.startswith("inflight_requests_total") and "completed" not in line and not line.endswith(" 0")]
    replicas = sorted({answer["replica"] for answer in rounds})
    good = len(rounds) == 18 and not bad
    print(f"{'ok  ' if good else 'FAIL'} {len(rounds)} requests of 10 s answered by replicas {replicas}; "
          f"ready went {[ready for i, (_, _, ready, _) in enumerate(samples) if i == 0 or ready != samples[i - 1][2]]}; "
          f"other outcomes: {bad or 'none'}")
sys.exit(not good)
