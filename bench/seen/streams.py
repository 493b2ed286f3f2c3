#!/usr/bin/env python3
"""A WebSocket of 10 minutes, a download of 1 GB, an upload of 100 MB and 1,000 idle streams at once: all are counted
while they live, nothing of them is kept in memory, and afterwards nothing is in flight. Idle streams are cut
after `timeouts.idle`, so that it is longer here than the run.

  pip install websockets
  bench/seen/streams.py [SECONDS]      # 600 unless said otherwise"""

import asyncio
import http.client
import pathlib
import re
import socket
import sys
import threading
import time

import websockets

from harness import Product, free_port

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 600
STREAMS, DOWNLOAD, UPLOAD, PIECE = 1_000, 1_000_000_000, 100_000_000, 1 << 18


def serve_one(connection):
    """A server of one request: `/down` sends, `/up` takes, anything else sends a head and then is silent."""
    with connection:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.recv(65_536)
            if not piece:
                return
            head += piece
        head, body = head.split(b"\r\n\r\n", 1)
        path = head.split(b" ")[1]
        if path == b"/down":
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % DOWNLOAD)
            for _ in range(DOWNLOAD // PIECE):
                connection.sendall(b"\0" * PIECE)
            connection.sendall(b"\0" * (DOWNLOAD % PIECE))
        elif path == b"/up":
            taken = len(body)
            while taken < UPLOAD:
                taken += len(connection.recv(PIECE))
            text = str(taken).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(text), text))
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            connection.recv(1)


def serve():
    listener = socket.create_server(("127.0.0.1", 0), backlog=2_048)

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def rss_mib(process):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024


async def main():
    echoed = 0

    async def echo(connection):
        async for message in connection:
            await connection.send(message)

    server = await websockets.serve(echo, "127.0.0.1", 0)
    echo_port, plain_port = server.sockets[0].getsockname()[1], serve()
    ports = {"socket": free_port(), "plain": free_port()}
    fleets = [f"""
  - name: {name}
    slots: 2000
    replicas: {{ min: 1, max: 1 }}
    source: {{ gateway: {{ listen: "127.0.0.1:{ports[name]}", timeouts: {{ idle: 1h }} }} }}
    endpoints: {{ static: ["127.0.0.1:{address}"] }}
""" for name, address in (("socket", echo_port), ("plain", plain_port))]
    with Product(*fleets) as product:
        counts, sizes = [], []

        def count(name):
            return product.fleet(name)["load"]["in_flight"]

        def idle_stream():
            reader = socket.create_connection(("127.0.0.1", ports["plain"]), 30)
            reader.sendall(b"GET /idle HTTP/1.1\r\nhost: seen\r\n\r\n")
            return reader

        def download():
            connection = http.client.HTTPConnection("127.0.0.1", ports["plain"], timeout=120)
            connection.request("GET", "/down")
            answer, taken = connection.getresponse(), 0
            while piece := answer.read(PIECE):
                taken += len(piece)
            return taken

        def upload():
            connection = http.client.HTTPConnection("127.0.0.1", ports["plain"], timeout=120)
            connection.request("POST", "/up", body=(b"\0" * PIECE for _ in range(UPLOAD // PIECE + 1)),
                               headers={"content-length": str((UPLOAD // PIECE + 1) * PIECE)})
            return int(connection.getresponse().read())

        at_start = rss_mib(product.process)
        async with websockets.connect(f"ws://127.0.0.1:{ports['socket']}/") as connection:
            begun = time.time()
            streams = [await asyncio.to_thread(idle_stream) for _ in range(STREAMS)]
            await asyncio.sleep(1)
            with_streams = rss_mib(product.process)
            moved = [asyncio.create_task(asyncio.to_thread(work)) for work in (download, upload)]
            while time.time() - begun < SECONDS:
                await connection.send("still here")
                echoed += await connection.recv() == "still here"
                counts.append((await asyncio.to_thread(count, "socket"), await asyncio.to_thread(count, "plain")))
                sizes.append(rss_mib(product.process))
                await asyncio.sleep(1)
            taken = [await task for task in moved]
            for stream in streams:
                stream.close()
        await asyncio.to_thread(product.wait_until, lambda: count("socket") + count("plain") == 0, 10, "at nothing in flight")
    counted = all(socket == 1 and plain >= STREAMS for socket, plain in counts)
    whole = taken[0] == DOWNLOAD and taken[1] >= UPLOAD
    flat = max(sizes) - with_streams < 20
    print(f"{'ok  ' if counted and whole and flat else 'FAIL'} WebSocket {SECONDS} s, {echoed} echoes; {STREAMS} idle streams; "
          f"taken {taken}; in flight (socket, others) between {min(counts)} and {max(counts)}; memory {at_start:.0f} MiB at start, "
          f"{with_streams:.0f} with the streams, {max(sizes):.0f} at most, {sizes[-1]:.0f} at the end")
    return counted and whole and flat


sys.exit(not asyncio.run(main()))
