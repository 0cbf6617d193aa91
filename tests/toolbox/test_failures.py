"""What failed calls say about a server, and what their errors must not show."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.calls import Call
from interlock.config import HttpServer, StdioServer
from interlock.errors import AuthRequired, RequestTimeout, ServerExited
from interlock.toolbox import Toolbox
from interlock.toolbox.failures import MAX_HANGS
from tests.servers import evil_http
from tests.servers.evil_http import EvilHttp
from tests.support.clock import ClockLoop
from tests.support.scripted_server import text
from tests.toolbox.upstreams import call, served, started

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_three_timeouts_in_a_row_restart_the_server():
    server = served(call=lambda _: None)
    async with started(server) as upstream:
        (entry,) = upstream.entries
        for hang in range(MAX_HANGS):
            assert upstream.status.state == "ok", hang
            with pytest.raises(RequestTimeout):
                await upstream.calls.send(Call(entry, {}, timeout=0.005))
        assert upstream.status.state == "down"
        assert upstream.status.reason == (
            "no answer to 3 calls in a row; the last one: no answer to tools/call within 0.005 s"
        )

        server.answers["tools/call"] = text("done")
        assert await call(upstream) == "done"
    assert server.connections == 2


async def test_answer_resets_the_count_of_timeouts():
    server = served()
    async with started(server) as upstream:
        (entry,) = upstream.entries
        for round in range(MAX_HANGS * 2):
            server.answers["tools/call"] = text("done") if round % 2 else lambda _: None
            with suppress(RequestTimeout):
                await upstream.calls.send(Call(entry, {}, timeout=10.0 if round % 2 else 0.005))
        assert upstream.status.state == "ok"
    assert server.connections == 1


@pytest.mark.slow("starts a program")
async def test_configured_secrets_in_errors_are_redacted():
    script = "import sys; sys.exit(f'bad arguments {sys.argv[1:]}')"
    server = StdioServer(
        command=sys.executable,
        args=("-I", "-c", script, "--token", "${CANARY}"),
        env={"KEY": "canary-env"},
    )
    async with Toolbox({"leaky": server}, environ={"CANARY": "canary-argument"}) as toolbox:
        reason = toolbox.status["leaky"].reason

    assert "bad arguments" in reason
    assert "canary" not in reason


@pytest.mark.slow("starts a program")
def test_hanging_server_is_reported_with_its_last_stderr_line(tmp_path: Path):
    said = tmp_path / "said"
    script = f"echo cannot reach the database >&2; : > {said}; while read -r line; do :; done"
    server = StdioServer(command="sh", args=("-c", script), connect_timeout=3_600)

    async def report() -> str:
        toolbox = Toolbox({"mute": server})
        opening = asyncio.create_task(toolbox.open())
        while not said.exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.001)
        with loop.clock.flying():
            await opening
        reason = toolbox.status["mute"].reason
        await toolbox.close()
        return reason

    loop = ClockLoop()
    with loop.everywhere(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        reason = runner.run(report())
    assert reason == (
        "no answer from the server within 3600 s; it last said: cannot reach the database; "
        'raise "connectTimeout" for a slow server'
    )


LEAKY = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/call":
        sys.exit("bad key " + os.environ["KEY"])
    tool = {"name": "x", "inputSchema": {"type": "object"}}
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "tools": [tool]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.slow("starts a program")
async def test_secrets_in_the_last_words_of_a_server_are_redacted():
    server = StdioServer(
        command=sys.executable, args=("-I", "-c", LEAKY), env={"KEY": "canary-env"}
    )
    async with Toolbox({"leaky": server}) as toolbox:
        with pytest.raises(ServerExited, match=r"bad key \*\*\*") as caught:
            await toolbox.call("leaky:x")

    assert "canary" not in str(caught.value) + caught.value.stderr


async def test_secrets_in_a_url_are_redacted_in_login_errors():
    async with EvilHttp() as server:
        for method in ("server/discover", "tools/list"):
            answer = evil_http.honest(method, server.revision, server.tools)
            server.tell(method, "result", **(answer or {}))
        settings = HttpServer(url=f"{server.url}/${{KEY}}", auth="none")
        async with Toolbox({"s": settings}, environ={"KEY": "canary-path"}) as toolbox:
            with pytest.raises(
                AuthRequired, match=r"/mcp/\*\*\* requires authentication"
            ) as caught:
                await toolbox.call("s:status", {"code": 401})

    assert "canary" not in str(caught.value)
