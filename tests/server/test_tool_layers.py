"""Layers around the tool calls of a server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from interlock import Client, Context, Server, ToolError
from interlock.errors import SignatureError
from interlock.server import ServedCall, ToolHandler
from tests.server.tool_objects import Echo
from tests.support.rows import each_row


@dataclass
class Order:
    item: str
    count: int


def noted(seen: list[Any], word: str):
    def layer(handle: ToolHandler) -> ToolHandler:
        async def noting(call: ServedCall) -> Any:
            seen.append((word, call.name, dict(call.arguments)))
            value = await handle(call)
            seen.append((word, value))
            return value

        return noting

    return layer


async def test_layers_get_decoded_arguments_and_the_value_of_the_function():
    seen: list[Any] = []
    server = Server("shop", around=[noted(seen, "outer"), noted(seen, "inner")])

    @server.tool
    def double(order: Order, context: Context) -> Order:
        return Order(order.item, 2 * order.count)

    async with Client.memory(server) as client:
        result = await client.call_tool("double", {"order": {"item": "tea", "count": 2}})

    assert result.structured == {"item": "tea", "count": 4}
    given, value = {"order": Order("tea", 2)}, Order("tea", 4)
    assert seen == [
        ("outer", "double", given), ("inner", "double", given), ("inner", value), ("outer", value),
    ]  # fmt: skip


def louder(handle: ToolHandler) -> ToolHandler:
    async def changing(call: ServedCall) -> Any:
        call.arguments["text"] += "!"
        return await handle(call) + "?"

    return changing


def stubborn(handle: ToolHandler) -> ToolHandler:
    async def retrying(call: ServedCall) -> Any:
        try:
            return await handle(call)
        except ConnectionError:
            return await handle(call)

    return retrying


def closed(_: ToolHandler) -> ToolHandler:
    async def refusing(call: ServedCall) -> Any:
        raise ToolError(f"{call.name} is closed; try again tomorrow")

    return refusing


def elsewhere(handle: ToolHandler) -> ToolHandler:
    async def moving(call: ServedCall) -> Any:
        call.context = replace(call.context, address="the palace")
        return await handle(call)

    return moving


@each_row(
    "layer, tool, text, is_error",
    [
        (louder, "say", "a!?", False),
        (stubborn, "flaky", "at last", False),
        (closed, "say", "say is closed; try again tomorrow", True),
        (elsewhere, "who", "the palace", False),
    ],
)
async def test_a_layer_may_change_repeat_or_refuse_a_call(layer, tool, text, is_error):
    server = Server("changed", around=[layer])
    attempts: list[int] = []

    @server.tool(timeout=60)
    async def say(text: str) -> str:
        return text

    @server.tool
    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError
        return "at last"

    @server.tool
    def who(context: Context) -> str:
        return context.address

    async with Client.memory(server) as client:
        result = await client.call_tool(tool, {"text": "a"} if tool == "say" else {})

    assert (result.text, result.is_error) == (text, is_error)


async def test_tools_that_are_not_functions_pass_the_layers_as_well():
    seen: list[Any] = []
    server = Server("objects", around=[noted(seen, "layer")])
    server.add_tool(Echo())

    async with Client.memory(server) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool(tool.name, {"text": "hi"})

    assert seen[0] == ("layer", tool.name, {"text": "hi"})
    assert "hi" in result.text


async def test_the_name_of_a_call_cannot_be_changed():
    def renaming(handle: ToolHandler) -> ToolHandler:
        async def changing(call: ServedCall) -> Any:
            call.name = "other"  # type: ignore[misc]
            return await handle(call)

        return changing

    server = Server("named", around=[renaming])
    server.tool(lambda: "never", name="work")

    async with Client.memory(server) as client:
        assert (await client.call_tool("work")).is_error


async def no_layer(call: ServedCall) -> Any:
    await asyncio.sleep(0)


@each_row("layer", [no_layer, lambda _: None])
def test_a_layer_that_returns_no_handler_is_refused(layer):
    with pytest.raises(SignatureError, match="returned no handler; a layer is a plain function"):
        Server("wrong", around=[layer])
