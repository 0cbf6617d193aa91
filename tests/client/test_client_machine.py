"""R-01 for a client, wherever it waits and in whatever order things come.

First each method by itself: it is run again and again, and something happens to it where it
waits first, then where it waits next, and so on until it has no further place to wait at. Then
many calls at once, in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from interlock.errors import (
    ConnectionClosed,
    InterlockError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
)
from interlock.types import ElicitParams, ElicitResult, PromptReference
from tests.client.interrupted import (
    CANCELLATIONS,
    FAULTS,
    KINDS,
    Action,
    Interrupted,
    assert_allowed,
    each_variant,
    every_wait,
)
from tests.client.world import QUESTIONS, Peer, World, listening, notification
from tests.support.recording_transport import Json, RecordingTransport
from tests.support.scripted_server import LEGACY, MODERN, text

# One method at a time


def method(name: str, *arguments: Any, **options: Any) -> Action:
    async def call(world: World) -> Any:
        return await getattr(world.client, name)(*arguments, **options)

    return call


async def call_with_progress(world: World) -> Any:
    return await world.client.call_tool("x", {"a": 1}, progress=world.progress.append)


async def any_request(world: World) -> bytes:
    return bytes(await world.client.request("x/y"))


async def subscribe_twice(world: World) -> None:
    await asyncio.gather(world.client.subscribe("x:y"), world.client.subscribe("x:y"))


async def subscribe_and_leave(world: World) -> None:
    await world.client.subscribe("x:y")
    await world.client.unsubscribe("x:y")


ACTIONS: dict[str, Action] = {
    "list_tools": method("list_tools"),
    "list_resources": method("list_resources"),
    "list_resource_templates": method("list_resource_templates"),
    "list_prompts": method("list_prompts"),
    "call_tool": method("call_tool", "x"),
    "call_tool with progress": call_with_progress,
    "call_tool that asks": method("call_tool", "asks"),
    "read_resource": method("read_resource", "x:y"),
    "subscribe": method("subscribe", "x:y"),
    "subscribe twice": subscribe_twice,
    "unsubscribe": subscribe_and_leave,
    "get_prompt": method("get_prompt", "x"),
    "complete": method("complete", PromptReference(name="x"), "a", "b"),
    "ping": method("ping"),
    "set_log_level": method("set_log_level", "info"),
    "request": any_request,
}


def opened(revision: str) -> World:
    world = World(revision, revision=revision)
    world.run(world.client.open())
    world.turn()
    return world


@each_variant(("action", "fault", "revision", "kind"), ACTIONS, [LEGACY, MODERN], KINDS)
def test_fault_during_a_waiting_method_ends_the_method_once_without_leaks(
    action: str, fault: str, revision: str, kind: type[Interrupted]
):
    world = opened(revision)
    undisturbed = world.run(ACTIONS[action](world))
    world.close()

    for world, outcome in every_wait(ACTIONS[action], fault, lambda: opened(revision), kind):
        assert_allowed(fault, outcome, undisturbed, kind)
        world.turn()
        gone = fault in ("closed", "lost")
        assert world.pending == (0 if gone else len(listening(world)))
        told = world.wire.cancelled()
        assert len(told) == len(set(told))
        if fault in (*CANCELLATIONS, "noisy", "cut"):
            assert set(world.wire.unanswered) - set(told) == listening(world)
            world.run(world.client.ping())  # the connection is as good as before
        elif fault in ("closed", "lost"):
            with pytest.raises(FAULTS[fault][1]):
                world.run(world.client.ping())


async def open_and_close(world: World) -> str:
    async with world.client as client:
        return client.revision


async def old_server(world: World) -> str:
    """Open a client that asks an old server in the modern way first."""
    return await open_and_close(world)


async def old_server_that_ends_itself(world: World) -> str:
    world.peer.ends_itself_over = {"server/discover"}
    return await open_and_close(world)


OPENINGS: dict[str, tuple[str, Action]] = {
    "modern": (MODERN, open_and_close),
    "old": (LEGACY, old_server),
    "old and touchy": (LEGACY, old_server_that_ends_itself),
}


@each_variant(("opening", "fault", "kind"), OPENINGS, KINDS)
def test_fault_while_a_client_opens_or_closes_leaks_nothing(
    opening: str, fault: str, kind: type[Interrupted]
):
    revision, action = OPENINGS[opening]
    waits = 0
    for world, outcome in every_wait(action, fault, lambda: World(revision), kind):
        waits += 1
        if fault in ("lost", "cut") and revision == MODERN:
            # Its end is taken for an old server's, which is asked in its own way then.
            assert isinstance(outcome, RemoteError | InterlockError) or outcome == revision
        else:
            assert_allowed(fault, outcome, revision, kind)
        if outcome != revision and fault not in CANCELLATIONS:
            assert all(wire.closed for wire in world.peer.wires)
    assert waits >= 4


def test_a_closing_that_is_cancelled_can_be_done_again_and_ends_every_call():
    for world, outcome in every_wait(method("close"), "cancelled", lambda: opened(MODERN)):
        assert isinstance(outcome, asyncio.CancelledError)
        with pytest.raises(ConnectionClosed):
            world.run(world.client.call_tool("x"))


def test_subscription_cancelled_before_it_begins_leaves_nothing_open():
    world = opened(MODERN)

    async def subscribe_and_leave_at_once() -> None:
        await asyncio.gather(world.client.subscribe("x:y"), world.client.unsubscribe("x:y"))

    before = listening(world)  # the news of changed lists
    world.run(subscribe_and_leave_at_once())
    world.turn()
    assert listening(world) == before
    assert world.pending == 1
    world.close()


# Many calls at once

TIMEOUT, HARD_TIMEOUT = 3.0, 7.0


class HoldingPeer(Peer):
    """A server that answers calls when the machine says so."""

    def _answer(self, id: int, method: str, params: Json) -> Iterator[Json]:
        return iter(()) if method == "tools/call" else super()._answer(id, method, params)


class Call:
    """One call as the machine sees it."""

    def __init__(self, task: asyncio.Task[Any], wire: RecordingTransport, now: float) -> None:
        self.task = task
        self.wire = wire
        self.id: int | None = None  # None when it was never sent
        self.idle_end = now + TIMEOUT
        self.hard_end = now + HARD_TIMEOUT
        self.progress = -1
        self.ends: tuple[Any, ...] = ()  # how it may have ended; empty while it is open


class Calls(RuleBasedStateMachine):
    """A client whose server answers in any order, twice, wrongly or not at all, or goes away."""

    @initialize(revision=st.sampled_from([LEGACY, MODERN]))
    def open(self, revision: str) -> None:
        self.may_answer = asyncio.Event()
        self.world = World(
            revision,
            revision=revision,
            timeout=TIMEOUT,
            hard_timeout=HARD_TIMEOUT,
            elicitation=self.answer_later,
        )
        self.world.peer = peer = HoldingPeer(revision)
        self.world.client._channel._connect = peer.connect
        self.calls: list[Call] = []
        self.others: list[asyncio.Task[Any]] = []
        self.is_open = False
        self.reopen()

    async def answer_later(self, question: ElicitParams) -> ElicitResult:
        await self.may_answer.wait()
        return ElicitResult(action="decline")

    @precondition(lambda self: not self.is_open)
    @rule()
    def reopen(self) -> None:
        self.world.run(self.world.client.close())
        self.world.losses.clear()
        self.world.run(self.world.client.open())
        self.world.turn()
        self.is_open = True

    def end(self, call: Call, *ends: Any) -> None:
        if not call.ends:
            call.ends = ends

    def end_all(self, error: type[InterlockError]) -> None:
        self.is_open = False
        for call in self.calls:
            self.end(call, error)

    def one_of_the_calls(self, data: st.DataObject) -> Call:
        """Choose a call, most often one that has not ended."""
        still_open = [call for call in self.calls if not call.ends]
        calls = still_open if still_open and data.draw(st.integers(0, 3)) else self.calls
        return data.draw(st.sampled_from(calls))

    # The caller

    @rule(progress=st.booleans(), turns=st.sampled_from([0, 0, 12]))
    def call(self, progress: bool, turns: int) -> None:
        world, number = self.world, len(self.calls)
        heard = (lambda _: None) if progress else None
        coroutine = world.client.call_tool(f"tool{number}", progress=heard)
        call = Call(world.loop.create_task(coroutine), world.wire, world.loop.now)
        self.calls.append(call)
        world.turn(1 + turns)
        asked = [each for each in world.wire.sent if each.get("method") == "tools/call"]
        if self.is_open:
            call.id = asked[-1]["id"]
            assert asked[-1]["params"]["name"] == f"tool{number}"
        else:
            self.end(call, ConnectionClosed, RemoteProtocolError)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = self.one_of_the_calls(data)
        was_open = not call.ends
        call.task.cancel()
        self.world.turn()
        self.end(call, asyncio.CancelledError)
        assert (call.id in call.wire.cancelled()) or not was_open

    @rule(
        action=st.sampled_from(
            ["list_tools", "subscribe", "unsubscribe", "ping", "set_log_level", "list_prompts"]
        ),
        turns=st.integers(0, 12),
    )
    def do_something_else(self, action: str, turns: int) -> None:
        task = self.world.loop.create_task(ACTIONS[action](self.world))
        self.others.append(task)
        self.world.turn(turns)

    # The server

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        how=st.sampled_from(["well", "twice", "error", "broken", "cut"]),
        cancel=st.booleans(),
    )
    def answer(self, data: st.DataObject, how: str, cancel: bool) -> None:
        """Answer a call, which may have ended, and may be cancelled in the same turn."""
        call = self.one_of_the_calls(data)
        if call.id is None:
            return
        said = text(f"the answer to {call.id}", resultType="complete")
        answer: Json = {"jsonrpc": "2.0", "id": call.id, "result": said}
        ends: list[Any] = [f"the answer to {call.id}"]
        if how == "error":
            answer = {"jsonrpc": "2.0", "id": call.id, "error": {"code": -1, "message": "no"}}
            ends = [RemoteError]
        elif how == "broken":
            answer["result"] = [1]
            ends = [RemoteProtocolError]
        if cancel:
            self.world.loop.call_soon(call.task.cancel)
            ends.append(asyncio.CancelledError)
        if how == "cut":
            cut = ConnectionClosed("the answer was cut off")
            self.world.loop.call_soon(call.wire.fail, call.id, cut)
            ends[0] = ConnectionClosed
        else:
            times = 2 if how == "twice" else 1
            self.world.loop.call_soon(call.wire.say, *[answer] * times)
        self.world.turn()
        if not call.wire.ended or cancel:
            self.end(call, *ends)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), done=st.integers(0, 9), seconds=st.sampled_from([0.0, 2.0]))
    def tell_progress(self, data: st.DataObject, done: int, seconds: float) -> None:
        self.wait(seconds)
        call = self.one_of_the_calls(data)
        asked = {
            each["id"]
            for each in call.wire.sent
            if "progressToken" in each.get("params", {}).get("_meta", {})
        }
        told = notification("notifications/progress", progressToken=call.id, progress=done)
        self.world.loop.call_soon(call.wire.say, told)
        self.world.turn()
        if call.id in asked and done > call.progress and not call.ends:
            call.progress = done
            call.idle_end = self.world.loop.now + TIMEOUT

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        wrong=st.sampled_from(
            [lambda own: own + 0.5, lambda own: f"0{own}", bool, lambda other: other + 1000]
        ),
    )
    def answer_what_was_not_asked(self, data: st.DataObject, wrong: Callable[[int], Any]) -> None:
        call = self.one_of_the_calls(data)
        answer = {"jsonrpc": "2.0", "id": wrong(call.id or 0), "result": text("wrong")}
        self.world.loop.call_soon(self.world.wire.say, answer)
        self.world.turn()

    @rule(id=st.integers(1, 3), method=st.sampled_from([*QUESTIONS, "ping", "x"]))
    def ask(self, id: int, method: str) -> None:
        question = {"jsonrpc": "2.0", "id": id, "method": method}
        question["params"] = QUESTIONS.get(method, {})
        self.world.loop.call_soon(self.world.wire.say, question)
        self.world.turn(2)

    @rule()
    def let_questions_be_answered(self) -> None:
        self.may_answer.set()
        self.world.turn(1)
        self.may_answer.clear()

    @rule(id=st.integers(1, 3))
    def take_the_question_back(self, id: int) -> None:
        told = notification("notifications/cancelled", requestId=id)
        self.world.loop.call_soon(self.world.wire.say, told)
        self.world.turn()

    @rule()
    def end_the_streams(self) -> None:
        for id in listening(self.world):
            ended = {"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete"}}
            self.world.loop.call_soon(self.world.wire.say, ended)
        self.world.turn()

    # The connection

    @rule(seconds=st.sampled_from([1.0, 2.0]))
    def wait(self, seconds: float) -> None:
        self.world.loop.now += seconds
        self.world.turn()
        for call in self.calls:
            if min(call.idle_end, call.hard_end) <= self.world.loop.now:
                self.end(call, RequestTimeout)

    @precondition(lambda self: self.is_open and len(self.calls) >= 3)
    @rule(together=st.booleans())
    def close(self, together: bool) -> None:
        """Close the client, from two tasks at once if `together`."""

        async def close() -> None:
            times = 2 if together else 1
            await asyncio.gather(*(self.world.client.close() for _ in range(times)))

        self.world.run(close())
        self.end_all(ConnectionClosed)

    @precondition(lambda self: self.is_open and len(self.calls) >= 3)
    @rule()
    def lose(self) -> None:
        self.world.loop.call_soon(self.world.wire.abort, RemoteProtocolError("nonsense"))
        self.world.turn()
        self.end_all(RemoteProtocolError)

    # What must hold

    @invariant()
    def each_call_has_ended_as_it_must(self) -> None:
        for call in getattr(self, "calls", []):
            assert call.task.done() == bool(call.ends)
            if call.ends:
                assert outcome_of(call.task) in call.ends

    @invariant()
    def nothing_else_waits(self) -> None:
        connection = self.world.client._channel._agreed if hasattr(self, "world") else None
        if connection is None or not all(task.done() for task in self.others):
            return
        self.world.turn()  # what was cancelled needs some to notice
        still_open = [call for call in self.calls if not call.ends]
        streams = listening(self.world) if self.is_open else set()
        assert connection.protocol.pending == len(still_open) + len(streams)
        assert connection.protocol.running == len(connection._handlers)
        if self.world.client._messages.subscriptions is not None:
            assert len(streams) <= len(self.world.client._messages.subscriptions._streams)

    @invariant()
    def nothing_is_reported_to_the_event_loop(self) -> None:
        if hasattr(self, "world"):
            assert self.world.reported == []
            assert len(self.world.losses) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.run(self.world.client.close())
            self.end_all(ConnectionClosed)
            self.world.turn()
            self.each_call_has_ended_as_it_must()
            for task in self.others:
                assert task.done()
                assert isinstance(task.exception(), InterlockError | None)
        finally:
            self.world.close()


def outcome_of(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():
        return asyncio.CancelledError
    error = task.exception()
    return task.result().text if error is None else type(error)


TestCalls = pytest.mark.slow("a state machine")(Calls.TestCase)
TestCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
