"""Clients of a scripted server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.client import Client
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer

both_eras = pytest.mark.parametrize("revision", [LEGACY, MODERN])


def client_of(server: ScriptedServer, **options: Any) -> Client:
    """Return a client that is not open yet, of the server's revision."""
    return Client(server.connect, **{"revision": server.revision, **options})


def without_meta(params: Json) -> Json:
    """Return params without `_meta`."""
    return {key: value for key, value in params.items() if key != "_meta"}


async def settle() -> None:
    """Let everything that has been sent arrive and be answered."""
    for _ in range(20):
        await asyncio.sleep(0)
