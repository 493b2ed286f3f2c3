#!/usr/bin/env python3
"""The clients of one run, in a process of their own: batch jobs that begin one after the other, each with a
connection of its own: an index call, then so many requests, each sent when the one before was answered and a pause
is over. A request that fails is sent again, and counted. Reads its plan from stdin, writes what it saw to stdout.

All that is random comes from the seed, so that each arm serves the very same requests."""

import asyncio
import json
import pathlib
import random
import sys
import time

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "real"))

from real import infer_request  # noqa: E402

INDEX = "/inference.GRPCInferenceService/RepositoryIndex"
INFER = "/inference.GRPCInferenceService/ModelInfer"
# A server whose requests are all alike is no mixture; one request in a thousand is longer than this many means.
LONGEST = 7.0


def service_times(plan, job):
    """Milliseconds, exponentially distributed about the mean."""
    draw = random.Random(f"{plan['seed']} {plan['service_ms']} {job}")
    return [plan["service_ms"] * min(draw.expovariate(1.0), LONGEST) for _ in range(plan["requests"])]


async def answered(call, request, failures):
    while True:
        try:
            return await call(request)
        except grpc.aio.AioRpcError as error:
            failures.append([time.time(), error.code().name, error.details()])
            if len(failures) > 1000:
                raise
            await asyncio.sleep(0.05)


async def run(plan, job, requests, failures):
    await asyncio.sleep(job * plan["apart"])
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    begin = time.time()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{plan['port']}", options=options) as channel:
        index, infer = channel.unary_unary(INDEX), channel.unary_unary(INFER)
        await answered(index, b"", failures)
        for service_ms in service_times(plan, job):
            request = infer_request(plan["model"], service_ms)
            sent = time.perf_counter()
            await answered(infer, request, failures)
            requests.append((time.time(), 1000 * (time.perf_counter() - sent), service_ms))
            await asyncio.sleep(plan["think_ms"] / 1000)
    return {"job": job, "begin": begin, "end": time.time()}


async def main(plan):
    requests, failures = [], []
    jobs = await asyncio.gather(*(run(plan, job, requests, failures) for job in range(plan["jobs"])))
    return {"jobs": jobs, "failures": failures, "requests": requests}


if __name__ == "__main__":
    json.dump(asyncio.run(main(json.load(sys.stdin))), sys.stdout)
