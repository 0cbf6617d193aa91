"""What it costs to begin: imports, the first answer of servers, discovery of many at once.

Run: python benchmarks/startup.py [--rounds N]

Every figure is of a fresh process. "our share" is the time from the start of `Toolbox.open` to
its end, less the time that the slowest server needs to be found by the least of clients.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

BARE = str(Path(__file__).with_name("bare_server.py"))
TIME_SERVER = str(Path(sys.executable).with_name("mcp-server-time"))

IMPORT = "from time import perf_counter as c; t = c(); {}; print(c() - t)"

# One server, spoken to with nothing but subprocess: spawn, discover, list, and that is all.
BARE_DISCOVERY = """
import json, subprocess, sys
from time import perf_counter
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}
def ask(server, id, method):
    line = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": META}}
    server.stdin.write(json.dumps(line).encode() + b"\\n")
    server.stdin.flush()
    server.stdout.readline()
started = perf_counter()
argvs = eval(sys.argv[1])
servers = [subprocess.Popen(argv, stdin=-1, stdout=-1) for argv in argvs]
for server in servers:
    ask(server, 1, "server/discover")
    ask(server, 2, "tools/list")
print(perf_counter() - started)
for server in servers:
    server.stdin.close()
for server in servers:
    server.wait()
"""

TOOLBOX = """
import asyncio, sys
from time import perf_counter
from interlock import StdioServer, Toolbox
async def main():
    argvs = eval(sys.argv[1])
    servers = {f"s{i}": StdioServer(command=argv[0], args=tuple(argv[1:]))
               for i, argv in enumerate(argvs)}
    toolbox = Toolbox(servers)
    started = perf_counter()
    await toolbox.open()
    print(perf_counter() - started)
    assert all(each.state == "ok" for each in toolbox.status.values()), toolbox.status
    await toolbox.close()
asyncio.run(main())
"""


def run(code: str, *arguments: str) -> float:
    command = [sys.executable, "-c", code, *arguments]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def main(rounds: int) -> None:
    for statement in ("import interlock", "from interlock import Client, Toolbox, Agent"):
        seconds = [run(IMPORT.format(statement)) for _ in range(rounds)]
        print(f"{statement:50} {statistics.median(seconds) * 1e3:8.1f} ms")
    bare = [sys.executable, "-I", BARE]
    cases = {
        "1 bare server": [bare],
        "10 bare servers": [bare] * 10,
        "1 mcp-server-time": [[TIME_SERVER]],
        "4 mcp-server-time": [[TIME_SERVER]] * 4,
    }
    print(f"{'discovery':26} {'bare':>9} {'interlock':>11} {'ratio':>6} {'our share a server':>20}")
    for name, argvs in cases.items():
        pairs = [
            (run(BARE_DISCOVERY, repr(argvs)), run(TOOLBOX, repr(argvs))) for _ in range(rounds)
        ]
        least = statistics.median(pair[0] for pair in pairs)
        ours = statistics.median(pair[1] for pair in pairs)
        ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
        share = (ours - least) / len(argvs) * 1e3
        print(f"{name:26} {least:8.3f}s {ours:10.3f}s {ratio:6.2f} {share:17.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args().rounds)
