"""Callers of a gateway within this process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from interlock.auth.principal import Principal
from interlock.gateway import ForwardingServer
from interlock.server.http.request import RequestsUnderWay
from interlock.server.server_connection import ServerConnection
from interlock.transports import Transport
from interlock.transports.memory import MemoryTransport

OWN_TOOLS = ["interlock__read_result"]  # listed to everyone who sees any tool


class _AsPrincipal:
    def __init__(self, gateway: ForwardingServer, principal: Principal) -> None:
        self._gateway = gateway
        self._principal = principal
        self._serving: set[asyncio.Task[None]] = set()

    def connect(self) -> Transport:
        ours, theirs = MemoryTransport.pair()
        connection = ServerConnection(self._gateway, ours, self._principal)
        serving = asyncio.create_task(connection.serve())
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)
        return theirs


def as_principal(gateway: ForwardingServer, principal: Principal) -> _AsPrincipal:
    """Return a gateway as one principal sees it, for `Client.memory`."""
    return _AsPrincipal(gateway, principal)


_MEASURED: ContextVar[object] = ContextVar("measured", default=None)  # the request


async def steps_of(request: Callable[[], Awaitable[Any]]) -> int:
    """Return how many functions run during a request, as a measure of its time.

    Unlike the time, it does not depend on other programs. Timers that belong to other requests, or
    to none, have other contexts. Of several requests, the fewest functions count. The timer that
    finds slow requests does not run, because on a busy machine each request would start it.
    """
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestsUnderWay, "begin_ticking", lambda _: None)
        for _ in range(12):
            steps, measured = 0, object()
            _MEASURED.set(measured)

            def count(*_: object, measured: object = measured) -> None:
                nonlocal steps
                steps += _MEASURED.get() is measured

            sys.setprofile(count)
            try:
                await request()
            finally:
                sys.setprofile(None)
            found.append(steps)
    return min(found)
