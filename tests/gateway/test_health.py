"""Whether a gateway can make calls, and what it reveals about that."""

from __future__ import annotations

import json
from typing import Any

from interlock.errors import StoreError
from interlock.gateway.health import Health
from interlock.toolbox import ServerStatus


class Probe:
    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    async def __call__(self) -> None:
        self.count += 1
        if self.fails:
            raise StoreError("the disk is full")


def health(probe: Probe, *states: str, required: str = "", draining: bool = False) -> Health:
    found: list[Any] = [ServerStatus(f"s{n}", state) for n, state in enumerate(states)]  # type: ignore[arg-type]
    return Health(probe, lambda: found, lambda: frozenset(required.split()), lambda: draining)


async def test_a_server_that_is_down_matters_only_if_it_is_required():
    assert (await health(Probe(), "ok", "failed", "disabled").ready()).status == 200
    page = await health(Probe(), "ok", "failed", required="s1").ready_in_detail()

    assert page.status == 503
    assert json.loads(page.body) == {"ready": False, "degraded": ["server s1"]}


async def test_only_operators_see_the_names_of_servers():
    page = await health(Probe(), "failed", "failed").ready()

    assert json.loads(page.body) == {"ready": True, "degraded": ["server"]}


async def test_a_gateway_that_drains_or_cannot_write_is_not_ready():
    probe = Probe()
    probe.fails = True
    pages = [await health(probe).ready(), await health(Probe(), draining=True).ready()]

    assert [json.loads(page.body)["degraded"] for page in pages] == [["database"], ["draining"]]
    assert [page.status for page in pages] == [503, 503]


async def test_many_questions_write_once():
    probe = Probe()
    asked = health(probe)
    for _ in range(5):
        await asked.ready()

    assert probe.count == 1
