"""An observer of a gateway is notified of what is refused, and of tasks."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import Client
from interlock.auth import Principal
from interlock.calls import Caller, Entry, Item
from interlock.errors import CallRefused, LimitExceeded, RemoteError
from interlock.gateway import ForwardingServer
from interlock.gateway.observer import GatewayObserver
from interlock.layers import Layers
from interlock.policy import Policy
from interlock.server.catalogue import Kind
from tests.gateway.support import as_principal
from tests.support.scripted_server import ScriptedServer, text, tool

ANNA = Principal("user:anna", frozenset({"mcp:*"}))


class Seen(GatewayObserver):
    """Keeps what it is notified of."""

    def __init__(self) -> None:
        self.of: list[tuple[Any, ...]] = []

    def not_admitted(self, principal: Principal | None, error: CallRefused) -> None:
        self.of.append(("not admitted", principal, error.reason))

    def unknown(self, caller: Caller, kind: Kind, name: str, entry: Entry | Item | None) -> None:
        self.of.append(("unknown", caller.principal, kind, name, entry))

    def unavailable(
        self, caller: Caller, reason: str, entry: Entry | Item | None, name: str, call: str
    ) -> None:
        assert call
        assert entry is not None
        self.of.append(("unavailable", caller.principal, reason, entry.address, name))


def upstream() -> ScriptedServer:
    broken = tool("broken", inputSchema={"type": "object", "$ref": "https://example.org/x"})
    listed = {"tools": [tool("x"), broken]}
    return ScriptedServer(answers={"tools/list": listed, "tools/call": text("done")})


async def called(name: str, observer: GatewayObserver, **layers: Any) -> Any:
    """Return the result of a call by Anna."""
    gateway = ForwardingServer(
        {"s": upstream()},
        Policy.compile(None),
        environ={},
        layers=Layers(**layers),
        observer=observer,
    )
    async with Client.memory(as_principal(gateway, ANNA)) as client:
        return await client.call_tool(name)


async def test_tool_that_does_not_exist_is_reported_with_the_name_that_the_client_gave():
    seen = Seen()
    with pytest.raises(RemoteError):
        await called("s__y", seen)

    assert seen.of == [("unknown", ANNA, "tools", "s__y", None)]


async def test_call_of_a_tool_that_cannot_be_called_is_reported_with_its_reason():
    seen = Seen()
    assert (await called("s__broken", seen)).is_error

    assert seen.of == [("unavailable", ANNA, "tool_invalid", "s:broken", "")]


async def test_refusal_of_a_caller_is_reported_before_the_call_is_decoded():
    def admit(_: Principal | None) -> None:
        raise LimitExceeded("too many calls", "rate_limited", 1.0)

    seen = Seen()
    with pytest.raises(RemoteError):
        await called("s__y", seen, admit=admit)

    assert seen.of == [("not admitted", ANNA, "rate_limited")]


async def test_default_observer_ignores_all_notifications():
    with pytest.raises(RemoteError):
        await called("s__y", GatewayObserver())
