"""What a Server accepts as tools."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from interlock import Client, Server
from interlock.errors import LocalProtocolError, SchemaError, SignatureError
from interlock.types import CallToolResult


@pytest.fixture
def server() -> Server:
    return Server("tools")


async def call(server: Server, name: str, /, **arguments: Any) -> CallToolResult:
    async with Client.memory(server) as client:
        return await client.call_tool(name, arguments)


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {}, {"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}],
    ids=str,
)
def test_an_unusable_explicit_schema_is_refused(server: Server, schema):
    with pytest.raises(SchemaError):
        server.tool(name="t", input_schema=schema)(lambda: None)


def test_a_second_tool_of_one_name_is_refused(server: Server):
    server.tool(name="same")(lambda: "")

    with pytest.raises(LocalProtocolError, match="the server has a tool 'same' already"):
        server.tool(name="same")(lambda: "")


def test_a_function_without_a_name_is_refused(server: Server):
    for function in (lambda: "", functools.partial(lambda a: a, 1)):
        with pytest.raises(SignatureError, match="set one with tool"):
            server.tool(function)


async def test_methods_partials_and_callable_objects_can_be_tools(server: Server):
    class Adder:
        def __init__(self, start: int) -> None:
            self.start = start

        def add(self, a: int) -> str:
            return str(self.start + a)

        async def __call__(self, a: int) -> str:
            return str(self.start - a)

        @classmethod
        def zero(cls, *, a: int) -> str:
            return str(a - a)

    def multiply(a: int, b: int) -> str:
        return str(a * b)

    server.tool(Adder(10).add)
    server.tool(Adder.zero)
    server.tool(name="subtract")(Adder(10))
    server.tool(name="double")(functools.partial(multiply, 2))

    assert (await call(server, "add", a=1)).text == "11"
    assert (await call(server, "subtract", a=1)).text == "9"
    assert (await call(server, "zero", a=1)).text == "0"
    assert (await call(server, "double", b=4)).text == "8"
