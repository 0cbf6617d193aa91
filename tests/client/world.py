"""A client, a scripted server that knows every method, and the event loop that they run in."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from typing import Any
from unittest import mock

from interlock.client import Client
from interlock.errors import ConnectionClosed, InterlockError
from interlock.types import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    TextContent,
)
from tests.support.clock import SteppedLoop
from tests.support.recording_transport import Json, RecordingTransport
from tests.support.scripted_server import MODERN, SUBSCRIPTION_KEY, text, tool

CLOCKS = [
    "interlock.connection",
    *(f"interlock.client.{each}" for each in ("features", "cache", "reconnecting", "retries")),
]
QUESTIONS = {
    "elicitation/create": {"message": "who?", "requestedSchema": {"type": "object"}},
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
}


class Peer:
    """A scripted server; its `answer` is the script of each `RecordingTransport`."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.wires: list[RecordingTransport] = []
        self.ends_itself_over: set[str] = set()

    def connect(self) -> RecordingTransport:
        self.wires.append(RecordingTransport(self.answer))
        return self.wires[-1]

    def answer(self, message: Json) -> Iterator[Json]:
        method, params = message["method"], message.get("params", {})
        if method in self.ends_itself_over:
            self.wires[-1].abort(ConnectionClosed("I never heard of that"))
        elif "id" in message:
            yield from self._answer(message["id"], method, params)

    def _answer(self, id: int, method: str, params: Json) -> Iterator[Json]:
        if method == "subscriptions/listen":
            told = {"_meta": {SUBSCRIPTION_KEY: id}, "notifications": params["notifications"]}
            yield notification("notifications/subscriptions/acknowledged", **told)
            return
        if method == "tools/call" and "progressToken" in params.get("_meta", {}):
            for done in (1, 2):
                yield notification("notifications/progress", progressToken=id, progress=done)
        if method == "tools/call" and params["name"] == "asks" and self.revision != MODERN:
            for number, (asked, details) in enumerate(QUESTIONS.items()):
                yield {"jsonrpc": "2.0", "id": f"q{number}", "method": asked, "params": details}
            for _ in range(5):  # time to answer them
                yield notification("notifications/message", level="info", data="I wait")
        result = self._result(method, params)
        if result is None:
            error = {"code": -32601, "message": f"no {method}"}
            yield {"jsonrpc": "2.0", "id": id, "error": error}
        else:
            if self.revision == MODERN:
                result = {"resultType": "complete", **result}
            yield {"jsonrpc": "2.0", "id": id, "result": result}

    def _result(self, method: str, params: Json) -> Json | None:
        if method == "initialize" and self.revision != MODERN:
            return {"protocolVersion": self.revision, "capabilities": {"tools": {}}}
        if method == "server/discover" and self.revision == MODERN:
            capabilities = {"tools": {"listChanged": True}}
            return {"supportedVersions": [MODERN], "capabilities": capabilities}
        if method == "tools/call" and params["name"] == "asks" and self.revision == MODERN:
            return self._ask(params)
        if method == "tools/list":
            page = int(params.get("cursor", 0))
            more = {"nextCursor": str(page + 1)} if page < 2 else {}
            return {"tools": [tool(f"tool{page}")], **more}
        return RESULTS.get(method)

    def _ask(self, params: Json) -> Json:
        """Ask all questions, then all but the first, then return the result."""
        state = int(params.get("requestState", 0))
        if state == 2:
            return text("well asked")
        methods = list(QUESTIONS)[state:]
        asked = {each: {"method": each, "params": QUESTIONS[each]} for each in methods}
        return {
            "resultType": "input_required",
            "inputRequests": asked,
            "requestState": str(state + 1),
        }


RESULTS: dict[str, Json] = {
    "tools/call": text("well"),
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
    "logging/setLevel": {},
    "ping": {},
    "x/y": {"z": 1},
}


def notification(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


async def elicit(question: ElicitParams) -> ElicitResult:
    await asyncio.sleep(0)
    return ElicitResult(action="accept", content={})


async def sample(question: CreateMessageParams) -> CreateMessageResult:
    await asyncio.sleep(0)
    return CreateMessageResult(role="assistant", content=TextContent(text="four"), model="m")


class World:
    """A client, the scripted server, and the event loop that they run in."""

    def __init__(self, speaks: str, **options: Any) -> None:
        self.loop = SteppedLoop()
        self.reported: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: self.reported.append(context))
        self.clocks = [mock.patch(f"{each}.monotonic", self.loop.time) for each in CLOCKS]
        for clock in self.clocks:
            clock.start()
        self.peer = Peer(speaks)
        self.losses: list[InterlockError] = []
        self.progress: list[Any] = []
        self.client = Client(
            self.peer.connect,
            **{
                "elicitation": elicit,
                "sampling": sample,
                "on_list_changed": lambda _: None,
                "on_log": lambda _: None,
                "on_loss": self.losses.append,
                **options,
            },
        )

    @property
    def wire(self) -> RecordingTransport:
        """The transport in use; before the handshake, the newest one."""
        connection = self.client._channel._agreed
        wire = self.peer.wires[-1] if connection is None else connection.transport
        assert isinstance(wire, RecordingTransport)
        return wire

    @property
    def pending(self) -> int:
        """How many requests of the client have not ended."""
        connection = self.client._channel._agreed
        return 0 if connection is None else connection.protocol.pending

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def turn(self, turns: int = 12) -> None:
        async def turn() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.run(turn())

    def close(self) -> None:
        """Close the client, and assert that it leaks nothing."""
        try:
            self.run(self.client.close())
            self.turn()
            gc.collect(1)  # what nobody has asked a task for is told when it goes
            assert asyncio.all_tasks(self.loop) == set()
            assert self.reported == []
            assert len(self.losses) <= 1
            assert all(wire.closed for wire in self.peer.wires)
            assert_nothing_waits(self.client)
        finally:
            for clock in self.clocks:
                clock.stop()
            self.loop.close()


def assert_nothing_waits(client: Client) -> None:
    connection, streams = client._channel._agreed, client._messages.subscriptions
    if connection is not None:
        assert connection.protocol.pending == connection.protocol.running == 0
        assert (connection._waiting, connection._progress, connection._timer) == ({}, {}, None)
    if streams is not None:
        assert (streams._streams, streams._acknowledged) == ({}, {})


def listening(world: World) -> set[Any]:
    """Return the ids of open subscription streams."""
    unanswered = world.wire.unanswered.items()
    ids = [id for id, method in unanswered if method == "subscriptions/listen"]
    return {id for id in ids if id not in world.wire.cancelled()}
