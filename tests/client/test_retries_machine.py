"""R-01 for what a client does about failures over HTTP, wherever it waits while it does it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import revisions
from interlock.errors import (
    AuthError,
    AuthRequired,
    ConnectionClosed,
    HttpError,
    InterlockError,
    LoginRequired,
    RemoteError,
    SessionExpired,
    StreamEnded,
    Unreachable,
)
from tests.client.interrupted import (
    CANCELLATIONS,
    KINDS,
    Action,
    Interrupted,
    assert_allowed,
    each_variant,
    every_wait,
)
from tests.client.world import Peer, World, listening
from tests.support.bearer import BearerHeaders
from tests.support.recording_transport import Json, RecordingTransport
from tests.support.scripted_server import LEGACY, MODERN


class Target:
    """What a client knows of a URL, as `HttpTarget`, without HTTP."""

    era = ""
    is_refused = False
    may_fall_back_to_sse = False
    may_try_legacy_unauthorized = True

    def __init__(self, authorization: Any) -> None:
        self.authorization = authorization
        self.is_closed = False

    def named(self, error: InterlockError) -> InterlockError:
        return error

    def remember_era(self, transport: Any, revision: str) -> None:
        pass

    def forget_era(self) -> bool:
        return False

    def check_tools(self, tools: Any) -> None:
        pass

    async def close(self) -> None:
        self.is_closed = True


class LoginPrompt(BearerHeaders):
    """An authorization that takes its time, and refuses in the end if told to."""

    token = ""

    def __init__(self) -> None:
        self.refuses = False

    async def valid_token(self) -> str:
        return ""

    async def refresh_after(self, error: AuthError) -> None:
        for _ in range(2):
            await asyncio.sleep(1)
        if self.refuses:
            raise LoginRequired("nobody is there")


class FailingPeer(Peer):
    """A server whose answers fail, as often as `failures` says for their method."""

    def __init__(self, revision: str) -> None:
        super().__init__(revision)
        self.failures: dict[str, list[InterlockError]] = {}

    def connect(self) -> RecordingTransport:
        return super().connect()

    def _answer(self, id: int, method: str, params: Json) -> Iterator[Json]:
        failures = self.failures.get(method)
        if failures:
            asyncio.get_running_loop().call_soon(self.wires[-1].fail, id, failures.pop(0))
        else:
            yield from super()._answer(id, method, params)


async def call(world: World) -> Any:
    return await world.client.call_tool("x")


async def call_idempotent(world: World) -> Any:
    return await world.client.call_tool("x", idempotent=True)


async def call_thrice(world: World) -> Any:
    """Several are in the same trouble; one gets them out of it."""
    calls = (world.client.call_tool("x") for _ in range(3))
    return (await asyncio.gather(*calls))[0]


async def list_tools(world: World) -> Any:
    return list(await world.client.list_tools())


FORGOTTEN = SessionExpired("the session is unknown")
REFUSED = AuthRequired("no token", 401, "Bearer")
MISMATCH = RemoteError(revisions.HEADER_MISMATCH, "Mcp-Param-X", None)

# What fails how often, and what is done meanwhile.
TROUBLES: dict[str, tuple[Action, dict[str, list[InterlockError]]]] = {
    "forgotten": (call, {"tools/call": [FORGOTTEN]}),
    "forgotten by all": (call_thrice, {"tools/call": [FORGOTTEN] * 3}),
    "forgotten for ever": (call, {"tools/call": [FORGOTTEN] * 9}),
    "not let in": (call, {"tools/call": [REFUSED] * 2}),
    "never let in": (call, {"tools/call": [REFUSED] * 9}),
    "unreachable": (call, {"tools/call": [Unreachable("refused")]}),
    "busy": (call, {"tools/call": [HttpError("busy", 429, 2.0)] * 2}),
    "cut": (call_idempotent, {"tools/call": [StreamEnded("cut")] * 2}),
    "cut once": (list_tools, {"tools/list": [StreamEnded("cut")]}),
    "mismatched": (call, {"tools/call": [MISMATCH]}),
    "forgotten and gone": (
        call,
        {
            "tools/call": [FORGOTTEN],
            "server/discover": [Unreachable("refused")] * 9,
            "initialize": [Unreachable("refused")] * 9,
        },
    ),
}


def in_trouble(revision: str, trouble: str) -> World:
    person = LoginPrompt()
    person.refuses = trouble == "never let in"
    target = Target(person)
    world = World(revision, http=target, revision=revision)
    world.peer = peer = FailingPeer(revision)
    world.client._channel._connect = peer.connect
    world.run(world.client.open())
    world.run(world.client.subscribe("x:y"))
    world.run(world.client.set_log_level("info"))  # a new session has to be told again
    world.turn()
    peer.failures = {method: list(each) for method, each in TROUBLES[trouble][1].items()}
    return world


@pytest.mark.slow("works through much data")
@each_variant(("trouble", "fault", "revision", "kind"), TROUBLES, [LEGACY, MODERN], KINDS)
def test_fault_during_recovery_ends_each_call_once(
    trouble: str, fault: str, revision: str, kind: type[Interrupted]
):
    action, _ = TROUBLES[trouble]
    world = in_trouble(revision, trouble)
    undisturbed = world.run(ended(action, world))
    world.close()

    for world, outcome in every_wait(action, fault, lambda: in_trouble(revision, trouble), kind):
        assert_allowed(fault, outcome, undisturbed, kind, ConnectionClosed, type(undisturbed))
        world.peer.failures = {}
        world.turn(40)
        if fault in (*CANCELLATIONS, "noisy", "cut"):
            assert world.pending == len(listening(world))
            world.run(call(world))  # all is well as soon as the trouble is over


async def ended(action: Action, world: World) -> Any:
    try:
        return await action(world)
    except InterlockError as error:
        return error


def test_simulated_network_trouble_is_recovered_or_raised():
    for revision in (LEGACY, MODERN):
        for trouble in TROUBLES:
            world = in_trouble(revision, trouble)
            outcome = world.run(ended(TROUBLES[trouble][0], world))
            hopeless = trouble in ("forgotten for ever", "never let in", "forgotten and gone")
            assert isinstance(outcome, InterlockError) == hopeless, (trouble, outcome)
            world.close()
