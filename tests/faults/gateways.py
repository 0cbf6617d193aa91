"""Gateways in this process, for the rows about gateways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from interlock import Server
from interlock.config import Config, loads
from interlock.config.gateway import Address
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import Endpoint
from tests.faults.ground import Ground
from tests.server.http.conftest import Http, Reply

RUBBISH = (
    b"{",
    b"\xff\x00",
    b'{"mcpServers": 1}',
    b'{"gateway": {"policy": {"rules": [{"id": "?", "effect": "perhaps"}]}}}',
    b'{"gateway": {"limits": {"perKey": {"rate": "often"}}}}',
)  # configurations that cannot be read


class Gateway:
    """A gateway in this process, and a client of it."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        address = Address("127.0.0.1", 8000)
        self.app = Endpoint(assembly, f"http://{address}/mcp", address=address).app
        self.http = Http(self.app)


G = TypeVar("G", bound=Gateway)


def config_of(members: dict[str, Any]) -> Config:
    """Read a configuration that is given as an object."""
    return loads(json.dumps(members).encode())


@asynccontextmanager
async def gateway_of(config: dict[str, Any], make: Callable[[Assembly], G]) -> AsyncIterator[G]:
    """Run a gateway of a configuration; `make` adds what the row needs."""
    opened = Assembly.open(config_of(config), environ={})
    async with opened as assembly, assembly.server.running():
        gateway = make(assembly)
        try:
            yield gateway
        finally:
            await gateway.app.close()


# One that refunds orders

CRM, DESK = Server("crm"), Server("desk")
effects: list[int] = []


@CRM.tool
async def refund(order: int) -> str:
    """Refund an order."""
    effects.append(order)
    return "done"


@DESK.tool
async def find() -> str:
    """Find an order."""
    return "found"


class RefundGateway(Gateway):
    """A gateway, and a client with a key for its tools."""

    def __init__(self, assembly: Assembly) -> None:
        super().__init__(assembly)
        self._headers = {"x-api-key": assembly.services.callers.key_for_this_run() or ""}
        effects.clear()

    @property
    def failed(self) -> bool:
        """Whether the gateway must end, as it can record no call."""
        return self.assembly.failed.is_set()

    async def recover(self) -> None:
        """Call until that succeeds; on a busy machine a failed commit may still be running."""
        reply = await self.call()
        for _ in range(50):
            if reply.code != 503:
                break
            await asyncio.sleep(0.02)
            reply = await self.call()
        assert reply.text == "done"

    async def list(self) -> Reply:
        return await self.http.ask("tools/list", headers=self._headers)

    async def call(self) -> Reply:
        return await self.http.call("crm__refund", {"order": 1}, headers=self._headers)

    async def find(self) -> Reply:
        return await self.http.call("desk__find", {}, headers=self._headers)


@asynccontextmanager
async def refunding(ground: Ground, database: str = "") -> AsyncIterator[RefundGateway]:
    """Run it, and call its tool once."""
    async with opened(ground, database) as gateway:
        assert (await gateway.call()).text == "done"
        yield gateway


@asynccontextmanager
async def opened(ground: Ground, database: str = "") -> AsyncIterator[RefundGateway]:
    """Run it."""
    config = {
        "mcpServers": {
            "crm": {"type": "python", "object": f"{__name__}:CRM"},
            "desk": {"type": "python", "object": f"{__name__}:DESK"},
        },
        "gateway": {"database": database or str(ground.folder / "gateway.db")},
    }
    async with gateway_of(config, RefundGateway) as gateway:
        yield gateway
