"""What one server offers, kept as new as the server allows."""

from __future__ import annotations

import asyncio

import pytest

from interlock.config import HttpServer
from interlock.toolbox import Toolbox, server_lists
from interlock.toolbox.server_lists import LIST_TTL, REFRESH_PAUSE
from tests.servers import evil_http
from tests.servers.evil_http import EvilHttp
from tests.support.clock import SetClock
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, tool
from tests.toolbox.upstreams import call, fail, listing_program, served, settle, started

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@each_row("revision", [LEGACY, MODERN])
async def test_changed_list_is_requested_again(revision: str):
    changes: list[str] = []
    changed = asyncio.Event()

    def on_change() -> None:
        changes.append("changed")
        changed.set()

    server = served(tool("old"), revision=revision)
    server.answers["subscriptions/listen"] = lambda _: None
    async with started(server, on_change=on_change) as upstream:
        server.answers["tools/list"] = {"tools": [tool("new")]}
        changed.clear()
        server.notify("notifications/tools/list_changed")
        await changed.wait()

        assert [each.tool.name for each in upstream.entries] == ["new"]
        assert await call(upstream, "new") == "done"


async def test_change_during_listing_causes_another_listing_after_the_gap(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(server_lists, "REFRESH_GAP", 0.01)
    lists = [["old"], ["middle"], ["new"]]

    def answer(_: Json) -> Json:
        names = lists.pop(0)
        if names == ["middle"]:
            server.notify("notifications/tools/list_changed")
        return {"tools": [tool(name) for name in names]}

    server = served()
    server.answers["tools/list"] = answer
    async with started(server) as upstream:
        server.notify("notifications/tools/list_changed")
        while [each.tool.name for each in upstream.entries] != ["new"]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert lists == []


async def test_constant_changes_are_listed_at_intervals(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(server_lists, "REFRESH_GAP", 3600.0)
    server = served()
    async with started(server) as upstream:
        upstream._lists._refreshed_at = -7200.0

        def change_again(_: Json) -> Json:
            server.notify("notifications/tools/list_changed")
            return {"tools": [tool("x")]}

        server.answers["tools/list"] = change_again
        for _ in range(10):
            server.notify("notifications/tools/list_changed")
            await settle()
        assert len(server.sent("tools/list")) == 2  # the first one, and one for the first change
        assert await call(upstream) == "done"


async def test_changes_of_other_lists_are_ignored():
    server = served()
    async with started(server):
        server.notify("notifications/prompts/list_changed")
        server.notify("notifications/resources/list_changed")
        await settle()

    assert len(server.sent("tools/list")) == 1


@pytest.mark.parametrize(("ttl_ms", "seconds"), [(0, LIST_TTL), (5_000, 5.0)])
async def test_expired_list_is_refreshed(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch, ttl_ms: int, seconds: float
):
    monkeypatch.setattr("interlock.client.cache.monotonic", clock)
    server = served()
    server.answers["tools/list"] = {"tools": [], "ttlMs": ttl_ms}
    async with started(server) as upstream:
        clock.now += seconds - 0.1
        await upstream.refresh()
        assert len(server.sent("tools/list")) == 1
        clock.now += 0.1
        await upstream.refresh()
        assert len(server.sent("tools/list")) == 2


async def test_list_that_cannot_be_refreshed_is_kept(clock: SetClock):
    server = served()
    async with started(server) as upstream:
        server.answers["tools/list"] = fail
        clock.now += LIST_TTL
        await upstream.refresh()

        assert [each.tool.name for each in upstream.entries] == ["x"]
        assert upstream.status.state == "ok"

        await upstream.refresh()  # not again and again: a mute server would hold up every turn
        assert len(server.sent("tools/list")) == 2
        clock.now += REFRESH_PAUSE
        await upstream.refresh()
        assert len(server.sent("tools/list")) == 3


@pytest.mark.slow("starts a program")
async def test_refresh_failure_is_logged_without_secrets(
    clock: SetClock, caplog: pytest.LogCaptureFixture
):
    async with Toolbox({"s": listing_program(lists=1)}) as toolbox:
        clock.now += LIST_TTL
        await toolbox.refresh()
        assert toolbox.status["s"].state == "ok"

    assert "tools not refreshed: no list for ***" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.usefixtures("nothing_is_left")
async def test_refresh_that_finds_no_server_marks_it_down(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.client.retries.FIRST_PAUSE", 0.001)
    async with (
        EvilHttp(evil_http.LEGACY) as server,
        Toolbox({"s": HttpServer(url=server.url)}) as toolbox,
    ):
        await server.heard("GET")
        await server.stop()
        clock.now += LIST_TTL
        await toolbox.refresh()
        assert toolbox.status["s"].state == "down"
