"""The rules and the dashboard, asked of a real Prometheus that scrapes a gateway under load."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import pytest

from interlock import Client
from interlock.errors import InterlockError
from tests.cli.conftest import ECHO
from tests.docs.page import ROOT
from tests.servers.ports import reserved
from tests.support.otlp_collector import collecting

RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "interlock.json"
ALERTS = ROOT / "docs" / "operate" / "alerts.md"
WAIT = 60.0  # seconds until each expression has data
EVERY = 0.5  # seconds between two scrapes

# A comparison at the end of a rule, which finds nothing in a gateway that is well.
_COMPARISON = re.compile(r" (?:>|==) [\d.]+$")
_NAME = re.compile(r"\b(?:interlock|mcp_server|mcp_client|gen_ai_client|process)_\w+")


def rules() -> dict[str, str]:
    """Return the expressions of the alerts by name."""
    return dict(re.findall(r"- alert: (\w+)\n +expr: '(.+)'\n", RULES.read_text()))


def panels() -> Iterator[tuple[str, str]]:
    """Yield the title and the expression of each target of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            assert panel["description"].endswith("?"), panel["title"]
            yield panel["title"], target["expr"].replace("$instance", ".*")


def test_each_alert_fires_as_its_test_says_and_has_a_heading_with_three_commands():
    for command in (["check", "rules", RULES.name], ["test", "rules", "rules_test.yaml"]):
        ran = subprocess.run(["promtool", *command], cwd=RULES.parent, capture_output=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    tested = re.findall(r"alertname: (\w+)", (RULES.parent / "rules_test.yaml").read_text())
    assert {*tested} == {*rules()}
    sections = dict(re.findall(r"## (\w+)\n(.*?)(?=\n## |\Z)", ALERTS.read_text(), re.DOTALL))
    assert [*sections] == [*rules()]
    for name, text in sections.items():
        (commands,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
        assert len(commands.splitlines()) == 3, name
        assert "Users notice: " in text, name


@asynccontextmanager
async def started(*command: object, ready: bytes, **options: Any) -> AsyncIterator[list[bytes]]:
    """Run a program, and yield its lines on stderr once one of them has `ready`."""
    program = await asyncio.create_subprocess_exec(
        *map(str, command), stderr=asyncio.subprocess.PIPE, **options
    )
    assert program.stderr is not None
    lines: list[bytes] = []

    async def read(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            lines.append(line)

    try:
        while not lines or ready not in lines[-1]:
            line = await program.stderr.readline()
            assert line, b"".join(lines)
            lines.append(line)
        rest = asyncio.create_task(read(program.stderr))
        yield lines
        program.terminate()
        await program.wait()
        await rest
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with rules, limits, an approval and a chat, and two keys."""
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    echo = {"command": sys.executable, "args": ECHO, "tools": {"risk": {"read": ["*"]}}}
    limits = {"rate": "1000/s", "concurrent": 8}
    rules = [
        {"id": "asks", "effect": "ask", "who": ["*"], "tools": ["e:picture"]},
        {"id": "all", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
    ]
    script = tmp_path / "script.json"  # after these answers, the model fails
    script.write_text(json.dumps(3 * [{"content": "Hello.", "usage": {"input_tokens": 7}}]))
    gateway = {
        "policy": {"rules": rules},
        "limits": {"perKey": {"rate": "1000/s"}},
        "chat": {"models": [f"scripted:{script}"]},
    }
    file = {"mcpServers": {"e": {**echo, "limits": limits}}, "gateway": gateway}
    (tmp_path / "mcp.json").write_text(json.dumps(file))
    for name, options in (("user", []), ("operator", ["--scope", "admin:read"])):
        command = [interlock(), "keys", "create", name, *options]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        (tmp_path / f"{name}.key").write_text(ran.stdout.strip())
    return tmp_path


def interlock() -> Path:
    return Path(sys.executable).with_name("interlock")


async def load(url: str, key: str) -> None:
    """Make calls that succeed, fail and are refused, and ask the chat, until cancelled."""
    headers = {"Authorization": f"Bearer {key}"}
    for number in count():
        async with aiohttp.ClientSession(headers=headers) as http:
            message = {"id": f"m{number}", "role": "user", "content": "hi"}
            asked = {"threadId": f"t{number}", "runId": f"r{number}", "messages": [message]}
            async with http.post(url.replace("/mcp", "/ag-ui"), json=asked) as reply:
                assert reply.status == 200, await reply.text()
                await reply.read()
        async with Client.http(url, headers=headers) as client:
            for _ in range(20):
                await client.call_tool("e__say", {"text": "hi"})
            for name in ("e__exit", "e__picture", "e__made_up"):
                with suppress(InterlockError):
                    await client.call_tool(name, {})
        await asyncio.sleep(EVERY)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """Run a gateway that also exports to a collector; yield what it prints."""
    serve = [interlock(), "serve", "--config", folder / "mcp.json", "--http", "127.0.0.1:0"]
    serve += ["--admin", "127.0.0.1:0"]
    with collecting() as collector:
        environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        async with started(*serve, ready=b"VS Code", env=environ) as lines:
            yield b"".join(lines).decode()


@asynccontextmanager
async def scraped(folder: Path) -> AsyncIterator[str]:
    """Run a gateway under load and a Prometheus that scrapes it; yield the latter's URL."""
    async with served(folder) as text:
        (url,) = re.findall(r"serving at (\S+)", text)
        (admin,) = re.findall(r"admin at http://([^/]+)", text)
        job = {
            "job_name": "interlock",
            "scrape_interval": f"{EVERY * 1000:g}ms",
            "scrape_timeout": f"{EVERY * 1000:g}ms",
            "authorization": {"credentials_file": str(folder / "operator.key")},
            "static_configs": [{"targets": [admin]}],
        }
        config = {"scrape_configs": [job], "rule_files": [str(RULES)]}
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with reserved() as reserving:
            address = f"127.0.0.1:{reserving.getsockname()[1]}"
        prometheus = ["prometheus", f"--config.file={folder}/prometheus.yml"]
        options = [f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={address}"]
        async with started(*prometheus, *options, ready=b"ready to receive"):
            loading = asyncio.create_task(load(url, (folder / "user.key").read_text()))
            try:
                yield f"http://{address}"
            finally:
                loading.cancel()
                await asyncio.wait([loading])
                if not loading.cancelled():
                    loading.result()


async def test_every_expression_finds_data_with_known_names(folder: Path):
    expressions = {f"rule {name}": _COMPARISON.sub("", expr) for name, expr in rules().items()}
    expressions |= {f"{title}: {expr}": expr for title, expr in panels()}
    assert len(expressions) > 50

    async with scraped(folder) as url, aiohttp.ClientSession() as http:

        async def asked(path: str, **query: str) -> Any:
            async with http.get(f"{url}/api/v1/{path}", params=query) as reply:
                answer = await reply.json()
                assert answer["status"] == "success", (query, answer)
                return answer["data"]

        until, empty = monotonic() + WAIT, {**expressions}
        while empty and monotonic() < until:
            for name, expr in [*empty.items()]:
                if (await asked("query", query=expr))["result"]:
                    del empty[name]
            await asyncio.sleep(EVERY)
        assert not empty
        known = {*await asked("label/__name__/values")}
        used = {name for expr in expressions.values() for name in _NAME.findall(expr)}
        assert used <= known, used - known
        (target,) = (await asked("targets"))["activeTargets"]
        assert target["lastError"] == ""
        headers = {"Authorization": f"Bearer {(folder / 'operator.key').read_text()}"}
        async with http.get(target["scrapeUrl"], headers=headers) as reply:
            metrics = await reply.read()
        pipe = subprocess.PIPE
        command = ["promtool", "check", "metrics"]
        check = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert await check.communicate(metrics) == (b"", b"")
