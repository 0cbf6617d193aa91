"""Gateways of one database: they list each other, and one reload reaches all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from interlock.config import Config, load
from interlock.errors import ConfigError
from interlock.gateway import replicas
from interlock.store.database import changes
from interlock.store.replicas import running_at
from tests.gateway.admin.support import Operator
from tests.gateway.conftest import RunningGateway, offering
from tests.store.conftest import postgres
from tests.support.scripted_server import ScriptedServer

__all__ = ["postgres"]  # a fixture
pytestmark = [
    pytest.mark.program("PostgreSQL"),
    pytest.mark.slow("opens several gateways on a database for each case"),
]


@pytest.fixture
def server() -> ScriptedServer:
    return offering("x")


@pytest.fixture
async def three(
    running, postgres: str, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[RunningGateway]]:
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)
    monkeypatch.setattr(replicas, "_LOOK_EVERY", 0.01)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running({"database": postgres}, crm=server))
            for _ in range(3)
        ]


async def states(operator: Operator) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await operator.get("/status"))["gateways"]
    return found


def by_gateway(found: list[dict[str, Any]], gateways: list[RunningGateway]) -> list[Any]:
    entries = {each["id"]: each for each in found}
    return [entries[each.assembly.services.writer.id] for each in gateways]


async def test_one_reload_reaches_all_and_a_wrong_file_keeps_its_configuration(
    three, postgres, server
):
    operator = await Operator.of(three[0])
    before = by_gateway(await states(operator), three)
    assert [each["differs"] for each in before] == [False] * 3
    assert [each["isThis"] for each in before] == [True, False, False]

    # All have the same file here; so give each one a file of its own.
    settings = {"database": postgres, "views": {"v": {}}}
    crm = three[0].assembly.parts.written
    wrong = ConfigError("gateway.views is wrong: SECRET")

    def read(gateway: RunningGateway) -> Callable[[], Config]:
        file = gateway.file.with_name(f"{gateway.assembly.services.writer.id}.json")
        file.write_bytes(gateway._make(settings, crm=server))
        return lambda: load(file)

    def fail() -> Config:
        raise wrong

    three[0].assembly.read, three[1].assembly.read = read(three[0]), read(three[1])
    three[2].assembly.read = fail
    answer = await operator.change("POST", "/reload", {})
    found = by_gateway(answer["gateways"], three)

    assert answer["applied"] is True
    assert [each["error"] for each in found] == [None, None, "ConfigError"]
    assert [each["differs"] for each in found] == [False, False, True]
    assert found[2]["hash"] == before[2]["hash"] != found[0]["hash"] == found[1]["hash"]
    assert three[2].assembly.parts.written == crm
    assert by_gateway(await states(operator), three) == found
    assert "SECRET" not in str(found)

    three[2].assembly.read = read(three[2])
    found = by_gateway((await operator.change("POST", "/reload", {}))["gateways"], three)
    assert [(each["error"], each["differs"]) for each in found] == [(None, False)] * 3


async def test_wrong_file_of_the_asked_gateway_reaches_no_other(three):
    operator = await Operator.of(three[0])

    def fail() -> Config:
        raise ConfigError("gateway.views is wrong")

    three[0].assembly.read = fail
    loaded = [each.assembly.loaded_at for each in three]

    assert (await operator.send("POST", "/reload", {})).code == 422
    await asyncio.sleep(0.1)  # several readings of the changes
    assert [each.assembly.loaded_at for each in three] == loaded


async def test_gateway_that_does_not_answer_is_listed_so(three, postgres, monkeypatch):
    monkeypatch.setattr(replicas, "PATIENCE", 3_600)
    operator = await Operator.of(three[0])
    store = three[0].assembly.replicas._store
    read, last = store.running, []

    async def hang() -> None:
        await asyncio.Event().wait()

    async def read_in_time() -> list[Any]:
        """Return what is stored, until all gateways but one have answered."""
        if last.count(max(last, default=0)) == 2:
            raise TimeoutError
        found = await read()
        last[:] = [each.reloaded for each in found]
        return found

    monkeypatch.setattr(three[1].assembly.replicas, "_reread", hang)
    monkeypatch.setattr(store, "running", read_in_time)
    answer = await operator.change("POST", "/reload", {})

    found = by_gateway(answer["gateways"], three)
    assert [each["error"] for each in found] == [None, "no answer", None]


async def test_ended_gateways_are_listed_no_more(running, postgres, monkeypatch):
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())
    assert await running_at(postgres) == []  # there are no tables yet
    async with running({"database": postgres}, crm=offering("x")):
        assert len(await running_at(postgres)) == 1
    assert await running_at(postgres) == []
