"""Tools that are objects: listed, called and answered as a function would be."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from interlock import Server, ToolError
from interlock.errors import LocalProtocolError, SchemaError, UnknownTool
from interlock.revisions import ALL, LEGACY, NEWEST
from interlock.types import Tool
from tests.server.tool_objects import SCHEMA, Echo
from tests.support.rows import each_row

INFO = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "0"}}

ENCODED = {
    "content": [
        {"type": "text", "text": "a", "x": 1},
        {"type": "resource_link", "uri": "a://b", "name": "b", "icons": [{"src": "https://a/b"}]},
    ],
    "structuredContent": [1, 2],
    "x-cost": 3,
}


@each_row("revision", ALL)
async def test_a_tool_object_is_listed_and_called_in_every_revision(connect, revision):
    server = Server("s")
    server.add_tool(Echo())
    wire = await connect(server)
    if revision != NEWEST:
        await wire.initialize(revision)

    result = await wire.tool("echo", revision, a=1)

    assert json.loads(result["content"][0]["text"]) == {"a": 1}
    answer = await (wire.modern if revision == NEWEST else wire.call)("tools/list")
    assert answer["result"]["tools"] == [{"name": "echo", "inputSchema": SCHEMA}]


@each_row("revision", ALL)
async def test_unknown_members_of_a_definition_are_listed(connect, revision):
    definition = {"name": "echo", "inputSchema": SCHEMA, "execution": {"x": 1}, "x-cost": 3}
    server = Server("s")
    server.add_tool(Echo(definition))
    wire = await connect(server)
    if revision != NEWEST:
        await wire.initialize(revision)

    answer = await (wire.modern if revision == NEWEST else wire.call)("tools/list")

    assert answer["result"]["tools"] == [definition]


@each_row(
    ("revision", "changes"),
    [
        (LEGACY[0], {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b: a://b"}], "structuredContent": None}),  # noqa: E501
        (LEGACY[2], {"content": [{"type": "text", "text": "a"}, {"type": "resource_link", "uri": "a://b", "name": "b"}], "structuredContent": {"result": [1, 2]}}),  # noqa: E501
        (LEGACY[3], {"structuredContent": {"result": [1, 2]}}),
        (NEWEST, {"resultType": "complete", "_meta": INFO}),
    ],
)  # fmt: skip
async def test_encoded_result_keeps_unknown_members_and_drops_those_that_the_revision_lacks(
    connect, revision, changes
):
    server = Server("s")
    server.add_tool(Echo(answer=Raw(json.dumps(ENCODED).encode())))
    wire = await connect(server)
    if revision != NEWEST:
        await wire.initialize(revision)

    result = await wire.tool("echo", revision)

    expected = {**ENCODED, **changes}
    assert result == {key: value for key, value in expected.items() if value is not None}


async def test_meta_of_an_encoded_result_is_kept(connect):
    server = Server("s")
    server.add_tool(Echo(answer=Raw(b'{"resultType":"complete","_meta":{"a/b":1}}')))
    wire = await connect(server)
    await wire.initialize()

    assert await wire.tool("echo", LEGACY[3]) == {"content": [], "_meta": {"a/b": 1}}
    result = await wire.tool("echo", NEWEST)
    info = {"name": "s", "version": "0"}
    meta = {"io.modelcontextprotocol/serverInfo": info, "a/b": 1}
    assert result == {"content": [], "resultType": "complete", "_meta": meta}


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b'{"content": 5}'])
async def test_a_malformed_encoded_result_fails_the_request(connect, body):
    server = Server("s")
    server.add_tool(Echo(answer=Raw(body)))
    wire = await connect(server)
    await wire.initialize(LEGACY[0])

    answer = await wire.call("tools/call", {"name": "echo"})

    assert answer["error"]["code"] == -32603
    assert "malformed" in answer["error"]["message"]


async def test_a_failing_tool_object_is_reported_as_a_function_would_be(connect, caplog):
    server = Server("s")
    echo = Echo()
    server.add_tool(echo)
    wire = await connect(server)

    echo.answer = ToolError("no such note")
    result = await wire.tool("echo", NEWEST)
    assert (result["isError"], result["content"][0]["text"]) == (True, "no such note")
    assert not caplog.records

    echo.answer = ValueError("canary")
    result = await wire.tool("echo", NEWEST)
    assert result["isError"]
    told = result["content"][0]["text"]
    assert told.startswith("tool echo failed; the server's log on stderr has")
    assert "canary" in caplog.text

    echo.answer = UnknownTool("unknown tool 'x'")  # such as another server's
    answer = await wire.modern("tools/call", {"name": "echo"})
    assert answer["error"]["code"] == -32602


@each_row(
    ("definition", "error", "says"),
    [
        ({"inputSchema": SCHEMA}, LocalProtocolError, "has no name"),
        ({"name": "echo"}, LocalProtocolError, "'echo' has no inputSchema"),
        ({"name": "echo", "inputSchema": {"type": "string"}}, SchemaError, '"type": "object"'),
        (Tool(name="add", input_schema=SCHEMA), LocalProtocolError, "has a tool 'add' already"),
    ],
)
def test_an_unusable_tool_object_is_refused(definition, error, says):
    server = Server("s")
    server.tool(name="add")(lambda: "")

    with pytest.raises(error, match=says):
        server.add_tool(Echo(definition))
