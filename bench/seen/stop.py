#!/usr/bin/env python3
"""SIGTERM under load: nothing accepted is lost, exit 0 within the drain time-out. `kill -9` of
ours: no replica process is left after 2 s."""

import signal
import sys
import time

from harness import Product, fleet, load, replica_processes, tally

failed = False

for attempt in range(3):
    port, text = fleet("stop", slots=2, minimum=3, maximum=6, work="1s")
    with Product(text) as product:
        product.wait_until(lambda: product.fleet("stop")["replicas"]["ready"] == 3, 30, "at 3 replicas")
        running = load(port, 12, 4)
        time.sleep(2)
        inside = product.fleet("stop")["load"]["in_flight"]
        begin = time.time()
        product.process.send_signal(signal.SIGTERM)
        code = product.process.wait(70)
        took = time.time() - begin
        seen = tally(running)
        # Clients go on after the listener closed: what they sent then was never accepted.
        left = replica_processes(product)
        good = code == 0 and seen["broken"] == 0 and not left
        failed |= not good
        print(f"{'ok  ' if good else 'FAIL'} SIGTERM with {inside:.0f} in flight: exit {code} after {took:.1f} s, "
              f"accepted but lost {seen['broken']}, not accepted any more {seen['lost'] - seen['broken']}, left behind {left}", flush=True)

for attempt in range(3):
    port, text = fleet("stop", slots=2, minimum=4, maximum=6, work="100ms")
    with Product(text) as product:
        product.wait_until(lambda: product.fleet("stop")["replicas"]["ready"] == 4, 30, "at 4 replicas")
        running = load(port, 8, 2)
        time.sleep(1)
        before = len(replica_processes(product))
        product.process.kill()
        product.process.wait()
        time.sleep(2)
        left = replica_processes(product)
        tally(running)
        failed |= bool(left)
        print(f"{'ok  ' if not left else 'FAIL'} SIGKILL of ours with {before} processes of replicas: {len(left)} left after 2 s", flush=True)
sys.exit(failed)
