"""The harness fails a case that leaks, logs a secret, or breaks its promise."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import RequestTimeout
from tests.faults import harness
from tests.faults.ground import CANARY, Ground
from tests.faults.matrix import MEMORY, Case, Row, Scenario
from tests.servers.evil_memory import EvilMemory

Undo = list[Callable[[], object]]


@pytest.fixture
def undo() -> Any:
    """Callbacks that remove what a test leaks, run after the test."""
    steps: Undo = []
    yield steps
    for step in steps:
        step()


@pytest.fixture
def no_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for what is left."""
    monkeypatch.setattr(harness, "_GOODBYE", 0.01)


def case(scenario: Scenario, within: float = 1.0) -> Case:
    return Case(Row("A fault", "a promise", within, (MEMORY,), scenario), MEMORY)


async def keep(ground: Ground) -> None:
    with ground.promise(outcome="kept"):
        pass


@pytest.mark.slow("measures for a while")
def test_harness_measures_a_case_that_leaks_nothing():
    measured = harness.run(case(keep))

    assert (measured.outcome, measured.seconds < 1, measured.idle < 0.01) == ("kept", True, True)


def test_harness_fails_a_case_without_a_promise():
    async def scenario(ground: Ground) -> None:
        pass

    with pytest.raises(AssertionError, match="nothing was measured"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_leaks_a_task():
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        ground.forgotten = asyncio.create_task(asyncio.sleep(60))  # type: ignore[attr-defined]

    with pytest.raises(AssertionError, match="tasks are left"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_leaks_a_future(undo: Undo):
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        forgotten = [asyncio.get_running_loop().create_future()]
        undo.append(forgotten.clear)

    with pytest.raises(AssertionError, match="futures are left"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_leaves_a_request_pending_on_any_connection():
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        client = await ground.stack.enter_async_context(Client.memory(EvilMemory()))
        waiting = asyncio.create_task(client.call_tool("mute"))
        await asyncio.sleep(0)
        ground.stack.callback(waiting.cancel)

    with pytest.raises(AssertionError, match="tools/call"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_leaks_a_descriptor(undo: Undo):
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        left = os.pipe()
        undo.extend([lambda: os.close(left[0]), lambda: os.close(left[1])])

    with pytest.raises(AssertionError, match=r"this is left: .*pipe:"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_leaks_a_thread(undo: Undo, no_goodbye: None):
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        end = threading.Event()
        thread = threading.Thread(target=end.wait, name="forgotten")
        thread.start()
        undo.extend([end.set, thread.join])

    with pytest.raises(AssertionError, match=r"this is left: .*forgotten"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_leaks_a_child_process(undo: Undo):
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)  # noqa: ASYNC220 - quick
        undo.append(lambda: child.communicate(b"\n"))

    with pytest.raises(AssertionError, match="this is left"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_leaks_a_child_of_another_thread(undo: Undo, no_goodbye: None):
    started, end = threading.Event(), threading.Event()

    def work() -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE):
            started.set()
            end.wait()

    async def scenario(ground: Ground) -> None:
        await keep(ground)
        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        undo.extend([end.set, thread.join])

    with pytest.raises(AssertionError, match=r"this is left: .*'children': {'\d+'}"):
        harness.run(case(scenario))


@pytest.mark.slow("measures for a while")
def test_harness_fails_a_case_that_keeps_polling():
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        polling = asyncio.create_task(poll())
        ground.stack.callback(polling.cancel)

    async def poll() -> None:
        while True:  # 4 % of a processor, which a short measurement would often miss
            await asyncio.sleep(0.25)
            end = process_time() + 0.01
            while process_time() < end:
                pass

    with pytest.raises(AssertionError, match=r"\d\.\d% of a processor when all is over"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_keeps_the_event_loop_busy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(harness, "_PATIENCE", 0.2)

    async def scenario(ground: Ground) -> None:
        await keep(ground)
        spinning = asyncio.create_task(spin())
        ground.stack.callback(spinning.cancel)

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - the harness must detect this
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="of a processor when all is over"):
        harness.run(case(scenario))


def test_harness_fails_a_case_with_an_unretrieved_exception():
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        asyncio.get_running_loop().create_future().set_exception(ValueError("lost"))

    with pytest.raises(AssertionError, match=r"the loop was told of .*lost"):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_logs_a_secret():
    async def scenario(ground: Ground) -> None:
        await keep(ground)
        logging.getLogger("interlock.anything").debug("connecting with %s", CANARY)

    with pytest.raises(AssertionError, match="a secret is in the log"):
        harness.run(case(scenario))


def test_harness_fails_a_case_whose_error_has_a_secret():
    async def scenario(ground: Ground) -> None:
        with ground.promise(RequestTimeout):
            try:
                raise ValueError(CANARY)
            except ValueError:
                raise RequestTimeout("it took too long")  # noqa: B904 - its context must be searched, too

    with pytest.raises(AssertionError):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_raises_a_subclass_of_the_promised_error():
    async def scenario(ground: Ground) -> None:
        with ground.promise(TimeoutError):  # type: ignore[arg-type]  # a parent will not do
            raise RequestTimeout("it took too long")

    with pytest.raises(RequestTimeout):
        harness.run(case(scenario))


def test_harness_fails_a_case_that_is_late_in_every_attempt():
    tried = []

    async def scenario(ground: Ground) -> None:
        tried.append(1)
        with ground.flying_time(), ground.promise(outcome="late"):
            await asyncio.sleep(2)

    with pytest.raises(AssertionError, match=r"took 2\.\d+ s at best of 5; promised are 1 s"):
        harness.measure(case(scenario))
    assert len(tried) == harness.ATTEMPTS


def test_flying_time_skips_waiting_only_inside_its_context():
    async def scenario(ground: Ground) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(0.02)
        assert 0.02 <= loop.time() - began < 1
        with ground.flying_time(), ground.promise(outcome="an hour later"):
            await asyncio.sleep(3600)
        assert loop.time() - began >= 3600

    assert harness.run(case(scenario, within=3601)).seconds >= 3600
