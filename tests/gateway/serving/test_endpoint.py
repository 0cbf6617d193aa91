"""The HTTP endpoint of a gateway: credentials, views, refusals, health and metrics."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.config.gateway import Address
from interlock.gateway import health
from interlock.store import AuditRecord
from interlock.store.audit import group_commit
from interlock.toolbox import restarts, upstream
from tests.gateway.conftest import bearer, offering
from tests.gateway.support import steps_of
from tests.server.http.conftest import Http, Reply
from tests.support.clock import SetClock
from tests.support.scripted_server import Json, text
from tests.toolbox.upstreams import fail

ISSUER = {
    "issuer": "https://id.example.com",
    "audience": "http://127.0.0.1:8000/mcp",
    "jwksUrl": "https://id.example.com/jwks",
}
VIEWS = {"support": {"servers": ["crm"]}, "time": {"tools": {"allow": ["time:*"]}}}


# Credentials


async def test_missing_credential_is_a_401_that_names_the_metadata_of_the_view(running):
    settings = {"views": VIEWS, "auth": {"issuers": [ISSUER]}}
    async with running(settings, crm=offering("x")) as gateway:
        for path in ("/mcp", "/mcp/support", "/mcp/absent"):
            reply = await gateway.http.request("POST", path)
            where = f"/.well-known/oauth-protected-resource{path}"
            challenge = f'Bearer resource_metadata="http://127.0.0.1:8000{where}"'
            assert (reply.code, reply.header("www-authenticate")) == (401, challenge)
            metadata = (await gateway.http.request("GET", where)).json
            assert metadata["resource"] == f"http://127.0.0.1:8000{path}"
            assert metadata["authorization_servers"] == [ISSUER["issuer"]]
        bare = await gateway.http.request("GET", "/.well-known/oauth-protected-resource")
        assert bare.json["resource"] == "http://127.0.0.1:8000/mcp"


async def test_gateway_without_issuers_advertises_no_login(running):
    async with running({"views": VIEWS}, crm=offering("x")) as gateway:
        for path in ("", "/mcp", "/mcp/support", "/mcp/absent"):
            if path:
                reply = await gateway.http.request("POST", path)
                assert reply.code == 401
                assert reply.header("www-authenticate") == 'Bearer realm="interlock"'
            for name in ("oauth-protected-resource", "oauth-authorization-server"):
                found = await gateway.http.request("GET", f"/.well-known/{name}{path}")
                assert found.code == 404


@pytest.mark.slow("fills a database")
async def test_credential_without_any_mcp_scope_is_refused_with_403(running):
    async with running(crm=offering("x")) as gateway:
        reply = await gateway.call("crm__x", await gateway.key("op", "admin:write"))

    assert (reply.code, reply.error) == (403, -31403)
    assert reply.json["error"]["data"]["reason"] == "insufficient_scope"


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("path", ["/", "/mcp/a/b", "/mcp/sse", "/admin", "/metricsx"])
async def test_unknown_paths_are_404_with_and_without_a_credential(path: str, running):
    async with running({"views": VIEWS}, crm=offering("x")) as gateway:
        plain = {"content-type": "text/plain"}
        headers = ({}, plain, bearer(await gateway.key()))
        replies = [await gateway.http.request("POST", path, headers=each) for each in headers]
        assert {each.code for each in replies} == {404}
        assert len({each.body for each in replies}) == 1


@pytest.mark.slow("fills a database")
async def test_revoked_key_ends_its_calls_and_sessions(running):
    crm = offering("x")
    began = asyncio.Event()

    async def hang(_: Json) -> None:
        began.set()
        await asyncio.Event().wait()

    crm.answers["tools/call"] = hang
    async with running(crm=crm) as gateway:
        key = await gateway.key()
        session = await gateway.http.initialize(headers=bearer(key))
        modern = gateway.http.begin(
            "tools/call", {"name": "crm__x", "arguments": {}}, headers=bearer(key)
        )
        await began.wait()
        began.clear()
        legacy = session.begin_call("crm__x")
        await began.wait()
        await gateway.keys.revoke(gateway.assembly.services.keys.find(key.encode()).stored.id)
        await gateway.assembly.services.keys.refresh()
        gateway.assembly.services.keys.report_ended()

        assert (await modern.finished()).code == 401
        await legacy.finished()
        assert "result" not in legacy.body.decode()
        assert (await session.ask("ping")).code == 401


# Views


@pytest.mark.slow("fills a database")
async def test_view_has_its_own_tools_and_a_bound_key_has_them_at_the_endpoint(running):
    async with running({"views": VIEWS}, crm=offering("x"), time=offering("now")) as gateway:
        free, bound = await gateway.key(), await gateway.key(view="support")

        assert await gateway.names(free) == ["crm__x", "time__now"]
        assert await gateway.names(free, "/mcp/time") == ["time__now"]
        assert await gateway.names(bound) == ["crm__x"]
        assert await gateway.names(bound, "/mcp/support") == ["crm__x"]
        assert (await gateway.call("time__now", bound)).error == -32602


@pytest.mark.slow("fills a database")
async def test_hidden_and_absent_look_alike_and_take_the_same_time(running):
    """Tools, resources, prompts and views that a caller may not see are as those that are not."""
    crm = offering("x", "hidden")
    crm.capabilities = {"tools": {}, "resources": {}, "prompts": {}}
    crm.answers |= {
        "resources/list": {"resources": [{"uri": "doc://hidden", "name": "1"}]},
        "resources/templates/list": {"resourceTemplates": []},
        "prompts/list": {"prompts": [{"name": "hidden"}]},
    }
    rules = [
        {"id": "x", "effect": "allow", "who": ["*"], "tools": ["crm:x"],
         "arguments": {"n": {"maximum": 1}}}
    ]  # fmt: skip
    async with running({"views": VIEWS, "policy": {"rules": rules}}, crm=crm) as gateway:
        bound = await gateway.key(view="support")

        def call(name: str, path: str = "/mcp") -> Callable[[], Awaitable[Reply]]:
            return lambda: gateway.call(name, bound, path)

        def ask(method: str, **params: Any) -> Callable[[], Awaitable[Reply]]:
            return lambda: gateway.http.ask(method, params, headers=bearer(bound))

        def probe(path: str) -> Callable[[], Awaitable[Reply]]:
            return lambda: gateway.http.request("POST", path, b"{}")

        pairs = {
            "tool": (call("crm__hidden"), call("crm__absent")),
            "resource": (
                ask("resources/read", uri="doc://hidden"),
                ask("resources/read", uri="doc://absent"),
            ),
            "prompt": (
                ask("prompts/get", name="crm__hidden"),
                ask("prompts/get", name="crm__absent"),
            ),
            "kept result": (
                ask("resources/read", uri="interlock://results/r_0b9c2e41f7a85d3361ce"),
                ask("resources/read", uri="interlock://results/r_absent"),
            ),
            "view": (call("crm__x", "/mcp/time"), call("crm__x", "/mcp/absent")),
            "view, without a key": (probe("/mcp/time"), probe("/mcp/absent")),
        }
        for what, (hidden, absent) in pairs.items():
            replies = [await hidden(), await absent()]
            codes = [each.code for each in replies]
            bodies = [
                re.sub(rb"hidden|absent|r_\w+|time", b"NAME", bytes(each.body)) for each in replies
            ]
            assert codes[0] == codes[1], what
            assert bodies[0] == bodies[1], what
            steps = [await steps_of(hidden), await steps_of(absent)]
            limit = 10 if "view" in what else max(125, min(steps) / 10)
            assert max(steps) - min(steps) < limit, (what, steps)

        assert await gateway.names(bound) == ["crm__x"]
        fits, other = [await gateway.call("crm__x", bound, n=n) for n in (1, 987_654)]
        assert fits.text == "done"
        reason = other.json["result"]["_meta"]["interlock/reason"]
        assert reason["code"] == "no_rule"
        assert b"987" not in other.body


@pytest.mark.slow("fills a database")
async def test_session_belongs_to_one_view(running):
    async with running({"views": VIEWS}, crm=offering("x")) as gateway:
        key = await gateway.key()
        session = await gateway.http.initialize(headers=bearer(key))
        body = gateway.http.rpc("ping", id=1)
        reply = await gateway.http.request("POST", "/mcp/support", body, session.headers)
        assert reply.code == 404


@pytest.mark.slow("fills a database")
async def test_sse_of_a_view_posts_below_the_view(running):
    async with running({"views": VIEWS}, crm=offering("x")) as gateway:
        headers = bearer(await gateway.key())
        stream = gateway.http.start("GET", "/mcp/support/sse", headers=headers)
        part = await stream.part()
        assert "data: /mcp/support/message?session_id=" in part
        await stream.leave()


# Refusals of requests


def refused(reply: Reply) -> tuple[int, int, str]:
    error = reply.json["error"]
    return reply.code, error["code"], error["data"]["reason"]


@pytest.mark.slow("fills a database")
async def test_exceeded_rate_of_a_key_is_a_429_with_retry_after_in_both_eras(running):
    crm = offering("x")
    limits = {"perKey": {"rate": "1/min"}}
    async with running({"limits": limits}, crm=crm) as gateway:
        key = await gateway.key()
        session = await gateway.http.initialize(headers=bearer(key))
        assert (await gateway.call("crm__x", key)).text == "done"
        for reply in (
            await gateway.call("crm__x", key),
            await gateway.call("no-such-tool", key),
            await session.call("crm__x"),
        ):
            assert refused(reply) == (429, -31429, "rate_limited")
            data = reply.json["error"]["data"]
            assert int(reply.header("retry-after")) == data["retryAfter"]
            assert 58 <= data["retryAfter"] <= 60
            assert data["reference"]
        assert (await gateway.call("crm__x", await gateway.key("berta"))).text == "done"
    assert len(crm.sent("tools/call")) == 2


@pytest.mark.slow("fills a database")
async def test_refused_call_does_not_count_towards_the_limits(running):
    crm = offering("x")
    limits = {"perKey": {"rate": "2/min"}}
    rules = [
        {"id": "a", "effect": "allow", "who": ["*"], "tools": ["*:*"],
         "arguments": {"n": {"maximum": 1}}}
    ]  # fmt: skip
    async with running({"limits": limits, "policy": {"rules": rules}}, crm=crm) as gateway:
        key = await gateway.key()
        for _ in range(5):
            assert (await gateway.call("crm__x", key, n=2)).json["result"]["isError"]
            assert (await gateway.call("crm__absent", key)).error == -32602
        assert [(await gateway.call("crm__x", key, n=1)).code for _ in range(3)] == [200, 200, 429]


@pytest.mark.slow("fills a database")
async def test_too_many_calls_at_once_are_a_503(running):
    crm = offering("x")
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Json) -> Json:
        began.set()
        await go_on.wait()
        return text("done")

    crm.answers["tools/call"] = slow
    async with running({"limits": {"perKey": {"concurrent": 1}}}, crm=crm) as gateway:
        key = await gateway.key()
        first = gateway.http.begin("tools/call", {"name": "crm__x"}, headers=bearer(key))
        await began.wait()
        reply = await gateway.call("crm__x", key)
        assert refused(reply) == (503, -31503, "overloaded")
        assert reply.header("retry-after") == "1"
        go_on.set()
        assert (await first.finished()).text == "done"


@pytest.mark.slow("fills a database")
async def test_call_that_cannot_be_recorded_is_a_503_and_is_not_sent(
    running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    crm = offering("x")
    async with running(crm=crm) as gateway:
        key = await gateway.key()
        with (
            closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as other,
            other,
        ):
            other.execute("BEGIN IMMEDIATE")
            with monkeypatch.context() as patch:
                patch.setattr(group_commit, "WAIT", 0.05)
                reply = await gateway.call("crm__x", key)
            other.execute("ROLLBACK")
        other.close()
        assert refused(reply) == (503, -31503, "audit_unavailable")
        assert str(tmp_path) not in reply.body.decode()
        assert crm.sent("tools/call") == []
        while (await gateway.call("crm__x", key)).code != 200:  # it recovers by itself
            pass


@pytest.mark.slow("fills a database")
async def test_draining_gateway_refuses_calls_with_503_and_is_not_ready(running):
    async with running(crm=offering("x")) as gateway:
        key = await gateway.key()
        gateway.endpoint.app.drain()
        assert refused(await gateway.call("crm__x", key)) == (503, -31503, "draining")
        assert (await gateway.http.request("GET", "/readyz")).code == 404
        assert (await gateway.http.request("GET", "/healthz")).code == 200


# Health and metrics


@pytest.mark.slow("fills a database")
async def test_readiness_needs_the_required_servers_and_names_no_others_to_the_public(running):
    broken = {"command": "/no/such/program"}
    async with running(crm=offering("x"), down=broken) as gateway:
        public = await gateway.http.request("GET", "/readyz")
        admin = Http(gateway.endpoint.admin_app(Address("127.0.0.1", 8001)))
        internal = await admin.request("GET", "/readyz", headers={"host": "10.0.0.7:8081"})
    assert (public.code, public.json) == (200, {"ready": True, "degraded": ["server"]})
    assert internal.json == {"ready": True, "degraded": ["server down"]}

    async with running(down={**broken, "required": True}) as gateway:
        assert (await gateway.http.request("GET", "/readyz")).code == 503


@pytest.mark.slow("fills a database")
async def test_readyz_writes_nothing(running, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "PROBE_EVERY", 0)
    async with running(crm=offering("x")) as gateway:
        writer = gateway.assembly.services.writer
        await writer.append(AuditRecord("started"))
        with closing(sqlite3.connect(tmp_path / "gateway.db")) as watching:
            before = writer.rows, watching.execute("PRAGMA data_version").fetchall()
            for _ in range(5):
                assert (await gateway.http.request("GET", "/readyz")).code == 200
            after = writer.rows, watching.execute("PRAGMA data_version").fetchall()

    assert after == before  # each write of another connection changes the version


@pytest.mark.slow("fills a database")
async def test_required_server_that_was_down_is_started_again_without_any_call(
    running, monkeypatch
):
    clock = SetClock()
    for module in (restarts, upstream):
        monkeypatch.setattr(module, "monotonic", clock)
    crm = offering("x")
    crm.answers["initialize"] = fail
    async with running(crm=(crm, {"required": True})) as gateway:
        assert (await gateway.http.request("GET", "/readyz")).code == 503
        del crm.answers["initialize"]
        clock.now += restarts.LONGEST_BACKOFF
        while (await gateway.http.request("GET", "/readyz")).code != 200:
            pass


@pytest.mark.slow("fills a database")
async def test_metrics_count_calls_and_refusals_by_reason(running):
    async with running({"limits": {"perKey": {"rate": "2/min"}}}, crm=offering("x")) as gateway:
        key = await gateway.key()
        await gateway.call("crm__x", key)
        await gateway.call("crm__x", key)
        await gateway.call("crm__x", key)
        await gateway.call("crm__x", "ilk_wrong")
        lines = (await gateway.http.request("GET", "/metrics")).body.decode().splitlines()

    assert 'interlock_calls_total{server="crm",outcome="ok"} 2' in lines
    ok = 'mcp_method_name="tools/call",gen_ai_tool_name="crm:x",mcp_protocol_version="2026-07-28"'
    assert any(f"mcp_server_operation_duration_seconds_count{{{ok}" in line for line in lines)
    assert 'interlock_upstream_up{server="crm"} 1' in lines
    assert "interlock_ready 1" in lines
    assert 'interlock_refusals_total{reason="rate_limited"} 1' in lines
    assert 'interlock_refusals_total{reason="bad_credential"} 1' in lines
    assert 'interlock_call_seconds_count{server="crm"} 2' in lines
    assert "# TYPE interlock_overhead_seconds histogram" in lines
    assert 'interlock_queue_depth{server="crm"} 0' in lines
    assert 'interlock_instances{server="crm",sharing="shared"} 1' in lines
    assert 'interlock_dropped_total{reason="HTTP 401"} 1' in lines
    (rows,) = [line for line in lines if line.startswith("interlock_audit_rows_total ")]
    assert float(rows.split()[1]) >= 3  # started, and two intents


@pytest.mark.slow("fills a database")
async def test_names_that_callers_make_up_add_no_lines_to_the_metrics(running):
    async with running(crm=offering("x")) as gateway:
        headers = bearer(await gateway.key())

        async def lines_after(number: int) -> list[str]:
            name = f"made_up_{number}"
            await gateway.call(name, headers["authorization"].removeprefix("Bearer "))
            for method, params in (
                (name, {}),
                ("prompts/get", {"name": name}),
                ("resources/read", {"uri": f"file:///{name}"}),
            ):
                await gateway.http.ask(method, params, headers=headers)
            return (await gateway.http.request("GET", "/metrics")).body.decode().splitlines()

        before = await lines_after(0)
        for number in range(1, 20):
            after = await lines_after(number)
    assert len(after) == len(before)
    assert not [line for line in after if "made_up" in line]


@pytest.mark.slow("fills a database")
async def test_metrics_need_a_listener_of_operators(running):
    settings = {"publicUrl": "https://tools.example.com/mcp"}
    async with running(settings, crm=offering("x")) as gateway:
        assert (await gateway.http.request("GET", "/metrics")).code == 404
        admin = Http(gateway.endpoint.admin_app(Address("0.0.0.0", 8001)))
        user, operator = await gateway.key(), await gateway.key("op", "admin:read")
        codes = [
            (await admin.request("GET", "/metrics", headers=headers)).code
            for headers in ({}, bearer(user), bearer(operator))
        ]
        assert codes == [401, 403, 200]
        assert (await admin.request("GET", "/mcp", headers=bearer(operator))).code == 404


POD = {"host": "10.244.1.7:8081"}


@pytest.mark.slow("fills a database")
async def test_metrics_of_a_pod_need_a_key_and_no_known_host(running):
    async with running(crm=offering("x")) as gateway:
        key, user = await gateway.key("op", "admin:read"), await gateway.key()
        admin = Http(gateway.endpoint.admin_app(Address("127.0.0.1", 8001)))
        for client in (admin, gateway.http):  # without an admin listener, the public one has them

            async def asked(client: Http = client, **headers: str) -> int:
                return (await client.request("GET", "/metrics", headers=POD | headers)).code

            assert await asked(**bearer(key)) == 200
            # A page under a name that its owner points to this machine may send anything but a key.
            assert await asked() == 403
            assert await asked(**bearer("ilk_made_up")) == 401
            assert await asked(**bearer(user)) == 403
            assert await asked(**bearer(key), cookie="interlock=1") == 403
            assert await asked(**bearer(key), origin="http://10.244.1.7:8081") == 403
            assert (await client.request("GET", "/metrics")).code == 200
            other = await client.request("GET", "/admin/api/v1/keys", headers=POD | bearer(key))
            assert other.code == 403


@pytest.mark.slow("fills a database")
async def test_metrics_on_loopback_need_no_key_but_store_that_a_key_was_used(running):
    async with running(crm=offering("x")) as gateway:
        key = await gateway.key("op", "admin:read")
        admin = Http(gateway.endpoint.admin_app(Address("127.0.0.1", 8001)))
        for credential in ("ilk_made_up", key):
            reply = await admin.request("GET", "/metrics", headers=bearer(credential))
            assert reply.code == 200
        await gateway.assembly.services.keys.write_uses()
        (stored,) = await gateway.keys.list()
        assert stored.last_used is not None


# A listener of one view


@pytest.mark.slow("fills a database")
async def test_listener_of_one_view_serves_nothing_else_to_any_key(running):
    async with running({"views": VIEWS}, crm=offering("x"), time=offering("now")) as gateway:
        free, time, other = (
            await gateway.key(),
            await gateway.key(view="time"),
            await gateway.key(view="support"),
        )
        gateway.serve("time")

        assert await gateway.names(free) == await gateway.names(time) == ["time__now"]
        assert (await gateway.call("time__now", free)).text == "done"
        assert (await gateway.call("crm__x", free)).error == -32602
        assert (await gateway.call("time__now", other)).code == 404
        assert (await gateway.call("crm__x", free, "/mcp/support")).code == 404
        for key, code in ((free, 200), (time, 200), (other, 404)):
            assert (await gateway.http.request("GET", "/me", headers=bearer(key))).code == code


@pytest.mark.slow("fills a database")
async def test_call_that_began_before_the_gateway_drains_is_answered(running):
    arrived, go_on = asyncio.Event(), asyncio.Event()
    crm = offering("x")

    async def answer(_: Any) -> Any:
        arrived.set()
        await go_on.wait()
        return text("done")

    crm.answers["tools/call"] = answer
    async with running(crm=crm) as gateway:
        key = await gateway.key()
        call = asyncio.create_task(gateway.call("crm__x", key))
        await arrived.wait()
        gateway.endpoint.app.drain()
        assert refused(await gateway.call("crm__x", key)) == (503, -31503, "draining")
        go_on.set()

        assert (await call).text == "done"
