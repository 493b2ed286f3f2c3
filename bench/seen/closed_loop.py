#!/usr/bin/env python3
"""Twelve closed-loop clients without think time, slots 2, service times 10 ms, 100 ms and 1 s.

`concurrency` with utilization 1.0 settles at ceil(measured mean in flight / 2), `staffing` at 6,
`occupancy` with threshold 2 at 3, and each stays there for two minutes."""

import math
import sys
import time

from harness import Product, Watch, fleet, load, mean_in_flight, tally

POLICIES = {
    "staffing": ("policy: staffing", lambda mean: 6),
    "concurrency": ("policy: concurrency, utilization: 1.0", lambda mean: math.ceil(mean / 2 * (1 - 1e-12))),
    "occupancy": ("policy: occupancy, threshold: 2", lambda mean: 3),
}
SETTLE, STAY = 90, 120
failed = False

for work in ("10ms", "100ms", "1s"):
    fleets = {name: fleet(name, slots=2, work=work, maximum=12, scaling=rule) for name, (rule, _) in POLICIES.items()}
    with Product(*(text for _, text in fleets.values())) as product:
        loads = {name: load(port, 12, SETTLE + STAY + 5) for name, (port, _) in fleets.items()}
        time.sleep(SETTLE)
        watches = {name: (Watch(product, name), mean_in_flight(product, name)) for name in fleets}
        time.sleep(STAY)
        for name, (watch, since) in watches.items():
            mean = since()
            sizes = sorted({(desired, ready) for _, desired, ready, _ in watch.stop()})
            right = POLICIES[name][1](mean)
            good = sizes == [(right, right)]
            failed |= not good
            reason = product.fleet(name)["decision"]["reason"]
            print(f"{'ok  ' if good else 'FAIL'} {work:>5} {name:12} (desired, ready) over {STAY} s: {sizes}, right {right}, "
                  f"mean in flight {mean:.3f}; {reason}", flush=True)
        for name, process in loads.items():
            t = tally(process)
            print(f"           {name:12} {t['requests']} requests, {t['lost']} lost, {t['refused']} refused, "
                  f"p50 {t['p50_seconds']:.3f} s, p90 {t['p90_seconds']:.3f} s", flush=True)
            failed |= t["lost"] > 0
sys.exit(failed)
