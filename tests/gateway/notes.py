"""A protected MCP server, its authorization server, and users who log in."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from interlock import Context, Server
from interlock.auth import BearerAuth
from interlock.auth.principal import Principal
from interlock.server.http.serve import UvicornServer
from tests.gateway.conftest import bearer
from tests.server.http.conftest import Reply
from tests.servers.authorization_server import AuthorizationServer
from tests.support.scripted_server import Json


class Notes:
    """Both servers.

    Attributes:
        authorization: The authorization server.
        url: Of the MCP server. Its tool `who` returns the token of the call, `sign_out` revokes it.
        requests: The headers of each request that the MCP server got.
    """

    def __init__(self, authorization: AuthorizationServer, url: str) -> None:
        self.authorization = authorization
        self.url = url
        self.requests: list[dict[str, str]] = []

    def entry(self, **more: Any) -> Json:
        """The server in a configuration."""
        return {"url": self.url, "sharing": "per_user", "auth": "oauth", **more}

    async def verify(self, token: str) -> Principal | None:
        return Principal(token) if token in self.authorization.access_tokens else None

    def count(self, grant: str) -> int:
        """Return how many tokens were requested by a grant."""
        sent = self.authorization.sent("/token")
        return sum(each["grant_type"] == grant for each in sent)


@asynccontextmanager
async def serving_notes() -> AsyncIterator[Notes]:
    authorization = AuthorizationServer()
    await authorization.open()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    notes = Notes(authorization, f"http://127.0.0.1:{port}/mcp")
    auth = BearerAuth(
        verify=notes.verify,
        resource=notes.url,
        authorization_servers=[authorization.issuer],
    )
    app = _Recording(_server(notes).asgi(auth=auth), notes.requests)
    server = UvicornServer(app, "127.0.0.1", port, handles_signals=False)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield notes
    finally:
        server.end()
        await serving
        await authorization.close()


def _server(notes: Notes) -> Server:
    server = Server("notes")

    @server.tool
    def who(context: Context) -> str:
        assert context.principal is not None
        return context.principal.id

    @server.tool
    def sign_out(context: Context) -> str:
        assert context.principal is not None
        del notes.authorization.access_tokens[context.principal.id]
        return "good bye"

    @server.resource("notes://mine")
    def mine(context: Context) -> str:
        assert context.principal is not None
        return context.principal.id

    @server.prompt
    def greet(context: Context) -> str:
        assert context.principal is not None
        return context.principal.id

    return server


class _Recording:
    """An application, and the headers of the requests that it gets."""

    def __init__(self, app: Any, requests: list[dict[str, str]]) -> None:
        self._app = app
        self._requests = requests

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = scope.get("headers", ())
        self._requests.append({name.decode(): value.decode() for name, value in headers})
        await self._app(scope, receive, send)


class User:
    """A user with a key of the gateway and a browser, who allows everything.

    Args:
        gateway: With its client as `http`.
        key: For it.
    """

    def __init__(self, gateway: Any, key: str) -> None:
        self.key = key
        self.gateway = gateway

    async def call(self, tool: str = "notes__who", **options: Any) -> Reply:
        return await self.gateway.http.call(tool, headers=bearer(self.key), **options)

    async def url(self) -> str:
        """Return the link that a refused call names."""
        return str(reason(await self.call())["url"])

    async def open(self, url: str, body: bytes = b"{}") -> Reply:
        """Post to the page of a link, as its script does."""
        path = urlsplit(url).path
        return await self.gateway.http.request("POST", path, body, headers=bearer(self.key))

    async def connect(self, url: str) -> Reply:
        """Open a link, log in, and follow the redirect to the callback."""
        opened = await self.open(url)
        assert opened.code == 200, opened.body
        return await self.come_back(await allowed(opened), cookie_of(opened))

    async def come_back(self, callback: str, cookie: str) -> Reply:
        parts = urlsplit(callback)
        headers = {"cookie": cookie, "sec-fetch-site": "cross-site"}
        return await self.gateway.http.request(
            "GET", parts.path, headers=headers, query=parts.query
        )


async def allowed(opened: Reply) -> str:
    """Allow what the authorization server asks; return where it sends the browser."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(opened.json["location"], allow_redirects=False) as response,
    ):
        return response.headers["Location"]


def cookie_of(opened: Reply) -> str:
    return (opened.header("set-cookie") or "").partition(";")[0]


def reason(reply: Reply) -> Json:
    found: Json = reply.json["result"]["_meta"]["interlock/reason"]
    return found


@pytest.fixture
async def notes() -> AsyncIterator[Notes]:
    """Return a server of notes that is running."""
    async with serving_notes() as notes:
        yield notes


@pytest.fixture
async def users(running, notes: Notes) -> AsyncIterator[tuple[User, User]]:
    """Anna and Bert, who have not connected."""
    async with running(notes=notes.entry()) as gateway:
        yield User(gateway, await gateway.key("anna")), User(gateway, await gateway.key("bert"))
