"""What each caller of a gateway sees: lists, what is missing in them, plain names."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from interlock import Client
from interlock.auth.principal import Principal
from interlock.config import loads
from interlock.config.gateway import View
from interlock.context import Context
from interlock.errors import RemoteError, SpawnError
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.protocol import Request
from interlock.toolbox.names import plain_name
from interlock.transports import Transport
from interlock.types import ClientCapabilities, Implementation
from tests.gateway.support import OWN_TOOLS, as_principal
from tests.providers.schema_rules import anthropic
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

EVERYTHING = frozenset({"mcp:*"})
BROKEN = {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "x:y"}}}}


class Missing:
    """A server that cannot be started."""

    def connect(self) -> Transport:
        raise SpawnError("cannot start 'npx': program not found")


def upstream(*tools: Json | str) -> ScriptedServer:
    listed = [tool(each) if isinstance(each, str) else each for each in tools]
    return ScriptedServer(LEGACY, {"tools/list": {"tools": listed}, "tools/call": text("done")})


def policy(rules: list[Json] | None = None, **views: View) -> Policy:
    if rules is None:
        return Policy.compile(None, views=views)
    file = {"mcpServers": {}, "gateway": {"policy": {"rules": rules}}}
    return Policy.from_config(loads(msgspec.json.encode(file)))


async def listed(client: Client) -> tuple[list[str], Json]:
    """Return the names in `tools/list`, and its `_meta` without that of the connection."""
    result = msgspec.json.decode(await client.request("tools/list"))
    meta = {k: v for k, v in result.get("_meta", {}).items() if k.startswith("interlock/")}
    return [each["name"] for each in result["tools"]], meta


async def test_a_call_waits_for_a_server_that_is_still_starting():
    ready = asyncio.Event()

    async def late(_: Json) -> Json:
        await ready.wait()
        return {"tools": [tool("x"), tool("y")]}

    slow = ScriptedServer(LEGACY, {"tools/list": late, "tools/call": text("done")})
    rules = [{"id": "r", "effect": "allow", "who": ["*"], "tools": ["slow:x"]}]
    async with Client.memory(
        ForwardingServer({"slow": slow}, policy(rules), environ={}, idle_timeout=0.0),
        revision=MODERN,
    ) as client:
        calls = [asyncio.create_task(client.call_tool(f"slow__{name}")) for name in "xyz"]
        await slow.heard("tools/list")
        assert not any(each.done() for each in calls)
        ready.set()
        first, *others = await asyncio.gather(*calls, return_exceptions=True)

    assert getattr(first, "text", None) == "done"
    assert all(isinstance(each, RemoteError) and each.code == -32602 for each in others)


@each_row("revision", [LEGACY, MODERN])
async def test_missing_tools_and_servers_are_in_the_list_with_their_reason(revision: str):
    servers = {"s": upstream("get_x", BROKEN), "browser": Missing()}
    async with Client.memory(
        ForwardingServer(servers, policy(), environ={}), revision=revision
    ) as client:
        names, meta = await listed(client)
        broken = await client.call_tool("s__broken")
        down = await client.call_tool("browser__open")

    assert names == ["s__get_x", *OWN_TOOLS]
    server, broken_tool = meta["interlock/missing"]
    assert (server["address"], server["reason"]) == ("browser", "server_down")
    assert "program not found" in server["detail"]
    assert (broken_tool["address"], broken_tool["reason"]) == ("s:broken", "tool_invalid")
    assert [(each.is_error, reason(each)) for each in (broken, down)] == [
        (True, "tool_invalid"),
        (True, "server_down"),
    ]


def reason(result: Any) -> str:
    code: str = (result.meta or {})["interlock/reason"]["code"]
    return code


async def test_call_of_a_server_that_failed_to_start_states_the_time_of_the_next_start():
    async with Client.memory(
        ForwardingServer({"browser": Missing()}, policy(), environ={})
    ) as client:
        down = await client.call_tool("browser__open")

    assert (down.meta or {})["interlock/reason"]["retryAfter"] == 1


async def test_missing_tools_are_named_only_to_callers_who_could_see_them():
    rules = [{"id": "r", "effect": "allow", "who": ["*"], "tools": ["s:get_*"]}]
    servers = {"s": upstream("get_x", BROKEN), "browser": Missing()}
    async with Client.memory(ForwardingServer(servers, policy(rules), environ={})) as client:
        names, meta = await listed(client)
        texts = []
        for name in ("s__broken", "s__absent", "browser__open", "absent__x"):
            with pytest.raises(RemoteError) as caught:
                await client.call_tool(name)
            texts.append((caught.value.code, caught.value.message.replace(name, "NAME")))

    assert (names, meta) == (["s__get_x", *OWN_TOOLS], {})
    assert len(set(texts)) == 1


@each_row("tools", [(), ("get_x",)], ids=["no tools", "hidden tools"])
async def test_empty_list_states_that_the_caller_has_no_rights(tools: tuple[str, ...]):
    gateway = ForwardingServer({"s": upstream(*tools)}, policy([]), environ={})
    async with Client.memory(gateway) as client:
        assert await listed(client) == ([], {"interlock/reason": "nothing_granted"})


async def test_tool_of_a_server_that_went_down_stays_listed_with_its_state():
    server = upstream(tool("get_x", _meta={"x-team": "billing"}))
    async with Client.memory(ForwardingServer({"s": server}, policy(), environ={})) as client:
        await server.end()
        meta: Json = {}
        while STATE not in meta:
            meta = msgspec.json.decode(await client.request("tools/list"))["tools"][0]["_meta"]

    assert meta == {"x-team": "billing", STATE: "server_down"}


STATE = "interlock/state"
TEAM = Principal("user:anna", EVERYTHING, view="team")


async def test_plain_view_has_the_servers_names_as_far_as_clients_accept_them():
    one, two = upstream("get_x", "get_y"), upstream("get_x", "get z")
    renamed = plain_name("two", "get z")
    gateway = ForwardingServer(
        {"one": one, "two": two, "three": upstream("get_w")},
        policy(team=View(servers=("one", "two"), deny=("one:get_y",), names="plain")),
        environ={},
    )
    async with Client.memory(as_principal(gateway, TEAM)) as client:
        names, meta = await listed(client)
        await client.call_tool(renamed)
        for name in ("two__get_x", "get z"):
            with pytest.raises(RemoteError, match=f"unknown tool '{name}'"):
                await client.call_tool(name)

    assert names == ["get_x", renamed, *OWN_TOOLS]
    (clash,) = meta["interlock/missing"]
    assert (clash["address"], clash["reason"]) == ("two:get_x", "name_clash")
    assert [each["name"] for each in two.sent("tools/call")] == ["get z"]


PIECES = ("a", "b", "_", "__", "-", "é", "日", " ", ".", "get_", "x" * 40)


@pytest.mark.slow("500 configurations")
async def test_added_servers_and_tools_change_no_wire_name():
    """Servers, views, and tools of a server, as a plugin adds them, one after another."""
    chance = random.Random(4)
    configurations = 0

    def name() -> str:
        return "".join(chance.choices(PIECES, k=chance.randint(1, 4)))

    for _ in range(50):
        servers: dict[str, ScriptedServer] = {name(): upstream(*{name(), name()})}
        views: dict[str, View] = {}
        gateway = ForwardingServer(servers, policy(), environ={})
        async with gateway.running():
            seen: dict[str, str] = {}
            for _ in range(10):
                configurations += 1
                wire = {each.address: each.wire_name for each in gateway.toolbox.tools}
                assert wire.items() >= seen.items()
                assert len({*wire.values()}) == len(wire)
                assert all(0 < len(each) <= 64 for each in wire.values())
                seen = wire
                added = chance.choice(["server", "view", "tool"])
                if added == "server":
                    servers = {**servers, name(): upstream(*{name(), name()})} | servers
                elif added == "view":
                    views[name()] = View(servers=(chance.choice([*servers]),))
                else:
                    grown = chance.choice([*servers])
                    tools = servers[grown].answers["tools/list"]["tools"]  # type: ignore[index]
                    if (more := name()) not in [each["name"] for each in tools]:
                        tools.append(tool(more))
                    await gateway.toolbox.upstreams[grown].restart()
                await gateway.replace(servers, policy(**views))
    assert configurations == 500


async def test_every_broken_tool_is_listed_as_missing_even_if_another_tool_has_its_name():
    broken = {"inputSchema": {"type": "object", "properties": {"a": {"$ref": "x:y"}}}}
    one, two = upstream("get_x", "get_y"), upstream("get_x", "get_y")
    two.answers["tools/list"] = {"tools": [tool(name) | broken for name in ("get_x", "get_y")]}
    plain = policy(team=View(servers=("one", "two"), names="plain"))
    gateway = ForwardingServer({"one": one, "two": two}, plain, environ={})
    async with Client.memory(as_principal(gateway, TEAM)) as client:
        names, meta = await listed(client)

    assert names == ["get_x", "get_y", *OWN_TOOLS]
    missing = [(each["address"], each["reason"]) for each in meta["interlock/missing"]]
    assert missing == [("two:get_x", "tool_invalid"), ("two:get_y", "tool_invalid")]


ODD: list[Json] = [
    {"type": "object", "properties": {"$top": {"type": "integer"}}, "required": ["$top"]},
    {"type": "object", "properties": {"a": {"properties": {"ids[]": {"items": [{}]}}}}},
    {"anyOf": [{"required": ["a"]}, {"properties": {"b": {"pattern": "^(?=x)"}}}]},
]


@each_row("revision", [LEGACY, MODERN])
async def test_lists_are_accepted_by_models_and_calls_have_the_names_of_the_server(revision: str):
    odd = [tool(f"t{n}", inputSchema=ODD[n % len(ODD)]) for n in range(200)]
    server = upstream(*odd)
    gateway = ForwardingServer({"s": server}, policy(), environ={})
    async with Client.memory(gateway, revision=revision) as client:
        found = (await client.list_tools()).definitions
        refused = {each["name"]: anthropic(each["name"], each["inputSchema"]) for each in found}
        for arguments in ({"top": 5}, {"$top": 6}):
            await client.call_tool("s__t0", arguments)

    assert len(refused) == 201
    assert {*refused.values()} == {""}
    assert [each["arguments"] for each in server.sent("tools/call")] == [{"$top": 5}, {"$top": 6}]


async def test_claude_code_gets_names_that_are_short_enough_with_its_prefix():
    s = upstream("get", "n" * 50)
    gateway = ForwardingServer({"s": s}, policy(), environ={})
    anna = Principal("user:anna", EVERYTHING)
    async with gateway.running():
        names = {}
        for client in ("claude-code", "other"):
            context = replace(context_of(anna), client_info=Implementation(client, version="1"))
            request = Request(1, "tools/list", msgspec.Raw(b"{}"))
            answer = msgspec.json.decode(await gateway.answer(request, context))
            names[client] = [each["name"] for each in answer["tools"]]
            params = msgspec.json.encode({"name": names[client][1]})
            await gateway.answer(Request(2, "tools/call", msgspec.Raw(params)), context)

    assert names["other"][:2] == ["s__get", "s__" + "n" * 50]
    assert names["claude-code"][0] == "s__get"
    assert len(names["claude-code"][1]) == 40
    assert [each["name"] for each in s.sent("tools/call")] == ["n" * 50] * 2


async def test_a_view_can_keep_the_schemas_of_the_servers():
    rules = policy(team=View(servers=("s",), schemas="original"))
    gateway = ForwardingServer({"s": upstream(tool("x", inputSchema=ODD[0]))}, rules, environ={})
    async with Client.memory(as_principal(gateway, TEAM)) as client:
        (found, *_) = (await client.list_tools()).definitions

    assert found["inputSchema"] == ODD[0]


async def test_encoded_list_is_kept_until_something_changes():
    s = upstream("get_x")
    gateway = ForwardingServer({"s": s}, policy(), environ={})
    request = Request(1, "tools/list", msgspec.Raw(b"{}"))
    async with gateway.running():
        anna = Principal("user:anna", EVERYTHING)
        lists = [await gateway.answer(request, context_of(anna)) for _ in range(2)]
        s.answers["tools/list"] = {"tools": [tool("get_y")]}
        await gateway.replace({"other": s}, policy())
        changed = await gateway.answer(request, context_of(anna))

    assert lists[0] is lists[1]
    assert b"s__get_x" in lists[0]
    assert b"other__get_y" in changed


@each_row(
    "other",
    [Principal("user:anna", frozenset({"mcp:other:*"})), Principal("user:berta", EVERYTHING)],
    ids=["other scopes", "other user"],
)
async def test_encoded_list_is_not_given_to_a_principal_with_other_rights(other: Principal):
    rule = {"id": "anna", "effect": "allow", "who": ["user:anna"], "tools": ["s:*"]}
    gateway = ForwardingServer({"s": upstream("get_x")}, policy([rule]), environ={})
    request = Request(1, "tools/list", msgspec.Raw(b"{}"))
    async with gateway.running():
        own = await gateway.answer(request, context_of(Principal("user:anna", EVERYTHING)))
        others = await gateway.answer(request, context_of(other))

    assert b"s__get_x" in own
    assert b"s__get_x" not in others


def context_of(principal: Principal) -> Context:
    return Context(
        revision=MODERN,
        request_id=1,
        link=None,  # type: ignore[arg-type]  # nothing is sent back
        loop=None,  # type: ignore[arg-type]
        client_capabilities=ClientCapabilities(),
        principal=principal,
    )
