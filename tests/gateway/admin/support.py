"""A client of the admin API of a gateway in this process."""

from __future__ import annotations

import json
from typing import Any

from interlock.gateway.admin.operations import BASE
from tests.gateway.conftest import RunningGateway, bearer
from tests.server.http.conftest import Reply


class Operator:
    """Somebody with a key.

    Args:
        gateway: The gateway.
        key: Their key.
    """

    def __init__(self, gateway: RunningGateway, key: str) -> None:
        self.gateway = gateway
        self.key = key

    @classmethod
    async def of(cls, gateway: RunningGateway, *scopes: str) -> Operator:
        return cls(gateway, await gateway.key("op", *(scopes or ("admin:read", "admin:write"))))

    async def send(self, method: str, path: str, body: Any = None, query: str = "") -> Reply:
        path = path if path.startswith(("/me", "/api/")) else BASE + path
        headers = bearer(self.key) | {"content-type": "application/json"}
        content = b"" if body is None else json.dumps(body).encode()
        return await self.gateway.http.request(method, path, content, headers, query=query)

    async def get(self, path: str, query: str = "") -> Any:
        reply = await self.send("GET", path, query=query)
        assert reply.code == 200, reply.body
        return reply.json

    async def change(self, method: str, path: str, body: Any = None) -> Any:
        reply = await self.send(method, path, body)
        assert reply.code in (200, 201, 204), reply.body
        return reply.json if reply.body else None

    async def refused(self, method: str, path: str, body: Any = None, query: str = "") -> Any:
        """Return status and reason of a refusal."""
        reply = await self.send(method, path, body, query)
        assert reply.header("content-type") == "application/problem+json", reply.body
        return reply.code, json.loads(reply.body)["reason"]

    async def recorded(self) -> list[dict[str, Any]]:
        """Return the records of changes, oldest first."""
        return await self.records("admin")

    async def records(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of a kind, oldest first."""
        reply = await self.send("GET", "/audit/export")
        every = [json.loads(line) for line in reply.body.splitlines()]
        return [each for each in every if each["kind"] == kind]
