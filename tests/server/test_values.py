"""What a function returns, as content and structured content."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest

from interlock import Client, Server
from interlock.server.values import audio, image
from interlock.types import (
    CallToolResult,
    EmbeddedResource,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from tests.support.rows import each_row

CANARY = "canary-77aa"


@dataclass
class Hit:
    name: str
    score: float


class Model(pydantic.BaseModel):
    width: int = pydantic.Field(alias="w")


@pytest.fixture
def server() -> Server:
    return Server("tools")


async def call(server: Server, name: str, /, **arguments: Any) -> CallToolResult:
    async with Client.memory(server) as client:
        return await client.call_tool(name, arguments)


BYTES = b"\x89PNG"


@each_row(
    ("value", "content", "structured"),
    [
        (None, [], None),
        ("text", [TextContent(text="text")], None),
        (TextContent(text="block"), [TextContent(text="block")], None),
        (
            [TextContent(text="a"), image(BYTES)],
            [TextContent(text="a"), image(BYTES)],
            None,
        ),
        (image(BYTES, "image/jpeg"), [image(BYTES, "image/jpeg")], None),
        (audio(b"RIFF"), [audio(b"RIFF")], None),
        (
            ResourceLink(uri="notes://a", name="a"),
            [ResourceLink(uri="notes://a", name="a")],
            None,
        ),
        (
            EmbeddedResource(resource=ResourceContents(uri="notes://a", text="t")),
            [EmbeddedResource(resource=ResourceContents(uri="notes://a", text="t"))],
            None,
        ),
        ({"a": [1]}, [TextContent(text='{"a":[1]}')], None),
        ([], [TextContent(text="[]")], None),
        (Hit("a", 0.5), [TextContent(text='{"name":"a","score":0.5}')], None),
        (Model(w=3), [TextContent(text='{"w":3}')], None),
        (
            CallToolResult(content=[TextContent(text="own")], structured_content={"a": 1}),
            [TextContent(text="own")],
            {"a": 1},
        ),
        (
            CallToolResult(content=[TextContent(text="no")], is_error=True),
            [TextContent(text="no")],
            None,
        ),
    ],
)
async def test_an_unstructured_value_becomes_content(value, content, structured):
    server = Server("tools")

    @server.tool
    async def give() -> Any:
        return value

    result = await call(server, "give")

    assert result.content == content
    assert result.structured == structured
    assert result.is_error == (isinstance(value, CallToolResult) and value.is_error)


def test_bytes_become_base64():
    assert base64.b64decode(image(BYTES).data) == BYTES
    assert image(BYTES).mime_type == "image/png"
    assert audio(BYTES).mime_type == "audio/wav"


@each_row(
    ("hint", "value", "structured", "text"),
    [
        (Hit, Hit("a", 0.5), {"name": "a", "score": 0.5}, '{"name":"a","score":0.5}'),
        (list[Hit], [Hit("a", 0.5)], [{"name": "a", "score": 0.5}], '[{"name":"a","score":0.5}]'),
        (int, 3, 3, "3"),
        (int | None, None, None, "null"),
        (Model, Model(w=3), {"w": 3}, '{"w":3}'),
        (list[Model], [Model(w=3)], [{"w": 3}], '[{"w":3}]'),
        (dict[str, bool], {"a": True}, {"a": True}, '{"a":true}'),
    ],
)
async def test_a_structured_value_comes_with_its_json_as_text(hint, value, structured, text):
    server = Server("tools")

    async def give():
        return value

    give.__annotations__ = {"return": hint}
    server.tool(give)
    async with Client.memory(server) as client:
        await client.list_tools()  # so that the client checks the result, too
        result = await client.call_tool("give")

    assert result.structured == structured
    assert result.text == text


async def test_a_result_that_violates_its_schema_is_not_sent(server: Server, caplog):
    @server.tool
    async def count() -> int:
        return CANARY  # type: ignore[return-value]  # that is the fault

    result = await call(server, "count")

    assert result.is_error
    assert "tool count returned a result that its schema forbids" in result.text
    assert CANARY not in result.text
    assert reference_in(result.text) in caplog.text


async def test_error_result_is_not_checked_against_the_output_schema(server: Server):
    @server.tool
    async def count() -> int:
        return CallToolResult(content=[TextContent(text="none")], is_error=True)  # type: ignore[return-value]  # allowed at run time

    assert (await call(server, "count")).text == "none"


async def test_a_value_without_json_is_a_failure_with_a_reference(server: Server, caplog):
    @server.tool
    async def give() -> Any:
        return object()

    result = await call(server, "give")

    assert result.is_error
    assert reference_in(result.text) in caplog.text


def reference_in(text: str) -> str:
    assert "the server's log on stderr has the details under " in text
    return text.rpartition(" ")[2]
