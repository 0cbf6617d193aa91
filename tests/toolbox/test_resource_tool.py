"""The tool by which a model reads resources."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from interlock import Server
from interlock.agent import Agent
from interlock.auth.principal import Principal
from interlock.calls import Call, Caller, CallHandler, Outcome
from interlock.errors import CallRefused, InvalidArguments, UnknownTool
from interlock.messages import Message, ToolCall, ToolMessage, UserMessage
from interlock.models.scripted import ScriptedModel
from interlock.toolbox import Toolbox
from interlock.types import ResourceLink
from tests.support.rows import each_row

NAME = "interlock__read_resource"
CHAT = Caller(surface="chat")


def notes() -> tuple[str, Server]:
    server = Server("notes")

    @server.resource("note://today")
    def today() -> str:
        """Today's note."""
        return "Buy milk."

    @server.resource("note://{day}")
    def other(day: str) -> str:
        """Another note."""
        return f"Nothing on {day}."

    @server.resource("note://picture", mime_type="image/png")
    def picture() -> bytes:
        """A picture."""
        return b"png"

    return "notes", server


def plain() -> tuple[str, Server]:
    server = Server("plain")

    @server.tool
    def find() -> ResourceLink:
        """Find a note."""
        return ResourceLink(uri="note://today", name="today")

    return "plain", server


class Denied:
    """A layer that denies every resource, and records what passes it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, handle: CallHandler) -> CallHandler:
        async def around(call: Call) -> Outcome:
            self.seen.append(f"{call.kind} {call.entry.address}")
            if call.kind == "resource":
                raise CallRefused("resources are denied", "policy")
            return await handle(call)

        return around


@asynccontextmanager
async def opened(
    *servers: tuple[str, Server], layer: Denied | None = None
) -> AsyncIterator[Toolbox]:
    around = () if layer is None else (layer,)
    async with Toolbox(dict(servers), around=around) as toolbox:
        yield toolbox


async def read(toolbox: Toolbox, caller: Caller = CHAT, **arguments: str) -> str:
    result = await toolbox.call(NAME, arguments, caller=caller)
    return "\n".join(getattr(block, "text", "") for block in result.content)


@each_row("uri", ["note://today", "notes:note://today"])
async def test_resource_is_read_by_its_uri_with_or_without_its_server(uri: str) -> None:
    async with opened(notes(), plain()) as toolbox:
        assert await read(toolbox, uri=uri) == "Buy milk."
        assert await read(toolbox, uri="note://monday") == "Nothing on monday."


async def test_image_resource_in_a_result_is_shown_as_an_image() -> None:
    model = ScriptedModel([[ToolCall("1", NAME, {"uri": "note://picture"})], "I see."])
    messages: list[Message] = [UserMessage("Look.")]
    async with opened(notes()) as toolbox:
        await Agent(model, toolbox).complete(messages)

    assert isinstance(result := messages[2], ToolMessage)
    assert [file.data for file in result.attachments] == [b"png"]


async def test_list_names_resources_and_templates_with_their_server() -> None:
    async with opened(notes(), plain()) as toolbox:
        lines = (await read(toolbox)).splitlines()

    assert [line.split()[0] for line in lines] == [
        "notes:note://today",
        "notes:note://picture",
        "notes:note://{day}",
    ]


async def test_gateway_user_cannot_list_hidden_items() -> None:
    caller = Caller(Principal("u"), surface="web")
    async with opened(notes()) as toolbox:
        with pytest.raises(InvalidArguments, match="write the URI"):
            await read(toolbox, caller)


async def test_unknown_resource_is_an_error_with_the_expected_form() -> None:
    async with opened(plain()) as toolbox:
        with pytest.raises(InvalidArguments, match="no resource 'x://y'; write SERVER:URI"):
            await read(toolbox, uri="x://y")


async def test_reading_a_resource_passes_the_layers() -> None:
    layer = Denied()
    async with opened(notes(), layer=layer) as toolbox:
        with pytest.raises(CallRefused, match="resources are denied"):
            await read(toolbox, uri="note://today")

    assert layer.seen == ["tool interlock:read_resource", "resource notes:note://today"]


async def test_tool_is_offered_to_models_only_where_there_is_something_to_read() -> None:
    async def offered(*servers: tuple[str, Server]) -> list[bool]:
        calls = [ToolCall("1", "plain__find")]
        model = ScriptedModel([calls, "Found."])
        async with opened(*servers) as toolbox:
            await Agent(model, toolbox).complete([UserMessage("Find it.")])
        return [any(tool.name == NAME for tool in each.tools) for each in model.requests]

    assert await offered(plain()) == [False, True]  # the result links to a resource
    assert await offered(plain(), notes()) == [True, True]


async def test_read_resource_tool_is_not_listed_for_mcp_clients() -> None:
    async with opened(notes()) as toolbox:
        listed = [each.wire_name for each in toolbox.own.entries_for(Caller(surface="mcp"))]
        assert NAME not in listed
        with pytest.raises(UnknownTool):
            toolbox.find("interlock__no_such_tool")
