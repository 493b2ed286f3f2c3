#!/usr/bin/env python3
"""Runs the gateway, a bare hyper proxy and the proxies that are installed against one backend in turn, and prints
Markdown tables: CPU seconds of the proxy per 100,000 requests, added latency, memory, and ratios paired by repetition.

  cargo build --release && cargo build --release -p inflight --example bare_proxy
  bench/gateway/run.py                        # everything, about 8 minutes
  bench/gateway/run.py --only "bare hyper,inflight" --cases http1,h2c --repetitions 5

Needs Linux with two processors or more, nginx (the backend) and, for each case, wrk and h2load (nghttp2-client);
HAProxy and Envoy are measured where they are found (ENVOY names a binary). The proxy has processor 0 for itself,
load and backend share processor 1. Only the loopback is used; time and requests are bounded. `--json FILE` keeps
every single reading."""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import proxies

PORTS = iter(range(24010, 24400))
WARM_SECONDS = 1
IDLE_CONNECTIONS = 10_000


def cpu_seconds(pid):
    """CPU time of all threads that live, by the scheduler's own count, in seconds."""
    nanos = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        nanos += int((task / "schedstat").read_text().split()[0])
    return nanos / 1e9


def rss_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def wait_for(port, process):
    for _ in range(200):
        if process.poll() is not None:
            sys.exit(f"ended before it listened: {process.args}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"does not listen: {process.args}")


def stop(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def micros(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def wrk(port, connections, seconds):
    """A closed loop over HTTP/1.1: requests done, p50 and p99 in µs."""
    command = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", f"http://127.0.0.1:{port}/"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, check=True).stdout
    if re.search(r"Non-2xx|Socket errors", text):
        sys.exit(f"a request failed:\n{text}")
    share = {at: micros(value) for at, value in re.findall(r"(?m)^\s+(50|99)%\s+(\S+)", text)}
    return int(re.search(r"(\d+) requests in", text)[1]), share["50"], share["99"]


def h2load(port, connections, streams, count, folder):
    """Closed loops of gRPC-shaped POSTs of 49 bytes over HTTP/2 without TLS."""
    body, log = folder / "body.bin", folder / "h2load.log"
    body.write_bytes(b"\0\0\0\0\x2c" + b"x" * 44)
    log.unlink(missing_ok=True)
    command = ["taskset", "-c", "1", "h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-n{count}", "-d", str(body),
               "-H", "content-type: application/grpc", "-H", "te: trailers", f"--log-file={log}",
               f"http://127.0.0.1:{port}/bench.Service/Call"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    if f"{count} succeeded, 0 failed, 0 errored" not in text:
        sys.exit(f"a request failed:\n{text}")
    latencies = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
    return count, latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]


class Case:
    """One kind of load against one backend."""

    def __init__(self, title, backend, is_http2, load, warm, single):
        self.title, self.backend, self.is_http2 = title, backend, is_http2
        self.load, self.warm, self.single = load, warm, single


def cases(folder, seconds=4):
    return {
        "http1": Case("HTTP/1.1 keep-alive, 100 bytes, 32 connections", proxies.FAST, False,
                      lambda port: wrk(port, 32, seconds), lambda port: wrk(port, 32, WARM_SECONDS),
                      lambda port: wrk(port, 1, 1)),
        "h2c": Case("h2c, gRPC-shaped POST of 49 bytes, 4 connections of 8 streams", proxies.FAST_H2, True,
                    lambda port: h2load(port, 4, 8, seconds * 12_500, folder), lambda port: h2load(port, 4, 8, 5_000, folder),
                    lambda port: h2load(port, 1, 1, 2_000, folder)),
        "slow": Case("HTTP/1.1, a backend that takes 5 ms, 64 connections", proxies.SLOW, False,
                     lambda port: wrk(port, 64, seconds), lambda port: wrk(port, 64, WARM_SECONDS),
                     lambda port: wrk(port, 1, 1)),
    }


def measure(case, name, build, folder):
    """Starts a proxy, warms it up, and reads it once. `build` is none for no proxy at all."""
    port, process = (case.backend, None)
    if build:
        port = next(PORTS)
        process = proxies.start(build(folder, port, case.backend, case.is_http2), 0, folder, f"proxy-{port}")
        wait_for(port, process)
    try:
        case.warm(port)
        before = cpu_seconds(process.pid) if process else 0
        began = time.monotonic()
        count, p50, p99 = case.load(port)
        took = time.monotonic() - began
        used = cpu_seconds(process.pid) - before if process else 0
        single = case.single(port)
        return {"name": name, "cpu": used / count * 1e5, "p50": p50, "p99": p99, "single": single[1],
                "single99": single[2], "rate": count / took, "busy": used / took}
    finally:
        if process:
            stop(process)


def idle_memory(build, folder):
    """Resident memory before any request, and with idle connections each of which sent one."""
    port = next(PORTS)
    process = proxies.start(build(folder, port, proxies.FAST, False), 0, folder, f"proxy-{port}")
    wait_for(port, process)
    opened = []
    try:
        time.sleep(0.5)
        empty = rss_mib(process.pid)
        for _ in range(IDLE_CONNECTIONS):
            client = socket.create_connection(("127.0.0.1", port), 5)
            opened.append(client)
            client.sendall(b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n")
            if b" 200 " not in client.recv(4096):
                raise RuntimeError("a request failed")
        time.sleep(1)
        return empty, rss_mib(process.pid)
    finally:
        for client in opened:
            client.close()
        stop(process)


def spread(values, digits=2):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def table(case, readings, names):
    """Medians with their ranges; a ratio is the median of the ratios within one repetition."""
    print(f"\n### {case.title}\n")
    print("| proxy | CPU-s per 100,000 requests | × bare hyper, paired | × inflight, paired | added p50, 1 connection, µs "
          "| added p50, µs | added p99, µs | requests/s | of its core |")
    print("|---|---|---|---|---|---|---|---|---|")
    by = {name: [reading for reading in readings if reading["name"] == name] for name in names}
    for name in names:
        def added(key):
            return spread([a[key] - b[key] for a, b in zip(by[name], by["direct"])], 0)

        def ratio(base):
            if base not in by or name == "direct":
                return "-"
            return spread([a["cpu"] / b["cpu"] for a, b in zip(by[name], by[base])])
        rate = f"{statistics.median(r['rate'] for r in by[name]):.0f}"
        if name == "direct":
            p = {key: statistics.median(r[key] for r in by[name]) for key in ("single", "p50", "p99")}
            print(f"| direct | - | - | - | ({p['single']:.0f}) | ({p['p50']:.0f}) | ({p['p99']:.0f}) | {rate} | - |")
        else:
            busy = f"{statistics.median(r['busy'] for r in by[name]) * 100:.0f} %"
            print(f"| {name} | {spread([r['cpu'] for r in by[name]])} | {ratio('bare hyper')} | {ratio('inflight')} "
                  f"| {added('single')} | {added('p50')} | {added('p99')} | {rate} | {busy} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="http1,h2c,slow,memory")
    parser.add_argument("--only", help="names of proxies, separated by commas")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="length of one reading, but for HTTP/2: 12,500 requests each")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    for tool in ("nginx", "wrk", "h2load", "taskset"):
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing")
    wanted = 2 * IDLE_CONNECTIONS
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    found = proxies.installed()
    only = arguments.only.split(",") if arguments.only else list(found)
    builds = {name: build for name, build in found.items() if name in only}
    kept = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        running = [proxies.start(command, 1, folder, f"backend-{at}") for at, command in enumerate(proxies.backends(folder))]
        try:
            for port, process in ((proxies.FAST, running[0]), (proxies.SLOW, running[1])):
                wait_for(port, process)
            for key in arguments.cases.split(","):
                if key == "memory":
                    kept[key] = memory(builds, folder)
                    continue
                case, readings = cases(folder, arguments.seconds)[key], []
                order = [("direct", None), *builds.items()]
                for repetition in range(arguments.repetitions):
                    # Each repetition starts with another one, so that none always has the same neighbour.
                    at = repetition % len(order)
                    for name, build in order[at:] + order[:at]:
                        readings.append(measure(case, name, build, folder))
                kept[key] = readings
                table(case, readings, [name for name, _ in order])
        finally:
            for process in running:
                stop(process)
    if arguments.json:
        arguments.json.write_text(json.dumps(kept))


def memory(builds, folder):
    print(f"\n### Resident memory, MiB\n\n| proxy | idle | with {IDLE_CONNECTIONS:,} idle connections |\n|---|---|---|")
    rows = {}
    for name, build in builds.items():
        rows[name] = idle_memory(build, folder)
        print(f"| {name} | {rows[name][0]:.1f} | {rows[name][1]:.1f} |", flush=True)
    return rows


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    main()
