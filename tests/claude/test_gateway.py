"""The real program asks a gateway about its own tools, and a person there decides."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interlock.auth.principal import Principal
from interlock.config import load
from interlock.gateway.client_approvals import approvals_in
from interlock.store import AuditReader, KeyStore
from interlock.types import JsonObject
from tests.claude import programs
from tests.claude.messages_api import MessagesApi, call, say, script
from tests.support.node import node_folder

LEAD = Principal("user:berta", frozenset({"admin:approve"}))
PROMPTS = "mcp__interlock__interlock__approve"
MATH = """
from interlock import Server
server = Server("math")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""
RULE = {"effect": "ask", "who": ["user:anna"], "approvers": ["group:leads"]}


def configuration(folder: Path) -> Path:
    (folder / "calculator.py").write_text(MATH)
    rules = [
        {"id": "math", "effect": "allow", "who": ["*"], "tools": ["math:*"]},
        {"id": "shell", "tools": ["claude-built-in:Bash"], **RULE},
    ]
    gateway = {
        "database": str(folder / "gateway.db"),
        "groups": {"leads": ["user:berta"]},
        "policy": {"rules": rules},
        "approvals": {"wait": "30s"},
    }
    math = {"command": sys.executable, "args": [str(folder / "calculator.py")]}
    file = folder / "gateway.json"
    file.write_text(json.dumps({"mcpServers": {"math": math}, "gateway": gateway}))
    return file


@asynccontextmanager
async def gateway_of(file: Path) -> AsyncIterator[str]:
    """Run `interlock serve`; yields its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "interlock", "serve"),
        *("--config", str(file), "--http", "127.0.0.1:0"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    line = await process.stderr.readline()
    try:
        assert line.startswith(b"serving at "), line
        yield line.decode().removeprefix("serving at ").strip()
    finally:
        process.terminate()
        await process.communicate()


def program(version: str) -> tuple[str, ...]:
    path = programs.program(version)
    return ("node", str(path)) if path.suffix == ".js" else (str(path),)


@asynccontextmanager
async def deciding(file: Path, decision: str) -> AsyncIterator[asyncio.Task[str]]:
    """Decide about the first call that must be approved, as a lead; yields its id."""

    async def decide() -> str:
        location = str(file.parent / "gateway.db")
        async with approvals_in(load(file), location, decides=True) as approvals:
            while not (found := await approvals.list(["pending"])):  # noqa: ASYNC110 - it polls
                await asyncio.sleep(0.05)
            (asked,) = found
            await getattr(approvals, decision)(asked.id, asked.hash, LEAD, note="ticket 4711")
            return asked.id

    task = asyncio.create_task(decide())
    try:
        yield task
    finally:
        task.cancel()


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_approval_at_the_gateway_decides_whether_claude_code_uses_its_own_tool(
    claude_program: str,
    api: MessagesApi,
    tmp_path: Path,
    decision: str,
    monkeypatch: pytest.MonkeyPatch,
):
    file = configuration(tmp_path)
    async with KeyStore.open(tmp_path / "gateway.db") as keys:
        _, key = await keys.create("anna", scopes=["mcp:*"])
    prompt = script(
        call(("Bash", {"command": "touch made", "description": "Make a file"})), say("Done.")
    )
    node = node_folder()
    monkeypatch.setenv("PATH", f"{node}{os.pathsep}{os.environ['PATH']}")
    environment = os.environ | programs.environment(api.url, tmp_path)
    async with gateway_of(file) as url:
        headers = {"Authorization": f"Bearer {key}"}
        servers = {"interlock": {"type": "http", "url": url, "headers": headers}}
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        async with deciding(file, decision) as decided:
            process = await asyncio.create_subprocess_exec(
                *program(claude_program),
                *("-p", "--mcp-config", str(tmp_path / "mcp.json"), "--strict-mcp-config"),
                *("--allowedTools", "mcp__interlock", "--permission-prompt-tool", PROMPTS, prompt),
                env=environment,
                cwd=tmp_path,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            assert process.returncode == 0, (out, err)
            approval = await decided

    assert "mcp__interlock__math__add" in api.offered
    assert (tmp_path / "made").exists() == (decision == "approve")
    if decision == "deny":
        assert "ticket 4711" in api.result_text()
    begun = [("asked", approval), ("decided", approval)]
    end: list[tuple[str, str | None]] = [("refused", None)]
    if decision == "approve":
        end = [("intent", approval), ("outcome", None)]
    records = await told(file)
    assert [(each["kind"], each.get("grant", each.get("approval"))) for each in records] == [
        *begun,
        *end,
    ]


async def told(file: Path) -> list[JsonObject]:
    """Return the records about Bash, oldest first."""
    async with AuditReader.open(file.parent / "gateway.db") as reader:
        every = [each async for piece in reader.export() for each in piece]
    about = [each for each in every if each.get("tool") == "claude-built-in:Bash"]
    return sorted(about, key=lambda each: each["at"])
