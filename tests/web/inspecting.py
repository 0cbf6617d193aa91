"""An inspection by a key, in front of a gateway."""

from __future__ import annotations

import json
from typing import Any

from tests.gateway.conftest import RunningGateway, bearer
from tests.server.http.conftest import Reply

ADMIN = ("admin:read", "admin:write", "mcp:*")
Json = dict[str, Any]


class Inspecting:
    """Inspects a server of a gateway with a key."""

    def __init__(self, gateway: RunningGateway, key: str) -> None:
        self._gateway = gateway
        self._headers = {"content-type": "application/json", **bearer(key)}
        self.id = ""

    async def ask(self, method: str, path: str, body: Json | None = None) -> Reply:
        """Send a request."""
        sent = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        return await self._gateway.http.request(
            method, f"/api/inspect{path}", sent, self._headers, query=query
        )

    async def begin(self, **wanted: Any) -> Reply:
        """Begin an inspection."""
        reply = await self.ask("POST", "", wanted)
        self.id = reply.json.get("id", "") if reply.code == 201 else ""
        return reply

    async def state(self) -> Json:
        """Return the state of the inspection."""
        reply = await self.ask("GET", f"/{self.id}")
        found: Json = reply.json
        return found

    async def call(self, name: str, **arguments: Any) -> Json:
        """Call a tool by hand; return its card."""
        params = {"name": name, "arguments": arguments}
        reply = await self.ask(
            "POST", f"/{self.id}/send", {"method": "tools/call", "params": params}
        )
        card: Json = reply.json
        return card


async def begun(gateway: RunningGateway, server: str = "crm", **wanted: Any) -> Inspecting:
    """Inspect a server with a new key of an administrator."""
    inspecting = Inspecting(gateway, await gateway.key("mara", *ADMIN))
    assert (await inspecting.begin(server=server, **wanted)).code == 201
    return inspecting
