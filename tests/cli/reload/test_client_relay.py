"""What passes between a client and the processes that serve it one after the other."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from interlock.cli.reload.child_server import ChildServer
from interlock.cli.reload.client_relay import ClientRelay
from interlock.revisions import SUBSCRIPTION_KEY

Message = dict[str, Any]


class Child:
    """A process, as far as the relay knows it.

    Attributes:
        got: The messages that it received.
    """

    reason = "it exited with code 3"

    def __init__(self, relay: ClientRelay) -> None:
        self.got: list[Message] = []
        self._relay = relay

    def send(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.got.append(message)
        if str(message.get("id", "")).startswith("interlock-reload-"):
            self.say(id=message["id"], result={})

    def say(self, **message: Any) -> None:
        frame = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._relay.from_child(self.it, [frame])

    @property
    def it(self) -> ChildServer:
        return cast("ChildServer", self)


class Client:
    """The client's end of the pipes."""

    def __init__(self, relay: ClientRelay, reader: asyncio.StreamReader) -> None:
        self.relay = relay
        self._reader = reader

    def say(self, **message: Any) -> None:
        """Let the relay receive a message."""
        self.relay.frames_received([json.dumps({"jsonrpc": "2.0", **message}).encode()])

    async def hear(self) -> Message:
        message: Message = json.loads(await self._reader.readline())
        message.pop("jsonrpc")
        return message

    async def replaced(self) -> Child:
        """Let another process serve."""
        child = Child(self.relay)
        await self.relay.introduce(child.it)
        await self.relay.use(child.it)
        return child


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    source, to_relay = os.pipe()
    from_relay, target = os.pipe()
    relay = ClientRelay(source, target)
    await relay.open()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(from_relay, "rb")
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    yield Client(relay, reader)
    await relay.close()
    transport.close()
    for each in (source, to_relay, target):
        os.close(each)


async def initialized(client: Client) -> Child:
    """Return a process that an old client has initialized."""
    child = await client.replaced()
    client.say(id=1, method="initialize", params={"protocolVersion": "2025-11-25"})
    child.say(id=1, result={"capabilities": {"tools": {}, "logging": {}}})
    assert (await client.hear())["id"] == 1
    client.say(method="notifications/initialized")
    return child


async def test_settings_of_a_legacy_client_are_repeated_to_a_new_process(client: Client):
    first = await initialized(client)
    client.say(id=2, method="logging/setLevel", params={"level": "debug"})
    for id, method, uri in [
        (3, "subscribe", "a:1"),
        (4, "subscribe", "a:2"),
        (5, "unsubscribe", "a:1"),
    ]:
        client.say(id=id, method=f"resources/{method}", params={"uri": uri})
    for id in (2, 3, 4, 5):
        first.say(id=id, result={})
        await client.hear()

    second = await client.replaced()

    assert [(each["method"], each.get("params")) for each in second.got] == [
        ("initialize", {"protocolVersion": "2025-11-25"}),
        ("notifications/initialized", None),
        ("logging/setLevel", {"level": "debug"}),
        ("resources/subscribe", {"uri": "a:2"}),
    ]
    # The client hears nothing of the answers, and is notified of the lists that the server has.
    assert await client.hear() == {"method": "notifications/tools/list_changed"}


async def test_modern_subscription_moves_and_is_acknowledged_once(client: Client):
    first = await client.replaced()
    wanted = {"notifications": {"promptsListChanged": True}}
    acknowledged = {
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {SUBSCRIPTION_KEY: 7}},
    }
    client.say(id=7, method="subscriptions/listen", params=wanted)
    first.say(**acknowledged)
    assert await client.hear() == acknowledged

    second = await client.replaced()
    second.say(**acknowledged)
    first.say(id=7, result={"resultType": "complete"})  # of a server that ends
    second.say(method="notifications/prompts/list_changed", params={"n": 1})

    assert second.got[-1]["method"] == "subscriptions/listen"
    stream = {"_meta": {SUBSCRIPTION_KEY: 7}}
    assert await client.hear() == {"method": "notifications/prompts/list_changed", "params": stream}
    assert (await client.hear())["params"] == {"n": 1}


async def test_running_request_is_answered_by_the_process_that_has_it(client: Client):
    first = await client.replaced()
    client.say(id="a", method="tools/call", params={"name": "slow"})
    second = await client.replaced()
    client.say(id="b", method="tools/call", params={"name": "fast"})
    drained = asyncio.create_task(client.relay.drained(first.it))

    first.say(method="notifications/progress", params={"progress": 1})
    first.say(method="notifications/tools/list_changed")  # of lists that are offered no more
    second.say(id="a", result={"wrong": True})
    second.say(id="b", result={"of": "second"})
    client.say(method="notifications/cancelled", params={"requestId": "x"})
    first.say(id="a", result={"of": "first"})

    assert (await client.hear())["method"] == "notifications/progress"
    assert await client.hear() == {"id": "b", "result": {"of": "second"}}
    assert await client.hear() == {"id": "a", "result": {"of": "first"}}
    await drained
    assert [each["method"] for each in first.got] == ["ping", "tools/call"]


async def test_cancellation_reaches_the_process_that_has_the_request(client: Client):
    first = await client.replaced()
    client.say(id=1, method="tools/call", params={"name": "slow"})
    second = await client.replaced()
    client.say(method="notifications/cancelled", params={"requestId": 1})

    assert first.got[-1]["params"] == {"requestId": 1}
    assert [each["method"] for each in second.got] == ["ping"]
    await client.relay.drained(first.it)  # a cancelled request gets no answer


async def test_questions_of_two_processes_with_one_id_get_their_own_answers(client: Client):
    first = await client.replaced()
    client.say(id=1, method="tools/call", params={"name": "asks"})
    first.say(id=9, method="elicitation/create", params={"message": "first?"})
    second = await client.replaced()
    second.say(id=9, method="elicitation/create", params={"message": "second?"})
    one, other = await client.hear(), await client.hear()
    assert one["id"] != other["id"]

    client.say(id=other["id"], result={"action": "accept"})
    client.say(id=one["id"], error={"code": -1, "message": "no"})
    second.say(method="notifications/cancelled", params={"requestId": 9})  # is answered already
    assert second.got[-1] == {"jsonrpc": "2.0", "id": 9, "result": {"action": "accept"}}
    assert first.got[-1]["error"] == {"code": -1, "message": "no"}


async def test_input_that_ends_before_the_first_process_is_answered(client: Client):
    client.say(id=1, method="tools/list")
    settling = asyncio.create_task(client.relay.settle(0.5))
    child = await client.replaced()
    child.say(id=1, result={"tools": []})

    await settling
    assert await client.hear() == {"id": 1, "result": {"tools": []}}


async def test_requests_wait_for_the_first_process_and_fail_if_it_cannot_serve(client: Client):
    client.say(id=1, method="tools/list")
    client.relay.fail("notes.py, line 3: invalid syntax")
    client.say(id=2, method="tools/list")
    for id in (1, 2):
        answer = await client.hear()
        assert (answer["id"], answer["error"]["code"]) == (id, -32603)
        assert answer["error"]["message"].endswith("notes.py, line 3: invalid syntax")

    child = await client.replaced()
    client.say(id=3, method="tools/call", params={"name": "crash"})
    client.relay.lost(child.it)
    assert (await client.hear())["error"]["message"] == (
        "the server ended during the request: it exited with code 3"
    )
    client.say(id=4, method="tools/list")  # waits for the next process
    assert [each["method"] for each in (await client.replaced()).got] == ["ping", "tools/list"]
