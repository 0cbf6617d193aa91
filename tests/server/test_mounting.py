"""Servers that are part of another server."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

import msgspec
import pytest

from interlock import Client, Context, Depends, Server
from interlock.errors import LocalProtocolError, RemoteError, SignatureError
from interlock.revisions import TASKS_EXTENSION
from interlock.server import ServedCall, ToolHandler
from interlock.types import PromptReference
from tests.server.tool_objects import Echo
from tests.support.rows import each_row

KEY = "sk-canary-77aa"


def child_server(**options: Any) -> Server:
    server = Server("crm", **options)

    @server.tool
    def fetch(q: str, key: str, limit: int = 3) -> str:
        """Find customers.

        Args:
            q: The query.
        """
        return f"{q} {key} {limit}"

    @server.tool(visible=lambda _: False)
    def secret() -> str:
        return "never"

    @server.tool(task=True)
    async def report() -> str:
        return "done"

    @server.resource("crm://customers/{id}")
    def customer(id: str) -> str:
        return f"customer {id}"

    @server.prompt
    def greet(tone: str) -> str:
        return f"Greet in a {tone} tone."

    @server.completion("greet", "tone")
    def tones(typed: str) -> list[str]:
        return ["kind", "curt"]

    return server


async def names(client: Client) -> list[str]:
    return [each.name for each in await client.list_tools()]


async def test_a_mounted_server_works_as_it_does_alone():
    parent = Server("main")
    parent.mount("crm", child_server())

    async with Client.memory(parent, extensions={TASKS_EXTENSION: {}}) as client:
        assert await names(client) == ["crm_fetch", "crm_report"]
        fetched = await client.call_tool("crm_fetch", {"q": "a", "key": "k"})
        assert fetched.text == "a k 3"
        refused = await client.call_tool("crm_fetch", {"q": 1, "key": "k"})
        assert refused.text == "q: expected `str`, got `int`"
        for unknown in ("fetch", "crm_secret"):
            with pytest.raises(RemoteError, match=f"unknown tool '{unknown}'"):
                await client.call_tool(unknown)
        handle = await client.request("tools/call", {"name": "crm_report", "arguments": {}})
        assert msgspec.json.decode(handle)["resultType"] == "task"
        assert (await client.read_resource("crm://customers/7")).text == "customer 7"
        assert [each.name for each in await client.list_prompts()] == ["crm_greet"]
        await client.get_prompt("crm_greet", {"tone": "kind"})
        with pytest.raises(RemoteError, match="prompt 'crm_greet': missing"):
            await client.get_prompt("crm_greet")
        reference = PromptReference(name="crm_greet")
        assert (await client.complete(reference, "tone", "k")).values == ["kind", "curt"]


async def test_later_changes_of_a_mounted_server_reach_its_parent():
    child, between, parent = child_server(), Server("between"), Server("main")
    between.mount("b", child)
    parent.mount("", between)
    updated: list[str] = []
    changed: list[str] = []

    async with Client.memory(
        parent, on_resource_updated=updated.append, on_list_changed=changed.append
    ) as client:
        before = await names(client)
        await client.ping()  # by now the subscription is acknowledged
        child.tool(lambda: "new", name="new")
        child.remove_prompt("greet")
        await client.ping()
        assert sorted({*changed}) == ["prompts", "tools"]
        assert await names(client) == [*before, "b_new"]
        assert (await client.call_tool("b_new")).text == "new"
        with pytest.raises(RemoteError):
            await client.list_prompts()
        child.remove_tool("new")
        await client.ping()
        assert await names(client) == before
        changed.clear()
        child.list_changed("resources")
        await client.ping()
        assert changed == ["resources"]
        await client.subscribe("crm://customers/7")
        child.resource_updated("crm://customers/7")
        await client.ping()

    assert updated == ["crm://customers/7"]


async def test_lifespans_and_layers_of_both_servers_apply():
    seen: list[Any] = []
    ended = asyncio.Event()

    def lifespan(server: Server):
        @asynccontextmanager
        async def opened():
            seen.append(f"open {server.info.name}")
            yield
            seen.append(f"close {server.info.name}")
            if server is parent:
                ended.set()

        return opened()

    def layer(word: str):
        def noted(handle: ToolHandler) -> ToolHandler:
            async def noting(call: ServedCall) -> Any:
                call.arguments["q"] += word[0]
                seen.append((word, call.name))
                return await handle(call) + word[0]

            return noting

        return noted

    child = child_server(lifespan=lifespan, around=[layer("inner")])
    parent = Server("main", lifespan=lifespan, around=[layer("outer")])
    parent.mount("crm", child, tools={"fetch": {"name": "find"}})

    async with Client.memory(parent) as client:
        result = await client.call_tool("crm_find", {"q": "a", "key": "k"})

    await ended.wait()
    assert result.text == "aoi k 3io"
    assert seen == [
        "open main", "open crm", ("outer", "crm_find"), ("inner", "fetch"),
        "close crm", "close main",
    ]  # fmt: skip


def value_of(value: str):
    @asynccontextmanager
    async def opened(_: Server) -> AsyncIterator[str]:
        yield value

    return opened


async def shouted(q: str, context: Context[str]) -> str:
    return q.upper() + context.lifespan


@each_row("has_layers", [False, True])
async def test_each_function_gets_the_lifespan_of_its_own_server(has_layers):
    seen: list[Any] = []

    def layer(handle: ToolHandler) -> ToolHandler:
        async def noting(call: ServedCall) -> Any:
            call.context.state[call.name] = 1
            value = await handle(call)
            seen.append((call.name, call.context.lifespan))
            return value

        return noting

    child = Server("crm", lifespan=value_of("theirs"), around=[layer] if has_layers else [])
    parent = Server("main", lifespan=value_of("ours"), around=[layer])

    @child.tool
    async def fetch(
        q: str, loud: Annotated[str, Depends(shouted)], context: Context[str]
    ) -> dict[str, Any]:
        return {"loud": loud, "lifespan": context.lifespan, "state": list(context.state)}

    @child.resource("crm://{id}")
    def customer(id: str, context: Context[str]) -> str:
        return f"{id} {context.lifespan}"

    @child.prompt
    def greet(tone: Literal["kind", "curt"]) -> str:
        return tone

    edits: Any = {"q": {"name": "query"}}
    parent.mount("crm", child, tools={"fetch": {"arguments": edits}})
    async with Client.memory(parent) as client:
        result = await client.call_tool("crm_fetch", {"query": "a"})
        refused = await client.call_tool("crm_fetch", {"query": "a", "loud": "b"})
        assert (await client.read_resource("crm://7")).text == "7 theirs"
        reference = PromptReference(name="crm_greet")
        assert (await client.complete(reference, "tone", "k")).values == ["kind"]

    state = ["crm_fetch", "fetch"] if has_layers else ["crm_fetch"]
    assert result.structured == {"loud": "Atheirs", "lifespan": "theirs", "state": state}
    assert refused.text == "unknown argument 'loud'"
    assert seen == [("fetch", "theirs")] * has_layers + [("crm_fetch", "ours")]


# Edits


async def test_edits_rename_bind_and_remove():
    parent = Server("main")
    parent.mount(
        "crm",
        child_server(),
        tools={
            "fetch": {
                "name": "find",
                "title": "Find",
                "description": "Find a customer.",
                "arguments": {
                    "q": {"name": "query", "description": "What to look for."},
                    "key": {"value": KEY},
                    "limit": {"default": 9},
                },
            },
            "report": False,
        },
    )

    async with Client.memory(parent) as client:
        (tool,) = (await client.list_tools()).definitions
        results = [
            await client.call_tool("crm_find", arguments)
            for arguments in (
                {"query": "a"},
                {"query": "a", "limit": 1.0},
                {"query": "a", "key": "other"},
                {"q": "a"},
                {"query": 1},
            )
        ]
        with pytest.raises(RemoteError, match="unknown tool 'crm_report'"):
            await client.call_tool("crm_report")

    assert (tool["name"], tool["title"]) == ("crm_find", "Find")
    assert tool["description"] == "Find a customer."
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "default": 9},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert [each.text for each in results] == [
        f"a {KEY} 9",
        f"a {KEY} 1",
        "unknown argument 'key'",
        "unknown argument 'q'",
        "query: expected `str`, got `int`",
    ]


async def test_tools_with_their_own_schema_can_be_edited_as_well():
    child, parent = Server("objects"), Server("main")
    child.add_tool(Echo())
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}
    child.tool(lambda **given: str(given), name="given", input_schema=schema)
    edits: Any = {"a": {"name": "number"}}
    parent.mount(
        "x",
        child,
        tools={
            "echo": {"arguments": edits},
            "given": {"arguments": {**edits, "b": {"value": [1]}}},
        },
    )

    async with Client.memory(parent) as client:
        assert (await client.call_tool("x_echo", {"number": 1})).text == '{"a":1}'
        assert (await client.call_tool("x_given", {"number": 1})).text == "{'a': 1, 'b': [1]}"
        for tool in ("x_echo", "x_given"):
            refused = await client.call_tool(tool, {"number": "1"})
            assert refused.is_error
            assert "number" in refused.text


@each_row(
    "edits, problem",
    [
        ({"fetsh": False}, r"tools\['fetsh'\]: the mounted server has no .* mean 'fetch'"),
        ({"fetch": True}, r"tools\['fetch'\] must be a dict of changes, or False"),
        ({"fetch": {"args": {}}}, r"tools\['fetch'\]: unknown key 'args' .* 'arguments'"),
        ({"fetch": {"name": "a b"}}, "invalid name 'crm_a b'"),
        ({"fetch": {"name": "report"}}, "two tools would be 'crm_report'"),
        ({"fetch": {"arguments": {"Q": {}}}}, "the tool has no argument 'Q'"),
        ({"fetch": {"arguments": {"q": {"nam": "x"}}}}, r"\['q'\]: unknown key 'nam' .* 'name'"),
        ({"fetch": {"arguments": {"q": {"name": "limit"}}}}, "two arguments .* 'limit'"),
        ({"fetch": {"arguments": {"q": {"name": "a b"}}}}, "name 'a b' must be 1 to 64"),
        ({"fetch": {"arguments": {"q": {"hide": True}}}}, "'q' is required but hidden; set its"),
        ({"fetch": {"arguments": {"limit": {"value": "x"}}}}, "constant for 'limit' is not valid"),
        ({"fetch": {"arguments": {"q": {"value": "x", "name": "y"}}}}, "'name' cannot be combined"),
        ({"fetch": {"arguments": {"q": {"default": "x", "hide": True}}}}, "write 'value' instead"),
    ],
)
def test_an_edit_that_cannot_be_made_is_refused_and_nothing_is_mounted(edits, problem):
    parent = Server("main")
    with pytest.raises(SignatureError, match=rf"test_mounting\.py:\d+: .*{problem}"):
        parent.mount("crm", child_server(), tools=edits)

    parent.mount("crm", child_server())


def raw(handle):
    return handle


@each_row(
    "prefix, other, problem",
    [
        ("x", child_server(middleware=[raw]), "'crm' has middleware, .*; use around="),
        ("x", "http://127.0.0.1/mcp", "mount takes a Server, not str; .*Gateway joins"),
        ("a b", Server("other"), "prefix 'a b' must be"),
    ],
)
def test_a_server_that_cannot_be_mounted_is_refused(prefix, other, problem):
    with pytest.raises(SignatureError, match=rf"test_mounting\.py:\d+: .*{problem}"):
        Server("main").mount(prefix, other)


async def test_names_never_clash_whichever_side_comes_later():
    parent, child = Server("main"), Server("crm")
    parent.tool(lambda: "own", name="crm_find")
    parent.mount("crm", child)
    with pytest.raises(SignatureError, match=r"tool 'find' .* would be 'crm_find'"):
        child.tool(lambda: "child's", name="find")
    child.tool(lambda: "child's", name="other")
    with pytest.raises(LocalProtocolError, match="has a tool 'crm_other' already"):
        parent.tool(lambda: "own", name="crm_other")
    with pytest.raises(LocalProtocolError, match=r"'crm_other' .* mounted server; remove it there"):
        parent.remove_tool("crm_other")
    for outer, inner in ((parent, parent), (child, parent)):
        with pytest.raises(SignatureError, match="cannot be mounted in itself"):
            outer.mount("x", inner)

    async with Client.memory(parent) as client:
        assert await names(client) == ["crm_find", "crm_other"]
        assert (await client.call_tool("crm_find")).text == "own"
        with pytest.raises(SignatureError, match="'main' is running already"):
            parent.mount("y", Server("late"))


def calls_to_add_a_tool(server: Server) -> int:
    """Return how many Python functions are called while the server gets a tool."""
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()  # a collection would call what the tests' own tools have registered for it
    sys.setprofile(counted)
    try:
        server.tool(report_of, name=f"added{len(server._catalogue.tables['tools'])}")
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def report_of(q: str) -> str:
    return q


def test_adding_to_a_mounted_server_costs_the_same_however_many_items_it_has():
    child, parent = Server("child"), Server("parent")
    parent.mount("c", child)
    calls_to_add_a_tool(child)
    few = calls_to_add_a_tool(child)
    for number in range(50):
        child.tool(report_of, name=f"tool{number}")

    assert calls_to_add_a_tool(child) == few
