#!/usr/bin/env python3
"""`kill -9` of a replica under 200 GET/s: only requests whose answer had begun may fail, with a
reason; the rest are retried or waited for; counts return to the truth; a new replica comes."""

import collections
import http.client
import os
import signal
import sys
import threading
import time

from harness import Product, fleet, replica_processes

port, text = fleet("killed", slots=4, minimum=3, maximum=3, work="20ms", start_delay="300ms",
                   scaling="policy: staffing")
RATE, SECONDS, CLIENTS = 200, 20, 20
outcomes = collections.Counter()
lock = threading.Lock()


def client(number):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    begin = time.time() + number / RATE
    for turn in range(RATE * SECONDS // CLIENTS):
        time.sleep(max(0, begin + turn * CLIENTS / RATE - time.time()))
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            answer.read()
            outcome = f"{answer.status} {answer.getheader('x-inflight-reason') or ''}".strip()
        except Exception as error:
            outcome = f"broken: {type(error).__name__}"
            connection.close()
        with lock:
            outcomes[outcome] += 1


with Product(text) as product:
    product.wait_until(lambda: product.fleet("killed")["replicas"]["ready"] == 3, 30, "at 3 replicas")
    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    kills = 0
    for _ in range(5):
        time.sleep(3)
        victims = [pid for pid, words in replica_processes(product) if "__serve" in words and "__replica" not in words]
        os.kill(victims[0], signal.SIGKILL)
        kills += 1
    for thread in threads:
        thread.join()
    product.wait_until(lambda: product.fleet("killed")["replicas"]["ready"] == 3, 30, "back at 3 replicas")
    state = product.fleet("killed")
    zero = state["load"]["in_flight"] == 0 and state["load"]["executing"] == 0 and state["load"]["queued"] == 0
    good = zero and set(outcomes) <= {"200"} and sum(outcomes.values()) == RATE * SECONDS
    print(f"{'ok  ' if good else 'FAIL'} {sum(outcomes.values())} GETs at {RATE}/s, {kills} replicas killed: {dict(outcomes)}; "
          f"afterwards in flight {state['load']['in_flight']}, ready {state['replicas']['ready']}")
sys.exit(not good)
