"""Keys at the door of a gateway: refused alike, limited, revoked, and counted over restarts."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from interlock.auth import key_format
from interlock.store import AuditReader
from interlock.store.audit.reading import CallFilter
from interlock.store.keys import KeyStore
from tests.gateway.conftest import bearer, offering
from tests.gateway.forwarding.test_parking import asking
from tests.gateway.support import steps_of

VERBS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
PATHS = ("/mcp", "/mcp/support", "/mcp/absent", "/sse", "/message", "/messages", "/mcp/support/sse",
         "/mcp/support/message", "/mcp/support/messages")  # fmt: skip


@pytest.mark.slow("fills a database")
async def test_invalid_keys_get_the_same_answer_after_the_same_time(running):
    settings = {"views": {"support": {"servers": ["crm"]}}}
    async with running(settings, crm=offering("list")) as gateway:
        good, unknown = await gateway.key("anna"), key_format.generate()[0]
        revoked, expired = await gateway.key("anna"), await gateway.key("anna", lifetime=1e-6)
        await gateway.keys.revoke(key_format.id_of(revoked))
        await gateway.assembly.services.keys.refresh()
        bad = (revoked, expired, unknown, f"{good}x", "ilk_x", "a.b.c", "x" * 5_000)
        for verb, path in product(VERBS, PATHS):
            answers = set()
            for key, send in product(bad, (bearer, lambda key: {"x-api-key": key})):
                reply = await gateway.http.request(verb, path=path, headers=send(key))
                challenge = reply.header("www-authenticate") or ""
                answers.add((reply.code, bytes(reply.body), challenge))
            ((code, body, challenge),) = answers
            assert code == 401, (verb, path)
            assert b'"data":{"reason":"bad_credential"}' in body
            assert b'"code":-31401' in body
            assert challenge == 'Bearer realm="interlock"'
            both = bearer(revoked) | {"x-api-key": revoked}
            assert (await gateway.http.request(verb, path=path, headers=both)).code == 400
            assert (await gateway.http.request(verb, path=path)).code == 401

        steps = [
            await steps_of(lambda: gateway.http.request("POST", headers=bearer(key)))  # noqa: B023
            for key in bad
        ]
        assert max(steps) - min(steps) < 50, steps


@pytest.mark.slow("fills a database")
async def test_key_that_another_process_creates_works_on_its_first_use(running, tmp_path):
    async with running({}, crm=offering("list")) as gateway:
        async with KeyStore.open(tmp_path / "gateway.db") as cli:
            _, key = await cli.create("anna", scopes=("mcp:*",))
        assert await gateway.names(key) == ["crm__list"]


@pytest.mark.slow("fills a database")
async def test_reason_of_a_refused_key_is_in_the_trail_once_a_second(running, tmp_path):
    async with running({}, crm=offering("list")) as gateway:
        revoked = await gateway.key("anna")
        id = key_format.id_of(revoked)
        await gateway.keys.revoke(id)
        await gateway.assembly.services.keys.refresh()
        for _ in range(20):
            await gateway.call("crm__list", revoked)
            await gateway.call("crm__list", key_format.generate()[0])

    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        refused = await reader.calls(CallFilter(status="refused"))
        exported = [each async for piece in reader.export() for each in piece]
    assert {(each.get("user"), each.get("key"), each["reason"]) for each in refused} == {
        ("user:anna", id, "key_revoked"),
        (None, None, "bad_credential"),
    }
    counts = [each.get("count", 1) for each in exported if each["kind"] == "refused"]
    assert sorted(counts) == [1, 1, 19, 19]


@pytest.mark.slow("fills a database")
async def test_revocation_by_another_process_ends_calls_sessions_and_streams_in_two_seconds(
    running, tmp_path
):
    """The other process is a key store of its own on the same database."""
    crm = offering("list")
    never = asyncio.Event()
    entered = asyncio.Event()

    async def hang(*_: object) -> None:
        entered.set()
        await never.wait()

    crm.answers["tools/call"] = hang  # type: ignore[attr-defined]
    async with running({}, crm=crm) as gateway:
        key = await gateway.key("anna")
        session = await gateway.http.initialize(headers=bearer(key))
        stream = session.listen()
        called = gateway.http.begin("tools/call", {"name": "crm__list"}, headers=bearer(key))
        await entered.wait()

        async with KeyStore.open(tmp_path / "gateway.db") as cli:
            await cli.revoke(key_format.id_of(key))
        await called.finished()
        await stream.finished()

        assert called.code == 401
        assert (await session.ask("tools/list")).code == 401


@pytest.mark.slow("fills a database")
async def test_parked_call_ends_with_its_key(running):
    crm = asking("who")
    async with running({}, crm=crm) as gateway:
        key = await gateway.key("anna")
        asked = await gateway.http.ask(
            "tools/call",
            {"name": "crm__who"},
            capabilities={"elicitation": {"form": {}}},
            headers=bearer(key),
        )
        assert asked.json["result"]["resultType"] == "input_required"

        await gateway.keys.revoke(key_format.id_of(key))
        await gateway.assembly.services.keys.refresh()
        gateway.assembly.services.keys.report_ended()

        await crm.heard("notifications/cancelled")


@pytest.mark.slow("fills a database")
async def test_daily_quota_and_rate_of_a_key_survive_a_restart(running):
    settings = {"limits": {"perKey": {"perDay": 3, "rate": "100/s"}}}
    crm = offering("list")
    async with running(settings, crm=crm) as gateway:
        key, slow = await gateway.key("anna"), await gateway.key("berta", limits={"rate": "1/h"})
        assert [(await gateway.call("crm__list", key)).code for _ in range(2)] == [200, 200]
        assert [(await gateway.call("crm__list", slow)).code for _ in range(2)] == [200, 429]
    async with running(settings, crm=crm) as gateway:
        replies = [await gateway.call("crm__list", key) for _ in range(2)]

    assert [each.code for each in replies] == [200, 429]
    assert 0 < int(replies[1].header("retry-after") or 0) <= 86_400
    assert replies[1].json["error"]["data"]["reason"] == "rate_limited"


@pytest.mark.slow("fills a database")
async def test_intent_and_refusal_state_rule_client_address_and_trace(running, tmp_path):
    rules = [
        {"id": "some", "effect": "allow", "who": ["*"], "tools": ["crm:*"],
         "arguments": {"amount": {"maximum": 50}}},
    ]  # fmt: skip
    async with running({"policy": {"rules": rules}}, crm=offering("refund")) as gateway:
        key = await gateway.key("anna")
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        info = {"name": "desk", "version": "1"}
        meta = {"traceparent": trace, "io.modelcontextprotocol/clientInfo": info}
        for amount in (40, 60):
            params = {"name": "crm__refund", "arguments": {"amount": amount}}
            await gateway.http.ask("tools/call", params, meta=meta, headers=bearer(key))
        legacy = await gateway.http.initialize(headers=bearer(key))
        await legacy.call("crm__refund", {"amount": 1})

    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        exported = [each async for piece in reader.export() for each in piece]
        calls = await reader.calls(CallFilter())
    modern, old = (each for each in exported if each["kind"] == "intent")
    assert modern["rule"] == "some"
    assert modern["traceparent"] == trace
    assert modern["address"] == old["address"] == "127.0.0.1"
    assert modern["revision"] == "2026-07-28"
    assert old["revision"] < "2026"
    assert modern["client"] == "desk"
    assert old["client"]
    assert modern["surface"] == "mcp"
    (refused,) = (each for each in exported if each["kind"] == "refused")
    assert (refused["reason"], refused["address"]) == ("no_rule", "127.0.0.1")
    assert [(each["status"], each.get("rule")) for each in calls] == [
        ("ok", "some"),
        ("refused", None),
        ("ok", "some"),
    ]


@pytest.mark.slow("fills a database")
async def test_trail_records_each_configuration_and_its_predecessor(running, tmp_path):
    async with running({}, crm=offering("list")) as gateway:
        await gateway.reload({"policy": {"rules": []}}, crm=offering("list"), hr=offering("find"))

    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        exported = [each async for piece in reader.export() for each in piece]
    first, second = (each for each in exported if each["kind"] == "config")
    assert first["after"]["servers"] == ["crm"]
    assert first.get("before") is None
    assert second["before"] == first["after"]
    assert second["after"]["servers"] == ["crm", "hr"]
    assert second["after"]["policy"] != first["after"]["policy"]
    assert second["user"] == "user:local"


@pytest.mark.slow("fills a database")
async def test_metrics_state_how_many_records_were_written(running):
    async with running({}, crm=offering("list")) as gateway:
        key = await gateway.key("anna")
        await gateway.call("crm__list", key)
        text = gateway.assembly.services.metrics.text()

    rows = next(line for line in text.splitlines() if line.startswith("interlock_audit_rows_total"))
    assert int(rows.split()[1]) >= 2
    assert "interlock_audit_lag_seconds 0" in text
    assert "interlock_audit_lost_total 0" in text
