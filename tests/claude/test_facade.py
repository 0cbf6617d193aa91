"""A server as Claude Code sees it: definitions, lists, and what it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from interlock import Server, Toolbox
from interlock.calls import Caller
from interlock.claude.decisions import Allow, Deny, PermissionRequest
from interlock.claude.facade import ALWAYS_LOADED, Facade, FacadeHost, RpcError
from interlock.types import JsonObject, ToolAnnotations
from tests.providers.schema_rules import anthropic
from tests.support.rows import each_row
from tests.support.toolboxes import described, kb


def server_of(count: int) -> Server:
    server = Server("math", instructions="Only arithmetic.")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def look(x: int) -> dict[str, int]:
        """Look something up."""
        return {"x": x}

    @server.resource("math://pi")
    def pi() -> str:
        return "3.14"

    @server.tool
    async def hang() -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return ""

    for number in range(count - 2):

        async def change(x: int) -> str:
            return str(x)

        server.tool(name=f"change{number}")(change)
    return server


@asynccontextmanager
async def facade_of(
    count: int = 3,
    *,
    always_load: bool | None = None,
    max_result: int = 0,
    timeout: float = 10.0,
    use: Callable[[PermissionRequest], Awaitable[Allow | Deny]] | None = None,
    server: Any = None,
) -> AsyncIterator[Facade]:
    async with Toolbox({"math": server or server_of(count)}, environ={}) as toolbox:
        made: list[Facade] = []
        host = FacadeHost(
            max_result,
            use,
            lambda *_: lambda _: None,
            always_load,
            lambda: sum(len(each.entries) for each in made),
            timeout,
            Caller(surface="claude"),
            lambda _: {},
        )
        made.append(Facade("math", toolbox, host))
        yield made[0]


async def listed(facade: Facade) -> dict[str, JsonObject]:
    tools = msgspec.json.decode(await facade.answer("tools/list", Raw(b"{}")))["tools"]
    return {each["name"]: each for each in tools}


async def test_definitions_have_the_hints_of_the_server_and_no_others():
    async with facade_of(max_result=48_000) as facade:
        tools = await listed(facade)

    assert tools["look"]["annotations"] == {"readOnlyHint": True}
    assert "annotations" not in tools["change0"]
    assert "outputSchema" not in tools["look"]  # results come without structured content
    assert tools["look"]["_meta"]["anthropic/maxResultSizeChars"] > 48_000


@each_row(
    ("count", "always_load", "is_loaded"),
    [
        (ALWAYS_LOADED, None, True),
        (ALWAYS_LOADED + 1, None, False),
        (ALWAYS_LOADED + 1, True, True),
        (2, False, False),
    ],
)
async def test_few_tools_are_in_the_prompt_and_many_are_searched(
    count: int, always_load: bool | None, is_loaded: bool
):
    async with facade_of(count, always_load=always_load) as facade:
        tools = await listed(facade)

    assert len(tools) == count
    assert {each["_meta"].get("anthropic/alwaysLoad", False) for each in tools.values()} == {
        is_loaded
    }


async def test_operator_and_not_the_server_decides_which_of_many_tools_are_in_the_prompt():
    wish = {"_meta": {"anthropic/alwaysLoad": True, "x": 1}}
    async with facade_of(server=kb([described(f"t{n}", **wish) for n in range(41)])) as facade:
        upstream = facade.toolbox.upstream("math")
        upstream._lists.tools.entries = tuple(
            replace(each, is_always_listed=each.tool.name == "t7") for each in upstream.entries
        )
        tools = await listed(facade)
    loaded = [name for name, each in tools.items() if "anthropic/alwaysLoad" in each["_meta"]]
    assert loaded == ["t7"]
    assert tools["t0"]["_meta"]["x"] == 1


ODD: JsonObject = {
    "type": "object",
    "properties": {"ids[]": {"type": "array", "items": [{}]}, "b": {"type": "string"}},
    "oneOf": [{"required": ["ids[]"]}, {"required": ["b"]}],
}


async def test_schemas_are_accepted_by_the_api_and_calls_have_the_names_of_the_server():
    asked: list[PermissionRequest] = []

    async def use(request: PermissionRequest) -> Allow | Deny:
        asked.append(request)
        return Allow()

    server = kb([described(f"t{number}", ODD) for number in range(200)])
    async with facade_of(server=server, use=use) as facade:
        tools = await listed(facade)
        params = {"name": "t7", "arguments": {"ids": ["a"]}}
        answer = await facade.answer("tools/call", Raw(msgspec.json.encode(params)))

    refused = {anthropic(name, each["inputSchema"]) for name, each in tools.items()}
    assert (len(tools), refused) == (200, {""})
    assert [each.arguments for each in asked] == [{"ids[]": ["a"]}]
    assert b'{\\"ids[]\\": [\\"a\\"]}' in answer


@each_row(
    ("wanted", "agreed"),
    [("2025-06-18", "2025-06-18"), ("2026-07-28", "2025-11-25"), ("1999", "2025-11-25")],
)
async def test_handshake_never_negotiates_a_modern_revision(wanted: str, agreed: str):
    params: dict[str, Any] = {"protocolVersion": wanted}
    async with facade_of() as facade:
        said = msgspec.json.decode(
            await facade.answer("initialize", Raw(msgspec.json.encode(params)))
        )

    assert said["protocolVersion"] == agreed
    assert said["instructions"] == "Only arithmetic."


async def test_resources_are_listed_and_read():
    async with facade_of() as facade:
        listed = msgspec.json.decode(await facade.answer("resources/list", Raw(b"{}")))
        read = await facade.answer("resources/read", Raw(b'{"uri":"math://pi"}'))
        with pytest.raises(RpcError, match="math://e"):
            await facade.answer("resources/read", Raw(b'{"uri":"math://e"}'))

    assert [each["uri"] for each in listed["resources"]] == ["math://pi"]
    assert msgspec.json.decode(read)["contents"][0]["text"] == "3.14"


async def test_call_runs_with_the_arguments_of_its_decision_and_only_after_it():
    asked: list[PermissionRequest] = []

    async def use(request: PermissionRequest) -> Allow | Deny:
        asked.append(request)
        return Allow({"x": 2}) if request.arguments == {"x": 1} else Deny("no")

    async with facade_of(use=use) as facade:
        meta = b'"_meta":{"claudecode/toolUseId":"t1"}'
        texts = [
            (await facade.answer("tools/call", Raw(b'{"name":"look","arguments":%b,%b}' % each)))
            for each in ((b'{"x":1}', meta), (b'{"x":3}', meta))
        ]

    assert asked[0] == PermissionRequest("math:look", {"x": 1}, "t1")
    changed, denied = [msgspec.json.decode(each)["content"][0]["text"] for each in texts]
    assert (changed, denied) == ('{"x":2}', "denied: no")


async def test_tool_that_hangs_is_an_error_after_the_timeout():
    async with facade_of(timeout=0.02) as facade:
        answer = await facade.answer("tools/call", Raw(b'{"name":"hang"}'))

    result = msgspec.json.decode(answer)
    assert result["isError"]
    assert "0.02" in result["content"][0]["text"]


async def test_tool_failure_is_an_error_result_and_malformed_params_are_refused():
    async with facade_of() as facade:
        for params, is_error, expected in (
            (b'{"name":"look","arguments":{"x":1}}', False, '{"x":1}'),
            (b'{"name":"look","arguments":{"x":"no"}}', True, "x"),
            (b'{"name":"nothing"}', True, "has no tool 'nothing'"),
        ):
            result = msgspec.json.decode(await facade.answer("tools/call", Raw(params)))
            assert result.get("isError", False) == is_error
            assert expected in result["content"][0]["text"]
        with pytest.raises(RpcError, match="malformed params"):
            await facade.answer("tools/call", Raw(b"[]"))
        with pytest.raises(RpcError, match="unknown method 'tasks/get'"):
            await facade.answer("tasks/get", Raw(b"{}"))
