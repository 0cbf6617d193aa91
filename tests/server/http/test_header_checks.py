"""Headers that repeat arguments of a tool."""

from __future__ import annotations

import pytest

from interlock import Server
from interlock.protocol.headers import ToolHeaders
from interlock.revisions import INVALID_PARAMS
from interlock.types import Tool
from tests.server.http.conftest import MODERN, PREFIX
from tests.support.rows import each_row

ROUTED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "where": {
            "type": "object",
            "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}},
        },
    },
}


@pytest.fixture
def routed(server: Server, http):
    @server.tool(input_schema=ROUTED)
    async def routed(arguments: dict[str, object]) -> str:
        return "ran"

    return http


@each_row(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None}, {}),
        ({"region": "eu"}, {"region": "eu"}),
        ({"region": ""}, {"region": ""}),
        ({"region": "Zürich"}, {"region": "=?base64?WsO8cmljaA==?="}),
        ({"count": 42}, {"count": "42"}),
        ({"count": 42}, {"count": "42.0"}),
        ({"count": -1}, {"count": "-1"}),
        ({"dry": True}, {"dry": "true"}),
        ({"dry": False}, {"dry": "false"}),
        ({"where": {"zone": "a"}}, {"zone": "a"}),
        ({}, {"unrelated": "x"}),
    ],
)
async def test_call_whose_headers_equal_its_arguments_is_accepted(routed, arguments, headers):
    given = {f"mcp-param-{name}": value for name, value in headers.items()}
    reply = await routed.call("routed", arguments, headers=given)

    assert reply.code == 200


@each_row(
    ("arguments", "headers"),
    [
        ({"region": "eu"}, {}),
        ({}, {"region": "eu"}),
        ({"region": None}, {"region": "null"}),
        ({"region": "eu"}, {"region": "EU"}),
        ({"region": "eu"}, {"region": "=?base64?ZXU?="}),
        ({"count": 42}, {"count": "43"}),
        ({"count": 42}, {"count": "4.2e1"}),
        ({"count": 42}, {"count": "0x2a"}),
        ({"count": 42}, {"count": "42.5"}),
        ({"count": 42}, {"count": "=?base64?2aTZog==?="}),  # other digits
        ({"dry": True}, {"dry": "True"}),
        ({"dry": True}, {"dry": "1"}),
        ({"where": {"zone": "a"}}, {"zone": "b"}),
        ({"where": "not an object"}, {"zone": "b"}),
    ],
)
async def test_arguments_that_headers_do_not_repeat_are_refused(routed, arguments, headers):
    given = {f"mcp-param-{name}": value for name, value in headers.items()}
    reply = await routed.call("routed", arguments, headers=given, id="r")

    assert (reply.code, reply.error, reply.json["id"]) == (400, -32020, "r")


@each_row(
    "arguments",
    [
        {},
        {"region": " Zürich\r\n", "count": -42, "dry": False, "where": {"zone": ""}},
        {"region": "=?base64?YQ==?=", "count": 2**53 - 1, "where": {"zone": None}},
        {"region": "a b", "count": 42.0, "dry": None, "where": None},
    ],
)
async def test_headers_written_by_the_client_are_accepted(routed, arguments):
    known = ToolHeaders()
    known.learn(Tool("routed", ROUTED))
    headers = {name.lower(): value for name, value in known.of("routed", arguments).items()}
    reply = await routed.call("routed", arguments, headers=headers)

    assert reply.code == 200


async def test_tool_is_not_called_when_headers_differ_from_arguments(server, http):
    called = []

    @server.tool(input_schema=ROUTED)
    async def careful(arguments: dict[str, object]) -> str:
        called.append(arguments)
        return "ran"

    await http.call("careful", {"region": "eu"}, headers={"mcp-param-region": "us"})
    assert called == []


async def test_a_redefined_tool_has_the_headers_of_its_new_schema(server, routed):
    assert (await routed.call("routed", headers={"mcp-param-region": "eu"})).code == 400
    server.remove_tool("routed")

    @server.tool(name="routed")
    async def plain(region: str) -> str:
        return region

    reply = await routed.call("routed", {"region": "eu"})
    assert reply.text == "eu"


async def test_arguments_with_a_number_out_of_range_are_refused_as_invalid(routed):
    meta = {PREFIX + "protocolVersion": MODERN, PREFIX + "clientCapabilities": {}}
    body = routed.rpc("tools/call", {"name": "routed", "arguments": {"a": 7}, "_meta": meta}, id=1)
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "routed"}
    reply = await routed.request("POST", body=body.replace(b"7}", b"1e999}"), headers=headers)

    assert (reply.code, reply.error) == (400, INVALID_PARAMS)
