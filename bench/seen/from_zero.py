#!/usr/bin/env python3
"""From zero: one request waits the process's own start time + at most 50 ms; 200 requests of
100 ms at once at zero replicas are all answered."""

import statistics
import subprocess
import sys
import time
import urllib.request

from harness import BINARY, Product, fleet, free_port

failed = False
REPEAT = 7


def own_start_time(binary, delay):
    """How long the server needs by itself, without us, from its start to its first good answer."""
    port = free_port()
    begin = time.time()
    process = subprocess.Popen([binary, "__serve", "--port", str(port), "--start-delay", delay])
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1).read()
                return time.time() - begin
            except OSError:
                time.sleep(0.001)
    finally:
        process.kill()
        process.wait()


for delay in ("0ms", "500ms", "2s"):
    own, waits = [], []
    for _ in range(REPEAT):
        own.append(own_start_time(BINARY, delay))
        port, text = fleet("zero", slots=2, work="0ms", start_delay=delay)
        with Product(text) as product:
            begin = time.time()
            answer = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{time_total}",
                                     f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True).stdout
            status, seconds = answer.split()
            assert status == "200", answer
            waits.append(float(seconds))
    extra = [w - statistics.median(own) for w in waits]
    good = statistics.median(extra) <= 0.050
    failed |= not good
    print(f"{'ok  ' if good else 'FAIL'} start delay {delay:>5}: own start {statistics.median(own) * 1e3:.0f} ms, first request waited "
          f"{statistics.median(waits) * 1e3:.0f} ms, added median {statistics.median(extra) * 1e3:.0f} ms, "
          f"all {[round(e * 1e3) for e in extra]}", flush=True)

port, text = fleet("zero", slots=2, work="100ms", start_delay="1s")
with Product(text) as product:
    clients = [subprocess.Popen(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{port}/"],
                                stdout=subprocess.PIPE, text=True) for _ in range(200)]
    codes = [client.communicate()[0] for client in clients]
    good = codes == ["200"] * 200
    failed |= not good
    print(f"{'ok  ' if good else 'FAIL'} 200 requests at once at zero: {codes.count('200')} answered 200, others {sorted(set(codes) - {'200'})}")
sys.exit(failed)
