"""A gateway made of a configuration, driven over HTTP in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.auth import Principal
from interlock.config import load, loads
from interlock.config.gateway import Address
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import Endpoint
from interlock.store.audit import group_commit
from interlock.store.keys import KeyStore
from interlock.web.gateway_chat import GatewayChat
from interlock.web.inspector.gateway_inspector import GatewayInspector
from tests.gateway.support import OWN_TOOLS
from tests.openapi.conftest import cache  # noqa: F401  # a fixture for every test here
from tests.server.http.conftest import Http, Reply
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

RESOURCE = "http://127.0.0.1:8000/mcp"


def offering(*names: str) -> ScriptedServer:
    """Return a server whose tools answer "done"."""
    tools = {"tools": [tool(name) for name in names]}
    return ScriptedServer(LEGACY, {"tools/list": tools, "tools/call": text("done")})


class RunningGateway:
    """An assembly with its endpoint.

    Attributes:
        assembly: The gateway.
        endpoint: Its endpoint.
        keys: Creates keys in the database.
        http: A client without a credential.
        file: The configuration.
    """

    def __init__(
        self, assembly: Assembly, keys: KeyStore, make: Callable[..., bytes], file: Path
    ) -> None:
        self.file = file
        self.assembly = assembly
        self.keys = keys
        self._make = make
        self.serve()

    def serve(self, view: str = "") -> None:
        """Make the endpoint, for one view or for all."""
        self.endpoint = Endpoint(
            self.assembly,
            self.assembly.parts.settings.public_url or RESOURCE,
            address=Address("127.0.0.1", 8000),
            view=view,
            chat=GatewayChat,
            inspector=GatewayInspector,
        )
        self.http = Http(self.endpoint.app)

    async def key(self, user: str = "anna", *scopes: str, **options: Any) -> str:
        """Create a key that the gateway knows at once."""
        _, key = await self.keys.create(user, scopes=scopes or ("mcp:*",), **options)
        await self.assembly.services.keys.refresh()
        return key

    async def names(self, key: str, path: str = "/mcp") -> list[str]:
        """List the names of the servers' tools."""
        reply = await self.http.ask("tools/list", path=path, headers=bearer(key))
        names = [each["name"] for each in reply.json["result"]["tools"]]
        return [each for each in names if each not in OWN_TOOLS]

    async def call(self, name: str, key: str, path: str = "/mcp", **arguments: Any) -> Reply:
        return await self.http.call(name, arguments, path=path, headers=bearer(key))

    def write(self, gateway: Json | None, **servers: Any) -> None:
        """Replace the content of the configuration."""
        self.file.write_bytes(self._make(gateway, **servers))

    async def settle(self) -> None:
        """Wait until all records so far are on the disk."""
        assert self.assembly.services.trail is not None
        await self.assembly.services.trail.record("config", {}, Principal("user:test"))

    async def reload(self, gateway: Json, **servers: Any) -> list[str]:
        return await self.assembly.reload(loads(self._make(gateway, **servers)))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a gateway for a member `gateway` and servers by name: objects, or entries of a file."""
    monkeypatch.setattr(group_commit, "WAIT", 100.0)  # a busy disk must not refuse a call
    upstreams = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "upstreams_of_the_test", upstreams)

    def make(gateway: Json | None, **servers: Any) -> bytes:
        entries: dict[str, Json] = {}
        for name, server in servers.items():
            if isinstance(server, dict):
                entries[name] = server
                continue
            options: Json = {}
            if isinstance(server, tuple):
                server, options = server
            setattr(upstreams, f"s{id(server)}", server)
            object = f"upstreams_of_the_test:s{id(server)}"
            entries[name] = {"type": "python", "object": object, **options}
        settings = {"database": str(tmp_path / "gateway.db"), **(gateway or {})}
        return json.dumps({"mcpServers": entries, "gateway": settings}).encode()

    @asynccontextmanager
    async def run(gateway: Json | None = None, **servers: Any) -> AsyncIterator[RunningGateway]:
        file = tmp_path / "gateway.json"
        file.write_bytes(make(gateway, **servers))
        config = load(file)
        async with (
            KeyStore.open(config.gateway.database) as keys,
            Assembly.open(config, environ={}) as assembly,
            assembly.server.running(),
        ):
            found = RunningGateway(assembly, keys, make, file)
            try:
                yield found
            finally:
                found.endpoint.drain()
                await found.endpoint.close()
                await found.endpoint.app.close()

    return run
