"""Approvals in both kinds of databases, changed in one transaction with audit records."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from interlock.auth.gateway_key import GatewayKey
from interlock.store import AuditReader, AuditRecord, AuditWriter
from interlock.store.approvals import LEEWAY, Approval, ApprovalStore
from interlock.store.database.database import open_database
from interlock.store.database.recorded import make_change

KEY = GatewayKey(bytes(range(32)))

APPROVAL = Approval(
    id="a_1",
    call="c_1",
    state="pending",
    tenant="default",
    user="user:anna",
    key="k1",
    server="crm",
    tool="crm:refund",
    arguments={"card": "4111-1111", "amount": 80},
    hash="h",
    rule="refunds",
    policy="p",
    pin="d",
    approvers=("group:leads",),
    created=1_000,
    expires=5_000,
)


@pytest.mark.slow("fills a database")
async def test_an_approval_is_used_by_one_of_many_records_and_its_arguments_are_sealed(place: str):
    key = GatewayKey.random()
    database = await open_database(place)
    try:
        store = ApprovalStore(database, key)
        async with (
            AuditWriter.open(place, key=KEY) as first,
            AuditWriter.open(place, key=KEY) as second,
        ):
            await first.append(AuditRecord("asked"), store.insertion(APPROVAL))
            too_late = store.decision(APPROVAL, "approved", "user:berta", "", 5_000)
            await first.append(AuditRecord("decided"), too_late)
            set_back = 1_000 - LEEWAY - 1  # the clock, to before the call
            too_early = store.decision(APPROVAL, "approved", "user:berta", "", set_back)
            await first.append(AuditRecord("decided"), too_early)
            decision = store.decision(APPROVAL, "approved", "user:berta", "ok", 2_000)
            await first.append(AuditRecord("decided"), decision)
            used_early = store.use("a_1", "c_0", set_back)
            await first.append(AuditRecord("intent"), used_early)
            uses = [store.use("a_1", f"c_{number}", 3_000) for number in range(10)]
            writers = [first, second] * 5
            await asyncio.gather(
                *(
                    writer.append(AuditRecord("intent", call=f"c_{number}"), claim)
                    for number, (writer, claim) in enumerate(zip(writers, uses, strict=True))
                )
            )
        found = await store.get("a_1")
        other = await ApprovalStore(database, GatewayKey.random()).get("a_1")
        changed = await store.changed()
        counts = await store.counts(3_000)
    finally:
        await database.close()

    assert [each.has_failed for each in (too_late, too_early, used_early)] == [True] * 3
    assert [APPROVAL.state_at(at) for at in (set_back, set_back + 1)] == ["expired", "pending"]
    assert not decision.has_failed
    assert sum(not each.has_failed for each in uses) == 1
    assert (found.state, found.decided_by, found.note) == ("used", "user:berta", "ok")
    assert found.arguments == APPROVAL.arguments
    assert other.arguments is None
    assert changed == {"a_1"}
    assert counts == {"used": 1}
    async with AuditReader.open(place) as reader:
        verified = await reader.verify(KEY)
    async with AuditReader.open(place) as reader:
        records = [each async for piece in reader.export() for each in piece]
    assert not verified.problems
    assert [each["call"] for each in records if each["kind"] == "intent"] == [found.used_by_call]


async def test_call_has_one_open_approval_across_all_gateways(place: str):
    databases = [await open_database(place) for _ in range(3)]
    stores = [ApprovalStore(each, KEY) for each in databases]
    binding, later = APPROVAL.binding, replace(APPROVAL, created=2_000)

    async def request(first: int) -> list[str]:
        """Request it at all gateways at once; return the ids of the approvals that were made."""
        made = [replace(later, id=f"a_{first + n}") for n in range(len(stores))]
        claims = [store.insertion(each) for store, each in zip(stores, made, strict=True)]
        written = (make_change(*each, None) for each in zip(databases, claims, strict=True))
        done = await asyncio.gather(*written)
        return [each.id for each, is_made in zip(made, done, strict=True) if is_made]

    (first,) = await request(10)
    found = await stores[0].latest(binding, 2_500)
    assert found is not None
    assert found.id == first
    assert await request(20) == []
    decision = stores[1].decision(found, "approved", "user:berta", "", 3_000)
    assert await make_change(databases[1], decision, None)
    assert await request(30) == []
    assert await make_change(databases[2], stores[2].use(first, "c_2", 3_500), None)
    (second,) = await request(40)
    other = replace(APPROVAL, id="a_50", key="k2")  # the same call by another caller
    assert await make_change(databases[0], stores[0].insertion(other), None)
    for store in stores:
        found = await store.latest(binding, 4_000)
        assert found is not None
        assert (found.id, found.state) == (second, "pending")
    for each in databases:
        await each.close()


@pytest.mark.slow("fills a database")
async def test_another_gateway_sends_a_message_that_the_first_did_not_send_before_it_ended(
    place: str,
):
    databases = [await open_database(place) for _ in range(3)]
    try:
        first, second, third = (ApprovalStore(each, KEY) for each in databases)
        async with AuditWriter.open(place, key=KEY) as writer:
            await writer.append(AuditRecord("asked"), first.insertion(APPROVAL))
        found = await first.untold(2_000, 9)
        expired = await first.untold(5_000, 9)
        told = await asyncio.gather(*(each.tell("a_1", 2_000) for each in (first, second, third)))
        rest = await second.untold(2_000, 9)
        await second.changed()
        await first.untell(["a_1"])
        changed = await second.changed()
        again = await second.tell("a_1", 2_000)
    finally:
        for each in databases:
            await each.close()

    assert ([each.id for each in found], expired, rest) == (["a_1"], [], [])
    assert sorted(told) == [False, False, True]
    assert (changed, again) == ({"a_1"}, True)
