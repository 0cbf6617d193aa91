"""Something happens to a coroutine where it waits: first here, then there, then everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from interlock.errors import ConnectionClosed, RemoteProtocolError, RequestTimeout
from tests.client.world import World, notification
from tests.support.rows import each_row
from tests.support.scripted_server import text

TURN = 0.1  # seconds of a turn of the loop, where turns are counted

Action = Callable[[World], Coroutine[Any, Any, Any]]

# What happens, and how the method may end then, beside as it would have without it.
Fault = Callable[["Interrupted", World], None]
Ends = tuple[type[BaseException], ...]


def be_cancelled(run: Interrupted, world: World) -> None:
    world.loop.call_soon(run.task.cancel)


def be_cancelled_at_once(run: Interrupted, world: World) -> None:
    """Cancel it before anything can come, which otherwise is on its way already."""
    run.task.cancel()


def be_cancelled_as_it_wakes(run: Interrupted, world: World) -> None:
    """Cancel it when what it waits for is there, but it has not gone on."""
    if run.awaited is None:
        world.loop.call_soon(run.task.cancel)
    else:
        run.awaited.add_done_callback(lambda _: run.task.cancel())


def close(run: Interrupted, world: World) -> None:
    run.others.append(world.loop.create_task(world.client.close()))


def lose(run: Interrupted, world: World) -> None:
    world.loop.call_soon(world.wire.abort, RemoteProtocolError("nonsense"))


def fall_silent(run: Interrupted, world: World) -> None:
    for wire in world.peer.wires:
        wire.mute = True


def cut_answers(run: Interrupted, world: World) -> None:
    for id in list(world.wire.unanswered):
        world.loop.call_soon(world.wire.fail, id, ConnectionClosed("the answer was cut off"))


def make_noise(run: Interrupted, world: World) -> None:
    ids = [each["id"] for each in world.wire.sent if "method" in each and "id" in each]
    answered = [id for id in ids if id not in world.wire.unanswered]
    wrong = [*answered, *(f"0{id}" for id in ids), *(id + 0.5 for id in ids), True, -1, 10**6]
    world.loop.call_soon(
        world.wire.say,
        b"",
        b"\xff{",
        b'{"jsonrpc":"2.0","id":[],"result":{}}',
        *({"jsonrpc": "2.0", "id": id, "result": text("wrong")} for id in wrong),
        *({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": ""}} for id in wrong),
        # An error without an id would end the only open request.
        {"jsonrpc": "2.0", "id": None, "result": text("wrong")},
        {"jsonrpc": "2.0", "id": "?", "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "roots/list"},
        notification("notifications/cancelled", requestId="?"),
        notification("notifications/progress", progressToken=-1, progress=1),
        notification("notifications/tools/list_changed"),
        notification("notifications/message", level="info", data="x"),
        notification("notifications/subscriptions/acknowledged"),
        notification("notifications/x"),
    )


FAULTS: dict[str, tuple[Fault, Ends]] = {
    "cancelled": (be_cancelled, (asyncio.CancelledError,)),
    "cancelled at once": (be_cancelled_at_once, (asyncio.CancelledError,)),
    "cancelled as it wakes": (be_cancelled_as_it_wakes, (asyncio.CancelledError,)),
    "closed": (close, (ConnectionClosed, RequestTimeout)),
    "lost": (lose, (RemoteProtocolError,)),
    "silent": (fall_silent, (RequestTimeout,)),
    "cut": (cut_answers, (ConnectionClosed,)),
    "noisy": (make_noise, ()),
}
CANCELLATIONS = ("cancelled", "cancelled at once", "cancelled as it wakes")


class Interrupted(Coroutine[Any, Any, Any]):
    """A coroutine to which something happens where it waits for the `at`-th time, from 1 on."""

    def __init__(self, action: Action, world: World, fault: Fault, at: int) -> None:
        self._inner = action(world)
        self._world = world
        self._fault = fault
        self._left = at
        self.awaited: asyncio.Future[Any] | None = None
        self.others: list[asyncio.Task[None]] = []
        self.task: asyncio.Task[Any] = world.loop.create_task(self)

    @property
    def has_happened(self) -> bool:
        return self._left <= 0

    def send(self, value: Any) -> Any:
        return self._waits(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._waits(self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        raise TypeError("a task of its own runs it")

    def _waits(self, awaited: asyncio.Future[Any] | None) -> asyncio.Future[Any] | None:
        self._left -= 1
        if self._left == 0:
            self.awaited = awaited
            self._fault(self, self._world)
        return awaited

    async def outcome(self) -> Any:
        """Wait for its end and that of what it has caused."""
        await asyncio.wait([self.task])
        for other in self.others:
            await other
        if self.task.cancelled():
            return asyncio.CancelledError()
        return self.task.exception() or self.task.result()


class InterruptedLater(Interrupted):
    """A coroutine to which something happens after `at` turns of the loop, wherever it is then."""

    async def outcome(self) -> Any:
        at, self._left = self._left, 0
        for _ in range(at):
            await asyncio.sleep(0)
            self._world.loop.now += TURN
        self._left = int(self.task.done())
        if not self.task.done():
            self._fault(self, self._world)
        return await super().outcome()


KINDS = [Interrupted, InterruptedLater]


def each_variant(
    columns: Sequence[str], actions: Iterable[str], *others: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with the product of actions, `FAULTS` and others: two cases for each action.

    The first one has each fault once, and each value of the others in some rows. The second one has
    all other rows and is marked `product`: `make nightly` runs it.
    """
    cases = []
    rest = list(product(*others))
    for i, action in enumerate(actions):
        first, further = [], []
        for j, fault in enumerate(FAULTS):
            for k, values in enumerate(rest):
                rows = first if k == (i + j) % len(rest) else further
                rows.append((action, fault, *values))
        cases.append(pytest.param(first, id=action))
        cases.append(pytest.param(further, id=f"{action}, further", marks=pytest.mark.product))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def test_rows(rows: list[Any]) -> None:
            each_row(columns, rows)(test)()

        return pytest.mark.parametrize("rows", cases)(test_rows)

    return decorate


def every_wait(
    action: Action,
    fault: str,
    prepare: Callable[[], World],
    kind: type[Interrupted] = Interrupted,
) -> Iterator[tuple[World, Any]]:
    """Run an action as often as it waits; give the world and the outcome each time."""
    at = 0
    while True:
        at += 1
        assert at < 200
        world = prepare()
        run = kind(action, world, FAULTS[fault][0], at)
        outcome = world.run(run.outcome())
        has_happened = run.has_happened
        del run  # what it has left behind goes now, and is told
        if not has_happened:
            world.close()
            return
        try:
            yield world, outcome
        finally:
            world.close()


def is_like(outcome: Any, expected: Any) -> bool:
    return type(outcome) is type(expected) and str(outcome) == str(expected)


def assert_allowed(
    fault: str, outcome: Any, undisturbed: Any, kind: type[Interrupted] = Interrupted, *also: type
) -> None:
    """Check how an action ended; what happens by turns may come too late for it."""
    ends = (*FAULTS[fault][1], *(() if fault in CANCELLATIONS else also))
    may_be_well = fault not in CANCELLATIONS or kind is InterruptedLater  # never swallowed
    assert isinstance(outcome, ends) or (may_be_well and is_like(outcome, undisturbed)), outcome
