"""What a server sends by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.types import LogMessage
from tests.client.scripted import both_eras, client_of, settle, without_meta
from tests.support.rows import each_row
from tests.support.scripted_server import (
    LEGACY,
    MODERN,
    SUBSCRIPTION_KEY,
    Json,
    ScriptedServer,
    text,
)


async def test_modern_client_listens_for_the_list_changes_that_are_declared():
    capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}}
    server = ScriptedServer(
        MODERN, {"subscriptions/listen": lambda _: None}, capabilities=capabilities
    )
    async with client_of(server, on_list_changed=lambda _: None):
        sent = await server.heard("subscriptions/listen")
        assert without_meta(sent) == {"notifications": {"toolsListChanged": True}}


@each_row(
    ("revision", "capabilities", "wants"),
    [
        (LEGACY, {"tools": {"listChanged": True}}, True),
        (MODERN, {"tools": {"listChanged": True}}, False),
        (MODERN, {"tools": {"listChanged": False}, "prompts": {}}, True),
    ],
)
async def test_client_opens_no_stream_if_no_list_changes_are_declared(
    revision: str, capabilities: Json, wants: bool
):
    server = ScriptedServer(revision, capabilities=capabilities)
    options = {"on_list_changed": lambda _: None} if wants else {}
    async with client_of(server, **options) as client:
        await settle()
        await client.ping()

    assert server.sent("subscriptions/listen") == []


async def test_refused_subscription_to_changes_leaves_the_client_usable():
    capabilities = {"tools": {"listChanged": True}}
    server = ScriptedServer(MODERN, {"tools/call": text("fine")}, capabilities=capabilities)
    async with client_of(server, on_list_changed=lambda _: None) as client:
        await server.heard("subscriptions/listen")
        await settle()
        assert (await client.call_tool("x")).text == "fine"


@both_eras
@pytest.mark.usefixtures("nothing_is_left")
async def test_malformed_and_unknown_notifications_are_ignored(revision: str):
    logs: list[LogMessage] = []
    server = ScriptedServer(revision, {"tools/call": text("fine")})
    async with client_of(server, on_log=logs.append, on_list_changed=lambda _: None) as client:
        server.notify("notifications/message", level="loud", data=1)
        server.notify("notifications/message")
        server.notify("notifications/resources/updated", uri=1)
        server.notify("notifications/subscriptions/acknowledged", _meta=7)
        server.notify("notifications/subscriptions/acknowledged", _meta={SUBSCRIPTION_KEY: [1]})
        server.notify("notifications/tools/list_changed", more=[None])
        server.notify("notifications/progress", progressToken=1)
        server.notify("notifications/elicitation/complete", elicitationId="1")
        server.notify("no/such/thing")
        server.notify("notifications/message", level="info", data=None)

        assert (await client.call_tool("x")).text == "fine"
        assert client._connection.protocol.dropped["malformed notification"] == 5
    assert logs == [LogMessage(level="info")]


async def test_failing_callback_does_not_harm_the_connection():
    def fail(_: object) -> None:
        raise RuntimeError("a bug of the user")

    reported: list[Any] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    server = ScriptedServer(answers={"tools/call": lambda _: None})
    options = {"on_log": fail, "on_list_changed": fail, "on_resource_updated": fail}
    async with client_of(server, **options) as client:
        call = asyncio.create_task(client.call_tool("x", progress=fail))
        token = (await server.heard("tools/call"))["_meta"]["progressToken"]
        server.notify("notifications/message", level="info", data=1)
        server.notify("notifications/tools/list_changed")
        server.notify("notifications/resources/updated", uri="a:b")
        server.notify("notifications/progress", progressToken=token, progress=1)
        server.send({"jsonrpc": "2.0", "id": server.received[-1]["id"], "result": text("fine")})
        assert (await call).text == "fine"
    loop.set_exception_handler(before)

    assert [str(error) for error in reported] == ["a bug of the user"] * 4
