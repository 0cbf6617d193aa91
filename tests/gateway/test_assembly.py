"""A configuration becomes a gateway, and another one replaces it while it runs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import ConfigError
from interlock.store import AuditReader, KeyStore
from interlock.store.approvals import ApprovalStore
from interlock.store.audit.reading import CallFilter
from interlock.store.credentials import CredentialStore
from interlock.store.database import changes
from interlock.store.database.changes import Kind, note_change
from interlock.store.database.database import Database, Work
from interlock.store.pins import PinStore
from interlock.store.plugins import PluginStore
from tests.gateway.conftest import bearer, offering
from tests.gateway.forwarding.test_items import library
from tests.support.scripted_server import Json, text

API = {"openapi": "3.1.0", "info": {"title": "CRM", "version": "1"}, "paths": {}}
READ_ONLY = {"rules": [{"id": "r", "effect": "allow", "who": ["user:berta"], "tools": ["*:*"]}]}


async def test_reload_returns_members_that_need_a_restart_until_they_are_reverted(running):
    async with running() as gateway:
        changed = [await gateway.reload(each) for each in ({"sse": False}, {"sse": False}, {})]

    assert changed == [["sse"], ["sse"], []]


@pytest.mark.slow("fills a database")
async def test_reload_replaces_servers_policy_views_and_limits_in_one_step(running):
    crm, time = offering("x"), offering("now")
    async with running(crm=crm) as gateway:
        key, berta = await gateway.key(), await gateway.key("berta")
        fixed = await gateway.reload(
            {
                "policy": READ_ONLY,
                "views": {"time": {"tools": {"allow": ["time:*"]}}},
                "limits": {"perKey": {"rate": "1/min"}},
                "sse": False,
            },
            crm=crm,
            time=time,
        )

        assert fixed == ["sse"]
        assert await gateway.names(key) == []
        assert await gateway.names(berta) == ["crm__x", "time__now"]
        assert await gateway.names(berta, "/mcp/time") == ["time__now"]
        codes = [(await gateway.call("time__now", berta)).code for _ in range(2)]
        assert codes == [200, 429]
        assert crm.connections == 1


@pytest.mark.slow("reloads a hundred times under load")
async def test_hundred_reloads_under_load_lose_no_call(running):
    servers, answered, is_over = (offering("x"), offering("x")), 0, False

    async def slow(_: Json) -> Json:
        await asyncio.sleep(0)
        return text("done")

    for each in servers:
        each.answers["tools/call"] = slow
    unpinned = {"lock": {"mode": "off"}}  # the two servers are launched in two ways
    async with running(unpinned, crm=servers[0]) as gateway, asyncio.TaskGroup() as group:
        key = await gateway.key()

        async def load() -> None:
            nonlocal answered
            while not is_over:
                assert (await gateway.call("crm__x", key)).text == "done"
                answered += 1

        for _ in range(4):
            group.create_task(load())
        for number in range(100):
            seen = answered
            if number % 2:
                with pytest.raises(ConfigError):
                    await gateway.reload({"policy": {"rules": [{"id": "?"}]}}, crm=servers[0])
            else:
                await gateway.reload(unpinned, crm=servers[number // 2 % 2])
            while answered < seen + 4:  # noqa: ASYNC110 - the load goes on meanwhile
                await asyncio.sleep(0)
        is_over = True

    sent = [len(each.sent("tools/call")) for each in servers]
    assert min(sent) > 0
    assert sum(sent) == answered


@pytest.mark.slow("fills a database")
async def test_clients_are_notified_of_a_reload_that_changes_their_list(running):
    crm = offering("x")
    async with running(crm=crm) as gateway:
        session = await gateway.http.initialize(headers=bearer(await gateway.key()))
        stream = session.listen()
        await stream.status()
        await gateway.reload({}, crm=crm, time=offering("now"))
        while (await stream.message())["method"] != "notifications/tools/list_changed":
            pass
        await stream.leave()


@pytest.mark.slow("fills a database")
async def test_reload_with_an_unset_variable_changes_nothing(running):
    crm = offering("x")
    async with running(crm=crm) as gateway:
        key = await gateway.key()
        with pytest.raises(ConfigError, match="NOT_SET"):
            await gateway.reload({"database": "${NOT_SET}"}, time=offering("now"))
        assert await gateway.names(key) == ["crm__x"]


@pytest.mark.slow("fills a database")
async def test_calls_of_tools_that_do_not_exist_are_recorded_once_a_second(running, tmp_path: Path):
    async with running(crm=offering("x")) as gateway:
        key = await gateway.key("anna", "mcp:read")
        for name in ("made_up", "made_up_too", "crm__x"):
            reply = await gateway.call(name, key)
            assert reply.json["error"]["message"] == f"unknown tool {name!r}"
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        recorded = await reader.calls(CallFilter(status="refused"))

    # A tool that exists for others is recorded with the reason that its caller does not get.
    assert Counter((each["tool"], each["reason"]) for each in recorded) == {
        ("crm:x", "scope"): 1,
        ("made_up", "unknown_tool"): 2,  # the first call, and a count of the others
    }


@pytest.mark.slow("fills a database")
async def test_refused_reads_prompts_and_completions_are_recorded_and_counted(
    running, tmp_path: Path
):
    rules = [{"id": "docs", "effect": "allow", "who": ["*"], "resources": ["lib:doc://two"]}]
    completion = {"ref": {"type": "ref/prompt", "name": "lib__review"}}
    asked = (
        ("resources/read", {"uri": "doc://one"}),
        ("resources/read", {"uri": "doc://made-up"}),
        ("prompts/get", {"name": "lib__review"}),
        ("completion/complete", completion | {"argument": {"name": "a", "value": "v"}}),
    )
    async with running({"policy": {"rules": rules}}, lib=library()) as gateway:
        headers = bearer(await gateway.key())
        for method, params in asked:
            assert (await gateway.http.ask(method, params, headers=headers)).error == -32602
        counted = gateway.assembly.services.metrics.refusals
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        recorded = await reader.calls(CallFilter(status="refused"))

    assert {(each["tool"], each["reason"]) for each in recorded} == {
        ("lib:doc://one", "no_rule"),
        ("doc://made-up", "unknown_resource"),
        ("lib:review", "no_rule"),
    }
    assert sum(counted.values()) == 4


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("is_legacy", [False, True])
async def test_arguments_that_are_no_object_are_refused_with_a_reason(
    running, tmp_path: Path, is_legacy: bool
):
    crm, params = offering("x"), {"name": "crm__x", "arguments": ["secret"]}
    async with running(crm=crm) as gateway:
        headers = bearer(await gateway.key())
        client = await gateway.http.initialize(headers=headers) if is_legacy else gateway.http
        more = {} if is_legacy else {"headers": headers}
        reply = await client.ask("tools/call", params, **more)
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        (recorded,) = await reader.calls(CallFilter(status="refused"))

    result = reply.json["result"]
    reason = result["_meta"]["interlock/reason"]
    assert (result["isError"], reason["code"]) == (True, "arguments_invalid")
    assert (recorded["call"], recorded["reason"]) == (reason["reference"], "arguments_invalid")
    assert crm.sent("tools/call") == []


@pytest.mark.slow("fills a database")
async def test_instructions_include_only_servers_that_the_caller_may_use(running):
    async with running(
        {"instructions": "servers"}, crm=offering("x"), time=offering("now")
    ) as gateway:
        told = []
        for scope in ("mcp:*", "mcp:time:*"):
            headers = bearer(await gateway.key("anna", scope))
            told.append((await gateway.http.ask("server/discover", headers=headers)).json["result"])

    assert [each["instructions"] for each in told] == [
        "crm:\nBe kind.\n\ntime:\nBe kind.",
        "time:\nBe kind.",
    ]


PLAIN = {"views": {"all": {"names": "plain"}}}


async def test_plain_names_that_clash_are_refused_at_the_start(running):
    with pytest.raises(ConfigError, match=r"'x' \(crm:x and time:x\); deny one of them"):
        async with running(PLAIN, crm=offering("x"), time=offering("now", "x")):
            pass


@pytest.mark.slow("fills a database")
async def test_reload_with_clashing_plain_names_is_refused_and_changes_nothing(running):
    crm, time = offering("x"), offering("now", "x")
    async with running(PLAIN, crm=crm) as gateway:
        key = await gateway.key()
        with pytest.raises(ConfigError, match="two tools with the plain name 'x'"):
            await gateway.reload(PLAIN, crm=crm, time=time)
        denied = {"views": {"all": {"names": "plain", "tools": {"deny": ["time:x"]}}}}
        assert await gateway.names(key, "/mcp/all") == ["x"]
        await gateway.reload(denied, crm=crm, time=time)
        assert await gateway.names(key, "/mcp/all") == ["x", "now"]


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize(
    ("kind", "store", "method"),
    [
        ("keys", KeyStore, "changed"),
        ("credentials", CredentialStore, "changed"),
        ("approvals", ApprovalStore, "changed"),
        ("pins", PinStore, "changed"),
        ("plugins", PluginStore, "list"),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
async def test_unexpected_error_does_not_end_the_watch_for_changes(
    running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Kind, store: Any, method: str
):
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)
    (tmp_path / "crm.json").write_text(json.dumps(API))
    api = {"openapi": {"document": "crm.json", "baseUrl": "http://127.0.0.1:9", "tools": {}}}
    looks = 0

    async def fail(_: Any) -> None:
        nonlocal looks
        looks += 1
        raise RuntimeError("unexpected")

    settings = {"plugins": {"folder": "plugins", "server": "api"}}
    async with running(settings, api=api) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr(store, method, fail)
            while looks < 2:
                await gateway.assembly.services.database.write(
                    lambda each: note_change(each, kind, "")
                )
                await asyncio.sleep(0.01)


@pytest.mark.slow("fills a database")
async def test_idle_gateway_polls_its_database_once_for_all_followers(
    running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)
    (tmp_path / "crm.json").write_text(json.dumps(API))
    api = {"openapi": {"document": "crm.json", "baseUrl": "http://127.0.0.1:9", "tools": {}}}
    work_of_the_feed, works = "ChangeFeed._added_kinds", list[str]()
    read = Database.read

    async def noted(database: Database, work: Work[Any]) -> Any:
        works.append(work.__qualname__)
        return await read(database, work)

    monkeypatch.setattr(Database, "read", noted)

    async def until_idle_for(reads: int) -> None:
        while works[-reads:] != [work_of_the_feed] * reads:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    settings = {"plugins": {"folder": "plugins", "server": "api"}}
    async with running(settings, api=api):
        await until_idle_for(5)
        del works[:]
        while len(works) < 20:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    assert {*works} == {work_of_the_feed}


# Calls and rights across a reload


class Waiting:
    """A server whose tool "x" answers once `go_on` is set."""

    def __init__(self) -> None:
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        self.server = offering("x")
        self.server.answers["tools/call"] = self._answer

    async def _answer(self, _: Json) -> Json:
        self.arrived.set()
        await self.go_on.wait()
        return text("done")


@pytest.mark.slow("fills a database")
async def test_running_call_is_answered_although_a_reload_removes_its_server(running):
    crm, time = Waiting(), offering("now")
    async with running(crm=crm.server, time=time) as gateway:
        key = await gateway.key()
        call = asyncio.create_task(gateway.call("crm__x", key))
        await crm.arrived.wait()
        reload = asyncio.create_task(gateway.reload({}, time=time))
        while await gateway.names(key) != ["time__now"]:
            pass
        crm.go_on.set()

        assert (await call).text == "done"
        await reload
        assert (await gateway.call("crm__x", key)).error == -32602


@pytest.mark.slow("fills a database")
async def test_reload_that_withdraws_a_right_affects_open_sessions(running):
    crm = offering("x")
    async with running(crm=crm) as gateway:
        headers = bearer(await gateway.key())
        session = await gateway.http.initialize(headers=headers)
        assert (await session.call("crm__x", {})).text == "done"

        await gateway.reload({"policy": READ_ONLY}, crm=crm)

        assert (await session.call("crm__x", {})).error == -32602
        assert (await session.ask("ping")).code == 200
        assert len(crm.sent("tools/call")) == 1


@pytest.mark.slow("fills a database")
async def test_removed_view_gets_404_and_its_keys_are_refused(running):
    crm = offering("x")
    async with running({"views": {"desk": {"servers": ["crm"]}}}, crm=crm) as gateway:
        free, bound = await gateway.key(), await gateway.key(view="desk")
        assert await gateway.names(bound) == ["crm__x"]

        await gateway.reload({}, crm=crm)

        assert (await gateway.call("crm__x", free, "/mcp/desk")).code == 404
        assert await gateway.names(bound) == []
        assert (await gateway.call("crm__x", bound)).error == -32602
        assert await gateway.names(free) == ["crm__x"]


@pytest.mark.slow("fills a database")
async def test_metrics_counters_survive_a_reload(running):
    crm = offering("x")
    async with running(crm=crm) as gateway:
        key = await gateway.key()
        for _ in range(2):
            await gateway.call("crm__x", key)
            await gateway.reload({"limits": {"perKey": {"rate": "9/min"}}}, crm=crm)
        lines = (await gateway.http.request("GET", "/metrics")).body.decode().splitlines()

    assert 'interlock_calls_total{server="crm",outcome="ok"} 2' in lines


@pytest.mark.slow("fills a database")
async def test_disabled_server_is_refused_with_its_reason_and_enabled_again_it_is_back(running):
    crm = offering("x")
    async with running(crm=crm) as gateway:
        key = await gateway.key()
        await gateway.reload({}, crm=(crm, {"enabled": False}))
        assert await gateway.names(key) == []
        refused = (await gateway.call("crm__x", key)).json["result"]
        assert refused["_meta"]["interlock/reason"]["code"] == "server_disabled"

        await gateway.reload({}, crm=crm)
        assert await gateway.names(key) == ["crm__x"]


@pytest.mark.slow("fills a database")
async def test_reduced_scopes_of_a_key_apply_to_open_sessions(running):
    crm = offering("x")
    async with running(crm=crm, time=offering("now")) as gateway:
        made, key = await gateway.keys.create("anna", scopes=("mcp:*",))
        await gateway.assembly.services.keys.refresh()
        session = await gateway.http.initialize(headers=bearer(key))
        assert (await session.call("crm__x", {})).text == "done"

        await gateway.keys.change(made.id, lambda key: replace(key, scopes=("mcp:time:*",)))
        await gateway.assembly.services.keys.refresh()

        assert await gateway.names(key) == ["time__now"]
        assert (await session.call("crm__x", {})).error == -32602
        assert (await gateway.call("crm__x", key)).error == -32602
        assert len(crm.sent("tools/call")) == 1
