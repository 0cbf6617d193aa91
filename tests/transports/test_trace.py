"""What a trace sees of a connection."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlock.config import StdioServer
from interlock.text.redaction import Redactor
from interlock.toolbox.connect import make_client
from interlock.transports.http_endpoint import HttpEndpoint
from interlock.transports.http_pool import HttpPool
from interlock.transports.trace import Note
from tests.servers.evil_http import EvilHttp
from tests.transports.support import BODY, Tokens

SERVER = """
import json, os, sys
print("loaded", os.environ["TOKEN"], file=sys.stderr, flush=True)
print("not a message", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        error = {"code": -32601, "message": "no such method " + os.environ["TOKEN"]}
        result = {"protocolVersion": "2025-11-25", "capabilities": {},
                  "serverInfo": {"name": "s", "version": "1"}}
        is_first = asked["method"] == "initialize"
        answer = {"result": result} if is_first else {"error": error}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


class Kept:
    """A trace that keeps what it is told, without secrets."""

    def __init__(self) -> None:
        self.redactor = Redactor()
        self.lines: list[tuple[str, str]] = []

    def sent(self, frame: bytes) -> None:
        self.lines.append(("sent", self.redactor.redact(frame.decode())))

    def received(self, frame: bytes) -> None:
        self.lines.append(("received", self.redactor.redact(frame.decode())))

    def noted(self, kind: Note, text: str) -> None:
        self.lines.append((kind, self.redactor.redact(text)))

    def of(self, kind: str) -> list[str]:
        return [text for each, text in self.lines if each == kind]


@pytest.mark.slow
async def test_program_is_traced_from_its_start_to_its_exit_without_secrets(tmp_path: Path):
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    config = StdioServer(
        command=sys.executable,
        args=("-IS", str(script), "--token=abc", "--api-key", "can'ary"),
        env={"TOKEN": 'se"cret-1'},
    )
    trace = Kept()
    client, _ = make_client(config, {}, HttpPool, {"trace": trace})
    async with client:
        pass

    kinds = [kind for kind, _ in trace.lines]
    assert kinds[0] == "spawn"
    assert f"{script} '--token=***' --api-key '***' (pid " in trace.of("spawn")[0]
    assert trace.of("stderr") == ["loaded ***\n"]
    assert trace.of("received")[0] == "not a message"
    assert '"no such method ***"' in trace.of("received")[1]
    assert any('"method":"initialize"' in each for each in trace.of("sent"))
    assert trace.lines[-1] == ("exit", "exit code 0")


async def test_http_exchange_is_traced_with_its_heads_and_without_credentials():
    trace, pool = Kept(), HttpPool()
    async with EvilHttp() as server:
        server.tell("x", "status", code=200)
        endpoint = HttpEndpoint(
            server.url, pool, {"X-Api-Key": "canary-1"}, Tokens("canary-2"), 1000, trace
        )
        async with endpoint.request("POST", {"Mcp-Method": "tools/list"}, BODY):
            pass
    await pool.close()

    (heads,) = trace.of("http")
    assert heads.startswith("POST http://127.0.0.1:")
    assert "X-Api-Key: ***" in heads
    assert "Authorization: ***" in heads
    assert "Mcp-Method: tools/list" in heads
    assert "\n\n200 Said" in heads
    assert "canary" not in heads
