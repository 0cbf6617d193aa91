"""Clients of others keep their session while all gateways restart, one after the other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.fleet import Fleet, fleet, until
from tests.claude import programs
from tests.claude.messages_api import call, messages_api, say
from tests.docs.page import ROOT
from tests.servers.postgres import Postgres
from tests.support.node import node_folder

pytestmark = [
    pytest.mark.product,
    pytest.mark.program("PostgreSQL, Claude Code, and clients of others"),
    pytest.mark.timeout(90),
]

HERE = Path(__file__).parent
MODULES = ROOT / "build" / "interop" / "node_modules"
INSPECTOR = MODULES / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
# Nothing but time ends its calls early, and all restarts take about 20 s.
LOAD = ["--load", "--load-concurrency", "1", "--load-rate", "8", "--load-duration", "40"]

# Ends the calls; returns how many were answered, and what is known of the others.
Stop = Callable[[], Awaitable[tuple[int, list[Any]]]]


@asynccontextmanager
async def _running(
    command: list[str], folder: Path, *, stdin: int = PIPE, **environment: str
) -> AsyncIterator[Process]:
    path = f"{node_folder()}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "HOME": str(folder), "NODE_PATH": str(MODULES), **environment}
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **own}, cwd=folder, stdin=stdin, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _told(process: Process) -> str:
    """Close the stdin of a program; return its stdout."""
    if process.stdin is not None:
        process.stdin.close()
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


@asynccontextmanager
async def sdk(here: Fleet, *command: str) -> AsyncIterator[Stop]:
    async with _running([*command, here.balanced, here.keys[0]], here.folder) as process:

        async def stop() -> tuple[int, list[Any]]:
            answered, failed = json.loads(await _told(process))
            return answered, failed

        yield stop


@asynccontextmanager
async def inspector(here: Fleet) -> AsyncIterator[Stop]:
    header = f"Authorization: Bearer {here.keys[0]}"
    command = [
        *("node", str(INSPECTOR), "--cli", here.balanced, "--header", header, "--quiet"),
        *("--protocol-era", "legacy", "--format", "json", "--method", "tools/call"),
        *("--tool-name", "c__put", "--tool-arg", "id=rolling", *LOAD),
    ]
    async with _running(command, here.folder) as process:

        async def stop() -> tuple[int, list[Any]]:
            assert process.returncode is None, "the Inspector ended before the restarts did"
            told = json.loads(await _told(process))["result"]
            return told["ok"], told["errorMessages"] + ["tool error"] * told["toolErrors"]

        yield stop


@asynccontextmanager
async def claude_code(here: Fleet, negotiation: str) -> AsyncIterator[Stop]:
    headers = {"Authorization": f"Bearer {here.keys[0]}"}
    servers = {"fleet": {"type": "http", "url": here.balanced, "headers": headers}}
    config = here.folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    command = [
        *(str(programs.program(programs.NEWEST)), "-p", "--mcp-config", str(config)),
        *("--strict-mcp-config", "--allowedTools", "mcp__fleet", "--", "Go on."),
    ]
    async with messages_api() as api:
        again = {**call(("mcp__fleet__c__put", {"id": "rolling"})), "seconds": 0.1}
        turns = api.scripts["Go on."] = [again]
        environment = programs.environment(api.url, here.folder)
        environment["MCP_PROTOCOL_NEGOTIATION"] = negotiation
        async with _running(command, here.folder, stdin=DEVNULL, **environment) as process:

            async def stop() -> tuple[int, list[Any]]:
                turns.append(say("Done."))
                await _told(process)
                failed = [each for each in api.results if each.get("is_error")]
                return len(api.results) - len(failed), failed

            yield stop


MCP = str(HERE / "python_calls.py")
CLIENTS: dict[str, Callable[[Fleet], AbstractAsyncContextManager[Stop]]] = {
    "mcp 1": lambda here: sdk(here, str(ROOT / "build/mcp1/bin/python"), MCP),
    "mcp 2": lambda here: sdk(here, sys.executable, MCP),
    "typescript": lambda here: sdk(here, "node", str(HERE / "typescript_calls.cjs")),
    "inspector": inspector,
    "claude code": lambda here: claude_code(here, "legacy"),
    "claude code, modern": lambda here: claude_code(here, "auto"),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_client_keeps_its_session_while_all_gateways_restart(
    client: str, tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url, {"drain": {"delay": 2}}, callers=1) as here:
        await here.start(3)
        await here.balance()

        async def more_are_made() -> None:
            wanted = here.executed()["rolling"] + 10

            async def are() -> bool:
                return here.executed()["rolling"] >= wanted

            await until(are)

        async with CLIENTS[client](here) as stop:
            await more_are_made()
            codes = []
            for each in here.replicas:
                each.signal(signal.SIGTERM)
                codes.append(await each.ended())
                each.start()
                await each.ready()
                await more_are_made()
            answered, failed = await stop()
        requests = here.requests()
        counted = dict(Counter(" ".join(each[:2]) for each in requests))
        print(f"{client}: answered {answered}, failed {len(failed)}, requests {counted}")
        assert failed == []
        assert here.executed()["rolling"] == answered
        assert codes == [0] * 3
        sessions = {session for _, _, session in requests} - {"-"}
        assert len(sessions) == (0 if "modern" in client else 1)
        assert await here.problems() == []
