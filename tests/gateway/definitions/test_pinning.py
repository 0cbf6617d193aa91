"""Which definitions the modes of pinning accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.errors import StoreError
from interlock.gateway.definitions import lock_file
from interlock.store.pin import PROMPT_KINDS
from interlock.store.pins import PinStore
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
        for pin in await desk.waiting("crm"):
            if pin.name != "find":
                await desk.accept(pin, pin.seen_hash or "")
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
