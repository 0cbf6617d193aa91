"""Servers over HTTP, asked by the least of clients: ours, `mcp`, FastMCP and a bare ASGI app.

Run: python benchmarks/http_servers.py [--calls N] [--rounds N] [--peers PYTHON]

PYTHON is an interpreter that has `mcp` and `fastmcp`; peers that it lacks are left out. Each
round asks every server in turn, so that a machine whose speed drifts does not matter.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from time import perf_counter

HERE = Path(__file__).parent
BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",'
    b'"arguments":{"a":1,"b":1},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{},'
    b'"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}'
)
REQUEST = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
    b"Mcp-Method: tools/call\r\nMcp-Name: add\r\nContent-Length: " + b"%d\r\n\r\n" % len(BODY)
) + BODY


class Bare:
    """Writes requests and looks for the end of replies; decodes nothing."""

    def __init__(self, argv: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [*argv, str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.request = REQUEST.replace(b"%d", b"%d" % self.port)
        for _ in range(1_000):
            with contextlib.suppress(ConnectionRefusedError):
                self.connect().close()
                break
            time.sleep(0.01)  # it starts
        self.rate(64, 32)

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def rate(self, calls: int, width: int) -> float:
        replies = {self.connect(): b"" for _ in range(width)}
        started = perf_counter()
        self.ask(calls, replies)
        seconds = perf_counter() - started
        for connection in replies:
            connection.close()
        return calls / seconds

    def ask(self, calls: int, replies: dict[socket.socket, bytes]) -> None:
        with DefaultSelector() as selector:
            for connection in replies:
                selector.register(connection, EVENT_READ)
                connection.sendall(self.request)
            sent, done = len(replies), 0
            while done < calls:
                for key, _ in selector.select():
                    connection = key.fileobj
                    data = connection.recv(65536)
                    assert data, "the server has closed the connection"
                    replies[connection] += data
                    if complete(replies[connection]):
                        replies[connection] = b""
                        done += 1
                        if sent < calls:
                            connection.sendall(self.request)
                            sent += 1

    def memory(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def complete(reply: bytes) -> bool:
    head, end, body = reply.partition(b"\r\n\r\n")
    if not end:
        return False
    assert head.startswith(b"HTTP/1.1 200"), reply
    length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
    return len(body) >= int(length)


def has(python: str, package: str) -> bool:
    return subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0


def main(calls: int, rounds: int, peers: str) -> None:
    argvs = {
        "bare ASGI": [sys.executable, str(HERE / "bare_asgi_server.py")],
        "interlock": [sys.executable, str(HERE / "peers" / "interlock_server.py")],
    }
    for package in ("mcp", "fastmcp"):
        if has(peers, package):
            argvs[package] = [peers, str(HERE / "peers" / f"{package}_server.py")]
    servers = {name: Bare(argv) for name, argv in argvs.items()}
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for width in (1, 32):
            for name, server in servers.items():
                slow = 10 if name in ("mcp", "fastmcp") else 1
                rates.setdefault((name, width), []).append(server.rate(calls // slow, width))
    print(
        f"{'server':12} {'calls/s':>10} {'ours/it':>8} {'32 at once':>11} {'ours/it':>8} {'MB':>6}"
    )
    for name, server in servers.items():
        cells = []
        for width in (1, 32):
            theirs, ours = rates[name, width], rates["interlock", width]
            ratio = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
            cells += [f"{statistics.median(theirs):10,.0f} {ratio:8.2f}"]
        print(f"{name:12} {cells[0]} {cells[1]:>20} {server.memory():6.0f}")
        server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default=sys.executable)
    options = parser.parse_args()
    main(options.calls, options.rounds, options.peers)
