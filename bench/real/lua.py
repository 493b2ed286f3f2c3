#!/usr/bin/env python3
"""Drives the filter of `inflight render lua` in a real Envoy, as `inflight render envoy --lua` prints both: who is
refused at the cap and how a gRPC client sees it, and what becomes of first calls when Prometheus answers oddly, or
not at all.

  FOLDER/venv/bin/python lua.py [SCENE ...]           # cap, odd; both unless named

The exit code is 1 if anything was not as it has to be. Servers and Prometheus are stand-ins of this process."""

import concurrent.futures
import contextlib
import json
import sys
import time
import urllib.parse

import grpc

import answers
import real
from gate import INDEX, INFER, SLACK, Answer, failures, seen, together, wait
from harness import free_port

TIMEOUT = 0.5               # seconds that Prometheus has to answer
QUERY = "sum(queue{a=\"[[b]]\"})\n  / 2"
MEANS = {
    answers.PASSES: grpc.StatusCode.OK,
    answers.FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class Server:
    """A gRPC server that answers every call with nothing, and counts them by path."""

    def __init__(self, seconds=0.0):
        self.calls, self.seconds = {}, seconds
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
        self.server.add_generic_rpc_handlers((self,))
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    def service(self, details):
        path = details.method

        def answer(_request, _context):
            if path == "/grpc.health.v1.Health/Check":
                return b"\x08\x01"
            self.calls[path] = self.calls.get(path, 0) + 1
            time.sleep(self.seconds)
            return b""
        return grpc.unary_unary_rpc_method_handler(answer)

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop(0).wait()


def fleet(admin, prometheus):
    return f"""
  - name: triton
    replicas: {{ min: 1, max: 4 }}
    source: {{ prometheus: {{ url: "http://127.0.0.1:{prometheus.port}/below", query: {json.dumps(QUERY)} }} }}
    scaling: {{ policy: metric, target: 100 }}
    admission: {{ threshold: {answers.LIMIT} }}
"""


def envoy(server, prometheus, on_failure):
    """The Envoy that is printed for the fleet, and nothing changed in it."""
    listen, admin = free_port(), free_port()
    return real.Printed(
        fleet(admin, prometheus), listen, admin, "triton", "--lua", "--server", f"127.0.0.1:{server.port}", "--timeout",
        f"{TIMEOUT}s", "--on-failure", on_failure)


def library_retry(port):
    """When to come again as the library reads it, where that part of it is installed."""
    try:
        from google.rpc import error_details_pb2
        from grpc_status import rpc_status
    except ImportError:
        return None
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            channel.unary_unary(INDEX)(b"", timeout=10)
        except grpc.RpcError as error:
            retry = error_details_pb2.RetryInfo()
            rpc_status.from_call(error).details[0].Unpack(retry)
            return retry.retry_delay.seconds
    return None


def cap():
    """Above the limit: 100 sessions that begin are refused before the server, and running ones are not touched."""
    with contextlib.ExitStack() as stack:
        prometheus = stack.enter_context(answers.Prometheus(answers.vector(answers.LIMIT + 1)))
        server = stack.enter_context(Server(0.02))
        proxy = stack.enter_context(envoy(server, prometheus, "closed"))
        wait(lambda: proxy.healthy == 1, 10, "Envoy has a server")
        seen(not proxy.warnings(), f"check --envoy of what it dumps: {proxy.warnings() or 'nothing to warn of'}")
        clients = stack.enter_context(real.Clients(proxy.listen, 8))
        wait(lambda: clients.answered > 8, 10, "sessions run")
        before = clients.answered
        refused = together(100, lambda: Answer(proxy.listen, INDEX), at_once=10)
        codes = {answer.code for answer in refused}
        seen(codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}, f"100 sessions that begin: {codes}")
        waits = {answer.retry_seconds for answer in refused}
        pushback = {answer.trailers.get("grpc-retry-pushback-ms") for answer in refused}
        seen(None not in waits and waits <= set(range(10, 14)) and None not in pushback,
             f"each with RetryInfo: {sorted(map(str, waits))} s, message {refused[0].text!r}, pushback {sorted(pushback)} ms")
        delay = library_retry(proxy.listen)
        seen(delay is None or 10 <= delay <= 12, f"as grpc_status reads it: {delay or 'not installed'}")
        seen(clients.answered > before and clients.failed == 0,
             f"meanwhile {clients.answered - before} calls of running sessions, {clients.failed} failed")
        clients.stop()
        time.sleep(0.5)
        served = server.calls.get(INFER, 0)
        seen(INDEX not in server.calls and abs(proxy.sent - served) <= 8,
             f"sent by Envoy (upstream_rq_total): {proxy.sent}; served: {server.calls}")
        asked = urllib.parse.urlsplit(prometheus.asked[-1])
        query = urllib.parse.parse_qs(asked.query)["query"][0]
        seen(asked.path == "/below/api/v1/query" and query.strip() == QUERY, f"asked: {asked.path}, {query!r}")
        prometheus.answer = answers.vector("1")
        seen(Answer(proxy.listen, INDEX).code == grpc.StatusCode.OK and server.calls.get(INDEX) == 1,
             "below the limit a session begins")


def odd():
    """Each odd answer of Prometheus, with the filter closed and open; answered within the time-out."""
    for on_failure, unknown in (("closed", grpc.StatusCode.UNAVAILABLE), ("open", grpc.StatusCode.OK)):
        with contextlib.ExitStack() as stack:
            prometheus = stack.enter_context(answers.Prometheus())
            server = stack.enter_context(Server())
            proxy = stack.enter_context(envoy(server, prometheus, on_failure))
            wait(lambda: proxy.healthy == 1, 10, "Envoy has a server")
            wait(lambda: Answer(proxy.listen, INDEX).code == grpc.StatusCode.OK, 10, "a call passes")
            wrong, slowest = [], 0.0
            for what, (answer, means) in answers.ODD.items():
                prometheus.answer = answer
                expected, before = MEANS.get(means, unknown), server.calls.get(INDEX, 0)
                got = Answer(proxy.listen, INDEX, seconds=20)
                slowest = max(slowest, got.took)
                reached = server.calls.get(INDEX, 0) - before
                retry = expected == grpc.StatusCode.OK or got.retry_seconds is not None
                if got.code != expected or reached != (expected == grpc.StatusCode.OK) or not retry \
                        or got.took > TIMEOUT + SLACK:
                    wrong.append(f"{what}: {got.code} {got.text!r} after {got.took:.2f} s, reached the server {reached} times")
            seen(not wrong, f"{on_failure}: {len(answers.ODD)} answers, the slowest after {slowest:.2f} s "
                 f"with {TIMEOUT} s for Prometheus{''.join(f'; {line}' for line in wrong)}")
            prometheus.answer = answers.HANGS
            many = together(50, lambda: Answer(proxy.listen, INDEX, seconds=20), at_once=25)
            codes, slowest = {answer.code for answer in many}, max(answer.took for answer in many)
            seen(codes == {unknown} and slowest <= TIMEOUT + 2 * SLACK,
                 f"{on_failure}: 50 sessions while Prometheus hangs: {codes}, the slowest after {slowest:.2f} s")
            others = Answer(proxy.listen, INFER)
            seen(others.code == grpc.StatusCode.OK and others.took < TIMEOUT,
                 f"{on_failure}: meanwhile another call passes after {others.took:.2f} s")


if __name__ == "__main__":
    scenes = {scene.__name__: scene for scene in (cap, odd)}
    for name in sys.argv[1:] or scenes:
        print(f"== {name}: {scenes[name].__doc__}", flush=True)
        scenes[name]()
    sys.exit(1 if failures else 0)
