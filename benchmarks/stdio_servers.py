"""Servers on stdio, asked by the least of clients: ours, `mcp`, FastMCP and a bare loop.

Run: python benchmarks/stdio_servers.py [--calls N] [--rounds N] [--peers PYTHON]

PYTHON is an interpreter that has `mcp` and `fastmcp`; peers that it lacks are left out. Each
round asks every server in turn, so that a machine whose speed drifts does not matter.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

HERE = Path(__file__).parent
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{},'
    b'"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}'
)
CALL = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":'
    b'{"name":"add","arguments":{"a":%d,"b":1},' + META + b"}}\n"
)


class Bare:
    """Writes lines and counts lines; decodes nothing."""

    def __init__(self, argv: list[str]) -> None:
        self.started = perf_counter()
        self.process = subprocess.Popen(
            argv, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, bufsize=0
        )
        self.last = 0
        self.write(
            b'{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{' + META + b"}}\n"
        )
        self.read(1)
        self.first_answer = perf_counter() - self.started
        self.ask(1)

    def write(self, data: bytes) -> None:
        self.process.stdin.write(data)

    def read(self, lines: int) -> None:
        while lines:
            data = os.read(self.process.stdout.fileno(), 1 << 18)
            assert data, "the server has gone"
            lines -= data.count(b"\n")

    def ask(self, width: int) -> None:
        self.write(b"".join(CALL % (self.last + i, i) for i in range(1, width + 1)))
        self.last += width
        self.read(width)

    def rate(self, calls: int, width: int) -> float:
        started = perf_counter()
        for _ in range(calls // width):
            self.ask(width)
        return calls / (perf_counter() - started)

    def memory(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def has(python: str, package: str) -> bool:
    return subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0


def main(calls: int, rounds: int, peers: str) -> None:
    argvs = {
        "bare loop": [sys.executable, "-I", str(HERE / "bare_server.py")],
        "interlock": [sys.executable, str(HERE / "peers" / "interlock_server.py")],
    }
    for package in ("mcp", "fastmcp"):
        if has(peers, package):
            argvs[package] = [peers, str(HERE / "peers" / f"{package}_server.py")]
    servers = {name: Bare(argv) for name, argv in argvs.items()}
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for width in (1, 64):
            for name, server in servers.items():
                slow = 10 if name in ("mcp", "fastmcp") else 1
                rate = server.rate(calls // slow * (4 if width > 1 else 1), width)
                rates.setdefault((name, width), []).append(rate)
    print(
        f"{'server':12} {'calls/s':>10} {'ours/it':>8} {'64 at once':>11} {'ours/it':>8}"
        f" {'start s':>8} {'MB':>6}"
    )
    for name, server in servers.items():
        cells = []
        for width in (1, 64):
            theirs, ours = rates[name, width], rates["interlock", width]
            ratio = statistics.median(o / t for o, t in zip(ours, theirs, strict=True))
            cells += [f"{statistics.median(theirs):10,.0f} {ratio:8.2f}"]
        memory = server.memory()
        print(f"{name:12} {cells[0]} {cells[1]:>20} {server.first_answer:8.2f} {memory:6.0f}")
        server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default=sys.executable)
    options = parser.parse_args()
    main(options.calls, options.rounds, options.peers)
