"""What a server does for an event of a turn, counted: the sockets have no network here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlock.agent import AgentEvent
from interlock.auth.principal import Principal
from interlock.messages import Unfinished
from interlock.models import TextDelta
from interlock.types import JsonObject
from interlock.web.chat import events, turn_log
from interlock.web.chat.socket import PING_SECONDS, Socket, Sockets
from interlock.web.chat.turn import Turn
from interlock.web.chat.turns import Turns


class Speaking:
    """An engine whose answer goes on when a test says so."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[str] = asyncio.Queue()

    async def open(self, owner: str, conversation: str | None, title: str) -> str:
        return conversation or "c1"

    async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
        while word := await self.words.get():
            yield TextDelta(word)

    async def broken_off(self, turn: Turn, why: Unfinished) -> None:
        pass


class Anybody:
    challenge = "Bearer"

    async def authenticate(self, headers: Any, peer: str | None) -> Principal:
        return Principal("ann")


class Host:
    """The host of one socket: what it received, and whether it lets the socket send."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[JsonObject] = asyncio.Queue()
        self.sent: list[JsonObject] = []
        self.may_send = asyncio.Event()
        self.may_send.set()

    async def receive(self) -> JsonObject:
        return await self.asked.get()

    async def send(self, message: JsonObject) -> None:
        await self.may_send.wait()
        if message["type"] == "websocket.send":
            self.sent.append(json.loads(message["text"]))

    def ask(self, **fields: Any) -> None:
        self.asked.put_nowait({"type": "websocket.receive", "text": json.dumps(fields)})

    @property
    def text(self) -> str:
        return "".join(each["content"] for each in self.sent if each["type"] == "token")


async def settled() -> None:
    """Let everything run that need not wait."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def hosts(
    turns: Turns, count: int = 1, *, is_page: bool = False
) -> AsyncIterator[tuple[Sockets, list[Host]]]:
    """Connect sockets that follow a conversation."""
    sockets = Sockets(turns, Anybody())
    made = [Host() for _ in range(count)]
    scope: JsonObject = {"type": "websocket", "headers": [(b"origin", b"http://127.0.0.1")]}
    serving = [asyncio.create_task(sockets.serve(scope, each.receive, each.send)) for each in made]
    for host in made:
        host.ask()  # websocket.connect
        host.ask(type="hello", **{"key" if is_page else "token": "x"})
    await settled()
    made[0].ask(type="message", content="go")
    await settled()
    for host in made[1:]:
        host.ask(type="resume", conversation_id="c1", after=0)
    await settled()
    try:
        yield sockets, made
    finally:
        for host in made:
            host.may_send.set()
        await turns.close()
        await sockets.close()
        await asyncio.wait(serving)


async def test_event_is_encoded_once_for_all_readers_of_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_log, "JOIN_SECONDS", -1.0)
    encode, encoded = events._encode, []
    engine = Speaking()
    async with hosts(Turns(engine), 3) as (_, made):
        monkeypatch.setattr(events, "_encode", lambda it: encoded.append(it) or encode(it))
        for number in range(10):
            engine.words.put_nowait(f"{number} ")
            await settled()

    assert [each.text for each in made] == ["0 1 2 3 4 5 6 7 8 9 "] * 3
    assert len([each for each in encoded if each["type"] == "token"]) == 10


async def test_a_thousand_tokens_at_once_are_two_frames() -> None:
    engine = Speaking()
    async with hosts(Turns(engine)) as (_, [host]):
        for _ in range(1_000):
            engine.words.put_nowait("x")
        await settled()

    assert host.text == "x" * 1_000
    assert [each["type"] for each in host.sent].count("token") == 2
    assert [each["seq"] for each in host.sent if "seq" in each] == [1, 2, 3, 4]


async def test_a_frame_is_sent_without_waking_a_task() -> None:
    engine = Speaking()
    turns = Turns(engine)
    async with hosts(turns) as (_, [host]):
        turn = turns.find("/ann", "c1")
        assert turn is not None
        turn.emit(type="reasoning", content="Well.")

        assert host.sent[-1]["content"] == "Well."  # nothing else has run meanwhile


async def test_frames_behind_one_that_waits_are_sent_later_in_their_order() -> None:
    engine = Speaking()
    turns = Turns(engine)
    async with hosts(turns) as (_, [host]):
        turn = turns.find("/ann", "c1")
        assert turn is not None
        host.may_send.clear()
        for word in ("one ", "two ", "three "):
            turn.emit(type="token", content=word)
        turn.emit(type="reasoning", content="Well.")
        await settled()
        assert host.text == ""
        host.may_send.set()
        await settled()

        assert host.text == "one two three "
        assert [(each.get("from"), each["seq"]) for each in host.sent[-3:]] == [
            (None, 2),
            (3, 4),
            (None, 5),
        ]


async def test_a_page_that_heard_nothing_for_a_while_is_pinged_once() -> None:
    engine = Speaking()
    async with hosts(Turns(engine), is_page=True) as (sockets, [host]):
        before = len(host.sent)
        (socket,) = sockets._sockets
        assert isinstance(socket, Socket)
        socket.ping(socket._sent + PING_SECONDS - 0.1)
        socket.ping(socket._sent + PING_SECONDS)
        socket.ping(socket._sent + 0.1)

    assert [each["type"] for each in host.sent[before:]][:2] == ["ping", "error"]
