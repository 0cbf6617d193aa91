"""Pins are kept, decided and noticed, in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from msgspec.structs import replace

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import DefinitionChanged, StoreError
from interlock.store import AuditRecord, AuditWriter
from interlock.store.database.claims import Claim
from interlock.store.database.database import open_database
from interlock.store.pin import TOOL_KINDS, Offered, Pin
from interlock.store.pins import Change, PinStore
from interlock.toolbox.pins import offered_server, offered_tool

KEY = GatewayKey(bytes(range(32)))

SERVER = offered_server({"command": "crm"}, None)
FIND = offered_tool({"name": "find"}, None)
REFUND, OTHER = (offered_tool({"name": "refund", "description": each}, None) for each in "ab")


@asynccontextmanager
async def opened(place: str) -> AsyncIterator[PinStore]:
    database = await open_database(place)
    try:
        yield PinStore(database)
    finally:
        await database.close()


async def check(store: PinStore, *tools: Offered) -> list[Pin]:
    """Check a list; return what is new or changed."""
    return (await store.check("crm", [SERVER, *tools], TOOL_KINDS))[1]


async def test_first_list_and_later_changes_are_both_stored(place: str):
    async with opened(place) as store:
        assert len(await check(store, REFUND)) == 2
        assert await check(store, REFUND) == []
        (changed,) = await check(store, OTHER)
    async with opened(place) as store:
        _, kept = await store.list("crm")

    assert kept == changed
    assert (kept.state, kept.hash, kept.seen_hash) == ("changed", REFUND.hash, OTHER.hash)
    assert kept.definition == '{"name":"refund","description":"a"}'


async def test_several_gateways_may_store_a_first_list_at_once(place: str):
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(place)) for _ in range(4)]
        for number in range(5):
            checks = [each.check(f"s{number}", [SERVER, REFUND], TOOL_KINDS) for each in stores]
            written = [len(new) for _, new in await asyncio.gather(*checks)]
            assert sorted(written) == [0, 0, 0, 2]


async def test_lock_decisions_reach_other_processes_but_received_lists_do_not(place: str):
    async with opened(place) as store, opened(place) as other:
        await other.changed()
        await check(store, REFUND)
        await check(store, OTHER)
        assert await other.changed() == set()
        (pin,) = [each for each in await store.list() if each.waits]
        with pytest.raises(DefinitionChanged):
            await store.accept(pin, REFUND.hash, by="user:berta")
        _, after = await store.accept(pin, OTHER.hash, by="user:berta", risk="read")
        assert await other.changed() == {"crm"}

    assert (after.state, after.hash, after.risk) == ("accepted", OTHER.hash, "read")
    assert after.decided_by == "user:berta"


async def test_replaced_pins_and_their_records_are_written_together(place: str):
    async with (
        opened(place) as store,
        opened(place) as other,
        AuditWriter.open(place, key=KEY) as writer,
    ):
        await other.changed()
        await check(store, REFUND, FIND)
        server, find, refund = await store.list()
        seen: list[Sequence[Change]] = []

        async def record(claim: Claim, changes: Sequence[Change]) -> None:
            seen.append(changes)
            tools = [(before or after).address for before, after in changes]  # type: ignore[union-attr]
            await writer.append_all([AuditRecord("pin", tool=tool) for tool in tools], claim)

        replaced = replace(refund, risk="read")
        await store.replace([replaced], record=record)

        assert await store.list() == [replaced]
        assert await other.changed() == {"crm"}
        assert {*seen[0]} == {(server, None), (find, None), (refund, replaced)}
        assert writer.rows == len(seen[0])


async def test_tool_that_is_gone_is_forgotten_when_rejected(place: str):
    async with opened(place) as store:
        await check(store, REFUND)
        (gone,) = await check(store)
        assert gone.state == "gone"
        await store.reject(gone, None, by="user:berta")
        assert [each.kind for each in await store.list()] == ["server"]
        with pytest.raises(StoreError, match="no definition of crm:refund"):
            await store.reject(gone, None, by="user:berta")
        (again,) = await check(store, REFUND)

    assert again.state == "new"


async def test_name_that_the_database_cannot_store_waits_and_other_tools_stay_usable(place: str):
    odd = offered_tool({"name": "a\0b"}, None)
    async with opened(place) as store:
        pins, _ = await store.check("crm", [SERVER, odd, REFUND], TOOL_KINDS)

    assert [each.name for each in pins.values()] == ["", "refund"]
