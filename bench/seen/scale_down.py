#!/usr/bin/env python3
"""Scale-down from 6 to 1 while 10 s requests run: none is lost, and each ends on the replica that
it began on (one that began again elsewhere would have taken longer than its 10 s)."""

import concurrent.futures
import json
import sys
import time
import urllib.request

from harness import Product, Watch, fleet, load, tally

LONG = 5
port, text = fleet("shrink", slots=8, minimum=1, maximum=6, work="100ms",
                   scaling="policy: staffing, down_window: 2s")


def long_request(_):
    begin = time.time()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/?work=10s", timeout=60) as answer:
        return json.loads(answer.read())["replica"], time.time() - begin


with Product(text) as product:
    warm = load(port, 48, 20)
    product.wait_until(lambda: product.fleet("shrink")["replicas"]["ready"] == 6, 60, "at 6 replicas")
    tally(warm)
    watch = Watch(product, "shrink")
    with concurrent.futures.ThreadPoolExecutor(2 * LONG) as pool:
        first = [pool.submit(long_request, number) for number in range(LONG)]
        # The mean executing of the last 30 s holds the size up; the second round outlasts it.
        rounds = [answer.result() for answer in first]
        for _ in range(4):
            rounds += list(pool.map(long_request, range(LONG)))
    product.wait_until(lambda: product.fleet("shrink")["replicas"]["ready"] <= 1
                       and product.fleet("shrink")["replicas"]["draining"] == 0, 120, "down to 1")
    samples = watch.stop()
    bad = [line for line in product.get("/metrics").splitlines()
           if line.startswith("inflight_requests_total") and "completed" not in line and not line.endswith(" 0")]
    sizes = [ready for i, (_, _, ready, _) in enumerate(samples) if i == 0 or ready != samples[i - 1][2]]
    shrank_under_load = any(ready == 1 and in_flight >= LONG - 1 for _, _, ready, in_flight in samples)
    longest = max(seconds for _, seconds in rounds)
    good = len(rounds) == 5 * LONG and not bad and shrank_under_load and longest < 15
    print(f"{'ok  ' if good else 'FAIL'} {len(rounds)} requests of 10 s answered by replicas {sorted({r for r, _ in rounds})}, "
          f"the longest after {longest:.1f} s; ready went {sizes}, at 1 with {LONG - 1} or more in flight: {shrank_under_load}; "
          f"other outcomes: {bad or 'none'}")
sys.exit(not good)
