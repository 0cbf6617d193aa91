"""Several gateways on one database, while gateways and the database fail: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from time import monotonic
from typing import Any

import asyncpg
import pytest

from interlock import Client
from interlock.config import loads
from interlock.gateway.client_approvals import approvals_in
from interlock.store import KeyStore
from interlock.store.approvals import Approval
from tests.chaos.fleet import LEGACY, Fleet, Load, fleet, reasons, until
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.product, pytest.mark.program("PostgreSQL"), pytest.mark.timeout(300)]

RATE = 40  # calls per second
DRAIN = {"drain": {"delay": 3, "calls": 20}}


async def test_killed_gateway_loses_nothing_and_another_closes_its_chain(
    tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url) as here:
        await here.start(3)
        await here.balance()
        load = Load(here, RATE)
        async with load.running():
            await load.make(200)
            victim = here.replicas[1]
            victim.signal(signal.SIGKILL)
            killed_at = monotonic()
            await victim.ended()
            await load.make(200)
            victim.start()
            await victim.ready()
            await load.make(400)
            # The next start closes the chain as well, so kill another one that stays away.
            here.replicas[2].signal(signal.SIGKILL)
            killed_at = monotonic()
            await here.replicas[2].ended()

            async def is_closed() -> bool:
                return await here.open_chains() == 2

            await until(is_closed)
            closed_after = monotonic() - killed_at
        load.report("kill")
        print(f"kill: the chain was closed after {closed_after:.1f} s")
        load.check()
        assert len(load.failed) < load.sent / 100, reasons(load.failed)
        assert closed_after < 60
        assert await here.problems() == []


async def test_rolling_restart_has_no_error(tmp_path: Path, postgres: Postgres):
    async with fleet(tmp_path, postgres.url, DRAIN) as here:
        await here.start(4)
        await here.balance()
        load, codes, lost = Load(here, RATE), [], []
        sessions = {key: (await here.legacy(key, "initialize"))[1] for key in here.keys}
        async with load.running():
            await load.make(100)
            for each in here.replicas:
                each.signal(signal.SIGTERM)
                codes.append(await each.ended())
                each.start()
                await each.ready()
                await load.make(50)
                for key, session in sessions.items():
                    status, _ = await here.legacy(key, "ping", session)
                    lost += [] if status == 200 else [(status, session)]
        load.report("rolling restart")
        assert lost == []
        load.check()
        assert load.failed == []
        assert codes == [0] * 4
        assert await here.problems() == []


async def test_leaving_gateway_answers_running_calls_of_both_eras(
    tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url, {"drain": {"delay": 1, "calls": 20}}) as here:
        await here.start(1)
        (replica,) = here.replicas
        headers = {"Authorization": f"Bearer {here.keys[0]}"}
        sse = Client.http(replica.url.replace("/mcp", "/sse"), headers=headers, transport="sse")
        async with Client.http(replica.url, headers=headers, revision=LEGACY) as legacy, sse:
            calls = [
                asyncio.create_task(each.call_tool("c__put", {"id": name, "seconds": 3}))
                for name, each in (("legacy", legacy), ("sse", sse))
            ]
            modern = asyncio.create_task(here.call(replica.url, here.keys[1], "modern", 3.0))

            async def are_running() -> bool:
                return sum(here.executed().values()) == 3

            async def is_leaving() -> bool:
                return await replica.readiness() == 404

            await until(are_running)
            replica.signal(signal.SIGTERM)
            await until(is_leaving)
            assert (await here.call(replica.url, here.keys[2], "late"))[0] == 200
            assert [(await each).text for each in calls] == ["legacy", "sse"]
            assert (await modern)[0] == 200
        assert await replica.ended() == 0
        assert await here.problems() == []


async def test_frozen_gateway_continues_its_chain(tmp_path: Path, postgres: Postgres):
    async with fleet(tmp_path, postgres.url) as here:
        await here.start(3)
        await here.balance()
        load = Load(here, RATE)
        async with load.running():
            await load.make(100)
            here.replicas[0].signal(signal.SIGSTOP)
            await asyncio.sleep(5)
            here.replicas[0].signal(signal.SIGCONT)
            await load.make(200)
        load.report("frozen gateway")
        load.check()
        assert load.window < 9, reasons(load.failed)  # until the balancer has noticed
        assert await here.problems() == []


async def test_database_that_restarts_or_freezes_stops_calls_before_their_effect(
    tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url) as here:
        await here.start(3)
        await here.balance()
        load = Load(here, RATE)
        async with load.running():
            await load.make(100)
            postgres.signal(signal.SIGSTOP)
            await asyncio.sleep(5)
            postgres.signal(signal.SIGCONT)
            await load.make(100)
            for _ in range(3):
                postgres.stop()
                await asyncio.sleep(1)
                postgres.start()
                await load.make(100)
            await asyncio.gather(*(each.ready() for each in here.replicas))
            await asyncio.sleep(1)  # until the balancer has noticed
            before = len(load.failed)
            await load.make(100)
            assert load.failed[before:] == []
        load.report("database")
        load.check()
        # Even while no gateway is ready, clients get JSON-RPC.
        refused = [(status, body) for _, _, status, body in load.failed if status]
        for status, body in refused:
            if status == 503:
                assert json.loads(body)["error"]["code"] == -31503, body
        assert await here.open_chains() == 3
        assert await here.problems() == []


async def test_late_revocation_is_obeyed_within_two_seconds_of_its_commit(
    tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url) as here:
        await here.start(3)
        held = await asyncpg.connect(postgres.url)
        other = await asyncpg.connect(postgres.url)
        transaction = held.transaction()
        await transaction.start()
        now = "(extract(epoch FROM now()) * 1000000)::bigint"
        await held.execute(f"UPDATE keys SET revoked = {now} WHERE id = $1", here.key_ids[0])
        added = "INSERT INTO changes (kind, key, at) VALUES ('keys', $1, 0)"
        await held.execute(added, here.key_ids[0])
        for _ in range(300):
            await other.execute(added, "other")
        await asyncio.sleep(2)
        urls = [each.url for each in here.replicas]
        assert [(await here.call(url, here.keys[0], f"a{url}"))[0] for url in urls] == [200] * 3
        await transaction.commit()
        committed_at = monotonic()
        while {(await here.call(url, here.keys[0], f"b{url}"))[0] for url in urls} != {401}:
            assert monotonic() - committed_at < 2
        print(f"revocation: obeyed after {monotonic() - committed_at:.2f} s")
        await held.close()
        await other.close()
        assert await here.problems() == []


RULES = {
    "rules": [
        {"id": "puts", "effect": "ask", "who": ["*"], "tools": ["c:put"], "approvers": ["user:b"]}
    ]
}


async def test_call_at_several_gateways_needs_one_approval_and_is_executed_once(
    tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url, {"policy": RULES}) as here:
        await here.start(3)
        for number in range(6):
            id = f"asked{number}"
            await _everywhere(here, id, 6)
            (asked,) = await _pending(here)
            await _approve(here, asked)
            await _everywhere(here, id, 50)
            assert here.executed()[id] == 1
            left = await _pending(here)
            assert len(left) <= 1  # the late ones ask again, together
            for each in left:
                await _approve(here, each, denies=True)
        assert await here.problems() == []


async def _everywhere(here: Fleet, id: str, count: int) -> None:
    """Make one call several times at all gateways at once."""
    urls = [each.url for each in here.replicas]
    await asyncio.gather(
        *(here.call(urls[number % len(urls)], here.keys[0], id) for number in range(count))
    )


def _config(here: Fleet) -> Any:
    settings = {"database": here.url, **here.settings}
    servers = {"c": {"command": "unused"}}
    return loads(json.dumps({"mcpServers": servers, "gateway": settings}).encode())


async def _pending(here: Fleet) -> list[Approval]:
    async with approvals_in(_config(here), here.url) as approvals:
        return await approvals.list(["pending"])


async def _approve(here: Fleet, approval: Approval, *, denies: bool = False) -> None:
    async with approvals_in(_config(here), here.url, decides=True) as approvals:
        decide = approvals.deny if denies else approvals.approve
        await decide(approval.id, approval.hash, None)


async def test_first_start_of_several_gateways_leaves_no_tool_quarantined(
    tmp_path: Path, postgres: Postgres
):
    for number in range(3):
        name = f"first{number}"
        connection = await asyncpg.connect(postgres.url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        folder = tmp_path / name
        folder.mkdir()
        async with fleet(folder, postgres.url.replace("/postgres?", f"/{name}?")) as here:
            await here.start(4)
            await asyncio.sleep(2)
            for each in here.replicas:
                status, body = await here.call(each.url, here.keys[0], f"x{each.port}")
                assert (status, b"isError" in body) == (200, False), body
            assert sum(here.executed().values()) == 4


async def test_gateway_with_another_key_does_not_start(tmp_path: Path, postgres: Postgres):
    async with fleet(tmp_path, postgres.url) as here:
        await here.start(2)
        second = here.replicas[1]
        second.signal(signal.SIGTERM)
        await second.ended()
        second.start(INTERLOCK_KEY=bytes(range(1, 33)).hex())
        assert await second.ended() == 1
        assert "this database belongs to gateway key " in second.log
        assert (await here.call(here.replicas[0].url, here.keys[0], "a"))[0] == 200


async def test_probe_of_a_fleet_with_many_changes_takes_a_millisecond(
    tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url) as here:
        await here.start(2)
        connection = await asyncpg.connect(postgres.url)
        now = "(extract(epoch FROM now()) * 1000000)::bigint"
        await connection.execute(
            "INSERT INTO changes (kind, key, at)"
            f" SELECT 'keys', 'x', {now} FROM generate_series(1, 350000)"
        )
        await asyncio.sleep(2)
        count = "SELECT count(*) FROM changes"
        before = await connection.fetchval(count)
        times = []
        for _ in range(200):
            began = monotonic()
            assert await here.replicas[0].readiness() == 200
            times.append(monotonic() - began)
        assert await connection.fetchval(count) == before
        await connection.close()
        print(f"probe: median {sorted(times)[100] * 1000:.2f} ms over HTTP")


async def test_old_version_restarts_beside_a_newer_schema(tmp_path: Path, postgres: Postgres):
    async with fleet(tmp_path, postgres.url, DRAIN) as here:
        await here.start(2)
        await here.balance()
        connection = await asyncpg.connect(postgres.url)
        load = Load(here, RATE)
        async with load.running():
            await load.make(50)
            await connection.execute(
                "ALTER TABLE keys ADD COLUMN colour varchar NOT NULL DEFAULT 'red';"
                "ALTER TABLE audit_heads ADD COLUMN colour varchar;"
                "UPDATE alembic_version SET version_num = '0100'"
            )
            await load.make(50)
            here.replicas[0].signal(signal.SIGTERM)
            assert await here.replicas[0].ended() == 0
            here.replicas[0].start()
            await here.replicas[0].ready()
            await load.make(100)
        await connection.close()
        async with KeyStore.open(here.url) as store:
            await store.create("later")
        load.report("newer schema")
        load.check()
        assert load.failed == []
        assert await here.problems() == []
