"""Several gateways on one database, while gateways and the database fail: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import aiohttp
import asyncpg
import pytest

from interlock import Client
from interlock.config import loads
from interlock.gateway.client_approvals import approvals_in
from interlock.store import KeyStore
from interlock.store.approvals import Approval
from tests.chaos.fleet import LEGACY, Fleet, Load, fleet, reasons, until
from tests.deploy.test_proxies import FILES
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
            await victim.ended()
            await load.make(400)
            load.report("one of three is killed")
            assert len(load.failed) < load.sent / 100, reasons(load.failed)
            assert load.window < 2, reasons(load.failed)
            victim.start()
            await victim.ready()
            await load.make(100)
            # The next start closes the chain as well, so kill another one that stays away.
            here.replicas[2].signal(signal.SIGKILL)
            killed_at = monotonic()
            await here.replicas[2].ended()

            async def is_closed() -> bool:
                return await here.open_chains() == 2

            await until(is_closed)
            closed_after = monotonic() - killed_at
        load.report("two are killed")
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


async def test_limits_of_a_caller_that_stays_at_its_gateway_are_those_of_one_gateway(
    tmp_path: Path, postgres: Postgres
):
    limits = {
        "rate": {"rate": "20/s", "burst": 20},
        "running": {"concurrent": 5},
        "day": {"perDay": 20},
    }
    async with fleet(tmp_path, postgres.url) as here:
        async with KeyStore.open(here.url) as store:
            keys = {
                name: (await store.create(name, scopes=("mcp:*",), limits=each))[1]
                for name, each in limits.items()
            }
        await here.start(3)
        await here.balance()
        await asyncio.gather(
            *(here.call(here.balanced, keys["running"], f"running{n}", 2.0) for n in range(15)),
        )
        for batch in range(6):  # fewer at a time than may run
            ids = [f"day{batch}{n}" for n in range(10)]
            await asyncio.gather(*(here.call(here.balanced, keys["day"], id) for id in ids))
        began, calls = monotonic(), []
        for number in range(600):  # three times the rate, for ten seconds
            await asyncio.sleep(max(0.0, began + number / 60 - monotonic()))
            call = here.call(here.balanced, keys["rate"], f"rate{number}")
            calls.append(asyncio.create_task(call))
        allowed = 20 + 20 * (monotonic() - began)
        await asyncio.gather(*calls)
        ran = Counter(id.rstrip("0123456789") for id in here.executed())
        print(f"limits: {ran['rate']} of {allowed:.0f}, {ran['running']} of 5, {ran['day']} of 20")
        assert 0.97 * allowed <= ran["rate"] <= allowed + 1
        assert (ran["running"], ran["day"]) == (5, 20)
        assert await here.problems() == []


async def test_audit_has_the_client_behind_each_shipped_balancer(
    tmp_path: Path, postgres: Postgres
):
    async with fleet(tmp_path, postgres.url, {"proxies": ["127.0.0.1"]}) as here:
        await here.start(1)
        for number, name in enumerate(FILES):
            address = f"127.0.0.{5 + number}"
            program = await here.behind(name)
            client = aiohttp.TCPConnector(local_addr=(address, 0))
            async with aiohttp.ClientSession(connector=client) as http:
                headers = {"authorization": "Bearer ilk_unknown"}
                async with http.post(here.balanced, json={}, headers=headers) as reply:
                    assert reply.status == 401, name
            program.terminate()
            await asyncio.to_thread(program.wait)
            while address not in await here.records():  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def test_revocations_and_approvals_are_obeyed_everywhere_within_seconds(
    tmp_path: Path, postgres: Postgres
):
    asking = {**RULES["rules"][0], "who": ["user:asker"]}
    allowing = {"id": "others", "effect": "allow", "who": ["*"], "tools": ["c:put"]}
    settings = {"policy": {"rules": [asking, allowing]}}
    async with fleet(tmp_path, postgres.url, settings) as here:
        await here.start(3)
        await here.balance()
        async with KeyStore.open(here.url) as store:
            _, asker = await store.create("asker", scopes=("mcp:*",))
            idle = [await _delays(here, store, asker, f"idle{n}") for n in range(10)]
            async with Load(here, RATE).running():
                busy = [await _delays(here, store, asker, f"busy{n}") for n in range(10)]
        for name, delays in (("idle", idle), ("under load", busy)):
            revoked, approved = map(max, zip(*delays, strict=True))
            print(f"{name}: revocation after {revoked:.2f} s, approval after {approved:.2f} s")
            assert max(revoked, approved) < 2
        assert await here.problems() == []


async def _delays(here: Fleet, store: KeyStore, asker: str, id: str) -> tuple[float, float]:
    """Return the seconds until a revocation, and until an approval, is obeyed everywhere."""
    urls = [each.url for each in here.replicas]
    stored, key = await store.create(id, scopes=("mcp:*",))
    for url in urls:
        assert (await here.call(url, key, f"{id}{url}"))[0] == 200
    await store.revoke(stored.id)
    revoked = await _seconds_until(here, urls, key, f"{id}late", 401)
    await here.call(urls[0], asker, id)
    (asked,) = await _pending(here)
    await _approve(here, asked)
    began = monotonic()
    while not here.executed()[id]:
        await here.call(urls[2], asker, id)
    return revoked, monotonic() - began


async def _seconds_until(here: Fleet, urls: Sequence[str], key: str, id: str, wanted: int) -> float:
    """Wait until all gateways answer a key's calls with a status."""
    began = monotonic()
    while {(await here.call(url, key, f"{id}{url}"))[0] for url in urls} != {wanted}:
        pass
    return monotonic() - began


async def test_first_start_of_several_gateways_leaves_no_tool_quarantined(
    tmp_path: Path, postgres: Postgres
):
    for number in range(2):
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
        empty = await _probe(here)
        connection = await asyncpg.connect(postgres.url)
        now = "(extract(epoch FROM now()) * 1000000)::bigint"
        await connection.execute(  # a change each 240 ms for 23 hours
            "INSERT INTO changes (kind, key, at)"
            f" SELECT 'keys', 'x', {now} - n * 240000 FROM generate_series(350000, 1::bigint, -1) n"
        )
        await connection.execute("ANALYZE changes")
        count = "SELECT count(*) FROM changes"
        before = await connection.fetchval(count)
        full = await _probe(here)
        assert await connection.fetchval(count) == before
        await connection.close()
        print(f"probe over HTTP, median: {empty * 1000:.2f} ms, with 350,000 {full * 1000:.2f} ms")
        assert full - empty < 0.001


async def _probe(here: Fleet) -> float:
    """Return the median of the seconds that a probe takes."""
    await here.replicas[0].ready()
    times = []
    for _ in range(400):
        began = monotonic()
        await here.replicas[0].readiness()
        times.append(monotonic() - began)
    return sorted(times)[200]


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
