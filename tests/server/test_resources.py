"""Resources that match a template but do not exist, and values that a template refuses."""

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


@each_row(
    ("uri", "read"),
    [
        ("docs://a/../b", None),
        ("docs://%2e%2e/x", None),
        ("docs:///x", None),
        ("docs://x%00", None),
        ("docs://a/b..c", "a/b..c"),
    ],
)
async def test_a_value_that_would_leave_its_folder_is_an_unknown_resource(
    uri: str, read: str | None
):
    server = Server("docs")
    received = []

    @server.resource("docs://{+path}")
    async def doc(path: str) -> str:
        received.append(path)
        return path

    async with Client.memory(server) as client:
        if read is None:
            with pytest.raises(RemoteError) as caught:
                await client.read_resource(uri)
            assert caught.value.code == -32602
        else:
            assert (await client.read_resource(uri)).text == read

    assert received == [read] * (read is not None)
