"""Whether a gateway can make calls, and what it reveals about that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock.errors import StoreError
from interlock.gateway import health as health_module
from interlock.gateway.health import PROBE_DEADLINE, Health
from interlock.toolbox import ServerStatus
from tests.support.clock import SteppedLoop


class Probe:
    def __init__(self) -> None:
        self.count = 0
        self.takes = 0.0  # seconds
        self.fails = False
        self.has_succeeded = False
        self.is_answered = True

    async def __call__(self) -> None:
        self.count += 1
        if self.takes:
            await asyncio.sleep(self.takes)
        if self.fails:
            raise StoreError("the disk is full")
        self.has_succeeded = True


def health(
    probe: Probe,
    *states: str,
    required: str = "",
    draining: bool = False,
    start: Callable[[str], None] = lambda _: None,
) -> Health:
    found: list[Any] = [ServerStatus(f"s{n}", state) for n, state in enumerate(states)]  # type: ignore[arg-type]
    names = frozenset(required.split())
    states_of = (lambda: probe.is_answered, lambda: probe.has_succeeded)
    return Health(probe, *states_of, lambda: found, lambda: names, lambda: draining, start)


async def test_readiness_depends_on_a_server_only_if_it_is_required():
    assert (await health(Probe(), "ok", "failed", "disabled").ready()).status == 200
    page = await health(Probe(), "ok", "failed", required="s1").ready_in_detail()

    assert page.status == 503
    assert json.loads(page.body) == {"ready": False, "degraded": ["server s1"]}


async def test_readyz_starts_the_required_servers_that_are_down():
    started: list[str] = []
    states = ("ok", "failed", "down")
    await health(Probe(), *states, required="s0 s1", start=started.append).ready()

    assert started == ["s1"]


async def test_only_operators_see_the_names_of_servers():
    page = await health(Probe(), "failed", "failed").ready()

    assert json.loads(page.body) == {"ready": True, "degraded": ["server"]}


async def test_a_gateway_that_drains_or_cannot_write_is_not_ready():
    probe = Probe()
    probe.fails = True
    silent = Probe()
    silent.is_answered = False
    gateways = health(probe), health(silent), health(Probe(), draining=True)
    pages = [await each.ready() for each in gateways]

    degraded = [json.loads(page.body)["degraded"] for page in pages]
    assert degraded == [["database"], ["database"], ["draining"]]
    assert [page.status for page in pages] == [503, 503, 404]
    assert silent.count == 0


async def test_many_requests_of_readyz_write_to_the_database_once():
    probe = Probe()
    asked = health(probe)
    for _ in range(5):
        await asked.ready()

    assert probe.count == 1


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedLoop]:
    loop = SteppedLoop()
    monkeypatch.setattr(health_module, "monotonic", loop.time)
    yield loop
    loop.close()


def test_hanging_database_does_not_delay_health_checks_and_gets_one_write_only(
    loop: SteppedLoop,
):
    async def use() -> None:
        probe = Probe()
        asked = health(probe)
        probe.takes = 5.0
        for _ in range(3):
            began = loop.time()
            pages = await asyncio.gather(*(asked.ready() for _ in range(10)))
            assert {page.status for page in pages} == {503}
            assert loop.time() - began < PROBE_DEADLINE + 0.01
        assert probe.count == 1
        await asyncio.sleep(probe.takes)  # until the write ends

    loop.run_until_complete(use())


def test_gateway_is_ready_again_after_the_first_successful_write(loop: SteppedLoop):
    async def use() -> None:
        probe = Probe()
        asked = health(probe)
        probe.takes = 5.0
        assert (await asked.ready()).status == 503
        await asyncio.sleep(probe.takes)

        probe.takes = 0.0
        assert (await asked.ready()).status == 200

    loop.run_until_complete(use())


def test_cancelled_request_of_readyz_does_not_cancel_the_write(loop: SteppedLoop):
    async def use() -> None:
        probe = Probe()
        asked = health(probe)
        probe.takes = 0.5
        gone = asyncio.create_task(asked.ready())
        await asyncio.sleep(0.1)
        gone.cancel()

        assert (await asked.ready()).status == 200
        assert probe.count == 1

    loop.run_until_complete(use())
