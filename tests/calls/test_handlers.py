"""One stack for every surface: a layer around it sees each call, and can stop it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from interlock import Agent, Client, Server, Toolbox
from interlock.auth import Principal
from interlock.calls import Call, Caller, CallHandler, Entry, Outcome
from interlock.context import Context
from interlock.errors import InvalidArguments, ToolError
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from interlock.models.scripted import ScriptedModel
from tests.support.scripted_server import Json, ScriptedServer, text, tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def served(**fields: Any) -> ScriptedServer:
    listed = {"tools": [tool("x", inputSchema=NUMBER, **fields)]}
    return ScriptedServer(answers={"tools/list": listed, "tools/call": text("done")})


class Policy:
    """Denies every call, and keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[Call] = []

    def __call__(self, handle: CallHandler) -> CallHandler:
        async def deny(call: Call) -> Outcome:
            self.seen.append(call)
            raise ToolError("denied by the policy")

        return deny


class Forwarded:
    """A tool of a toolbox, offered by a server."""

    def __init__(self, toolbox: Toolbox, entry: Entry) -> None:
        self._toolbox = toolbox
        self._entry = entry
        self.definition: Json = msgspec.json.decode(entry.definition)

    async def call(self, arguments: Raw | None, context: Context) -> Raw:
        given = {} if arguments is None else msgspec.json.decode(arguments)
        caller = Caller(context.principal, surface="mcp")
        outcome = await self._toolbox.handle(
            Call(
                self._entry,
                given,
                caller,
                back=context.link,
                capabilities=context.client_capabilities,
            )
        )
        return outcome.raw


async def test_policy_denies_the_call_of_an_agent():
    upstream, policy = served(), Policy()
    asked = AssistantMessage("", (ToolCall("1", "s__x", {"n": 1}),))
    model = ScriptedModel([asked, AssistantMessage("I could not.")])
    messages: list[Message] = [UserMessage("do it")]
    async with Toolbox({"s": upstream}, around=[policy]) as toolbox:
        await Agent(model, toolbox).complete(messages)

    (answer,) = (each for each in messages if isinstance(each, ToolMessage))
    assert answer.is_error
    assert "denied by the policy" in answer.content
    assert [call.entry.address for call in policy.seen] == ["s:x"]
    assert upstream.sent("tools/call") == []


async def test_policy_denies_the_call_of_a_server_that_offers_the_toolbox():
    upstream, policy = served(), Policy()
    async with Toolbox({"s": upstream}, around=[policy]) as toolbox:
        server = Server("front")
        for entry in toolbox.tools:
            server.add_tool(Forwarded(toolbox, entry))
        async with Client.memory(server) as client:
            result = await client.call_tool("s__x", {"n": 1})

    assert result.is_error
    assert result.text == "denied by the policy"
    assert policy.seen[0].caller.surface == "mcp"
    assert upstream.sent("tools/call") == []


async def test_layers_are_passed_in_order_and_see_validated_arguments():
    upstream = served()
    passed: list[str] = []

    def layer(name: str) -> Any:
        def wrap(handle: CallHandler) -> CallHandler:
            async def handled(call: Call) -> Outcome:
                passed.append(f"{name} {call.arguments}")
                return await handle(call)

            return handled

        return wrap

    async with Toolbox({"s": upstream}, around=[layer("outer"), layer("inner")]) as toolbox:
        await toolbox.call("s:x", {"n": 1})
        with pytest.raises(InvalidArguments):
            await toolbox.call("s:x", {"n": "one"})

    assert passed == ["outer {'n': 1}", "inner {'n': 1}"]


async def test_arguments_that_a_layer_checked_are_sent_unchanged():
    upstream = served()
    judged: list[Json] = []

    def judge(handle: CallHandler) -> CallHandler:
        async def judged_call(call: Call) -> Outcome:
            judged.append(call.arguments)
            return await handle(call)

        return judged_call

    async with Toolbox({"s": upstream}, around=[judge]) as toolbox:
        entry = toolbox.find("s:x")
        twice = msgspec.json.decode(b'{"n": 1, "n": 2}')  # decoded once, at the edge
        await toolbox.handle(Call(entry, twice))

    assert [each["arguments"] for each in upstream.sent("tools/call")] == judged == [{"n": 2}]


async def test_unknown_members_are_passed_from_server_to_client():
    result = text("done", **{"x-cost": 3, "_meta": {"acme/trace": "t"}})
    upstream = served(**{"x-team": "billing", "execution": {"taskSupport": "forbidden"}})
    upstream.answers["tools/call"] = result
    async with Toolbox({"s": upstream}) as toolbox:
        server = Server("front")
        for entry in toolbox.tools:
            server.add_tool(Forwarded(toolbox, entry))
        async with Client.memory(server) as client:
            listed = await client.list_tools()
            raw = await client.request("tools/call", {"name": "s__x", "arguments": {"n": 1}})

    assert listed.definitions[0]["x-team"] == "billing"
    assert listed.definitions[0]["execution"] == {"taskSupport": "forbidden"}
    answer = msgspec.json.decode(raw)
    assert answer["x-cost"] == 3
    assert answer["_meta"]["acme/trace"] == "t"


async def test_caller_of_a_server_reaches_the_layers_with_its_principal():
    upstream, policy = served(), Policy()
    anna = Principal("anna")
    async with Toolbox({"s": upstream}, around=[policy]) as toolbox:
        with pytest.raises(ToolError):
            await toolbox.call("s:x", {"n": 1}, caller=Caller(anna, surface="web"))

    assert policy.seen[0].caller == Caller(anna, surface="web")
