"""The inspector of `interlock web`: commands and URLs, one inspection for a server, its end."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path

import aiohttp
import pytest

from interlock.config import load
from interlock.errors import ConfigError
from interlock.policy import LOCAL_USER
from interlock.web.inspector.inspector import MAX_OF_ONE, Inspector, Wanted
from interlock.web.local_site import open_local_site
from tests.web.inspector.test_call_texts import inspector_of

ECHO = Path(__file__).parents[2] / "servers" / "echo.py"
COMMAND = shlex.join([sys.executable, "-I", "-S", str(ECHO)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A configuration file with one server, which cannot be started."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"gone": {"command": "/nowhere/program"}}}))
    return file


@pytest.mark.slow("starts a site and a program")
async def test_site_of_the_local_user_inspects_a_command(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INTERLOCK_DATABASE", str(tmp_path / "chat.db"))
    async with (
        open_local_site(load(path), ["ollama:none"], 0) as site,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http,
    ):
        origin = {"Origin": site.url.rstrip("/")}
        code = (await site.link()).partition("#")[2]
        async with http.post(f"{site.url}api/login", json={"code": code}, headers=origin) as reply:
            headers = {**origin, "X-Interlock-Key": (await reply.json())["pageKey"]}
        async with http.get(f"{site.url}inspect/echo") as page:
            shell = await page.text()
        async with http.post(
            f"{site.url}api/inspect", json={"command": COMMAND}, headers=origin
        ) as foreign:
            refused = foreign.status
        body = {"command": COMMAND}
        async with http.post(f"{site.url}api/inspect", json=body, headers=headers) as reply:
            begun = await reply.json()
        call = {"method": "tools/call", "params": {"name": "say", "arguments": {"text": "hi"}}}
        url = f"{site.url}api/inspect/{begun['id']}/send"
        async with http.post(url, json=call, headers=headers) as reply:
            card = await reply.json()

    assert "inspect/inspect.js" in shell
    assert refused == 401
    assert (begun["server"], begun["kind"]) == ("echo", "stdio")
    assert card["result"]["content"][0]["text"] == "hi"


async def test_second_inspection_of_a_server_reuses_the_first_and_the_oldest_is_evicted(path: Path):
    inspector = inspector_of(path)
    first = await inspector.open(LOCAL_USER, Wanted(server="gone"))
    again = await inspector.open(LOCAL_USER, Wanted(server="gone"))
    for number in range(MAX_OF_ONE):
        await inspector.open(LOCAL_USER, Wanted(command=f"/nowhere/p{number}"))
    found = inspector.found
    await inspector.close()

    assert first is again
    assert first not in found
    assert len(found) == MAX_OF_ONE
    assert inspector.found == []


async def test_unknown_era_is_refused_with_the_known_ones(path: Path):
    inspector: Inspector = inspector_of(path)
    with pytest.raises(ConfigError, match="use one of auto, legacy, 2026-07-28"):
        await inspector.open(LOCAL_USER, Wanted(server="gone", era="2020-01-01"))


async def test_inspection_ends_after_a_while_without_a_request(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.web.inspector.inspector.IDLE", 0.0)
    inspector = inspector_of(path)
    inspection = await inspector.open(LOCAL_USER, Wanted(server="gone"))
    assert inspection is not None
    await asyncio.sleep(0.01)
    found = inspector.found
    await inspector.close()

    assert found == []
    assert inspection.connection.state == "closed"
