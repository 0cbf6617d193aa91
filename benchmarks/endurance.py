"""What a server does after a million calls, and while 200 connections are slow.

Run: python benchmarks/endurance.py [--calls N]

Memory is looked at after a warm-up of a tenth of the calls and at the end. The slow connections
send a request's header a byte a second; meanwhile a good client calls one after another.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from time import perf_counter

from stdio_servers import Bare

SERVER = [sys.executable, str(Path(__file__).parent / "peers" / "interlock_server.py")]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"a": 1, "b": 1}, "_meta": META},
    }
)
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "add",
}


def memory_after(calls: int) -> None:
    server = Bare(SERVER)
    server.rate(calls // 10, 64)
    warm = server.memory()
    started = perf_counter()
    server.rate(calls, 64)
    grown = server.memory() - warm
    seconds = perf_counter() - started
    per_100k = grown / calls * 100_000
    print(f"{calls:,} calls on stdio in {seconds:.0f} s: {warm:.1f} MB, {per_100k:+.2f} MB/100,000")
    server.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def p99(port: int, calls: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    times = []
    for _ in range(calls):
        started = perf_counter()
        connection.request("POST", "/mcp", BODY, HEADERS)
        answer = connection.getresponse()
        assert b'"text"' in answer.read(), answer.status
        times.append(perf_counter() - started)
    connection.close()
    return statistics.quantiles(times, n=100)[98] * 1e3


def drip(port: int, stop: threading.Event) -> None:
    slow = []
    for _ in range(200):
        slow.append(socket.create_connection(("127.0.0.1", port)))
    header = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 1000
    for byte in header:
        for connection in slow:
            with contextlib.suppress(OSError):
                connection.send(bytes([byte]))
        if stop.wait(1):
            break
    for connection in slow:
        connection.close()


def slow_connections() -> None:
    port = free_port()
    server = subprocess.Popen([*SERVER, str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)  # it starts
        p99(port, 1_000)
        alone, beside = [], []
        for _ in range(3):
            alone.append(p99(port, 3_000))
            stop = threading.Event()
            dripping = threading.Thread(target=drip, args=(port, stop))
            dripping.start()
            time.sleep(0.5)  # until all 200 are connected
            beside.append(p99(port, 3_000))
            stop.set()
            dripping.join()
        print(
            f"p99 of a good client: {statistics.median(alone):.2f} ms alone, "
            f"{statistics.median(beside):.2f} ms beside 200 slow connections, ratio "
            f"{statistics.median(b / a for a, b in zip(alone, beside, strict=True)):.2f}"
        )
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    memory_after(parser.parse_args().calls)
    slow_connections()
