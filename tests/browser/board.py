"""A gateway with its admin listener, for the tests of the board."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from interlock.config import loads
from interlock.config.gateway import Address
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import Endpoint
from interlock.store.keys import KeyStore
from interlock.web.board import Board
from interlock.web.inspector.gateway_inspector import GatewayInspector
from tests.browser.conftest import OpenPage, served
from tests.server.http.conftest import Http

ADMIN = ("admin:read", "admin:approve", "admin:write", "mcp:*")


class BoardUnderTest:
    """A served gateway.

    Attributes:
        url: Of the admin listener.
        assembly: The gateway.
        keys: Creates keys in the database.
    """

    def __init__(
        self, url: str, assembly: Assembly, endpoint: Endpoint, keys: KeyStore, open_page: OpenPage
    ) -> None:
        self.url = url
        self.assembly = assembly
        self.endpoint = endpoint
        self.keys = keys
        self._open_page = open_page

    async def key(self, user: str = "mara", *scopes: str, **options: Any) -> str:
        """Create a key that the gateway knows at once."""
        _, key = await self.keys.create(user, scopes=scopes or ADMIN, **options)
        await self.assembly.services.keys.refresh()
        return key

    async def call(self, key: str, name: str, **arguments: Any) -> None:
        """Call a tool through the gateway, as a client with a key."""
        headers = {"authorization": f"Bearer {key}"}
        await Http(self.endpoint.app).call(name, arguments, headers=headers)

    async def open(self, path: str = "/gateway", *scopes: str, **options: Any) -> Any:
        """Open a page in a session of its own."""
        found = self.assembly.services.keys.find((await self.key("mara", *scopes)).encode())
        assert found is not None
        session = await self.endpoint.sessions.open(found.principal)
        port = urlsplit(self.url).port
        cookie = {"name": f"interlock-{port}", "value": session.cookie, "url": self.url}
        stored = {"interlock-key": session.page_key, **options.pop("stored", {})}
        return await self._open_page(self.url + path, cookies=[cookie], stored=stored, **options)


@asynccontextmanager
async def board(
    folder: Path, open_page: OpenPage, gateway: dict[str, Any] | None = None, **servers: Any
) -> AsyncIterator[BoardUnderTest]:
    """Serve a gateway for servers by name: objects, or entries of the configuration."""
    upstreams = sys.modules["upstreams_of_the_board"] = SimpleNamespace()  # type: ignore[assignment]
    entries: dict[str, Any] = {}
    for name, server in servers.items():
        if isinstance(server, dict):
            entries[name] = server
            continue
        server, options = server if isinstance(server, tuple) else (server, {})
        setattr(upstreams, name, server)
        object = f"upstreams_of_the_board:{name}"
        entries[name] = {"type": "python", "object": object, **options}
    settings = {"database": str(folder / "gateway.db"), **(gateway or {})}
    config = loads(json.dumps({"mcpServers": entries, "gateway": settings}).encode())
    async with (
        KeyStore.open(folder / "gateway.db") as keys,
        Assembly.open(config, environ={}) as assembly,
        assembly.server.running(),
    ):
        endpoint = Endpoint(
            assembly,
            "http://127.0.0.1:1/mcp",
            address=Address("127.0.0.1", 1),
            board=Board,
            inspector=GatewayInspector,
        )
        apps: dict[str, Any] = {}

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await apps["admin"](scope, receive, send)

        async with served(app) as url:  # the cookie's name has the port in it
            address = Address("127.0.0.1", urlsplit(url).port or 0)
            apps["admin"] = endpoint.admin_app(address)
            try:
                yield BoardUnderTest(url, assembly, endpoint, keys, open_page)
            finally:
                await open_page.close()
                endpoint.drain()
                await endpoint.close()
                await endpoint.app.close()
