"""A gateway with an OAuth front door."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.gateway.conftest import RESOURCE, RunningGateway, offering
from tests.gateway.front_door.visitor import Visitor

SETTINGS: dict[str, Any] = {"publicUrl": RESOURCE, "auth": {"oauth": {}}}


@pytest.fixture
def door(running: Callable[..., Any]) -> Callable[..., Any]:
    """Run a gateway with a front door, and yield a visitor who has signed in with a key."""

    @asynccontextmanager
    async def run(*scopes: str, **members: Any) -> AsyncIterator[Visitor]:
        async with running({**SETTINGS, **members}, crm=offering("x", "y")) as gateway:
            yield await visitor_of(gateway, *scopes)

    return run


async def visitor_of(gateway: RunningGateway, *scopes: str) -> Visitor:
    """Return a visitor who has signed in with a new key."""
    visitor = Visitor(gateway)
    await visitor.register()
    await visitor.sign_in(await gateway.key("anna", *scopes))
    return visitor
