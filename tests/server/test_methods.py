"""Lists in pages: encoded once for callers with equal lists."""

from __future__ import annotations

import pytest

from interlock.auth.principal import Principal
from interlock.errors import InvalidArguments
from tests.server.test_local_catalogue import Gateway, context, request
from tests.server.tool_objects import Echo


async def test_cached_pages_are_bounded_however_many_views_there_are(monkeypatch):
    monkeypatch.setattr("interlock.server.methods.MAX_CACHED_PAGES", 3)
    gateway = Gateway()
    gateway.catalogue.add_tool(Echo())

    for number in range(10):
        await gateway.answer(request("tools/list"), context(Principal(f"p{number}")))

    assert len(gateway.answer.__self__._pages) <= 3  # type: ignore[attr-defined]


async def test_a_cursor_from_elsewhere_is_refused():
    gateway = Gateway()
    with pytest.raises(InvalidArguments, match="not from this server"):
        gateway.catalogue.page("tools", "x", context(None))
