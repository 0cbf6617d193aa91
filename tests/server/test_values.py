"""What a function returns, as content and structured content."""

from __future__ import annotations

import base64
import enum
import itertools
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest

from interlock import Audio, Client, File, Image, Server
from interlock.types import (
    CallToolResult,
    EmbeddedResource,
    ImageContent,
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


@dataclass
class Holder:
    inner: Any


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    width: int = pydantic.Field(alias="w")


class Stored(Model):
    password: str = "canary"


@pytest.fixture
def server() -> Server:
    return Server("tools")


async def call(server: Server, name: str, /, **arguments: Any) -> CallToolResult:
    async with Client.memory(server) as client:
        return await client.call_tool(name, arguments)


PNG = b"\x89PNG\r\n\x1a\n"
PICTURE = ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")


def text(value: str) -> TextContent:
    return TextContent(text=value)


@each_row(
    ("value", "content", "structured"),
    [
        (None, [], None),
        ("text", [TextContent(text="text")], None),
        (TextContent(text="block"), [TextContent(text="block")], None),
        (
            [TextContent(text="a"), PICTURE],
            [TextContent(text="a"), PICTURE],
            None,
        ),
        (PICTURE, [PICTURE], None),
        (Image(data=PNG), [PICTURE], None),
        (
            ["a", Image(data=PNG), {"n": 1}, Model(w=3), None, 1.5, date(2026, 7, 28)],
            [
                TextContent(text="a"),
                PICTURE,
                *map(text, ('{"n":1}', '{"w":3}', "null", "1.5", "2026-07-28")),
            ],
            None,
        ),
        (("a", PICTURE), [TextContent(text="a"), PICTURE], None),
        (iter(["a", PICTURE]), [TextContent(text="a"), PICTURE], None),
        (iter([1, 2]), [TextContent(text="[1,2]")], [1, 2]),
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
        ({"a": [1]}, [TextContent(text='{"a":[1]}')], {"a": [1]}),
        ({"type": "image"}, [TextContent(text='{"type":"image"}')], {"type": "image"}),
        ([], [TextContent(text="[]")], []),
        (["a", "b"], [TextContent(text='["a","b"]')], ["a", "b"]),
        (
            Hit("a", 0.5),
            [TextContent(text='{"name":"a","score":0.5}')],
            {"name": "a", "score": 0.5},
        ),
        (Model(w=3), [TextContent(text='{"w":3}')], {"w": 3}),
        (3, [TextContent(text="3")], None),
        (Colour.RED, [TextContent(text="red")], None),
        (Path("a/b"), [TextContent(text="a/b")], None),
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


@each_row(
    ("hint", "value", "place"),
    [
        (Any, {"pic": PICTURE}, "pic"),
        (Any, {"pic": Image(data=PNG)}, "pic"),
        (dict[str, Any], {"a": [{"pic": File(data=b"a")}]}, "a[0].pic"),
        (Any, [PICTURE, {"pics": [PICTURE]}], "pics[0]"),
        (list[int], [1, PICTURE], "[1]"),
        (Any, Holder(PICTURE), "inner"),
        (Any, Holder(Image(data=PNG)), "inner"),
        (Holder, Holder(Image(data=PNG)), "inner"),
    ],
)
async def test_content_inside_of_an_object_is_an_error_that_names_its_place(hint, value, place):
    server = Server("tools")

    async def give():
        return value

    give.__annotations__ = {"return": hint}
    server.tool(give)
    result = await call(server, "give")

    assert result.is_error
    assert result.text.startswith(f"the result has content inside of JSON, at {place}; ")
    assert PICTURE.data not in result.text


@each_row(
    "hint",
    [list, list[Any], list[object], tuple, tuple[Any, ...], list[str | Image], Iterable[Image],
     Image, Audio, File, Image | str, Any],
)  # fmt: skip
async def test_a_list_with_content_is_returned_as_blocks_for_each_hint(hint):
    server = Server("tools")

    async def give():
        return ["cap", Image(data=PNG)]

    give.__annotations__ = {} if hint is Any else {"return": hint}
    server.tool(give)
    async with Client.memory(server) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("give")

    assert tool.output_schema is None
    assert result.content == [TextContent(text="cap"), PICTURE]
    assert result.structured is None


@each_row(
    ("hint", "value", "structured", "text"),
    [
        (Hit, Hit("a", 0.5), {"name": "a", "score": 0.5}, '{"name":"a","score":0.5}'),
        (list[Hit], [Hit("a", 0.5)], [{"name": "a", "score": 0.5}], '[{"name":"a","score":0.5}]'),
        (int, 3, 3, "3"),
        (list, [1, 2], [1, 2], "[1,2]"),
        (Iterable[int], iter([1, 2]), [1, 2], "[1,2]"),
        (Colour, Colour.RED, "red", "red"),
        (date, date(2026, 7, 28), "2026-07-28", "2026-07-28"),
        (Path, Path("a/b"), "a/b", "a/b"),
        (Model | Hit, Model(w=3), {"w": 3}, '{"w":3}'),
        (Annotated[Decimal, pydantic.PlainSerializer(float)], Decimal("1.5"), 1.5, "1.5"),
        (Annotated[int, pydantic.Field(ge=1)], 1, 1, "1"),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://a.example/"), *["https://a.example/"] * 2),
        (int | None, None, None, "null"),
        (Model, Model(w=3), {"w": 3}, '{"w":3}'),
        (list[Model], [Model(w=3)], [{"w": 3}], '[{"w":3}]'),
        (Model, Stored(w=3), {"w": 3}, '{"w":3}'),
        (dict[str, Model] | None, {"a": Stored(w=3)}, {"a": {"w": 3}}, '{"a":{"w":3}}'),
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


async def test_a_plain_function_and_its_iterator_run_in_a_worker_thread(server: Server):
    @server.tool
    def give() -> Iterator[str]:
        return (threading.current_thread().name for _ in range(2))

    names = (await call(server, "give")).structured

    assert len(names) == 2
    assert threading.main_thread().name not in names


async def test_an_iterator_without_end_is_a_failure(server: Server, caplog):
    server.tool(name="give")(lambda: itertools.count())

    assert (await call(server, "give")).is_error
    assert "the iterator has too many values (limit 1,048,576)" in caplog.text


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
