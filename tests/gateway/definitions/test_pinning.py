"""Which definitions the modes of pinning accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.errors import StoreError
from interlock.gateway.definitions import lock_file
from interlock.store import pin
from interlock.store.pin import PROMPT_KINDS, Offered
from interlock.store.pins import PinStore
from interlock.toolbox import server_lists
from tests.gateway.conftest import RunningGateway
from tests.gateway.pinned import (
    FIND,
    crm,
    definitions,
    is_gone,
    is_there,
    listed,
    names,
    offer,
    quick,
    states,
    until,
)
from tests.support.scripted_server import Json
from tests.toolbox.test_pins import DEFINITION

__all__ = ["quick"]


@pytest.mark.slow("fills a database")
async def test_mode_off_accepts_every_definition(running):
    server = crm(DEFINITION)
    async with running({"lock": {"mode": "off"}}, crm=server) as gateway:
        key = await gateway.key()
        offer(server, {**DEFINITION, "title": "Other"}, FIND)
        await until(lambda: is_there(gateway, key, "crm__find"))
        assert await names(gateway, key) == ["crm__find", "crm__refund"]
        assert await states(gateway) == {}


@pytest.mark.slow("fills a database")
async def test_strict_mode_offers_only_what_the_lock_file_accepts(running, tmp_path: Path):
    server, path = crm(), tmp_path / "lock.json"
    strict = {"lock": {"mode": "strict", "file": str(path)}}
    async with running(strict, crm=server) as gateway:
        key = await gateway.key()
        assert await gateway.names(key) == []  # there is no file yet
        path.write_text('{"version": 1, "servers": {}}')
        desk = definitions(gateway, file=path)
        await until(lambda: is_new(gateway))
        for each in await desk.waiting("crm"):
            if each.name != "find":
                await desk.accept(each, each.seen_hash or "")
        await until(lambda: is_there(gateway, key, "crm__refund"))
        assert await gateway.names(key) == ["crm__refund"]
        assert [each.name for each in lock_file.read(path)] == ["prompts", "", "refund"]

        path.write_text(path.read_text().replace("Refund an order.", "Refund two orders."))
        await until(lambda: is_gone(gateway, key, "crm__refund"))  # the file cannot be used now


async def is_new(gateway: RunningGateway) -> bool:
    return (await states(gateway)).get("crm:find") == "new"


@pytest.mark.slow("fills a database")
async def test_unreadable_pins_make_every_tool_wait_until_they_can_be_read(
    running, monkeypatch: pytest.MonkeyPatch
):
    async def fail(*_: Any, **__: Any) -> None:
        raise StoreError("the disk is gone")

    server = crm()
    async with running(crm=server):
        pass
    check = PinStore.check
    monkeypatch.setattr(PinStore, "check", fail)
    async with running(crm=server) as gateway:
        key = await gateway.key()
        found = await listed(gateway, key)
        assert await gateway.names(key) == []
        assert {each["detail"] for each in found["_meta"]["interlock/missing"]} == {
            "pins cannot be read: the disk is gone"
        }
        monkeypatch.setattr(PinStore, "check", check)
        await until(lambda: is_there(gateway, key, "crm__refund"))


@pytest.mark.slow("fills a database")
async def test_unreadable_pins_of_prompts_are_read_again_even_if_pins_of_tools_were_read(
    running, monkeypatch: pytest.MonkeyPatch
):
    check, fails = PinStore.check, True

    async def fail(store: PinStore, server: str, offered: Any, kinds: Any, **options: Any) -> Any:
        if fails and kinds == PROMPT_KINDS:
            raise StoreError("another gateway inserted the row")
        return await check(store, server, offered, kinds, **options)

    monkeypatch.setattr(PinStore, "check", fail)
    async with running(crm=crm(prompts=({"name": "greet"},))) as gateway:
        key = await gateway.key()
        found = await listed(gateway, key)
        assert {each["detail"] for each in found["_meta"]["interlock/missing"]} == {
            "pins cannot be read: another gateway inserted the row"
        }
        fails = False
        await until(lambda: is_there(gateway, key, "crm__refund"))


def title_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this program be a later version, which adds a title to each definition."""

    def offered(definition: Json, *_: object) -> Offered:
        titled = {**definition, "title": f"Tool {definition['name']}"}
        return Offered("tool", definition["name"], titled, definition)

    monkeypatch.setattr(pin, "FORMAT", 2)
    monkeypatch.setattr(lock_file, "FORMAT", 2)
    monkeypatch.setattr(server_lists, "offered_tool", offered)


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("mode", ["first", "strict"])
async def test_upgrade_that_writes_every_definition_differently_holds_only_what_servers_changed(
    running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
):
    path = tmp_path / "lock.json"
    file = path if mode == "strict" else None
    server = crm()
    async with running(crm=server) as gateway:
        await definitions(gateway).export(path)
    settings = {"lock": {"mode": mode, "file": str(path)}}
    title_everything(monkeypatch)
    offer(server, DEFINITION, {**FIND, "description": "Find more."})

    async with running(settings, crm=server) as gateway:
        key, desk = await gateway.key(), definitions(gateway, file=file)
        assert await gateway.names(key) == ["crm__refund"]
        found = {each.address: each for each in await desk.list()}
        assert found["crm:find"].state == "changed"
        rewritten = await desk.rewritten()
        assert [each.address for each in rewritten] == ["crm:refund"]

        for each in rewritten:
            await desk.accept(each, each.seen_hash or "")
        assert await desk.rewritten() == []
        assert await gateway.names(key) == ["crm__refund"]
        assert [each.address for each in await desk.waiting("crm")] == ["crm:find"]
