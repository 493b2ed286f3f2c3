#!/usr/bin/env python3
"""Clients that others wrote, against the gateway: grpcio (all four kinds of call, deadline, cancel), a WebSocket
library, curl over HTTP/1.1 and HTTP/2, wrk, h2load, `ab -k`, pipelining over a raw socket, and h2spec.

  pip install grpcio websockets; apt-get install curl wrk nghttp2-client apache2-utils
  bench/seen/clients.py                # H2SPEC names the binary of h2spec where there is one

What is not installed is said (`none`) and is no success: the script then ends with 2."""

import asyncio
import concurrent.futures
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from harness import Product, fleet, free_port

verdicts = []


def say(verdict, what, detail=""):
    verdicts.append(verdict)
    print(f"{verdict:4} {what:44} {detail}", flush=True)


def tool(name):
    path = shutil.which(name)
    if path is None:
        say("none", name, "is not installed")
    return path


def run(*words, seconds=60):
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds)
    return done.stdout + done.stderr


def static(name, address, slots=16):
    """A fleet in front of a server that is here already."""
    port = free_port()
    return port, f"""
  - name: {name}
    slots: {slots}
    replicas: {{ min: 1, max: 1 }}
    source: {{ gateway: {{ listen: "127.0.0.1:{port}" }} }}
    endpoints: {{ static: ["127.0.0.1:{address}"] }}
"""


# --- servers of other people's libraries, behind the gateway -----------------------------------


def grpc_server():
    import grpc

    def unary(request, context):
        if request == b"slow":
            context.add_callback(lambda: gone.set())
            gone.wait(20)
        if request == b"no":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")
        context.set_trailing_metadata((("said-last", "yes"),))
        return request[::-1]

    def server_stream(request, _):
        for number in range(int(request)):
            yield str(number).encode()

    def client_stream(requests, _):
        return str(sum(len(request) for request in requests)).encode()

    def both(requests, _):
        for request in requests:
            yield request.upper()

    gone = threading.Event()
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
        "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
        "Both": grpc.stream_stream_rpc_method_handler(both),
    }
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(32))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("seen.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port, gone


def websocket_server():
    """An echo in a thread of its own; returns its port."""
    import websockets

    ready = concurrent.futures.Future()

    async def serve():
        async def echo(connection):
            async for message in connection:
                await connection.send(message)

        server = await websockets.serve(echo, "127.0.0.1", 0, max_size=None)
        ready.set_result(server.sockets[0].getsockname()[1])
        await asyncio.Future()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    return ready.result(10)


# --- the checks ---------------------------------------------------------------------------------


def check_grpc(port, product, gone):
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        unary = channel.unary_unary("/seen.Echo/Unary")
        answer, call = unary.with_call(b"abc", timeout=20)
        trailers = dict(call.trailing_metadata())
        say("ok" if answer == b"cba" and trailers.get("said-last") == "yes" else "FAIL", "grpcio unary, trailers")
        numbers = list(channel.unary_stream("/seen.Echo/ServerStream")(b"1000", timeout=20))
        say("ok" if len(numbers) == 1000 else "FAIL", "grpcio server stream", f"{len(numbers)} messages")
        total = channel.stream_unary("/seen.Echo/ClientStream")((b"x" * 10_000 for _ in range(500)), timeout=20)
        say("ok" if total == b"5000000" else "FAIL", "grpcio client stream", f"{total.decode()} bytes")
        lock_step = iter_lock_step(channel.stream_stream("/seen.Echo/Both"))
        say("ok" if lock_step == 200 else "FAIL", "grpcio both ways in lock step", f"{lock_step} turns")
        try:
            unary(b"no", timeout=20)
            code = None
        except grpc.RpcError as error:
            code = error.code()
        say("ok" if code == grpc.StatusCode.FAILED_PRECONDITION else "FAIL", "grpcio status of the server", str(code))
        begun = time.time()
        try:
            unary(b"slow", timeout=0.5)
            code = None
        except grpc.RpcError as error:
            code = error.code()
        reset = gone.wait(5)
        right = code == grpc.StatusCode.DEADLINE_EXCEEDED and reset
        say("ok" if right else "FAIL", "grpcio deadline, and the server hears of it",
            f"{code}, told after {time.time() - begun:.2f} s")
        product.wait_until(lambda: product.fleet("grpc")["load"]["in_flight"] == 0, 5, "at nothing in flight")


def iter_lock_step(call):
    """Sends the next message only when the last one came back."""
    turn = threading.Semaphore(1)

    def messages():
        for number in range(200):
            turn.acquire()
            yield f"m{number}".encode()

    turns = 0
    for answer in call(messages(), timeout=20):
        if answer != f"M{turns}".encode():
            break
        turns += 1
        turn.release()
    return turns


def check_websocket(port, product):
    import websockets

    async def talk():
        async with websockets.connect(f"ws://127.0.0.1:{port}/", max_size=None) as connection:
            for size in (0, 1, 125, 126, 65_536, 3_000_000):
                await connection.send(b"x" * size)
                if len(await connection.recv()) != size:
                    return "wrong answer"
            pong = await connection.ping()
            await asyncio.wait_for(pong, 10)
            open_count = product.fleet("websocket")["load"]["in_flight"]
        return f"in flight while open: {open_count}"

    said = asyncio.run(talk())
    product.wait_until(lambda: product.fleet("websocket")["load"]["in_flight"] == 0, 5, "at nothing in flight")
    say("ok" if said.endswith(": 1.0") else "FAIL", "websockets: echo, ping, close", said)


def check_curl(port):
    if not tool("curl"):
        return
    url = f"http://127.0.0.1:{port}/"
    with tempfile.TemporaryDirectory() as folder:
        large = pathlib.Path(folder) / "large"
        large.write_bytes(b"x" * 30_000_000)
        for version in ("--http1.1", "--http2-prior-knowledge"):
            write = ["-s", "-o", "/dev/null", "-w", "%{http_code}"]
            cases = {
                "GET": [], "HEAD": ["-I"],
                "upload with Expect": ["-H", "Expect: 100-continue", "--data-binary", f"@{large}"],
                "chunked upload": ["-H", "Transfer-Encoding: chunked", "-T", str(large)],
            }
            if version != "--http1.1":
                cases.pop("chunked upload")
            for name, words in cases.items():
                code = run("curl", version, *write, *words, url)
                say("ok" if code == "200" else "FAIL", f"curl {version} {name}", code)


def check_load_tools(port):
    url = f"http://127.0.0.1:{port}/"
    if tool("wrk"):
        out = run("wrk", "-t1", "-c16", "-d3s", url)
        bad = re.findall(r"(Socket errors.*|Non-2xx.*)", out)
        count = re.search(r"(\d+) requests in", out)
        say("FAIL" if bad or not count else "ok", "wrk, 16 connections, 3 s", "; ".join(bad) or count[0])
    if tool("ab"):
        out = run("ab", "-k", "-l", "-q", "-n", "5000", "-c", "16", url)
        failed, kept = re.search(r"Failed requests:\s+(\d+)", out), re.search(r"Keep-Alive requests:\s+(\d+)", out)
        right = failed and failed[1] == "0" and kept and int(kept[1]) > 4900 and "Non-2xx" not in out
        say("ok" if right else "FAIL", "ab -k, 5000 requests", f"failed {failed and failed[1]}, kept alive {kept and kept[1]}")
    if tool("h2load"):
        for name, more in (("HTTP/2, 4 x 8 streams", ["-m8"]), ("HTTP/1.1", ["--h1"])):
            out = run("h2load", "-n", "5000", "-c", "4", *more, url)
            good = re.search(r"(\d+) succeeded, (\d+) failed", out)
            right = good and good[1] == "5000" and "5000 2xx" in out
            say("ok" if right else "FAIL", f"h2load {name}", good and good[0])


def check_pipelining(port):
    count = 100
    with socket.create_connection(("127.0.0.1", port), 10) as stream:
        head = b"GET /?turn=%d HTTP/1.1\r\nhost: seen\r\n"
        for turn in range(count):
            stream.sendall(head % turn + (b"connection: close\r\n\r\n" if turn == count - 1 else b"\r\n"))
        stream.settimeout(20)
        answers = b""
        while piece := stream.recv(65_536):
            answers += piece
    got = answers.count(b"HTTP/1.1 200")
    say("ok" if got == count else "FAIL", "raw socket, 100 requests at once", f"{got} answers")


def check_h2spec(port):
    binary = os.environ.get("H2SPEC") or shutil.which("h2spec")
    if not binary:
        say("none", "h2spec", "is not installed")
        return
    out = run(binary, "-h", "127.0.0.1", "-p", str(port), "-o", "3", seconds=300)
    failed = re.findall(r"^\s+× (.*)$", out.split("Failures:")[-1], re.M)
    # A port that speaks HTTP/1.1 as well answers a wrong preface with 400 and closes.
    right = all("invalid connection preface" in name for name in failed)
    say("ok" if right and "tests" in out else "FAIL", "h2spec", f"{out.strip().splitlines()[-1]} {failed}")


def main():
    port, text = fleet("plain", slots=16, minimum=1, maximum=1, work="1ms")
    fleets, checks = [text], []
    checks += [lambda _, check=check: check(port)
               for check in (check_curl, check_load_tools, check_pipelining, check_h2spec)]
    try:
        server, address, gone = grpc_server()
        grpc_port, text = static("grpc", address)
        fleets.append(text)
        checks.append(lambda product: check_grpc(grpc_port, product, gone))
    except ImportError:
        say("none", "grpcio", "is not installed")
    try:
        socket_port, text = static("websocket", websocket_server())
        fleets.append(text)
        checks.append(lambda product: check_websocket(socket_port, product))
    except ImportError:
        say("none", "websockets", "is not installed")
    with Product(*fleets) as product:
        product.wait_until(lambda: product.fleet("plain")["replicas"]["ready"] == 1, 20, "at one replica")
        for check in checks:
            check(product)
        product.wait_until(lambda: product.fleet("plain")["load"]["in_flight"] == 0, 10, "at nothing in flight")
    sys.exit(1 if "FAIL" in verdicts else 2 if "none" in verdicts else 0)


main()
