"""Resources that match a template but do not exist."""

from __future__ import annotations

import pytest

from interlock import Client, Server
from interlock.errors import RemoteError, UnknownResource
from tests.support.rows import each_row


@each_row(("revision", "code"), [("2026-07-28", -32602), ("2025-11-25", -32002)])
async def test_a_function_that_raises_unknown_resource_answers_not_found(
    revision: str, code: int
) -> None:
    server = Server("notes")

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        raise UnknownResource(f"notes://{name}")

    async with Client.memory(server, revision=revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("notes://nothing")

    assert caught.value.code == code
    assert caught.value.data == {"uri": "notes://nothing"}
