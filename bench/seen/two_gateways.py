#!/usr/bin/env python3
"""Two gateways before one static fleet, and a third instance that decides by the sum of their counters.
For a minute the sum is compared with what the clients have open, while one gateway is killed (SIGKILL)
and started again, and then stopped (SIGSTOP) for ten seconds and continued."""

import http.client
import signal
import subprocess
import sys
import threading
import time

from harness import BINARY, Product, free_port

CLIENTS = 20
SECONDS = 60


class Clients:
    """Closed-loop clients of one gateway, which come again at once when they are refused."""

    def __init__(self, port):
        self.open = 0
        self._port = port
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        while not self._stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                connection.connect()
                while not self._stop.is_set():
                    self._count(1)
                    try:
                        connection.request("GET", f"/?work={2000 + 150 * number}ms")
                        connection.getresponse().read()
                    finally:
                        self._count(-1)
            except (OSError, http.client.HTTPException):
                self._stop.wait(0.02)
            finally:
                connection.close()

    def _count(self, by):
        with self._lock:
            self.open += by

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(35)


def gateway(server_port):
    port, admin_port = free_port(), free_port()
    fleet = f"""
  - name: hello
    slots: 1000
    replicas: {{ min: 1, max: 8 }}
    source: {{ gateway: {{ listen: "127.0.0.1:{port}" }} }}
    endpoints: {{ static: ["127.0.0.1:{server_port}"] }}
"""
    return port, admin_port, lambda: Product(fleet, admin_port=admin_port)


def compare(deciding, clients, seconds, act):
    """Means of the sum and of what clients have open, by samples; the sizes decided; what was unknown."""
    acts = threading.Thread(target=act)
    acts.start()
    sums, truths, sizes, unknown = [], [], [], 0
    end = time.time() + seconds
    while time.time() < end:
        state = deciding.fleet("hello")
        value = state["load"]["in_flight"]
        unknown += value is None
        sums.append(value or 0.0)
        truths.append(sum(one.open for one in clients))
        sizes.append(state["replicas"]["desired"])
        time.sleep(0.05)
    acts.join()
    return sum(sums) / len(sums), sum(truths) / len(truths), sizes, unknown


def report(name, result, all_right):
    mean, truth, sizes, unknown = result
    off = 100.0 * (mean - truth) / truth
    right = abs(off) <= 1.0 and unknown == 0 and min(sizes) >= CLIENTS - 1
    print(f"{'ok  ' if right else 'FAIL'} {name:32} sum {mean:.2f}, clients {truth:.2f}: {off:+.2f} %, "
          f"desired {min(sizes)} to {max(sizes)}, unknown {unknown} times", flush=True)
    return all_right and right


def main():
    server_port = free_port()
    server = subprocess.Popen([BINARY, "__serve", "--slots", "1000", "--port", str(server_port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    port_a, admin_a, start_a = gateway(server_port)
    port_b, admin_b, start_b = gateway(server_port)
    decides = f"""
  - name: hello
    slots: 2
    replicas: {{ min: 1, max: 60 }}
    source: {{ inflight: {{ peers: ["127.0.0.1:{admin_a}", "127.0.0.1:{admin_b}"], every: 200ms, timeout: 1s }} }}
    scaling: {{ policy: concurrency, window: 10s }}
"""
    running = [start_a(), start_b()]
    clients = [Clients(port_a), Clients(port_b)]
    all_right = True
    try:
        with Product(decides) as deciding:
            def settled():
                load = deciding.fleet("hello")["load"]["in_flight"]
                return load is not None and load > 1.9 * CLIENTS
            deciding.wait_until(settled, 30, "that both gateways are read")
            time.sleep(12)
            all_right = report("nothing happens", compare(deciding, clients, 10, lambda: None), all_right)

            def kill():
                time.sleep(SECONDS / 3)
                running[0].process.kill()
                running[0].process.wait()
                running[0] = start_a()
            all_right = report("one is killed and started", compare(deciding, clients, SECONDS, kill), all_right)

            def stop():
                time.sleep(2)
                running[0].process.send_signal(signal.SIGSTOP)
                time.sleep(10)
                unreachable = deciding.metric('inflight_unreachable_peers{fleet="hello"}')
                running[0].process.send_signal(signal.SIGCONT)
                print(f"     while it hangs: unreachable peers {unreachable:.0f}", flush=True)
            all_right = report("one hangs for 10 s", compare(deciding, clients, 20, stop), all_right)
    finally:
        for one in clients:
            one.stop()
        for one in running:
            one.__exit__()
        server.terminate()
        server.wait()
    sys.exit(0 if all_right else 1)


if __name__ == "__main__":
    main()
