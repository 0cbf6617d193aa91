"""Many servers as one server of a program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlock import Client, Server, StdioServer
from interlock.auth import Principal
from interlock.calls import Call, CallHandler, Outcome
from interlock.errors import ConfigError
from interlock.gateway import Gateway
from tests.gateway.support import OWN_TOOLS, as_principal
from tests.support.rows import each_row

PROGRAM = """
import sys
from interlock import Server
from interlock.gateway import Gateway

math = Server("math")
math.tool(lambda: "3", name="three")
gateway = Gateway({"math": math})
print("this goes to stderr", file=sys.stderr)
gateway.run_http(port=0) if sys.argv[1:] else gateway.run()
"""


@pytest.fixture
def math() -> Server:
    math = Server("math")
    math.tool(lambda: "3", name="three")
    return math


def names_of(tools) -> list[str]:
    return [each.name for each in tools if each.name not in OWN_TOOLS]


@each_row(
    "scopes, seen",
    [
        (None, ["math__three", "notes__read"]),
        ({"mcp:*"}, ["math__three", "notes__read"]),
        ({"mcp:math:*"}, ["math__three"]),
        ({"notes:read"}, []),
    ],
)
async def test_a_gateway_without_a_policy_allows_everything_to_local_callers(math, scopes, seen):
    notes = Server("notes")
    notes.tool(lambda: "tea", name="read")
    gateway = Gateway({"math": math, "notes": notes})
    ada = None if scopes is None else Principal("ada", frozenset(scopes))

    async with Client.memory(gateway if ada is None else as_principal(gateway, ada)) as client:
        assert names_of(await client.list_tools()) == seen
        for name in seen:
            assert not (await client.call_tool(name)).is_error


async def test_calls_pass_the_layers_of_a_gateway(math):
    seen: list[str] = []

    def noted(handle: CallHandler) -> CallHandler:
        async def noting(call: Call) -> Outcome:
            seen.append(call.name)
            return await handle(call)

        return noting

    async with Client.memory(Gateway({"math": math}, around=[noted])) as client:
        await client.call_tool("math__three")

    assert seen == ["three"]


@pytest.mark.slow("starts a program")
async def test_a_program_serves_its_gateway_on_stdio(tmp_path: Path):
    program = tmp_path / "joined.py"
    program.write_text(PROGRAM)

    async with Client.stdio(sys.executable, str(program)) as client:
        assert names_of(await client.list_tools()) == ["math__three"]
        assert (await client.call_tool("math__three")).text == "3"


def test_a_gateway_does_not_serve_other_machines_without_authentication(math):
    with pytest.raises(ConfigError, match=r"listen on 127\.0\.0\.1, or pass auth=\.\.\."):
        Gateway({"math": math}).run_http("0.0.0.0", 0)


def test_a_server_cannot_have_a_name_that_makes_addresses_ambiguous():
    with pytest.raises(ConfigError, match="invalid server name 'a:b'"):
        Gateway({"a:b": StdioServer(command="x")})
