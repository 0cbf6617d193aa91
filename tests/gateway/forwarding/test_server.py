"""A gateway in front of other servers: who sees which tools, and what calls carry through."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock import Client
from interlock.calls import Call, CallHandler, Outcome
from interlock.config import HttpServer, loads
from interlock.errors import RemoteError
from interlock.gateway import ForwardingServer
from interlock.layers import Layers
from interlock.policy import Policy
from interlock.types import ElicitParams, ElicitResult
from tests.gateway.support import OWN_TOOLS
from tests.servers import evil_http
from tests.servers.evil_http import EvilHttp
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool


def policy(**gateway: Any) -> Policy:
    file = {"mcpServers": {"s": {"command": "x", "tools": {"risk": {"read": ["get_*"]}}}}}
    return Policy.from_config(loads(msgspec.json.encode(file | {"gateway": gateway})))


def gateway_of(server: Any, rules: list[Json] | None = None) -> ForwardingServer:
    found = policy() if rules is None else policy(policy={"rules": rules})
    return ForwardingServer({"s": server}, found, environ={})


def upstream(*names: str, revision: str = LEGACY) -> ScriptedServer:
    tools = {"tools": [tool(name, **{"x-team": "billing"}) for name in names]}
    return ScriptedServer(revision, {"tools/list": tools, "tools/call": text("done")})


READ = {"id": "reads", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"}
SMALL = {
    "id": "small",
    "effect": "allow",
    "who": ["*"],
    "tools": ["s:pay"],
    "arguments": {"amount": {"maximum": 50}},
}


@pytest.mark.slow("starts a server")
async def test_a_call_after_its_server_has_lost_the_session_is_answered():
    async with EvilHttp(evil_http.LEGACY) as server:
        gateway = gateway_of(HttpServer(url=server.url))
        async with Client.memory(gateway) as client:
            for code, body in ((0, ""), (400, "Invalid session ID"), (401, "session not found")):
                if code:
                    server.forget_sessions(code, body)
                assert (await client.call_tool("s__echo", {"text": "hi"})).text == "hi"
        await gateway.toolbox.close()
    assert server.times("initialize") == 3


@each_row("revision", [LEGACY, MODERN])
@each_row("theirs", [LEGACY, MODERN])
async def test_call_passes_through_in_every_pair_of_eras(revision: str, theirs: str):
    server = upstream("get_x", revision=theirs)
    async with Client.memory(gateway_of(server), revision=revision) as client:
        listed = await client.list_tools()
        result = await client.call_tool("s__get_x", {"a": 1})

    assert [each.name for each in listed] == ["s__get_x", *OWN_TOOLS]
    assert listed.definitions[0]["x-team"] == "billing"
    assert result.text == "done"
    (sent,) = server.sent("tools/call")
    assert (sent["name"], sent["arguments"]) == ("get_x", {"a": 1})


async def test_tools_are_listed_as_far_as_the_policy_allows_them():
    server = upstream("get_x", "delete", "pay")
    async with Client.memory(gateway_of(server, [READ, SMALL])) as client:
        names = [each.name for each in await client.list_tools()]

    assert names == ["s__get_x", "s__pay", *OWN_TOOLS]


async def test_hidden_tool_answers_exactly_like_a_missing_tool():
    server = upstream("get_x", "delete")
    errors = []
    async with Client.memory(gateway_of(server, [READ])) as client:
        for name in ("s__delete", "s__nothin"):
            with pytest.raises(RemoteError) as caught:
                await client.call_tool(name)
            errors.append((caught.value.code, caught.value.message.replace(name, "NAME")))

    assert errors[0] == errors[1]
    assert server.sent("tools/call") == []


async def test_call_that_a_condition_denies_is_a_result_with_its_reason():
    server = upstream("pay")
    async with Client.memory(gateway_of(server, [SMALL])) as client:
        denied = await client.call_tool("s__pay", {"amount": 80})
        paid = await client.call_tool("s__pay", {"amount": 20})

    assert denied.is_error
    assert (denied.meta or {})["interlock/reason"]["code"] == "no_rule"
    assert "80" not in denied.text
    assert paid.text == "done"
    assert [each["arguments"] for each in server.sent("tools/call")] == [{"amount": 20}]


async def test_reference_of_a_refusal_is_the_id_of_the_call_in_its_records():
    ids: list[str] = []

    def noted(handle: CallHandler) -> CallHandler:
        async def note(call: Call) -> Outcome:
            ids.append(call.id)
            return await handle(call)

        return note

    found = policy(policy={"rules": [SMALL]})
    gateway = ForwardingServer({"s": upstream("pay")}, found, layers=Layers(counting=noted))
    async with Client.memory(gateway) as client:
        denied = await client.call_tool("s__pay", {"amount": 80})

    assert [(denied.meta or {})["interlock/reason"]["reference"]] == ids


async def test_call_of_a_server_that_is_down_returns_the_reason():
    server = upstream("get_x")
    async with Client.memory(gateway_of(server)) as client:
        await client.list_tools()
        server.answers["initialize"] = lambda _: (_ for _ in ()).throw(RemoteError(-1, "broken"))
        server.answers["server/discover"] = server.answers["initialize"]
        await server.end()
        result = await client.call_tool("s__get_x")

    assert result.is_error
    assert (result.meta or {})["interlock/reason"]["code"] in ("server_down", "upstream_closed")


@pytest.mark.slow("fills a database")
async def test_changed_tools_are_notified():
    server = upstream("get_x")
    server.capabilities = {"tools": {"listChanged": True}}
    changed: list[str] = []
    gateway = gateway_of(server)
    async with Client.memory(gateway, revision=LEGACY, on_list_changed=changed.append) as client:
        server.answers["tools/list"] = {"tools": [tool("get_y")]}
        server.notify("notifications/tools/list_changed")
        while not changed:
            await client.ping()
        assert [each.name for each in await client.list_tools()] == ["s__get_y", *OWN_TOOLS]


def asking(revision: str) -> ScriptedServer:
    """A server whose tool asks for a name, and returns it."""
    server = ScriptedServer(revision, {"tools/list": {"tools": [tool("who")]}})
    form = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}

    async def legacy(_: Json) -> Json:
        answer = await server.ask("elicitation/create", form)
        return text(answer["result"]["content"]["name"])

    def modern(params: Json) -> Json:
        if "inputResponses" in params:
            assert params["requestState"] == "theirs"
            return text(params["inputResponses"]["q"]["content"]["name"])
        question = {"method": "elicitation/create", "params": form}
        return {
            "resultType": "input_required",
            "inputRequests": {"q": question},
            "requestState": "theirs",
        }

    server.answers["tools/call"] = legacy if revision == LEGACY else modern
    return server


async def anna(_: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "anna"})


@each_row("client_revision", [LEGACY, MODERN])
@each_row("server_revision", [LEGACY, MODERN])
async def test_question_of_a_server_is_answered_by_the_client_of_the_gateway(
    client_revision: str, server_revision: str
):
    gateway = gateway_of(asking(server_revision))
    async with Client.memory(gateway, revision=client_revision, elicitation=anna) as client:
        assert (await client.call_tool("s__who")).text == "anna"
