"""A toolbox whose servers have URLs: our own servers and misbehaving ones, on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from aiohttp import web

from interlock import Server
from interlock.auth import BearerAuth
from interlock.auth.principal import Principal
from interlock.client import retries, subscriptions
from interlock.config import HttpServer, ToolFilter
from interlock.errors import (
    InsufficientScope,
    LoginExpired,
    RemoteError,
    ServerUnavailable,
    StreamEnded,
    Unreachable,
)
from interlock.oauth import MemoryTokenStore
from interlock.oauth.storage import Tokens
from interlock.server.http.app import HttpApp
from interlock.toolbox import Toolbox, restarts
from interlock.toolbox.hints import with_hint
from tests.servers.authorization_server import AuthorizationServer, Handler, Site, always, html
from tests.servers.ports import reserved
from tests.support.scripted_server import LEGACY, MODERN

pytestmark = pytest.mark.usefixtures("nothing_is_left")

CANARY = "canary-7f3a"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait before what is tried again."""
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(restarts, "FIRST_BACKOFF", 0.1)
    monkeypatch.setattr(subscriptions, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr("interlock.transports.http.RETRY", 0.01)


@pytest.fixture(autouse=True)
def logins(monkeypatch: pytest.MonkeyPatch) -> MemoryTokenStore:
    """The logins that are kept for this test's person."""
    store = MemoryTokenStore()
    monkeypatch.setattr("interlock.oauth.stored_login.UserTokenStore", lambda: store)
    return store


class Gate:
    """Holds the tool `hold` until it is opened."""

    def __init__(self) -> None:
        self.entered = 0
        self.opened = asyncio.Event()
        self.changed = asyncio.Event()

    async def pass_through(self) -> None:
        self.entered += 1
        self.changed.set()
        await self.opened.wait()

    async def reached(self, times: int) -> None:
        while self.entered < times:
            self.changed.clear()
            await self.changed.wait()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def server(gate: Gate) -> Server:
    server = Server("demo", version="1")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    async def hold() -> str:
        await gate.pass_through()
        return "held"

    return server


App = Callable[[Any, Any, Any], Awaitable[None]]


class Served:
    """A server on ports of its own, until it is ended; it can come back there."""

    def __init__(self, server: Server, wrap: Callable[[App], App], ports: int) -> None:
        self._server = server
        self._wrap = wrap
        self._reserved = [reserved() for _ in range(ports)]
        self._ports = [each.getsockname()[1] for each in self._reserved]
        self._endpoint: HttpApp
        self._running: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}/mcp" for port in self._ports]

    @property
    def url(self) -> str:
        return self.urls[0]

    async def begin(self, **options: Any) -> None:
        sockets = [socket.create_server(("127.0.0.1", port)) for port in self._ports]
        self._endpoint = self._server.asgi(**options)
        app = self._wrap(self._endpoint)
        self._running = uvicorn.Server(
            uvicorn.Config(app, lifespan="off", log_config=None, ws="none")
        )
        self._task = asyncio.create_task(self._running.serve(sockets))
        await until(lambda: self._running is not None and self._running.started)

    def listen_no_more(self) -> None:
        """Stop accepting connections; open ones stay."""
        assert self._running is not None
        for each in self._running.servers:
            each.close()

    async def end(self) -> None:
        """Go away with all connections, as a program that is killed."""
        if self._running is None or self._task is None:
            return
        self.listen_no_more()
        self._running.should_exit = self._running.force_exit = True
        for connection in list(self._running.server_state.connections):
            connection.transport.abort()
        await self._task
        await asyncio.gather(*self._running.server_state.tasks, return_exceptions=True)
        await self._endpoint.close()
        self._running = None

    async def leave(self) -> None:
        """Go away for good."""
        await self.end()
        for each in self._reserved:
            each.close()


@pytest.fixture
async def serve(server: Server) -> AsyncIterator[Callable[..., Awaitable[Served]]]:
    """Serve the server of this module, with something around it."""
    started: list[Served] = []

    async def serve(
        wrap: Callable[[App], App] = lambda app: app, ports: int = 1, **options: Any
    ) -> Served:
        started.append(Served(server, wrap, ports))
        await started[-1].begin(**options)
        return started[-1]

    yield serve
    for each in started:
        await each.leave()
    server.close()


@pytest.fixture
async def site() -> AsyncIterator[Callable[[Handler], Awaitable[str]]]:
    """Serve the same reply to everything; gives the URL."""
    sites: list[Site] = []

    async def begin(reply: Handler) -> str:
        site = Site()
        site.replies["/mcp"] = reply
        await site.open()
        sites.append(site)
        return f"{site.origin}/mcp"

    yield begin
    for each in sites:
        await each.close()


@asynccontextmanager
async def opened(**servers: HttpServer) -> AsyncIterator[Toolbox]:
    async with Toolbox(servers, environ={"KEY": CANARY}, connect_timeout=3600.0) as toolbox:
        yield toolbox


def addresses(toolbox: Toolbox) -> list[str]:
    return [entry.address for entry in toolbox.tools]


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what comes over the network."""
    while not is_so():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.002)


# Finding tools


@pytest.mark.parametrize("is_one_host", [False, True], ids=["own hosts", "one host"])
@pytest.mark.slow("opens a hundred connections")
async def test_hundred_servers_are_listed_and_called_concurrently(
    server: Server, serve: Callable[..., Awaitable[Served]], is_one_host: bool
):
    together = asyncio.Barrier(100)

    def meeting(app: App) -> App:
        async def meet(scope: Any, receive: Any, send: Any) -> None:
            method = dict(scope["headers"]).get(b"mcp-method", b"")
            if method in (b"tools/list", b"tools/call"):
                await together.wait()  # no call returns before all have begun
            await app(scope, receive, send)

        return meet

    hosts = await serve(meeting, ports=1 if is_one_host else 100)
    servers = {
        f"s{n}": HttpServer(url=f"{hosts.urls[0 if is_one_host else n]}?n={n}") for n in range(100)
    }
    async with opened(**servers) as toolbox:
        assert {status.state for status in toolbox.status.values()} == {"ok"}
        assert len(toolbox.tools) == 200

        calls = (toolbox.call(f"s{n}:add", {"a": n}, timeout=30.0) for n in range(100))
        assert [each.text for each in await asyncio.gather(*calls)] == [
            str(n + 1) for n in range(100)
        ]


def redirect(request: web.Request) -> Any:
    raise web.HTTPFound("http://127.0.0.1:1/elsewhere")


async def cut(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hush(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Listen, and never answer."""
    await reader.read()
    writer.close()


BAD: dict[str, tuple[Handler, str, str]] = {
    "broken": (always("{}", 500), "failed", "answered 500 Internal Server Error"),
    "busy": (always("{}", 503), "failed", "answered 503 Service Unavailable"),
    "page": (html, "failed", "text/html, not JSON"),
    "empty": (always(""), "failed", "answered 200, but it sent nothing"),
    "nowhere": (
        always("no", 404, "text/plain"),
        "failed",
        "answered 404 Not Found: no; check the path of its URL",
    ),
    "elsewhere": (redirect, "failed", "redirects to http://127.0.0.1:1"),
    "cut": (cut, "failed", "closed the connection without an answer"),
    "forbidden": (always("no", 403), "refused", "denied access (403)"),
}


@pytest.mark.slow("waits for a timeout")
async def test_failing_servers_do_not_affect_others(
    serve: Callable[..., Awaitable[Served]], site: Callable[[Handler], Awaitable[str]]
):
    servers = {
        name: HttpServer(url=await site(reply), auth="none") for name, (reply, _, _) in BAD.items()
    }
    servers["nobody"] = HttpServer(url="http://127.0.0.1:1/mcp")
    silent = await asyncio.start_server(hush, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/mcp"
    servers["mute"] = HttpServer(url=url, connect_timeout=0.3)
    servers["no-tls"] = HttpServer(url=(await site(html)).replace("http:", "https:"))
    servers["unset"] = HttpServer(url="https://h", headers={"X-Key": "${NOT_SET}"})
    servers["wrong"] = HttpServer(url="https://user:password@h/")
    servers["good"] = HttpServer(url=(await serve()).url)
    async with opened(**servers) as toolbox:
        status = toolbox.status
        assert addresses(toolbox) == ["good:add", "good:hold"]
        assert (await toolbox.call("good:add", {"a": 1})).text == "2"
        with pytest.raises(ServerUnavailable, match=r"'mute' is not available: .* no answer"):
            await toolbox.call("mute:add")

    silent.close()
    await silent.wait_closed()
    for name, (_, state, reason) in BAD.items():
        assert (name, status[name].state) == (name, state)
        assert reason in status[name].reason
    assert "/mcp cannot be reached: Connect" in status["nobody"].reason
    assert "/mcp: no answer from the server within 0.3 s" in status["mute"].reason
    assert "cannot be reached: no TLS" in status["no-tls"].reason
    assert "the environment variable NOT_SET is not set" in status["unset"].reason
    assert "the URL of h contains a user name" in status["wrong"].reason
    assert "password" not in status["wrong"].reason


# Redactor


async def repeat(request: web.Request) -> web.StreamResponse:
    """Refuse in words that hold everything that was sent."""
    words = f"{request.raw_path} {dict(request.query)} {dict(request.headers)}"
    asked = await request.json()
    error = {"code": -32001, "message": words, "data": {"seen": [words], words: 1}}
    if asked["method"] == "tools/list":
        tool = {"name": "x", "inputSchema": {"type": "object"}}
        result = {"resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private"}
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    if asked["method"] == "server/discover" and request.path.startswith("/mcp/well"):
        result = {
            "resultType": "complete",
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "error": error})


async def test_secrets_that_a_server_repeats_are_redacted(
    caplog: pytest.LogCaptureFixture,
):
    spiteful = Site()
    for path in ("/mcp/bad/canary-7f3a", "/mcp/well/canary-7f3a"):
        spiteful.replies[path] = repeat
    await spiteful.open()
    headers = {"Authorization": "Bearer ${KEY}-1", "X-Key": "${KEY}-2"}
    servers = {
        name: HttpServer(
            url=f"{spiteful.origin}/mcp/{name}/${{KEY}}?token=${{KEY}}%2d3", headers=headers
        )
        for name in ("bad", "well")
    }
    caplog.set_level("DEBUG", "interlock")
    async with opened(**servers) as toolbox:
        told = str(toolbox.status)
        with pytest.raises(RemoteError) as caught:
            await toolbox.call("well:x")
        told += f"{caught.value} {caught.value.message} {caught.value.data} {toolbox.status}"
    await spiteful.close()

    assert toolbox.status["well"].tools == 1
    assert told.count("***") > 10
    assert CANARY not in told
    assert CANARY not in caplog.text


# Going away and coming back


@pytest.mark.slow("waits for a timeout")
async def test_lost_server_keeps_its_list_and_returns_with_the_next_call(
    serve: Callable[..., Awaitable[Served]],
):
    hosts = await serve()
    async with opened(
        a=HttpServer(url=hosts.url), b=HttpServer(url=(await serve()).url)
    ) as toolbox:
        await hosts.end()
        with pytest.raises((Unreachable, StreamEnded)):
            await toolbox.call("a:add", {"a": 1})
        with pytest.raises((Unreachable, ServerUnavailable)):
            await toolbox.call("a:add", {"a": 1})
        assert toolbox.status["a"].state == "down"
        assert "cannot be reached" in toolbox.status["a"].reason
        assert [entry.stale for entry in toolbox.tools] == [True, True, False, False]
        assert (await toolbox.call("b:add", {"a": 1})).text == "2"

        await hosts.begin()
        await until_no_wait(toolbox, "a")
        assert (await toolbox.call("a:add", {"a": 1})).text == "2"
        assert toolbox.status["a"].state == "ok"
        assert not any(entry.stale for entry in toolbox.tools)


async def until_no_wait(toolbox: Toolbox, name: str) -> None:
    """Wait until the back-off is over."""
    await until(lambda: toolbox.status[name].retry_in == 0)


@pytest.mark.slow("works through much data")
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_restarted_server_is_used_without_an_error(
    serve: Callable[..., Awaitable[Served]], revision: str
):
    hosts = await serve()
    async with Toolbox({"a": HttpServer(url=hosts.url)}, revision=revision) as toolbox:
        for number in range(3):
            await hosts.end()
            await hosts.begin()
            assert (await toolbox.call("a:add", {"a": number})).text == str(number + 1)
            assert toolbox.status["a"].state == "ok"


@pytest.mark.parametrize("type", ["sse", "http"])
async def test_loss_of_an_http_sse_server_is_reported(
    serve: Callable[..., Awaitable[Served]], type: Any
):
    hosts = await serve(sse=True)
    url = hosts.url.replace("/mcp", "/sse")
    async with opened(a=HttpServer(url=url, type=type)) as toolbox:
        assert (await toolbox.call("a:add", {"a": 1})).text == "2"
        await hosts.end()
        await until(lambda: toolbox.status["a"].state == "down")
        assert [entry.stale for entry in toolbox.tools] == [True, True]

        await hosts.begin(sse=True)
        assert (await toolbox.call("a:add", {"a": 1})).text == "2"


async def test_closed_toolbox_can_be_opened_again(serve: Callable[..., Awaitable[Served]]):
    toolbox = Toolbox({"a": HttpServer(url=(await serve()).url)})
    for _ in range(2):
        async with toolbox:
            assert (await toolbox.call("a:add", {"a": 1})).text == "2"


async def test_restarts_of_an_unreachable_server_back_off(
    serve: Callable[..., Awaitable[Served]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(restarts, "FIRST_BACKOFF", 20.0)
    hosts = await serve()
    async with opened(a=HttpServer(url=hosts.url)) as toolbox:
        await hosts.end()
        for _ in range(3):
            with pytest.raises((Unreachable, StreamEnded, ServerUnavailable)):
                await toolbox.call("a:add", {"a": 1})
        with pytest.raises(ServerUnavailable, match=r"cannot be reached.*; next try in \d\d\.\d s"):
            await toolbox.call("a:add", {"a": 1})


async def test_unreachable_server_does_not_end_calls_under_way(
    serve: Callable[..., Awaitable[Served]], gate: Gate
):
    hosts = await serve(listen=False)
    async with opened(a=HttpServer(url=hosts.url)) as toolbox:
        held = [asyncio.create_task(toolbox.call("a:hold")) for _ in range(4)]
        await gate.reached(4)  # so that no open connection is idle
        hosts.listen_no_more()
        with pytest.raises(Unreachable):
            await toolbox.call("a:add", {"a": 1})
        assert toolbox.status["a"].state == "down"

        gate.opened.set()
        assert [(await each).text for each in held] == ["held"] * 4
        assert toolbox.status["a"].state == "down"


async def test_truncated_answer_fails_only_its_own_call(gate: Gate, server: Server, serve: Any):
    def failing(app: App) -> App:
        async def fail(scope: Any, receive: Any, send: Any) -> None:
            if dict(scope["headers"]).get(b"mcp-name") == b"add":
                raise ConnectionAbortedError  # answered with 500
            await app(scope, receive, send)

        return fail

    hosts = await serve(failing)
    async with opened(a=HttpServer(url=hosts.url)) as toolbox:
        held = asyncio.create_task(toolbox.call("a:hold"))
        await gate.reached(1)
        for _ in range(2):
            with pytest.raises(Exception, match="500"):
                await toolbox.call("a:add", {"a": 1})
            assert toolbox.status["a"].state == "ok"
        with pytest.raises(Exception, match="500"):
            await toolbox.call("a:add", {"a": 1})
        assert toolbox.status["a"].state == "down"
        assert "no answer to 3 calls in a row; the last one: http" in toolbox.status["a"].reason
        gate.opened.set()
        assert (await held).text == "held"


async def test_refresh_starts_a_server_that_failed_at_first(
    serve: Callable[..., Awaitable[Served]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(restarts, "FIRST_BACKOFF", 20.0)
    hosts = await serve()
    await hosts.end()
    async with opened(a=HttpServer(url=hosts.url)) as toolbox:
        assert toolbox.status["a"].state == "failed"
        await hosts.begin()
        await toolbox.refresh()  # too early: the back-off holds
        assert toolbox.status["a"].state == "failed"
        toolbox.upstream("a")._restarts.clear()  # as if the back-off were over
        await toolbox.refresh()
        await until(lambda: addresses(toolbox) == ["a:add", "a:hold"])
        assert toolbox.status["a"].state == "ok"


# Changes


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_changed_tools_are_listed_again(
    server: Server,
    serve: Callable[..., Awaitable[Served]],
    revision: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("interlock.toolbox.server_lists.REFRESH_GAP", 0.01)
    hosts = await serve()
    servers = {"a": HttpServer(url=hosts.url)}
    async with Toolbox(servers, revision=revision) as toolbox:
        assert toolbox.status["a"].revision == revision
        await until(lambda: bool(server.subscribers._open))

        @server.tool
        async def new() -> str:
            return "new"

        await until(lambda: "a:new" in addresses(toolbox))
        assert (await toolbox.call("a:new")).text == "new"
        server.remove_tool("add")
        await until(lambda: addresses(toolbox) == ["a:hold", "a:new"])


async def test_tools_changed_during_an_outage_are_listed_again(
    server: Server, serve: Callable[..., Awaitable[Served]]
):
    hosts = await serve()
    async with opened(a=HttpServer(url=hosts.url)) as toolbox:
        await until(lambda: bool(server.subscribers._open))
        await hosts.end()
        server.remove_tool("add")
        await hosts.begin()

        await until(lambda: addresses(toolbox) == ["a:hold"])


# What the configuration says


async def test_call_is_retried_only_if_configured_as_idempotent(
    serve: Callable[..., Awaitable[Served]],
):
    asked = []

    def busy(app: App) -> App:
        async def fail_first(scope: Any, receive: Any, send: Any) -> None:
            headers = dict(scope["headers"])
            if headers.get(b"mcp-method") == b"tools/call":
                asked.append(headers[b"mcp-name"])
                if len(asked) % 2:
                    await send({"type": "http.response.start", "status": 503, "headers": []})
                    await send({"type": "http.response.body", "body": b""})
                    return
            await app(scope, receive, send)

        return fail_first

    url = (await serve(busy)).url
    async with opened(
        once=HttpServer(url=url), often=HttpServer(url=url, tools=ToolFilter(idempotent=("a*",)))
    ) as toolbox:
        assert (await toolbox.call("often:add", {"a": 1})).text == "2"
        assert len(asked) == 2
        with pytest.raises(Exception, match="503"):
            await toolbox.call("once:add", {"a": 1})
        assert len(asked) == 3


async def test_oversized_message_fails_only_its_own_call(server: Server, serve: Any):
    @server.tool
    async def large() -> str:
        return "x" * 100_000

    url = (await serve()).url
    async with opened(a=HttpServer(url=url, max_message_bytes=50_000)) as toolbox:
        with pytest.raises(Exception, match=r"a message over the limit \(0\.047\d* MiB\)"):
            await toolbox.call("a:large")
        assert (await toolbox.call("a:add", {"a": 1})).text == "2"


# Who is let in


@pytest.fixture
async def authorization() -> AsyncIterator[AuthorizationServer]:
    server = AuthorizationServer()
    await server.open()
    yield server
    await server.close()


@pytest.fixture
async def protected(
    server: Server, serve: Callable[..., Awaitable[Served]], authorization: AuthorizationServer
) -> str:
    """The URL of the server, which lets in who has a token of the authorization server."""

    async def verify(token: str) -> Principal | None:
        granted = authorization.access_tokens.get(token)
        return None if granted is None else Principal("ada", frozenset(granted.split()))

    hosts = await serve()
    auth = BearerAuth(
        verify=verify, resource=hosts.url, authorization_servers=[authorization.issuer]
    )

    @server.tool
    async def need_more() -> str:
        auth.require(Principal("ada", frozenset()), ["more"])
        return "never"

    await hosts.end()
    await hosts.begin(auth=auth)
    return hosts.url


async def log_in(
    url: str, authorization: AuthorizationServer, logins: MemoryTokenStore, **changes: Any
) -> Tokens:
    """Keep a login, as another program would; gives its tokens."""
    token = authorization.make("access")
    authorization.access_tokens[token] = ""
    given = {
        "access_token": token,
        "expires_at": time.time() + 3600,
        "issuer": authorization.issuer,
        "resource": url,
        "client_id": "client-1",
        "token_endpoint": f"{authorization.origin}/token",
    }
    tokens = Tokens(**{**given, **changes})
    await logins.save_tokens(url, tokens)
    return tokens


HINT = "interlock servers login"


@pytest.mark.slow("waits for a timeout")
@pytest.mark.parametrize("auth", ["auto", "oauth"])
async def test_server_that_needs_a_login_names_the_command(
    protected: str, authorization: AuthorizationServer, logins: MemoryTokenStore, auth: Any
):
    async with opened(**{"my notes": HttpServer(url=protected, auth=auth)}) as toolbox:
        status = toolbox.status["my notes"]
        assert status.state == "needs login"
        assert status.reason.endswith(f" needs a login: {HINT} 'my notes'")
        with pytest.raises(ServerUnavailable, match="needs a login: interlock servers login"):
            await toolbox.call("my notes:add", {"a": 1})

        await log_in(protected, authorization, logins)
        await until_no_wait(toolbox, "my notes")
        await toolbox.refresh()
        await until(lambda: toolbox.status["my notes"].state == "ok")
        assert (await toolbox.call("my notes:add", {"a": 1})).text == "2"
    assert not authorization.sent("/authorize")


async def test_expired_login_is_reported_and_one_renewed_elsewhere_is_used(
    protected: str, authorization: AuthorizationServer, logins: MemoryTokenStore
):
    tokens = await log_in(protected, authorization, logins)
    async with opened(a=HttpServer(url=protected)) as toolbox:
        assert toolbox.status["a"].state == "ok"
        del authorization.access_tokens[tokens.access_token]
        for _ in range(2):  # the second one asks the server again
            with pytest.raises(LoginExpired, match=f"has expired: {HINT} a$"):
                await toolbox.call("a:add", {"a": 1})
            status = toolbox.status["a"]
            assert status.state == "expired"
            assert status.reason.endswith(f"has expired: {HINT} a")
            assert [entry.stale for entry in toolbox.tools] == [True] * 3

        await log_in(protected, authorization, logins)
        assert (await toolbox.call("a:add", {"a": 1})).text == "2"
        assert toolbox.status["a"].state == "ok"
        assert [entry.stale for entry in toolbox.tools] == [False] * 3


async def test_login_expired_at_the_start_is_reported_as_expired(
    protected: str, authorization: AuthorizationServer, logins: MemoryTokenStore
):
    await log_in(protected, authorization, logins, expires_at=time.time() - 1)
    async with opened(a=HttpServer(url=protected)) as toolbox:
        assert toolbox.status["a"].state == "expired"


@pytest.mark.slow("waits for a timeout")
async def test_insufficient_scope_fails_only_its_own_call(
    protected: str, authorization: AuthorizationServer, logins: MemoryTokenStore
):
    await log_in(protected, authorization, logins)
    async with opened(a=HttpServer(url=protected)) as toolbox:
        with pytest.raises(
            InsufficientScope, match=f"needs the scope more: {HINT} a --scope more$"
        ):
            await toolbox.call("a:need_more")
        assert toolbox.status["a"].state == "ok"


def test_very_many_scopes_are_left_out_of_the_hint():
    error = InsufficientScope(tuple(f"scope-{number}" for number in range(1_000)))
    hint = with_hint(error, "a", HttpServer(url="https://mcp.example"))

    assert hint.endswith(f" more: {HINT} a")
    assert len(hint) < 500


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"auth": "none"}, 'a bearer token is required; its configuration says "auth": "none"'),
        (
            {"headers": {"Authorization": f"Bearer {CANARY}"}},
            "is not valid; correct the header Authorization in its configuration",
        ),
    ],
)
async def test_rejected_configured_credentials_are_named(
    protected: str, settings: Any, reason: str
):
    async with opened(a=HttpServer(url=protected, **settings)) as toolbox:
        status = toolbox.status["a"]
        assert status.state == "refused"
        assert status.reason.endswith(reason)
        assert CANARY not in status.reason


async def test_configured_token_needs_no_login(protected: str, authorization: AuthorizationServer):
    authorization.access_tokens[CANARY] = ""
    server = HttpServer(url=protected, headers={"Authorization": "Bearer ${KEY}"}, auth="bearer")
    async with opened(a=server) as toolbox:
        assert (await toolbox.call("a:add", {"a": 1})).text == "2"


async def test_access_token_that_a_server_repeats_is_redacted(
    protected: str,
    authorization: AuthorizationServer,
    logins: MemoryTokenStore,
    server: Server,
):
    tokens = await log_in(protected, authorization, logins)

    def refusing(handle: Any) -> Any:
        async def refuse(request: Any, context: Any) -> Any:
            if request.method == "tools/call":
                token = tokens.access_token
                raise RemoteError(-32000, f"bad token {token}", [{token: 1, "seen": token}])
            return await handle(request, context)

        return refuse

    server.answer = refusing(server.answer)
    async with opened(a=HttpServer(url=protected, auth="oauth")) as toolbox:
        with pytest.raises(RemoteError, match=r"bad token \*\*\* \(-32000\)") as caught:
            await toolbox.call("a:add", {"a": 1})
    assert caught.value.message == "bad token ***"
    assert caught.value.data == [{"***": 1, "seen": "***"}]


async def test_open_server_causes_no_login_lookup(
    serve: Callable[..., Awaitable[Served]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.oauth.stored_login.UserTokenStore", lambda: 1 / 0)
    async with opened(a=HttpServer(url=(await serve()).url)) as toolbox:
        assert toolbox.status["a"].state == "ok"


@pytest.mark.slow("starts a program")
def test_toolbox_without_urls_does_not_import_http(tmp_path: Path):
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"command": "true"}}}))
    code = (
        "import asyncio, sys; from interlock import Toolbox\n"
        f"async def main():\n    async with Toolbox.from_config({str(config)!r}): pass\n"
        "asyncio.run(main()); print(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"aiohttp", "interlock.oauth", "interlock.client.http_target"} & set(
        shown.stdout.split()
    )
