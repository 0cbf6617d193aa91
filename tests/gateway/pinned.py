"""A gateway that pins what its servers offer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlock.gateway.definitions.decisions import Definitions
from interlock.gateway.forwarding import changes
from interlock.store.database import changes as store_changes
from interlock.store.pins import PinStore
from interlock.toolbox import server_lists
from tests.gateway.conftest import RunningGateway, bearer
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text
from tests.toolbox.test_pins import DEFINITION

FIND: Json = {"name": "find", "description": "Find.", "inputSchema": {"type": "object"}}
CAPABILITIES = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for changes without pauses."""
    monkeypatch.setattr(changes, "GAP", 0.01)
    monkeypatch.setattr(server_lists, "REFRESH_GAP", 0.01)
    monkeypatch.setattr(store_changes, "POLL_EVERY", 0.01)


def crm(*tools: Json, prompts: tuple[Json, ...] = ()) -> ScriptedServer:
    """Return a server with these tools and prompts."""
    answers = {
        "tools/list": {"tools": [*(tools or (DEFINITION, FIND))]},
        "prompts/list": {"prompts": [*prompts]},
        "tools/call": {**text("done"), "structuredContent": {"id": "1"}},
    }
    return ScriptedServer(LEGACY, answers, capabilities=CAPABILITIES)  # type: ignore[arg-type]


def offer(server: ScriptedServer, *tools: Json) -> None:
    """Change the list of a server while it is running."""
    server.answers["tools/list"] = {"tools": [*tools]}
    server.notify("notifications/tools/list_changed")


def definitions(gateway: RunningGateway, **options: Any) -> Definitions:
    """Return the definitions, as an operator has them."""
    return Definitions(PinStore(gateway.assembly.services.database), by="user:berta", **options)


async def states(gateway: RunningGateway) -> dict[str, str]:
    """Return the state of each definition, by address."""
    return {each.address: each.state for each in await definitions(gateway).list()}


async def until(holds: Callable[[], Awaitable[Any]]) -> None:
    """Wait until something holds."""
    while not await holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def listed(gateway: RunningGateway, key: str) -> Json:
    """Return the tools as the owner of a key gets them."""
    reply = await gateway.http.ask("tools/list", headers=bearer(key))
    found: Json = reply.json["result"]
    return found


async def names(gateway: RunningGateway, key: str) -> list[str]:
    """Return the names of the tools that the owner of a key gets."""
    return sorted(await gateway.names(key))


async def is_gone(gateway: RunningGateway, key: str, name: str) -> bool:
    """Return whether the owner of a key does not get a tool."""
    return name not in await gateway.names(key)


async def is_there(gateway: RunningGateway, key: str, name: str) -> bool:
    """Return whether the owner of a key gets a tool."""
    return name in await gateway.names(key)
