"""R-36: an error of a message is raised by its own call or not at all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from interlock.client import Client
from interlock.errors import InterlockError
from interlock.revisions import NEWEST, NEWEST_LEGACY
from interlock.types import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    TextContent,
)

# JSON of any kind, and objects that look like the members of real results.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**19), 10**19) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
MEMBERS = [
    *("content", "isError", "structuredContent", "resultType", "inputRequests", "requestState"),
    *("tools", "nextCursor", "ttlMs", "cacheScope", "_meta", "resources", "prompts", "messages"),
    *("contents", "completion", "resourceTemplates", "code", "message", "data", "type", "text"),
    *("progressToken", "progress", "requestId", "level", "uri", "name", "inputSchema"),
    "io.modelcontextprotocol/subscriptionId",
]
VALUES = JSON | st.sampled_from(
    ["complete", "input_required", "text", "accept", 1, 2, {}, [], [{}]]
)
OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=5),
    lambda inner: st.dictionaries(st.sampled_from(MEMBERS), inner | st.lists(inner)),
    max_leaves=4,
)
METHODS = [
    "notifications/progress",
    "notifications/cancelled",
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/resources/updated",
    "notifications/subscriptions/acknowledged",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "ping",
]


@pytest.mark.slow("made-up input, and much of it")
@pytest.mark.parametrize("revision", [NEWEST, NEWEST_LEGACY])
def test_arbitrary_server_messages_raise_only_in_their_own_call(revision: str):
    """R-36, for every method, and for requests and notifications of the server."""
    reported: list[object] = []

    @settings(
        max_examples=100,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(answer=OBJECTS | JSON, said=OBJECTS | JSON, method=st.sampled_from(METHODS))
    def try_it(answer: object, said: object, method: str) -> None:
        asyncio.run(exchange(revision, answer, said, method, reported))

    try_it()
    assert reported == []


async def elicit(question: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


async def sample(question: CreateMessageParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="four"), model="m")


async def exchange(
    revision: str, answer: object, said: object, method: str, reported: list[object]
) -> None:
    """Send `said` to a client as a request and notification, then give its calls this answer."""
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    server = Parrot(revision, answer)
    client = Client(
        lambda: server,
        roots=["/srv"],
        sampling=sample,
        elicitation=elicit,
        timeout=1.0,
        on_list_changed=lambda _: None,
        on_log=lambda _: None,
        on_resource_updated=lambda _: None,
    )
    async with client:
        server.say({"method": method, "params": said})
        server.say({"method": method, "params": said, "id": 1})
        server.say({"id": 99, "error": said})
        calls = [
            client.list_tools(),
            client.list_prompts(),
            client.list_resource_templates(),
            client.call_tool("x"),
            client.read_resource("x:y"),
            client.get_prompt("x"),
        ]
        for ended in await asyncio.gather(*calls, return_exceptions=True):
            assert not isinstance(ended, BaseException) or isinstance(ended, InterlockError)
        assert client._connection.protocol.pending <= 1  # a subscription stream may be open
        server.answer = {"content": []}
        assert (await client.call_tool("still there?")).content == []


class Parrot:
    """A transport to a server that gives every request but the handshake the same answer."""

    def __init__(self, revision: str, answer: object) -> None:
        self.answer = answer
        self._handshake = {
            "server/discover": {
                "supportedVersions": [revision],
                "capabilities": {"tools": {"listChanged": True}},
            },
            "initialize": {"protocolVersion": revision, "capabilities": {}},
        }

    async def open(self, receiver: Any) -> None:
        self._receiver = receiver

    def send(self, frames: list[bytes]) -> None:
        for frame in map(json.loads, frames):
            if {"id", "method"} <= frame.keys():
                answer = self._handshake.get(frame["method"], self.answer)
                self.say({"id": frame["id"], "result": answer})

    def say(self, message: dict[str, object]) -> None:
        frame = json.dumps({"jsonrpc": "2.0", **message}).encode()
        asyncio.get_running_loop().call_soon(self._receiver.frames_received, [frame])

    async def close(self) -> None:
        pass
