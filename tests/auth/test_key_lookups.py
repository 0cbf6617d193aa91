"""Keys that are not in memory: new ones work at once, and made-up ones cost little."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from interlock.auth.key_lookups import BURST, DEADLINE, INTERVAL
from interlock.auth.stored_key import StoredKey
from interlock.errors import AuthRequired
from tests.auth.test_gateway_auth import Gate, bearer
from tests.auth.test_key_ring import NOW, made
from tests.support.clock import SteppedLoop
from tests.support.rows import each_row


async def refused(gate: Gate, key: bytes) -> None:
    with pytest.raises(AuthRequired):
        await gate.auth.authenticate([bearer(key)], None)


async def test_new_key_is_accepted_by_all_its_first_requests_with_one_look_up():
    gate = Gate()
    await gate.ring.refresh()
    stored, key = made()
    gate.source.keys[stored.id] = stored

    owners = await asyncio.gather(
        *(gate.auth.authenticate([bearer(key)], None) for _ in range(3 * BURST))
    )

    assert {each.key_id for each in owners} == {stored.id}
    assert gate.source.looked_up == [stored.id]


@each_row(
    ("fields", "reason"),
    [({"revoked": NOW - 1}, "key_revoked"), ({"expires": NOW}, "key_expired")],
)
async def test_new_key_that_has_ended_is_refused_with_its_reason(fields, reason):
    gate = Gate()
    await gate.ring.refresh()
    stored, key = made(**fields)
    gate.source.keys[stored.id] = stored

    await refused(gate, key)

    assert [(each.reason, each.key) for each in gate.refused] == [(reason, stored)]


async def test_unknown_keys_are_looked_up_once_each_at_a_bounded_rate():
    known, _ = made()
    gate = Gate(known)
    await gate.ring.refresh()
    _, first = made()
    for _ in range(3):
        await refused(gate, first)
    assert len(gate.source.looked_up) == 1

    for _ in range(100):
        await refused(gate, made()[1])
    assert len(gate.source.looked_up) == BURST

    gate.clocks.now += 3 * INTERVAL
    for _ in range(100):
        await refused(gate, made()[1])
    assert len(gate.source.looked_up) == BURST + 3


async def test_wrong_secret_of_a_known_id_is_looked_up_like_an_unknown_id():
    """Otherwise the time of a refusal would tell which ids exist."""
    stored, key = made()
    gate = Gate(replace(stored, hash=bytes(32)))
    await gate.ring.refresh()

    await refused(gate, key)

    assert gate.source.looked_up == [stored.id]


async def test_key_is_looked_up_again_after_an_error_of_the_database():
    gate = Gate()
    await gate.ring.refresh()
    stored, key = made()
    gate.source.keys[stored.id] = stored

    gate.source.fails = True
    await refused(gate, key)
    gate.source.fails = False

    assert (await gate.auth.authenticate([bearer(key)], None)).key_id == stored.id


def test_hanging_database_delays_refusals_briefly_and_known_keys_not_at_all():
    known, key = made()

    async def use(loop: SteppedLoop) -> None:
        gate = Gate(known)
        await gate.ring.refresh()
        gate.source.answers.clear()
        for _ in range(2):
            began = loop.time()
            asking = asyncio.create_task(refused(gate, made()[1]))
            await asyncio.sleep(0)
            await gate.auth.authenticate([bearer(key)], None)
            assert loop.time() - began < DEADLINE / 2
            await asking
            assert loop.time() - began == pytest.approx(DEADLINE)
        assert len(gate.source.looked_up) == 1  # the second waits for the first
        gate.source.answers.set()
        await asyncio.sleep(1)
        assert len(gate.source.looked_up) == 2

    loop = SteppedLoop()
    loop.run_until_complete(use(loop))
    loop.close()


async def test_key_that_was_revoked_during_its_look_up_stays_revoked():
    gate = Gate()
    await gate.ring.refresh()
    stored, key = made()

    async def get(_: str) -> StoredKey:
        gate.source.keys[stored.id] = replace(stored, revoked=NOW - 1)
        await gate.ring.refresh()
        return stored

    gate.source.get = get  # type: ignore[method-assign]

    await refused(gate, key)
    await refused(gate, key)
