"""How many of our functions a call passes through in a gateway with everything on."""

from __future__ import annotations

import asyncio
import sys
from asyncio.base_events import BaseEventLoop
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import pytest

import interlock
from tests.gateway.conftest import RESOURCE, bearer, offering
from tests.gateway.front_door.conftest import visitor_of
from tests.server.http.conftest import Reply

OURS = str(Path(interlock.__file__).parent)
FUNCTIONS = 70
TURNS = 8
EVERYTHING = {
    "policy": {
        "rules": [
            {"id": "reads", "effect": "allow", "who": ["group:staff"], "tools": ["*:*"]},
            {"id": "never", "effect": "deny", "who": ["*"], "tools": ["*:delete_*"]},
            *(
                {"id": f"r{n}", "effect": "allow", "who": ["*"], "tools": [f"crm:t{n}"],
                 "arguments": {"amount": {"maximum": n}}}
                for n in range(48)
            ),
        ]
    },
    "groups": {"staff": ["user:anna"]},
    "limits": {"perKey": {"rate": "1000/s", "perDay": 100_000}, "tools": {"crm:*": "1000/s"}},
}  # fmt: skip
SERVER = {"tools": {"risk": {"read": ["*"]}}, "limits": {"rate": "1000/s", "concurrent": 8}}


async def passed(
    call: Callable[[], Awaitable[Reply]],
    settle: Callable[[], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[list[str], int]:
    """Return the functions that a call passes through, and the turns of the loop for all of them.

    A coroutine that goes on is the same function. Of several calls, the one with the fewest
    counts: on a slow machine, timers that belong to no call run during others.
    """
    found = []
    for _ in range(12):
        assert (await call()).text == "done"
        await settle()  # until the outcome is recorded
        found.append(await passed_once(call, monkeypatch))
    return min(found, key=lambda passed: len(passed[0]))


async def passed_once(
    call: Callable[[], Awaitable[Reply]], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], int]:
    frames: dict[FrameType, None] = {}
    seen: list[int] = []  # the turn of each time that one of our functions was entered
    turns = 0
    run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]

    def count_turn(loop: asyncio.AbstractEventLoop) -> None:
        nonlocal turns
        turns += 1
        run_once(loop)

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            frames[frame] = None
            seen.append(turns)

    for _ in range(3):
        await asyncio.sleep(0)
    monkeypatch.setattr(BaseEventLoop, "_run_once", count_turn)
    sys.setprofile(note_call)
    try:
        reply = await call()
    finally:
        sys.setprofile(None)
        monkeypatch.setattr(BaseEventLoop, "_run_once", run_once)
    assert (reply.code, reply.text) == (200, "done")
    # The turns before the first and after the last function belong to the client of this test.
    taken = seen[-1] - seen[0] + 1
    return [frame.f_code.co_qualname for frame in frames], taken


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_passes_through_few_functions_and_turns(era: str, running, monkeypatch):
    async with running(EVERYTHING, crm=(offering("x"), SERVER)) as gateway:
        key = await gateway.key()
        session = await gateway.http.initialize(headers=bearer(key))

        async def modern() -> Reply:
            return await gateway.call("crm__x", key, amount=1)

        async def legacy() -> Reply:
            return await session.call("crm__x", {"amount": 1})

        functions, turns = await passed(
            modern if era == "modern" else legacy, gateway.settle, monkeypatch
        )

    assert len(functions) <= FUNCTIONS, functions
    assert turns <= TURNS


@pytest.mark.slow("fills a database")
async def test_a_token_of_the_front_door_costs_three_functions_more_than_a_key(
    running, monkeypatch
):
    settings = {**EVERYTHING, "publicUrl": RESOURCE, "auth": {"oauth": {}}}
    async with running(settings, crm=(offering("x"), SERVER)) as gateway:
        visitor = await visitor_of(gateway)
        found = []
        for credential in (await gateway.key(), (await visitor.log_in())["access_token"]):

            async def call(credential: str = credential) -> Reply:
                return await gateway.call("crm__x", credential, amount=1)

            found.append((await passed(call, gateway.settle, monkeypatch))[0])
        key, token = found

    assert len(token) <= len(key) + 3, set(token) - set(key)
